"""Variants of a task that somebody wrote: other sizes, numbers, operators and steps in the same program.

A generator writes what its author thought of. A few hundred tasks by other hands, each as often as wanted with some of
these changes, have forms that no generator has:

    sizes       numbers that are equal stay equal
    numbers     factors, slopes, epsilons
    arguments   dimensions, windows, strides, groups, how often a block comes
    operators   an activation for an activation, a pool for a pool, a sum for a mean
    steps       one more behind a line of `forward`, one less

A variant may be no program that runs: whoever draws it looks.
"""

from __future__ import annotations

import ast
import hashlib
import random
from collections.abc import Callable, Iterator, Sequence
from fractions import Fraction

from drkernel.tasks.precision import with_precision
from drkernel.types import Task

_LEAST_SIZE = 16
"""Smaller numbers are taken for something else than sizes, but for those that stand for themselves in a module."""
_MOST_SIZE = 4096
_FACTORS = (Fraction(1, 2), Fraction(3, 4), Fraction(1), Fraction(1), Fraction(5, 4), Fraction(3, 2), Fraction(2))

_ALIKE: dict[str, tuple[str, ...]] = {
    "function": (
        *("relu", "gelu", "silu", "elu", "selu", "celu", "softplus", "mish", "hardswish", "hardsigmoid", "leaky_relu"),
        *("relu6", "logsigmoid", "softsign", "tanhshrink", "hardtanh", "hardshrink", "softshrink", "sigmoid", "tanh"),
    ),
    "method": ("relu", "sigmoid", "tanh", "exp", "abs", "sin", "cos", "square", "erf", "neg", "atan", "sinh"),
    "module": (
        *("ReLU", "GELU", "SiLU", "ELU", "SELU", "CELU", "Softplus", "Mish", "Hardswish", "Hardsigmoid", "LeakyReLU"),
        *("ReLU6", "LogSigmoid", "Softsign", "Tanhshrink", "Hardtanh", "Hardshrink", "Softshrink", "Sigmoid", "Tanh"),
    ),
    "reduction": ("sum", "mean", "amax", "amin"),
    "spread": ("std", "var"),
    "softmax": ("softmax", "log_softmax"),
    "join": ("maximum", "minimum", "add", "sub", "mul"),
    **{f"pool{rank}": (f"max_pool{rank}d", f"avg_pool{rank}d") for rank in (1, 2, 3)},
    **{f"Pool{rank}": (f"MaxPool{rank}d", f"AvgPool{rank}d") for rank in (1, 2, 3)},
    **{f"whole{rank}": (f"adaptive_avg_pool{rank}d", f"adaptive_max_pool{rank}d") for rank in (1, 2, 3)},
    **{f"Whole{rank}": (f"AdaptiveAvgPool{rank}d", f"AdaptiveMaxPool{rank}d") for rank in (1, 2, 3)},
    **{f"Norm{rank}": (f"BatchNorm{rank}d", f"InstanceNorm{rank}d") for rank in (1, 2, 3)},
}
"""Names that stand for each other in a call with the same arguments."""
_STEPS = (
    *("F.relu({0})", "F.gelu({0})", "F.silu({0})", "torch.tanh({0})", "torch.sigmoid({0})", "F.leaky_relu({0}, 0.1)"),
    *("F.softplus({0})", "F.elu({0})", "F.hardswish({0})", "F.mish({0})", "torch.abs({0})", "{0}.square()"),
    *("{0} * 0.5", "{0} + 1.5", "{0} / 3.0", "2.0 - {0}", "{0} * {0}", "-{0}", "{0} * torch.sigmoid({0})"),
    *("torch.clamp({0}, -1.0, 1.0)", "{0}.clamp(min=0.1)", "torch.exp(-{0}.abs())", "torch.log1p({0}.abs())"),
    *("torch.sqrt({0}.abs() + 1e-06)", "torch.where({0} > 0, {0}, 0.2 * {0})", "torch.sin({0})"),
    *("F.softmax({0}, dim=-1)", "F.softmax({0}, dim=1)", "F.log_softmax({0}, dim=-1)", "F.normalize({0}, dim=-1)"),
    *("{0} - {0}.mean(dim=-1, keepdim=True)", "{0} - {0}.amax(dim=1, keepdim=True)", "F.normalize({0}, dim=1)"),
    *("{0} / ({0}.norm(dim=-1, keepdim=True) + 1e-05)", "F.layer_norm({0}, {0}.shape[-1:])", "{0}.sum(dim=-1)"),
    *("{0}.mean(dim=1, keepdim=True)", "torch.logsumexp({0}, dim=1, keepdim=True)", "{0}.amax(dim=-1)"),
    *("{0}.transpose(1, 2)", "{0}.flatten(1)", "F.instance_norm({0})", "{0}.mean(dim=(2, 3))"),
)
"""What a line is followed by."""
_SWAPPED = {
    name: (kind, names)
    for kind, names in _ALIKE.items()
    for name in names
    if kind not in ("function", "method", "module")
}
_JOINS = (ast.Add, ast.Sub, ast.Mult)

Edit = Callable[[ast.Module, random.Random], None]


def variants(tasks: Sequence[Task], seed: int | str) -> Iterator[Task]:
    """Tasks of the list in random order, without end, each changed at random."""
    draw = random.Random(f"variants/{seed}")
    while True:
        for task in draw.sample(tasks, len(tasks)):
            source = variant(task.source, draw)
            digest = hashlib.sha256(source.encode()).hexdigest()[:8]
            yield with_precision(Task(f"{task.id}/{digest}", source, split=task.split, family=task.family))


