"""Answers written from the canonical form of a task alone: chains of its point-wise lines become kernels.

    t2 = self.m1(t1)
    t3 = t2 + in0                       def f1(x, y): ...                      x + y, then relu
    t4 = F.relu(t3)                     def f2(x): ...                         relu
    t5 = self.m2(t4)         ->         def forward(self, in0):
    t6 = F.relu(t5)                         t4 = f1(t2, in0)
    return t6                               t6 = f2(t5)
                                            return t6

They are what a small policy can write for a network of many layers, whoever wrote it.
"""

from __future__ import annotations

import ast
import itertools
import random
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from drkernel.policy.canonical import canonical
from drkernel.policy.canonical.edits import Line
from drkernel.tasks.graphs.ops import OPS
from drkernel.types import Task

MOST_KERNELS = 3
_OF_F = """relu leaky_relu silu gelu elu selu celu mish hardswish softplus logsigmoid softsign hardsigmoid relu6
hardtanh softshrink tanhshrink hardshrink"""
_OF_TORCH = "tanh sigmoid sin cos abs exp expm1 log1p erf"
_OPERATORS = {f"F.{name}": name for name in _OF_F.split()} | {f"torch.{name}": name for name in _OF_TORCH.split()}
"""Operators of the generator by how forms call them."""
_DEFAULTS = {"negative_slope": 0.01, "alpha": 1.0, "lambd": 0.5, "min_val": -1.0, "max_val": 1.0}
_FORMULAS = {
    "torch.sqrt": "v = tl.sqrt(v)",
    "torch.rsqrt": "v = 1.0 / tl.sqrt(v)",
    "torch.log": "v = tl.log(v)",
    "torch.reciprocal": "v = 1.0 / v",
    "torch.square": "v = v * v",
}
_POWERS = {2: "v = v * v", 3: "v = v * v * v", 0.5: "v = tl.sqrt(v)"}
_SIGNS = {ast.Add: "+", ast.Sub: "-", ast.Mult: "*", ast.Div: "/"}
_PAIRS = {"torch.maximum": "tl.maximum", "torch.minimum": "tl.minimum"}
_KERNEL = """\
@triton.jit
def kernel{number}({pointers}, {sizes}, BLOCK: tl.constexpr):
{index}
    v = tl.load(x_ptr + i, mask=m)
{lines}
    tl.store(o_ptr + i, v, mask=m)
def f{number}({arguments}):
{contiguous}
    o = torch.empty_like(x)
{measured}
    kernel{number}[{grid}]({arguments}, o, {sizes}, BLOCK=1024)
    return o
"""
_FLAT = {
    "sizes": "T",
    "index": "    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)\n    m = i < T",
    "measured": "    T = o.numel()",
    "grid": "triton.cdiv(T, 1024),",
}
_WITH_CHANNELS = {
    "sizes": "HW, C",
    "index": "    p = tl.program_id(0)\n    c = p % C\n    j = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)\n"
    "    m = j < HW\n    i = p * HW + j",
    "measured": "    B, C = x.shape[:2]\n    HW = x[0, 0].numel()",
    "grid": "B * C, triton.cdiv(HW, 1024)",
}
"""How a kernel goes through its tensors; with channels where a parameter has one number a channel."""
_BATCH_NORM = re.compile(r" F\.batch_norm\(weight, bias(?:, eps=([^)]*))?\)")
_NAMES = "xyzw"
"""Of the tensors that a kernel reads; no kernel reads more."""

Shapes = Mapping[str, tuple[int, ...]]


@dataclass(frozen=True)
class Step:
    """A point-wise line."""

    formula: tuple[str, ...]
    """Lines on `v`; {0} and {1} are the operands, {p0}, {p1}, ... the parameters."""
    operands: tuple[str, ...]
    held: tuple[str, ...] = ()
    """Parameters with one number a channel."""
    makes: str = ""


@dataclass(frozen=True)
class Chain:
    """Steps of which each takes what the one before makes, which nothing else needs."""

    steps: tuple[Step, ...]
    inputs: tuple[str, ...]
    lines: tuple[str, ...]
    """Of the kernel. Chains with the same lines share it."""

    @property
    def held(self) -> list[str]:
        return [name for step in self.steps for name in step.held]


