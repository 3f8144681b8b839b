"""Lines of a canonical form as statements of a kernel: point-wise operators, reductions, softmax, norms, pools."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

from drkernel.coldstart.answers.known import Known, Shapes, dims_of, words_of
from drkernel.policy.canonical.formulas import divided
from drkernel.policy.canonical.told import Line
from drkernel.tasks.generators.graphs.ops import OPS

Recipe = tuple[tuple[str, str, str], ...]
"""Statements as (target, kind, expression). A kind is `sum`, `prod`, `max`, `min`, `argmax`, `argmin` of what is
reduced, `cumsum`, `cumprod` along it, or empty. {o} is the result, {0}, {1}, ... are the operands, {u}, {v}, {w} are
intermediate, {size} is the size that the step is given, N is the number of elements that are reduced."""

_OF_F = """relu leaky_relu silu gelu elu selu celu mish hardswish softplus logsigmoid softsign hardsigmoid relu6
hardtanh softshrink tanhshrink hardshrink"""
_OF_TORCH = "tanh sigmoid sin cos abs exp expm1 log1p erf"
_OPERATORS = {f"F.{name}": name for name in _OF_F.split()} | {f"torch.{name}": name for name in _OF_TORCH.split()}
"""Operators of the generator by how forms call them."""
_DEFAULTS = {"negative_slope": 0.01, "alpha": 1.0, "lambd": 0.5, "min_val": -1.0, "max_val": 1.0}
_FORMULAS = {
    "torch.sqrt": "tl.sqrt({0})",
    "torch.rsqrt": "1.0 / tl.sqrt({0})",
    "torch.log": "tl.log({0})",
    "torch.reciprocal": "1.0 / {0}",
    "torch.square": "{0} * {0}",
    "torch.neg": "-{0}",
    "torch.log2": "tl.log2({0})",
    "torch.exp2": "tl.exp2({0})",
    "torch.floor": "tl.floor({0})",
    "torch.ceil": "tl.ceil({0})",
    "torch.sign": "tl.where({0} > 0.0, 1.0, tl.where({0} < 0.0, -1.0, 0.0))",
    "torch.logical_not": "{0} == 0",
}
_POWERS = {
    2: "{0} * {0}",
    3: "{0} * {0} * {0}",
    4: "{0} * {0} * {0} * {0}",
    0.5: "tl.sqrt({0})",
    -0.5: "1.0 / tl.sqrt({0})",
    -1: "1.0 / {0}",
}
_SIGNS: dict[type[ast.AST], str] = {ast.Add: "+", ast.Sub: "-", ast.Mult: "*", ast.Div: "/"}
_COMPARISONS: dict[type[ast.AST], str] = {
    **{ast.Lt: "<", ast.LtE: "<=", ast.Gt: ">", ast.GtE: ">="},
    **{ast.Eq: "==", ast.NotEq: "!="},
}
_WITH_NUMBER = {
    "torch.add": ("alpha", "{0} + {1} * {number}"),
    "torch.sub": ("alpha", "{0} - {1} * {number}"),
    "torch.lerp": ("weight", "{0} + ({1} - {0}) * {number}"),
    "torch.addcmul": ("value", "{0} + {1} * {2} * {number}"),
    "torch.addcdiv": ("value", "{0} + {1} / {2} * {number}"),
}
"""Calls of several operands and one number, by the word for it."""
_PAIRS = {"torch.maximum": "tl.maximum", "torch.minimum": "tl.minimum"}
_VIEWS = {"torch.flatten", "torch.squeeze", "torch.unsqueeze"}

_CENTRED = (("{u}", "sum", "{0}"), ("{w}", "", "{0} - {u} / N"), ("{v}", "sum", "{w} * {w}"))
_NORM = (*_CENTRED, ("{o}", "", "{w} / tl.sqrt({v} / N + {eps}){affine}"))
_RMS_NORM = (("{v}", "sum", "{0} * {0}"), ("{o}", "", "{0} / tl.sqrt({v} / N + {eps}){affine}"))
_REDUCTIONS: dict[str, Recipe] = {
    "torch.sum": (("{o}", "sum", "{0}"),),
    "torch.mean": (("{u}", "sum", "{0}"), ("{o}", "", "{u} / N")),
    "torch.prod": (("{o}", "prod", "{0}"),),
    "torch.amax": (("{o}", "max", "{0}"),),
    "torch.amin": (("{o}", "min", "{0}"),),
    "torch.argmax": (("{o}", "argmax", "{0}"),),
    "torch.argmin": (("{o}", "argmin", "{0}"),),
    "torch.norm": (("{v}", "sum", "{0} * {0}"), ("{o}", "", "tl.sqrt({v})")),
    "torch.logsumexp": (("{u}", "max", "{0}"), ("{v}", "sum", "tl.exp({0} - {u})"), ("{o}", "", "{u} + tl.log({v})")),
    "torch.var": (*_CENTRED, ("{o}", "", "{v} / (N - 1)")),
    "torch.std": (*_CENTRED, ("{o}", "", "tl.sqrt({v} / (N - 1))")),
}
"""Calls whose result has one number for all that is reduced."""
_POOLS_OF_POWERS: dict[float | None, Recipe] = {
    1: (("{o}", "sum", "{0}"),),
    2: (("{u}", "sum", "{0} * {0}"), ("{o}", "", "tl.sqrt({u})")),
}
_COSINE: Recipe = (
    ("{u}", "sum", "{0} * {1}"),
    ("{v}", "sum", "{0} * {0}"),
    ("{w}", "sum", "{1} * {1}"),
    ("{o}", "", "{u} / (tl.maximum(tl.sqrt({v}), {eps}) * tl.maximum(tl.sqrt({w}), {eps}))"),
)
_OF_ONE = {"1", "1.0"}
"""How a norm's p is written that is not the usual one."""
_BIASED: dict[str, Recipe] = {
    "torch.var": (*_CENTRED, ("{o}", "", "{v} / N")),
    "torch.std": (*_CENTRED, ("{o}", "", "tl.sqrt({v} / N)")),
}
_OVER_DIM: dict[str, Recipe] = {
    "F.softmax": (
        ("{u}", "max", "{0}"),
        ("{w}", "", "tl.exp({0} - {u})"),
        ("{v}", "sum", "{w}"),
        ("{o}", "", "{w} / {v}"),
    ),
    "F.softmin": (
        ("{u}", "min", "{0}"),
        ("{w}", "", "tl.exp({u} - {0})"),
        ("{v}", "sum", "{w}"),
        ("{o}", "", "{w} / {v}"),
    ),
    "F.log_softmax": (
        ("{u}", "max", "{0}"),
        ("{w}", "", "{0} - {u}"),
        ("{v}", "sum", "tl.exp({w})"),
        ("{o}", "", "{w} - tl.log({v})"),
    ),
    "F.normalize": (("{v}", "sum", "{0} * {0}"), ("{o}", "", "{0} / tl.maximum(tl.sqrt({v}), {eps})")),
    "torch.cumsum": (("{o}", "cumsum", "{0}"),),
    "torch.cumprod": (("{o}", "cumprod", "{0}"),),
}
"""Calls whose result has the shape of the operand."""
_USUAL_DIM = {"F.normalize": "1"}
_CALL = re.compile(r" F\.(\w+)\((.*?)\)(?=; \(|$)")


