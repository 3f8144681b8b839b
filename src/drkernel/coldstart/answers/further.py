"""Lines that are one step each: losses, sums of products, gating halves, depthwise convolutions."""

from __future__ import annotations

import ast

from drkernel.coldstart.answers.known import Known, words_of
from drkernel.coldstart.answers.product_lines import product_of
from drkernel.coldstart.answers.steps import Recipe, Step, Window, step_of
from drkernel.policy.canonical.told import Line

_ABSOLUTE = ("{w}", "", "tl.abs({0} - {1})")
_LOSSES: dict[str, tuple[str, float, Recipe]] = {
    "F.mse_loss": ("", 0.0, (("{w}", "", "{0} - {1}"), ("{o}", "", "{w} * {w}"))),
    "F.l1_loss": ("", 0.0, (("{o}", "", "tl.abs({0} - {1})"),)),
    "F.smooth_l1_loss": (
        "beta",
        1.0,
        (_ABSOLUTE, ("{o}", "", "tl.where({w} < {c}, 0.5 * {w} * {w} / {c}, {w} - 0.5 * {c})")),
    ),
    "F.huber_loss": (
        "delta",
        1.0,
        (_ABSOLUTE, ("{o}", "", "tl.where({w} < {c}, 0.5 * {w} * {w}, {c} * ({w} - 0.5 * {c}))")),
    ),
    "F.binary_cross_entropy_with_logits": (
        "",
        0.0,
        (("{o}", "", "tl.maximum({0}, 0.0) - {0} * {1} + tl.log(1.0 + tl.exp(-tl.abs({0})))"),),
    ),
    "F.kl_div": ("", 0.0, (("{o}", "", "tl.where({1} > 0.0, {1} * (tl.log({1}) - {0}), 0.0)"),)),
}
"""What two tensors have for each element: a number of the call, what it is where the call has none, the statements."""
_JOINED_LOSSES = {"'mean'": ".sum() / T", "'sum'": ".sum()", "'batchmean'": ".sum() / B"}
"""What makes the loss of all parts of it, by the call's `reduction`."""
_TOTALS: dict[str, tuple[str, str, str]] = {
    "torch.sum": ("sum", "{0}", ".sum()"),
    "torch.mean": ("sum", "{0}", ".sum() / T"),
    "torch.amax": ("max", "{0}", ".amax()"),
    "torch.amin": ("min", "{0}", ".amin()"),
    "torch.max": ("max", "{0}", ".amax()"),
    "torch.min": ("min", "{0}", ".amin()"),
    "torch.norm": ("sum", "{0} * {0}", ".sum().sqrt()"),
}
"""Calls that make one number of a tensor: the kind and the value of a part of it, and what joins the parts."""
_TRIPLET: Recipe = (
    ("{u}", "sum", "({0} - {1} + 1e-06) * ({0} - {1} + 1e-06)"),
    ("{v}", "sum", "({0} - {2} + 1e-06) * ({0} - {2} + 1e-06)"),
    ("{o}", "", "tl.maximum(tl.sqrt({u}) - tl.sqrt({v}) + {c}, 0.0)"),
)
_SWAPPED_TRIPLET: Recipe = (
    *_TRIPLET[:2],
    ("{w}", "sum", "({1} - {2} + 1e-06) * ({1} - {2} + 1e-06)"),
    ("{o}", "", "tl.maximum(tl.sqrt({u}) - tl.sqrt(tl.minimum({v}, {w})) + {c}, 0.0)"),
)
_SOFTPLUS: Recipe = (
    ("{w}", "", "{0} * {c}"),
    ("{u}", "", "tl.exp(-tl.abs({w}))"),
    ("{v}", "", "tl.log(1 + {u}) + ({u} - (1 + {u} - 1)) / (1 + {u})"),
    ("{o}", "", "(tl.maximum({w}, 0.0) + {v}) / {c}"),
)
_STRAIGHT: Recipe = (*_SOFTPLUS[:-1], ("{o}", "", "tl.where({w} > {d}, {0}, (tl.maximum({w}, 0.0) + {v}) / {c})"))
"""With a threshold that tells: beyond it, the function is its argument."""
_SUM_OF_PRODUCTS: Recipe = (("{o}", "sum", "{0} * {1}"),)
_BIASED_SUM: Recipe = (("{u}", "sum", "{0} * {1}"), ("{o}", "", "{u} + {2}"))
_PRODUCT: Recipe = (("{o}", "", "{0} * {1}"),)