def variant(source: str, draw: random.Random) -> str:
    """The source with up to four kinds of changes, without comments; it need not run."""
    tree = ast.parse(source)
    for edit in draw.sample(EDITS, draw.choice((0, 1, 1, 2, 2, 3, 3, 4))):
        edit(tree, draw)
    return ast.unparse(ast.fix_missing_locations(tree)) + "\n"


def _sizes(tree: ast.Module, draw: random.Random) -> None:
    """Either all by the same factor, or each number by its own."""
    common = draw.choice((*_FACTORS, None, None, None, None, None))
    new: dict[int, int] = {}

    def resized(value: int) -> int:
        factors = [common] if common else draw.sample(_FACTORS, len(_FACTORS))
        wanted = [int(value * factor) for factor in factors if (value * factor).denominator == 1]
        return next((size for size in wanted if 2 <= size <= _MOST_SIZE), value)

    inputs = {id(node) for node in _of_inputs(tree)}
    for node, value in _integers(tree):
        if value >= _LEAST_SIZE or id(node) in inputs:
            new[value] = node.value = new.get(value) or resized(value)


def _numbers(tree: ast.Module, draw: random.Random) -> None:
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, float) and draw.random() < 0.4:
            node.value = float(f"{node.value * draw.choice((0.1, 0.25, 0.5, 0.8, 1.25, 2.0, 4.0, 10.0)):.3g}")


def _arguments(tree: ast.Module, draw: random.Random) -> None:
    for call in [node for node in ast.walk(tree) if isinstance(node, ast.Call)]:
        for node in [*call.args, *(word.value for word in call.keywords)]:
            for number, value in _integers(node):
                if value < _LEAST_SIZE and draw.random() < 0.15:
                    number.value = max(0, draw.choice((value - 1, value + 1, 2 * value, 1, 2)))


def _operators(tree: ast.Module, draw: random.Random) -> None:
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and draw.random() < 0.5:
            kind, names = _kind_of(node)
            plain = kind not in ("function", "method", "module") or not node.args[kind == "function" :]
            if names and plain and (kind != "module" or not node.keywords):
                node.func.attr = draw.choice(names)
        elif isinstance(node, ast.BinOp) and isinstance(node.op, _JOINS) and draw.random() < 0.15:
            whole = any(type(getattr(side, "value", None)) is int for side in (node.left, node.right))
            node.op = node.op if whole else draw.choice(_JOINS)()


def _kind_of(call: ast.Call) -> tuple[str, tuple[str, ...]]:
    """What stands for what is called; of a method, those of tensors."""
    assert isinstance(call.func, ast.Attribute)
    name, owner = call.func.attr, ast.unparse(call.func.value)
    kind = {"F": "function", "nn.functional": "function", "torch": "method", "nn": "module"}.get(owner, "method")
    if name in _ALIKE[kind]:
        return kind if owner != "torch" else "function", _ALIKE[kind]
    return _SWAPPED.get(name, ("", ()))


def _further_step(tree: ast.Module, draw: random.Random) -> None:
    body = _lines(tree)
    places = [place for place, line in enumerate(body) if _target(line) or isinstance(line, ast.Return)]
    for place in sorted(draw.sample(places, min(len(places), draw.choice((1, 1, 2)))), reverse=True):
        line = body[place]
        if isinstance(line, ast.Return) and line.value is not None:
            body.insert(place, ast.Assign([ast.Name("result", ast.Store())], line.value))
            line.value = _step("result", draw)
        elif name := _target(line):
            body.insert(place + 1, ast.Assign([ast.Name(name, ast.Store())], _step(name, draw)))


def _step(name: str, draw: random.Random) -> ast.expr:
    return ast.parse(draw.choice(_STEPS).format(name), mode="eval").body


def _step_less(tree: ast.Module, draw: random.Random) -> None:
    """Without a line that makes a value anew from itself; without what is done to what is returned."""
    body = _lines(tree)
    lines = [line for line in body if (name := _target(line)) and name in _loaded(line)]
    if lines and (len(lines) > 1 or draw.random() < 0.5):
        body.remove(draw.choice(lines))


def _target(line: ast.stmt) -> str:
    """The one name that a line makes."""
    match line:
        case ast.Assign([ast.Name(name)]):
            return name
        case _:
            return ""


def _loaded(line: ast.stmt) -> set[str]:
    return {node.id for node in ast.walk(line) if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load)}


def _lines(tree: ast.Module) -> list[ast.stmt]:
    """Those of `Model.forward`; none where the model inherits it."""
    for node in tree.body:
        if isinstance(node, ast.ClassDef) and node.name == "Model":
            own = [item.body for item in node.body if isinstance(item, ast.FunctionDef) and item.name == "forward"]
            return own[0] if own else []
    raise ValueError("a task needs a class Model")


def _integers(tree: ast.AST) -> list[tuple[ast.Constant, int]]:
    found = [node for node in ast.walk(tree) if isinstance(node, ast.Constant)]
    return [(node, node.value) for node in found if isinstance(node.value, int) and not isinstance(node.value, bool)]


def _of_inputs(tree: ast.Module) -> list[ast.Constant]:
    """Numbers that size inputs: constants of the module, and those inside of calls that make tensors."""
    held = [node.value for node in tree.body if isinstance(node, ast.Assign)]
    drawn = [node for node in tree.body if isinstance(node, ast.FunctionDef) and node.name == "get_inputs"]
    return [number for part in (*held, *drawn) for number, value in _integers(part) if value > 2]


EDITS: tuple[Edit, ...] = (_sizes, _numbers, _arguments, _operators, _further_step, _further_step, _step_less)