@dataclass(frozen=True)
class Window:
    """What a pool goes through, by dimension."""

    kernel: tuple[int, ...]
    stride: tuple[int, ...]
    padding: tuple[int, ...]
    dilation: tuple[int, ...]
    is_ceil: bool = False
    """Whether the last window may end behind the padding."""


@dataclass(frozen=True)
class Step:
    """A line as statements of a kernel."""

    makes: str
    operands: tuple[str, ...]
    """Values (`t3`) and parameters (`self.m4.weight`)."""
    recipe: Recipe
    over: tuple[int, int] | None = None
    """First and last dimension that it reduces over."""
    groups: str = ""
    """How many groups of channels it reduces over, as the answer writes it, {lead} for a tensor of the operand's shape;
    empty where it has none."""
    parts: int = 1
    """The same as a number."""
    is_view: bool = False
    own: Mapping[str, tuple[int, ...]] | None = None
    """Shapes of parameters that the form does not tell, since they follow from the module's kind."""
    window: Window | None = None
    size: str = ""
    """What `forward` computes of sizes and the kernel takes as a number."""
    after: str = ""
    """What PyTorch does with the result: a call."""


def step_of(line: Line, known: Known) -> Step | None:
    """The step of a line; None where it is none of the known."""
    told, _, beside = line.told.partition("  #")
    statement, shapes = ast.parse(told).body[0], known.shapes
    if not isinstance(statement, ast.Assign) or len(line.makes) != 1 or line.makes[0] not in shapes:
        return None
    makes = line.makes[0]
    if not known.is_float(makes) and not _makes_truth(statement.value):
        return None
    if found := _norm(makes, statement.value, beside, shapes):
        general = re.search(r"num_groups=(.+?)[,)]", line.text)
        return replace(found, groups=general[1].replace(f"{found.operands[0]}.", "{lead}.")) if general else found
    if told != line.text:  # it has a size in it, which a kernel would keep
        return None
    pool = _pool(makes, statement.value, shapes)
    return pool or _reduction(makes, statement.value, shapes) or _pointwise(makes, statement.value, known)


