"""Answers written from the canonical form of a task alone: chains of its point-wise lines become kernels.

    t2 = self.m1(t1)                    def f1(x, y): ...                      x + y, then relu
    t3 = t2 + in0
    t4 = F.relu(t3)          ->         def forward(self, in0):
    t5 = self.m2(t4)                        t4 = f1(t2, in0)
    t6 = F.relu(t5)                         t6 = f2(t5)
    return t6                               return t6

They are what a small policy can write for a network of many layers, whoever wrote it.
"""

from __future__ import annotations

import functools
import random
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from drkernel.policy.canonical import canonical
from drkernel.tasks.graphs.ops import OPS
from drkernel.types import Task

MOST_KERNELS = 3
_CALLS = {
    **{f"F.{name}": name for name in "relu leaky_relu silu elu selu celu mish hardswish softplus logsigmoid".split()},
    **{f"F.{name}": name for name in "softsign hardsigmoid relu6 hardtanh softshrink tanhshrink hardshrink".split()},
    **{f"torch.{name}": name for name in "tanh sigmoid sin cos abs exp expm1 log1p erf".split()},
    "F.gelu": "gelu",
}
"""Operators by how they are called in a canonical form."""
_GIVEN = {"negative_slope": 0.01, "alpha": 1.0, "lambd": 0.5, "min_val": -1.0, "max_val": 1.0}
_FORMULAS = {
    "torch.sqrt": "v = tl.sqrt(v)",
    "torch.rsqrt": "v = 1.0 / tl.sqrt(v)",
    "torch.log": "v = tl.log(v)",
    "torch.reciprocal": "v = 1.0 / v",
    "torch.square": "v = v * v",
}
_POWERS = {"2": "v = v * v", "3": "v = v * v * v", "0.5": "v = tl.sqrt(v)"}
_PAIRS = {"torch.maximum": "tl.maximum({}, {})", "torch.minimum": "tl.minimum({}, {})"}
_NUMBER = r"-?\d+(?:\.\d+)?(?:e-?\d+)?"
_VALUE = r"(?:t|in)\d+"
_CALL = re.compile(rf"([\w.]+)\(({_VALUE})((?:, \w+=[^,()]+)*)\)")
_SIGN = re.compile(rf"({_VALUE}|{_NUMBER}) ([-+*/]) ({_VALUE}|{_NUMBER})")
_PAIR = re.compile(rf"(torch\.m\w+imum)\(({_VALUE}), ({_VALUE})\)")
_KERNEL = """\
@triton.jit
def kernel{number}({pointers}, T, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    m = i < T
    v = tl.load(x_ptr + i, mask=m)
{lines}
    tl.store(o_ptr + i, v, mask=m)
def f{number}({arguments}):
{contiguous}
    o = torch.empty_like(x)
    T = o.numel()
    kernel{number}[triton.cdiv(T, 1024),]({arguments}, o, T, BLOCK=1024)
    return o
"""
_CHANNELS = """\
@triton.jit
def kernel{number}({pointers}, HW, C, BLOCK: tl.constexpr):
    p = tl.program_id(0)
    c = p % C
    j = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    m = j < HW
    i = p * HW + j
    v = tl.load(x_ptr + i, mask=m)
{lines}
    tl.store(o_ptr + i, v, mask=m)
def f{number}({arguments}):
{contiguous}
    o = torch.empty_like(x)
    B, C = x.shape[:2]
    HW = x[0, 0].numel()
    kernel{number}[B * C, triton.cdiv(HW, 1024)]({arguments}, o, HW, C, BLOCK=1024)
    return o
"""
"""Where a parameter has one number a channel."""
_ARGUMENTS = "xyzw"
_BATCH_NORM = re.compile(rf"(self\.m\d+)\(({_VALUE})\)  # F\.batch_norm\(weight, bias(?:, eps=([^)]*))?\)(?:;.*)?")
_WITH_CHANNELS = re.compile(rf"({_VALUE}) ([-+*/]) (self\.m\d+(?:\.\w+)?)")


@dataclass(frozen=True)
class Step:
    """A point-wise line."""

    makes: str
    formula: tuple[str, ...]
    """On `v`; `{0}` and `{1}` are its operands where it has two."""
    operands: tuple[str, ...]
    held: tuple[str, ...] = ()
    """Parameters with one number a channel: `{p0}`, `{p1}`, ... in the formula."""


@dataclass(frozen=True)
class Chain:
    """Steps of which each takes what the one before makes, which nothing else needs."""

    steps: tuple[Step, ...]
    inputs: tuple[str, ...]
    held: tuple[str, ...]
    lines: tuple[str, ...]
    """Of the kernel."""