def by_lines(task: Task) -> str | None:
    """A submission of this kind, the same at each call; None where the task has no point-wise lines on float32 values
    of one shape."""
    form = canonical(task.source, task.entry_point)
    every = list(chains(form.lines, form.shapes))
    if not every:
        return None
    steps = Counter[tuple[str, ...]]()
    for chain in every:
        steps[chain.lines] += len(chain.steps)
    most = random.Random(f"lines/{task.id}").choice((1, 1, 2, 2, MOST_KERNELS))
    numbers = {lines: number for number, (lines, _) in enumerate(steps.most_common(most), 1)}
    one = {chain.lines: chain for chain in every}
    head, *_, last = form.text.splitlines()
    answer = [_kernel(number, one[lines]) for lines, number in numbers.items()] + [f"{head.partition('  #')[0]}\n"]
    for chain in every:
        if number := numbers.get(chain.lines):
            answer.append(f"    {chain.steps[-1].makes} = f{number}({', '.join([*chain.inputs, *chain.held])})\n")
    return form.submission("".join([*answer, last, "\n"]), task.answer_name)


def chains(lines: Sequence[Line], shapes: Shapes) -> Iterator[Chain]:
    """The longest chains, from the first line on."""
    uses = Counter(name for line in lines for name in line.reads)
    steps = [step for line in lines if (step := _step(line, shapes))]
    taken: set[str] = set()
    for step in steps:
        if step.makes not in taken:
            longest = [step]
            while following := _following(longest, [s for s in steps if s.makes not in taken], uses):
                longest.append(following)
            if chain := _chain(longest):
                taken |= {s.makes for s in chain.steps}
                yield chain


def _following(chain: Sequence[Step], steps: Sequence[Step], uses: Mapping[str, int]) -> Step | None:
    """The step behind a chain, where nothing but it needs what the chain makes."""
    takers = [step for step in steps if chain[-1].makes in step.operands]
    whole = [*chain, *takers]
    alone = all(uses[s.makes] == sum(s.makes in other.operands for other in whole) for s in chain)
    return takers[0] if len(takers) == 1 and alone else None


def _chain(steps: Sequence[Step]) -> Chain | None:
    """The kernel of a chain; of fewer steps where it would read too many tensors."""
    values = {step.makes for step in steps}
    inputs = list(dict.fromkeys(o for step in steps for o in step.operands if o not in values))
    first = steps[0].operands[0]
    if len(inputs) > len(_NAMES):
        return _chain(steps[:-1]) if len(steps) > 1 else None
    again = {o for before, step in itertools.pairwise(steps) for o in step.operands if o != before.makes}
    names: dict[str, str] = {}
    lines: list[str] = []
    held = 0

    def keep(value: str) -> None:
        if value in again:
            names[value] = f"k{len(names)}"
            lines.append(f"{names[value]} = v")

    keep(first)
    last = first
    for step in steps:
        for operand in step.operands:
            if operand != last and operand not in names:
                names[operand] = _NAMES[inputs.index(operand)]
                lines.append(f"{names[operand]} = tl.load({names[operand]}_ptr + i, mask=m)")
        given = ["v" if operand == last else names[operand] for operand in step.operands]
        parameters = {f"p{place}": f"p{held + place}" for place in range(len(step.held))}
        lines += [f"{name} = tl.load({name}_ptr + c)" for name in parameters.values()]
        lines += [line.format(*given, **parameters) for line in step.formula]
        held, last = held + len(step.held), step.makes
        keep(last)
    return Chain(tuple(steps), tuple(inputs), tuple(lines))


def _step(line: Line, shapes: Shapes) -> Step | None:
    call, _, beside = line.told.partition("  #")
    if call != line.text:  # it has a size in it, which a kernel would keep
        return None
    statement = ast.parse(call).body[0]
    step = _pointwise(statement.value, beside) if isinstance(statement, ast.Assign) and len(line.makes) == 1 else None
    if step is None:
        return None
    shape = shapes.get(line.makes[0])
    if shape is None or any(shapes.get(operand) != shape for operand in step.operands):
        return None
    ones = (1,) * len(shape[2:])
    per_channel = [(*shape[1:2], *ones), (1, *shape[1:2], *ones)]
    known = [shapes[name] for name in step.held if name in shapes]  # a module's own are not told
    if step.held and (len(shape) < 3 or any(parameter not in per_channel for parameter in known)):
        return None
    return Step(step.formula, step.operands, step.held, line.makes[0])