def _makes_truth(node: ast.expr) -> bool:
    """Whether the result is no float by what is done, not by what the operands are."""
    calls = ("torch.logical_not", "torch.argmax", "torch.argmin")
    return isinstance(node, ast.Compare) or (isinstance(node, ast.Call) and ast.unparse(node.func) in calls)


def _norm(makes: str, node: ast.expr, beside: str, shapes: Shapes) -> Step | None:
    """A norm of a module, or of F with no parameters or those of a module."""
    match node:
        case ast.Call(ast.Attribute(ast.Name("self"), module), [ast.Name(value)], []) if call := _CALL.match(beside):
            name, told = call.groups()
            words = {word: text for word, _, text in (part.partition("=") for part in _parts(told)) if text}
            has = [part for part in ("weight", "bias") if re.search(rf"(^|, ){part}\b", told)]
            held = [f"self.{module}.{part}" for part in has]
        case ast.Call(ast.Attribute(ast.Name("F"), name), [ast.Name(value)], keywords):
            words = words_of(keywords)
            has = [part for part in ("weight", "bias") if words.get(part, "").startswith("self.")]
            module, held = "", [words.pop(part) for part in has]
        case _:
            return None
    if value not in shapes:
        return None
    shape = shapes[value]
    affine = "".join({"weight": " * {%d}", "bias": " + {%d}"}[part] % place for place, part in enumerate(has, 1))
    eps = words.pop("eps", {"rms_norm": "1.1920929e-07"}.get(name, "1e-05"))
    channels = dict.fromkeys(held, _channels_of(shape))

    def made(recipe: Recipe, first: int, groups: str = "", parts: int = 1, own: Shapes = channels) -> Step:
        filled = _filled(recipe, eps, affine)
        return Step(makes, (value, *held), filled, (first, len(shape) - 1), groups, parts, own=own)

    if name == "prelu" and module and not words:
        own = _channels_of(shape) if "(" in told else (1,)
        return Step(makes, (value, *held), _made("tl.where({0} > 0.0, {0}, {0} * {1})"), own={held[0]: own})
    if name == "batch_norm" and module and not words and len(has) in (0, 2):
        parts = [f"self.{module}.{part}" for part in ("running_mean", "running_var")]
        scaled = " * {3} + {4}" if has else ""
        text = f"({{0}} - {{1}}) / tl.sqrt({{2}} + {eps}){scaled}"
        return Step(makes, (value, *parts, *held), _made(text), own=dict.fromkeys([*parts, *held], _channels_of(shape)))
    if name in ("layer_norm", "rms_norm") and (normalized := words.pop("normalized_shape", "")) and not words:
        sides = ast.literal_eval(normalized)
        if "self" in normalized or sides != shape[len(shape) - len(sides) :]:
            return None
        return made(
            _NORM if name == "layer_norm" else _RMS_NORM, len(shape) - len(sides), own=dict.fromkeys(held, sides)
        )
    if name == "instance_norm" and not words and len(shape) > 2:
        return made(_NORM, 2)
    if name == "group_norm" and (number := words.pop("num_groups", "")) and not words and len(shape) > 1:
        return made(_NORM, 1, f"self.{module}.num_groups" if module else number, int(number))
    return None


def _channels_of(shape: tuple[int, ...]) -> tuple[int, ...]:
    """The shape of a parameter with one number a channel, as it is broadcast."""
    return (*shape[1:2], *(1,) * (len(shape) - 2))