def by_lines(task: Task) -> str | None:
    """A submission of this kind; None where the task has no point-wise lines on values of one shape."""
    form = canonical(task.source, task.entry_point)
    if not form.lines or "float16" in form.text:
        return None
    head, *lines = form.text.splitlines()
    found = Counter[tuple[str, ...]]()
    every = list(chains(head, lines))
    for chain in every:
        found[chain.lines] += len(chain.steps)
    if not found:
        return None
    most = random.Random(f"lines/{task.id}").choice((1, 1, 2, 2, MOST_KERNELS))
    numbers = {kernel: number for number, (kernel, _) in enumerate(found.most_common(most), 1)}
    calls = {c.steps[-1].makes: f"f{numbers[c.lines]}({', '.join([*c.inputs, *c.held])})" for c in every if c.lines in numbers}
    body = [f"    {made} = {call}" for made, call in calls.items()] + [lines[-1]]
    one = {chain.lines: chain for chain in every}
    kernels = [_kernel(number, one[kernel]) for kernel, number in numbers.items()]
    return form.submission("".join(kernels) + "\n".join([head.partition("  #")[0], *body]) + "\n", task.answer_name)


def chains(head: str, lines: Sequence[str]) -> Iterator[Chain]:
    """The longest chains, from the first line on."""
    shapes = _shapes(head, lines)
    text = "\n".join(line.partition("  #")[0] for line in lines)
    uses = Counter(re.findall(rf"\b{_VALUE}\b", text))
    steps = {step.makes: step for line in lines if (step := _step(line, shapes))}
    users: dict[str, list[Step]] = {}
    for step in steps.values():
        for operand in set(step.operands):
            users.setdefault(operand, []).append(step)
    taken: set[str] = set()
    for step in steps.values():
        if step.makes in taken:
            continue
        chain = [step]
        while True:
            last = chain[-1].makes
            inner = {s.makes for s in chain}
            nexts = [s for s in users.get(last, []) if s.makes not in taken]
            count = lambda value: sum(s.operands.count(value) for s in [*chain, *nexts[:1]])
            if len(nexts) != 1 or uses[last] - 1 != nexts[0].operands.count(last):
                break
            if any(uses[value] - 1 > count(value) for value in inner):
                break
            chain.append(nexts[0])
        made = _chain(chain)
        if made:
            taken |= {s.makes for s in made.steps}
            yield made


def _chain(steps: list[Step]) -> Chain | None:
    """A chain as a kernel, shorter where it has too many inputs."""
    values = {step.makes for step in steps}
    inputs = [steps[0].operands[0]]
    for step in steps:
        inputs += [o for o in step.operands if o not in values and o not in inputs]
    if len(inputs) > len(_ARGUMENTS):
        return _chain(steps[:-1]) if len(steps) > 1 else None
    again = {o for place, step in enumerate(steps) for o in step.operands if place and o != steps[place - 1].makes}
    names: dict[str, str] = {}
    lines: list[str] = []

    def keep(value: str) -> None:
        if value in again:
            names[value] = f"k{len(names)}"
            lines.append(f"{names[value]} = v")

    keep(inputs[0])
    last = inputs[0]
    held: list[str] = []
    for step in steps:
        for operand in step.operands:
            if operand != last and operand not in names:
                names[operand] = f"{_ARGUMENTS[inputs.index(operand)]}"
                lines.append(f"{names[operand]} = tl.load({names[operand]}_ptr + i, mask=m)")
        given = ["v" if operand == last else names[operand] for operand in step.operands]
        words = {f"{{p{k}}}": f"p{len(held) + k}" for k in range(len(step.held))} | {"{0}": given[0], "{1}": given[-1]}
        lines += [f"{name} = tl.load({name}_ptr + c)" for name in [*words.values()][: len(step.held)]]
        lines += [functools.reduce(lambda text, word: text.replace(*word), words.items(), f) for f in step.formula]
        held += step.held
        last = step.makes
        keep(last)
    return Chain(tuple(steps), tuple(inputs), tuple(held), tuple(lines))