def _pointwise(node: ast.expr, beside: str) -> Step | None:
    """A call that may be point-wise, whatever the shapes."""
    match node:
        case ast.UnaryOp(ast.USub(), ast.Name(value)):
            return Step(("v = -v",), (value,))
        case ast.BinOp(ast.Name(value), ast.Pow(), ast.Constant(float() | int() as power)):
            return Step((_POWERS[power],), (value,)) if power in _POWERS else None
        case ast.BinOp(ast.Name(value), sign, ast.Attribute() as held) if type(sign) in _SIGNS:
            return Step((f"v = v {_SIGNS[type(sign)]} {{p0}}",), (value,), (ast.unparse(held),))
        case ast.BinOp(left, sign, right) if type(sign) in _SIGNS:
            values = [side.id for side in (left, right) if isinstance(side, ast.Name)]
            places = iter(("{0}", "{1}"))
            sides = [next(places) if isinstance(side, ast.Name) else ast.unparse(side) for side in (left, right)]
            whole = len(values) == sum(not _is_number(side) for side in (left, right))
            return Step((f"v = {sides[0]} {_SIGNS[type(sign)]} {sides[1]}",), tuple(values)) if whole else None
        case ast.Call(ast.Attribute(ast.Name("self"), name), [ast.Name(value)]) if norm := _BATCH_NORM.match(beside):
            parts = tuple(f"self.{name}.{part}" for part in ("running_mean", "running_var", "weight", "bias"))
            eps = norm[1] or "1e-05"
            return Step((f"v = (v - {{p0}}) / tl.sqrt({{p1}} + {eps}) * {{p2}} + {{p3}}",), (value,), parts)
        case ast.Call(function, [ast.Name(first), ast.Name(second)], []) if ast.unparse(function) in _PAIRS:
            return Step((f"v = {_PAIRS[ast.unparse(function)]}({{0}}, {{1}})",), (first, second))
        case ast.Call(function, [ast.Name(value)], words):
            formula = _formula(ast.unparse(function), {str(w.arg): ast.unparse(w.value) for w in words})
            return Step(formula, (value,)) if formula else None
    return None


def _is_number(node: ast.expr) -> bool:
    return isinstance(node.operand if isinstance(node, ast.UnaryOp) else node, ast.Constant)


def _formula(call: str, words: dict[str, str]) -> tuple[str, ...]:
    """The lines of a kernel that compute a call with these words; none where it is not known."""
    if call == "torch.clamp":
        low, high = words.get("min"), words.get("max")
        inner = f"tl.maximum(v, {low})" if low else "v"
        return (f"v = tl.minimum({inner}, {high})" if high else f"v = {inner}",)
    if call in _FORMULAS and not words:
        return (_FORMULAS[call],)
    name = _OPERATORS.get(call)
    if name == "gelu" and words.pop("approximate", "") == "'tanh'":
        name = "gelu_tanh"
    if name is None or words.keys() - OPS[name].arguments.keys() - _DEFAULTS.keys():
        return ()
    given = {**OPS[name].defaults, **_DEFAULTS, **{word: float(value) for word, value in words.items()}}
    return tuple(line.format(**given) for line in OPS[name].triton)


def _kernel(number: int, chain: Chain) -> str:
    names = _NAMES[: len(chain.inputs)]
    arguments = [*names, *(f"p{place}" for place in range(len(chain.held)))]
    return _KERNEL.format(
        **(_WITH_CHANNELS if chain.held else _FLAT),
        number=number,
        pointers=", ".join(f"{name}_ptr" for name in (*arguments, "o")),
        arguments=", ".join(arguments),
        lines="\n".join(f"    {line}" for line in chain.lines),
        contiguous="\n".join(f"    {name} = {name}.contiguous()" for name in names),
    )