def _pool(makes: str, node: ast.expr, shapes: Shapes) -> Step | None:
    """A pool whose windows lie in the tensor but for padding and, rounded up, their ends."""
    match node:
        case ast.Call(ast.Attribute(ast.Name("F"), name), [ast.Name(value)], keywords) if value in shapes:
            kind, rank = name.partition("_")[0], len(shapes[value]) - 2
        case _:
            return None
    if name not in (f"max_pool{rank}d", f"avg_pool{rank}d", f"lp_pool{rank}d"):
        return None
    words = {str(word.arg): ast.literal_eval(word.value) for word in keywords}
    power, counts_all = words.pop("norm_type", None), words.pop("count_include_pad", True)
    every = lambda number: tuple(number) if isinstance(number, tuple | list) else (number,) * rank
    kernel = every(words.pop("kernel_size"))
    usual = {"stride": kernel, "padding": 0, "dilation": 1}
    stride, padding, dilation = (every(words.pop(word, value)) for word, value in usual.items())
    window = Window(kernel, stride, padding, dilation, words.pop("ceil_mode", False))
    counts_pads = kind == "avg" and counts_all and any(window.padding)
    if window.is_ceil and (counts_pads or not _ends_inside(window)):
        return None
    if words or shapes[makes] == shapes[value] or (kind == "lp" and power not in _POOLS_OF_POWERS):
        return None
    mean: Recipe = (("{u}", "sum", "{0}"), ("{o}", "", divided("{u}", kernel, "/")))
    if window.is_ceil or (not counts_all and any(window.padding)):
        mean = (("{u}", "sum", "{0}"), ("{v}", "sum", "1.0"), ("{o}", "", "{u} / {v}"))
    recipe = {"avg": mean, "max": (("{o}", "max", "{0}"),)}.get(kind) or _POOLS_OF_POWERS[power]
    return Step(makes, (value,), recipe, (2, rank + 1), window=window)


def _ends_inside(window: Window) -> bool:
    """Whether no window of a pool that rounds up can begin behind the tensor: PyTorch leaves such a one out."""
    sides = zip(window.kernel, window.stride, window.padding, window.dilation, strict=True)
    return all(stride + padding <= dilation * (kernel - 1) + 1 for kernel, stride, padding, dilation in sides)


def _reduction(makes: str, node: ast.expr, shapes: Shapes) -> Step | None:
    match node:
        case ast.Call(function, [ast.Name(value), *others], keywords) if value in shapes:
            call, shape = ast.unparse(function), shapes[value]
            words = words_of(keywords)
        case _:
            return None
    match others:
        case [ast.Name(other)] if call == "F.cosine_similarity" and shapes.get(other) == shape:
            over = dims_of(words.pop("dim", "1"), len(shape))
            eps = words.pop("eps", "1e-08")
            return None if words or not over else Step(makes, (value, other), _filled(_COSINE, eps), over)
        case [_, *_]:
            return None
    if call.startswith("F.adaptive_avg_pool") and words == {"output_size": "1"} and len(shape) > 2:
        return Step(makes, (value,), _REDUCTIONS["torch.mean"], (2, len(shape) - 1))
    if (over := dims_of(words.pop("dim", _USUAL_DIM.get(call, "")), len(shape))) is None:
        return None
    norm_of_one = call in ("torch.norm", "F.normalize") and words.get("p") in _OF_ONE and bool(words.pop("p"))
    if call in _REDUCTIONS:
        words.pop("keepdim", "")
        recipe = _REDUCTIONS[call]
        if call in _BIASED and (words.pop("unbiased", "") == "False" or words.pop("correction", "") == "0"):
            recipe = _BIASED[call]
        if call == "torch.norm" and words.pop("p", "2") not in ("2", "2.0", "'fro'"):
            return None
        recipe = (("{o}", "sum", "tl.abs({0})"),) if norm_of_one else recipe
        return None if words else Step(makes, (value,), recipe, over)
    if call in _OVER_DIM and over[0] == over[1]:
        eps = words.pop("eps", "1e-12")
        recipe = _OVER_DIM[call]
        if norm_of_one:
            recipe = (("{v}", "sum", "tl.abs({0})"), ("{o}", "", "{0} / tl.maximum({v}, {eps})"))
        return None if words else Step(makes, (value,), _filled(recipe, eps), over)
    return None