def any_step_of(line: Line, known: Known) -> Step | None:
    """The step of a line, whatever its kind; None where it is none of the known."""
    if found := step_of(line, known):
        return found
    if found := _depthwise(line, known):
        return found
    told = line.told.partition("  #")[0]
    node = ast.parse(told).body[0]
    is_one = len(line.makes) == 1 and line.makes[0] in known.shapes and line.text == told
    return _further(line.makes[0], node.value, known) if is_one and isinstance(node, ast.Assign) else None


def _further(makes: str, node: ast.expr, known: Known) -> Step | None:
    """The step of a line of several tensors; None where it is none of these."""
    match node:
        case ast.BinOp(ast.Name(left), ast.MatMult(), ast.Name() | ast.Attribute() as right):
            return _vector(makes, left, ast.unparse(right), known)
        case ast.Call(function, [ast.Constant(str() as letters), ast.Name(left), other], []):
            is_einsum = ast.unparse(function) == "torch.einsum"
            return _einsum(makes, letters, left, ast.unparse(other), known) if is_einsum else None
        case ast.Call(function, [ast.Name(left), ast.Name(right)], keywords):
            words = words_of(keywords)
            if (call := ast.unparse(function)) == "F.cross_entropy":
                return _cross_entropy(makes, left, right, words, known)
            return _loss(makes, call, left, right, words, known) if call in _LOSSES else None
        case ast.Call(function, [ast.Name(a), ast.Name(b), ast.Name(c)], keywords):
            is_triplet = ast.unparse(function) == "F.triplet_margin_loss"
            return _triplet(makes, (a, b, c), words_of(keywords), known) if is_triplet else None
        case ast.Call(function, [ast.Name(value)], keywords) if (call := ast.unparse(function)) in _TOTALS:
            return _total(makes, call, value, words_of(keywords), known)
        case ast.Call(function, [ast.Name(value)], keywords) if ast.unparse(function) == "F.softplus":
            return _softplus(makes, value, **words_of(keywords))
        case ast.Call(function, [ast.Name()], _) if ast.unparse(function) == "F.glu":
            halves = known.halves.get(makes, ())
            recipe: Recipe = (("{o}", "", "{0} * tl.sigmoid({1})"),)
            return Step(makes, halves, recipe, own=dict.fromkeys(halves, known.shapes[makes])) if halves else None
    return None


def _softplus(makes: str, value: str, beta: str = "1.0", threshold: str = "") -> Step:
    recipe = _STRAIGHT if threshold else _SOFTPLUS
    filled = tuple((o, kind, text.replace("{c}", beta).replace("{d}", threshold)) for o, kind, text in recipe)
    return Step(makes, (value,), filled)


def _depthwise(line: Line, known: Known) -> Step | None:
    """A convolution of each channel alone: the sum of a window whose places have weights."""
    product = product_of(line, known)
    if product is None or product.groups == 1 or product.is_transposed:
        return None
    shape, made = known.shapes[product.left], known.shapes[product.makes]
    if not product.groups == shape[1] == made[1]:
        return None
    kernel, stride, padding, dilation, *_ = zip(*product.windows, strict=True)
    window = Window(kernel, stride, padding, dilation)
    operands = (product.left, product.right, *[product.bias] * bool(product.bias))
    own = {product.right: (shape[1], 1, *kernel)}
    own |= {product.bias: (shape[1], *(1,) * (len(shape) - 2))} if product.bias else {}
    recipe = _BIASED_SUM if product.bias else _SUM_OF_PRODUCTS
    return Step(product.makes, operands, recipe, (2, len(shape) - 1), own=own, window=window)


def _loss(makes: str, call: str, left: str, right: str, words: dict[str, str], known: Known) -> Step | None:
    """A loss of each element, or of all."""
    word, usual, recipe = _LOSSES[call]
    number, reduction = words.pop(word, str(usual)), words.pop("reduction", "'mean'")
    filled = tuple((o, kind, text.replace("{c}", number)) for o, kind, text in recipe)
    if words:
        return None
    if reduction == "'none'":
        return Step(makes, (left, right), filled)
    *before, (_, _, value) = filled
    summed = (*before, ("{o}", "sum", value))
    joined = _JOINED_LOSSES.get(reduction, "")
    return _over_all(makes, (left, right), summed, joined, known) if joined else None


