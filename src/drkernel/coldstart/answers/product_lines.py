"""Lines of a canonical form that multiply matrices or convolve."""

from __future__ import annotations

import ast
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import prod

from drkernel.coldstart.answers.known import Known, Shapes, words_of
from drkernel.policy.canonical.formulas import Window
from drkernel.policy.canonical.told import Line

_OF_MODULE = re.compile(r" F\.(linear|conv(?:_transpose)?[123]d)\(weight (\([\d, ]+\))(.*?)\)(?=; \(|$)")
"""What a form says beside the call of a module."""


@dataclass(frozen=True)
class Product:
    """A line that multiplies matrices or convolves."""

    makes: str
    left: str
    right: str
    """A value or a parameter of shape (columns, inner...), or turned: (inner, columns)."""
    bias: str = ""
    columns: int = 0
    """Of each group."""
    inner: int = 0
    is_turned: bool = False
    is_batched: bool = False
    windows: tuple[Window, ...] = ()
    """Of a convolution, by dimension."""
    is_transposed: bool = False
    """Whether it is a transposed convolution, the right factor of shape (inner, columns, window...)."""
    groups: int = 1
    """Of a convolution's channels: each column sums over those of its group alone."""


def product_of(line: Line, known: Known) -> Product | None:
    """The product of a line; None where it has none in fp32 that tiles can compute."""
    told, _, beside = line.told.partition("  #")
    statement = ast.parse(told).body[0]
    if not isinstance(statement, ast.Assign) or len(line.makes) != 1 or line.makes[0] not in known.shapes:
        return None
    made = _product(line.makes[0], statement.value, beside, known.shapes)
    if made is None or {made.makes, made.left, made.right} & known.dtypes.keys():
        return None
    return made if prod(known.shapes[made.makes]) else None


def _product(makes: str, node: ast.expr, beside: str, shapes: Shapes) -> Product | None:
    match node:
        case ast.BinOp(left, ast.MatMult(), right):
            return _matmul(makes, ast.unparse(left), ast.unparse(right), shapes)
        case ast.Call(
            ast.Attribute(ast.Name("torch"), "addmm"), [ast.Name() | ast.Attribute() as added, left, right], []
        ):
            made = _matmul(makes, ast.unparse(left), ast.unparse(right), shapes)
            is_of_columns = made and shapes.get(ast.unparse(added)) == (made.columns,)
            return replace(made, bias=ast.unparse(added)) if made and is_of_columns else None
        case ast.Call(ast.Attribute(ast.Name("self"), module), [ast.Name(value)], []) if value in shapes:
            if found := _OF_MODULE.match(beside):
                words = dict(re.findall(r", (\w+)(?:=(\(.*?\)|\d+|'same'))?", found[3]))
                bias = f"self.{module}.bias" if words.pop("bias", None) is not None else ""
                names = [value, f"self.{module}.weight", bias]
                return _of_weight(makes, names, ast.literal_eval(found[2]), words, "transpose" in found[1])
        case ast.Call(ast.Attribute(ast.Name("F"), name), [left, right, *bias], keywords):
            names = [ast.unparse(part) for part in (left, right, *bias)]
            words = words_of(keywords)
            if re.fullmatch(r"linear|conv(_transpose)?[123]d", name) and all(part in shapes for part in names):
                return _of_weight(makes, names, shapes[names[1]], words, "transpose" in name)
    return None


def _of_weight(
    makes: str, names: Sequence[str], weight: tuple[int, ...], words: dict[str, str], is_transposed: bool
) -> Product | None:
    """A linear layer or a convolution.

    Args:
        names: left and right factor, and the bias if there is one.
        words: the other arguments of the call.
    """
    groups = words.pop("groups", "1")
    if len(weight) < 2 or (windows := _windows(weight[2:], words)) is None or words or not groups.isdigit():
        return None
    if is_transposed and not all(_turns(window) for window in windows):
        return None
    number = int(groups)
    columns = weight[1] if is_transposed else weight[0] // number
    bias = names[2] if len(names) > 2 else ""
    inner = prod(weight) // columns // number
    return Product(
        makes, names[0], names[1], bias, columns, inner, windows=windows, is_transposed=is_transposed, groups=number
    )


def _turns(window: Window) -> bool:
    """Whether tiles can compute a transposed convolution along such a dimension."""
    return window.stride > 1 or not window.added


def _windows(kernel: tuple[int, ...], words: dict[str, str]) -> tuple[Window, ...] | None:
    """By dimension; takes these words out. None where one of them is no number."""
    given = []
    is_same = words.get("padding") == "'same'"
    words |= {"padding": "0"} if is_same else {}
    for word, usual in (("stride", "1"), ("padding", "0"), ("dilation", "1"), ("output_padding", "0")):
        text = words.pop(word, usual)
        if not re.fullmatch(r"\d+|\([\d, ]+\)", text):
            return None
        value = ast.literal_eval(text)
        given.append(value if isinstance(value, tuple) else (value,) * len(kernel))
    windows = tuple(Window(*values) for values in zip(kernel, *given, strict=True))
    if not is_same:
        return windows
    over = [window.dilation * (window.kernel - 1) for window in windows]
    is_even = not any(total % 2 for total in over)
    return tuple(w._replace(padding=total // 2) for w, total in zip(windows, over, strict=True)) if is_even else None


def _matmul(makes: str, left: str, right: str, shapes: Shapes) -> Product | None:
    if left not in shapes or right not in shapes or left == right:
        return None
    one, other = shapes[left], shapes[right]
    is_batched = len(other) > 2 and one[:-2] == other[:-2]
    if len(one) < 2 or not (len(other) == 2 or is_batched):
        return None
    return Product(makes, left, right, columns=other[-1], inner=other[-2], is_turned=True, is_batched=is_batched)