def _pointwise(makes: str, node: ast.expr, known: Known) -> Step | None:
    """A call that may be point-wise, whatever the shapes."""
    operands: list[str] = []

    def made(template: str, *sides: ast.expr) -> Step | None:
        texts = [_side(side, operands) for side in sides]
        return Step(makes, tuple(operands), _made(template.format(*texts))) if all(texts) and operands else None

    match node:
        case ast.UnaryOp(ast.USub(), ast.Name(value)):
            return Step(makes, (value,), _made("-{0}"))
        case ast.BinOp(ast.Name(value), ast.Pow(), ast.Constant(float() | int() as power)) if power in _POWERS:
            return Step(makes, (value,), _made(_POWERS[power]))
        case ast.BinOp(ast.Name(value), sign, size) if type(sign) in _SIGNS and ".shape[" in ast.unparse(size):
            return Step(makes, (value,), _made(f"{{0}} {_SIGNS[type(sign)]} {{size}}"), size=ast.unparse(size))
        case ast.BinOp(left, sign, right) if type(sign) in _SIGNS:
            sides = (left, right)
            texts = [f"{{{k}}}{_as_number(side, known)}" for k, side in enumerate(sides)]
            return made(f"{texts[0]} {_SIGNS[type(sign)]} {texts[1]}", *sides)
        case ast.Compare(left, [sign], [right]) if type(sign) in _COMPARISONS:
            return made(f"{{0}} {_COMPARISONS[type(sign)]} {{1}}", left, right)
        case ast.Call(ast.Attribute(ast.Name("torch"), "where"), [condition, left, right], []):
            return made("tl.where({0}, {1}, {2})", condition, left, right)
        case ast.Call(ast.Attribute(ast.Name("torch"), "masked_fill"), [value, mask], [word]):
            return made(f"tl.where({{1}}, {ast.unparse(word.value)}, {{0}})", value, mask)
        case ast.Call(function, given, [word]) if (found := _WITH_NUMBER.get(ast.unparse(function))) and (
            word.arg == found[0] and len(given) == found[1].count("{") - 1 - ("({1} - {0})" in found[1])
        ):
            return made(found[1].replace("{number}", ast.unparse(word.value)), *given)
        case ast.Call(function, [ast.Name(first), ast.Name(second)], []) if ast.unparse(function) in _PAIRS:
            return Step(makes, (first, second), _made(f"{_PAIRS[ast.unparse(function)]}({{0}}, {{1}})"))
        case ast.Call(function, [ast.Name(value), *_], _) if ast.unparse(function) in _VIEWS:
            return Step(makes, (value,), _made("{0}"), is_view=True)
        case ast.Call(function, [ast.Name(value)], words):
            formula = _formula(ast.unparse(function), {str(w.arg): ast.unparse(w.value) for w in words})
            return Step(makes, (value,), formula) if formula else None
    return None


def _as_number(node: ast.expr, known: Known) -> str:
    """What makes a number of a truth value."""
    return ".to(tl.float32)" if known.dtypes.get(ast.unparse(node)) == "bool" else ""


def _side(node: ast.expr, operands: list[str]) -> str:
    """An operand or a number; empty where it is neither."""
    if isinstance(node, ast.Name | ast.Attribute):
        operands.append(ast.unparse(node))
        return f"{{{len(operands) - 1}}}"
    bare = node.operand if isinstance(node, ast.UnaryOp) else node
    return ast.unparse(node) if isinstance(bare, ast.Constant) else ""


def _formula(call: str, words: dict[str, str]) -> Recipe:
    """The statements that compute a call with these words; none where it is not known."""
    if call == "torch.clamp":
        low, high = words.get("min"), words.get("max")
        inner = f"tl.maximum({{0}}, {low})" if low else "{0}"
        return _made(f"tl.minimum({inner}, {high})" if high else inner)
    if call in _FORMULAS and not words:
        return _made(_FORMULAS[call])
    name = _OPERATORS.get(call)
    if name == "gelu" and words.pop("approximate", "") == "'tanh'":
        name = "gelu_tanh"
    if name is None or words.keys() - OPS[name].arguments.keys() - _DEFAULTS.keys():
        return ()
    given = {**OPS[name].defaults, **_DEFAULTS, **{word: float(value) for word, value in words.items()}}
    return tuple(_renamed([line.format(**given) for line in OPS[name].triton]))


def _renamed(lines: list[str]) -> Iterator[tuple[str, str, str]]:
    """Statements on `v`, and others for intermediate values, as a recipe."""
    names = {"v": "{0}"}
    for line in lines:
        target, _, value = line.partition(" = ")
        value = re.sub(r"\b[vudw]\b", lambda found: names[found[0]], value)
        names[target] = {"v": "{o}", "u": "{u}", "d": "{v}", "w": "{w}"}[target]
        yield names[target], "", value


def _made(text: str) -> Recipe:
    return (("{o}", "", text),)


def _filled(recipe: Recipe, eps: str, affine: str = "") -> Recipe:
    return tuple((o, kind, text.replace("{eps}", eps).replace("{affine}", affine)) for o, kind, text in recipe)


def _parts(told: str) -> list[str]:
    """Arguments of a call, apart at the commas that are in no parentheses."""
    return re.split(r", (?![^(]*\))", told)