def _total(makes: str, call: str, value: str, words: dict[str, str], known: Known) -> Step | None:
    """One number of all elements."""
    kind, text, joined = _TOTALS[call]
    p = words.pop("p", "2")
    if call == "torch.norm" and p in ("1", "1.0"):
        text, joined = "tl.abs({0})", ".sum()"
    elif words or p not in ("2", "2.0", "'fro'"):
        return None
    return _over_all(makes, (value,), (("{o}", kind, text),), joined, known)


def _over_all(makes: str, operands: tuple[str, ...], recipe: Recipe, joined: str, known: Known) -> Step | None:
    """A reduction of all elements, whose parts PyTorch joins."""
    shape = known.shapes.get(operands[0], ())
    if not shape or known.shapes[makes] or {makes, *operands} & known.dtypes.keys():
        return None
    return Step(makes, operands, recipe, (0, len(shape) - 1), after=joined)


def _triplet(makes: str, operands: tuple[str, ...], words: dict[str, str], known: Known) -> Step | None:
    """The mean over rows of how much nearer one other row is than the third."""
    shape, margin = known.shapes.get(operands[0], ()), words.pop("margin", "1.0")
    statements = _SWAPPED_TRIPLET if words.pop("swap", "False") == "True" else _TRIPLET
    if len(shape) != 2 or words or any(known.shapes.get(name) != shape for name in operands):
        return None
    recipe = tuple((o, kind, text.replace("{c}", margin)) for o, kind, text in statements)
    return Step(makes, operands, recipe, (1, 1), own={makes: shape[:1]}, after=".mean()")


def _cross_entropy(makes: str, left: str, right: str, words: dict[str, str], known: Known) -> Step | None:
    """The loss of each row by the number of its class, or the mean of all."""
    shape = known.shapes.get(left, ())
    if len(shape) != 2 or known.shapes.get(right) != shape[:1] or known.dtypes.get(right) != "int":
        return None
    smooth, reduction = float(words.pop("label_smoothing", "0")), words.pop("reduction", "'mean'")
    if words or reduction not in ("'mean'", "'none'"):
        return None
    weight = f"tl.where(j == {{1}}, 1 - {smooth:.6g}, 0.0) + {smooth:.6g} / N"
    picked = f"({weight}) * {{0}}" if smooth else "tl.where(j == {1}, {0}, 0.0)"
    recipe = (
        ("{u}", "max", "{0}"),
        ("{v}", "sum", "tl.exp({0} - {u})"),
        ("{w}", "sum", picked),
        ("{o}", "", "{u} + tl.log({v}) - {w}"),
    )
    own = {right: (shape[0], 1), makes: shape[:1]}
    return Step(makes, (left, right), recipe, (1, 1), own=own, after=".mean()" * (reduction == "'mean'"))


def _vector(makes: str, left: str, right: str, known: Known) -> Step | None:
    """A product with a vector, one for all or one for each matrix."""
    shape, other = known.shapes.get(left, ()), known.shapes.get(right, ())
    last = len(shape) - 1
    if last < 1 or not known.is_float(left):
        return None
    if other == shape[-1:]:
        return Step(makes, (left, right), _SUM_OF_PRODUCTS, (last, last))
    if other == (*shape[:-2], shape[-1], 1):
        own = {right: (*shape[:-2], 1, shape[-1])}
        return Step(makes, (left, right), _SUM_OF_PRODUCTS, (last, last), own=own)
    return None


def _einsum(makes: str, letters: str, left: str, right: str, known: Known) -> Step | None:
    """A sum over the last dimensions of one operand, where the other lacks some of its dimensions; or no sum at all."""
    shape = known.shapes.get(left, ())
    taken, _, made = letters.replace(" ", "").partition("->")
    own, _, theirs = taken.partition(",")
    in_order = [letter for letter in own if letter in theirs]
    if len(own) != len(shape) or "".join(in_order) != theirs or not own.startswith(made) or len(set(own)) < len(own):
        return None
    beside = tuple(size if letter in theirs else 1 for letter, size in zip(own, shape, strict=True))
    if made == own:
        return Step(makes, (left, right), _PRODUCT, own={right: beside})
    if left == right:
        return None
    return Step(makes, (left, right), _SUM_OF_PRODUCTS, (len(made), len(own) - 1), own={right: beside})