def _step(line: str, shapes: Mapping[str, str]) -> Step | None:
    made, _, call = line.partition("  #")[0].strip().partition(" = ")
    formula: Sequence[str] = ()
    held: tuple[str, ...] = ()
    channels = re.findall(r"\d+", shapes.get(made, ""))[1:2]
    if match := _SIGN.fullmatch(call):
        first, sign, second = match.groups()
        operands = tuple(o for o in (first, second) if re.fullmatch(_VALUE, o))
        both = ["{0}" if re.fullmatch(_VALUE, first) else first, "{1}" if re.fullmatch(_VALUE, second) else second]
        formula = [f"v = {both[0]} {sign} {both[1]}"]
    elif (match := _BATCH_NORM.fullmatch(line.strip().partition(" = ")[2])) and shapes.get(made, "").count(",") > 1:
        operands, formula = (match[2],), [f"v = (v - {{p0}}) / tl.sqrt({{p1}} + {match[3] or '1e-05'}) * {{p2}} + {{p3}}"]
        held = tuple(f"{match[1]}.{name}" for name in ("running_mean", "running_var", "weight", "bias"))
    elif (match := _WITH_CHANNELS.fullmatch(call)) and channels:
        ones = ", 1" * (shapes[made].count(",") - 1)
        if shapes.get(match[3].removeprefix("self.")) not in (f"({channels[0]}{ones})", f"(1, {channels[0]}{ones})"):
            return None
        operands, formula, held = (match[1],), [f"v = v {match[2]} {{p0}}"], (match[3],)
    elif match := _PAIR.fullmatch(call):
        operands = (match[2], match[3])
        formula = [f"v = {_PAIRS[match[1]].format('{0}', '{1}')}"]
    elif match := re.fullmatch(rf"({_VALUE}) \*\* ({_NUMBER})", call):
        operands, formula = (match[1],), [_POWERS[match[2]]] if match[2] in _POWERS else []
    elif match := re.fullmatch(rf"-({_VALUE})", call):
        operands, formula = (match[1],), ["v = -v"]
    elif match := _CALL.fullmatch(call):
        operands, formula = (match[2],), _formula(match[1], match[3])
    else:
        return None
    alike = {shapes.get(value) for value in (made, *operands)}
    return Step(made, tuple(formula), operands, held) if formula and len(alike) == 1 and None not in alike else None


def _formula(call: str, words: str) -> Sequence[str]:
    """The lines of a kernel that compute a call with these words."""
    given = {name: value for name, value in re.findall(r"(\w+)=([^,]+)", words)}
    if call == "torch.clamp":
        low, high = given.get("min"), given.get("max")
        inner = f"tl.maximum(v, {low})" if low else "v"
        return [f"v = tl.minimum({inner}, {high})" if high else f"v = {inner}"]
    if call in _FORMULAS and not given:
        return [_FORMULAS[call]]
    name = _CALLS.get(call)
    if name == "gelu" and given.pop("approximate", "'none'") == "'tanh'":
        name = "gelu_tanh"
    if name is None or given.keys() - OPS[name].arguments.keys() - _GIVEN.keys():
        return []
    attributes = {**OPS[name].defaults, **_GIVEN, **{word: float(value) for word, value in given.items()}}
    return [line.format(**attributes) for line in OPS[name].triton]


def _shapes(head: str, lines: Sequence[str]) -> dict[str, str]:
    """The shape of each value of floats and of each parameter that the form tells."""
    found = {m[1]: m[2] for m in re.finditer(r"\b(in\d+): (\([\d, ]*\))", head)}
    found |= {m[1]: m[2] for m in re.finditer(r"\b(m\d+(?:\.\w+)?): (\([\d, ]*\))", "\n".join(lines))}
    for line in lines:
        match = re.match(r"\s*(t\d+) = (.*?)(?:  #(.*))?$", line)
        if not match:
            continue
        told = re.search(r"(?:^|; | )(\w+ )?(\([\d, ]*\))$", match[3] or "")
        first = re.search(rf"\b{_VALUE}\b", match[2])
        if told and not told[1] and not re.search(r"\b(m\d+[.\w]*|weight|bias): \([\d, ]*\)$", match[3]):
            found[match[1]] = told[2]
        elif not told and first and first[0] in found and not re.search(r"\.(flatten|permute)\(|\[", match[2]):
            if not re.search(r"torch\.(flatten|permute|squeeze|unsqueeze)\(", match[2]):
                found[match[1]] = found[first[0]]
    return found


def _kernel(number: int, chain: Chain) -> str:
    names = _ARGUMENTS[: len(chain.inputs)]
    arguments = [*names, *(f"p{place}" for place in range(len(chain.held)))]
    return (_CHANNELS if chain.held else _KERNEL).format(
        number=number,
        pointers=", ".join(f"{name}_ptr" for name in (*arguments, "o")),
        arguments=", ".join(arguments),
        lines="\n".join(f"    {line}" for line in chain.lines),
        contiguous="\n".join(f"    {name} = {name}.contiguous()" for name in names),
    )
