"""Formulas of windows as answers write them, in the numbers that the task gives."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from math import prod
from typing import NamedTuple


class Window(NamedTuple):
    """Of a convolution or a pool along a dimension."""

    kernel: int
    stride: int
    padding: int
    dilation: int
    added: int
    """At the end of the output of a transposed one."""
    side: str = ""
    """The letter of the dimension in kernels: W, H or D."""


def factors(numbers: Iterable[int]) -> str:
    """Their product as an answer writes it, since a policy copies better than it calculates.

    >>> factors((3, 1, 3)), factors((2, 1)), factors(())
    ('3 * 3', '2', '1')
    """
    return " * ".join(str(number) for number in numbers if number > 1) or "1"


def divided(text: str, numbers: Iterable[int], sign: str = "//") -> str:
    """By the product of numbers.

    >>> divided("r", (3, 1, 3)), divided("r", (2, 1), "/"), divided("r", ())
    ('r // (3 * 3)', 'r / 2', 'r')
    """
    by = factors(numbers)
    return text if by == "1" else f"{text} {sign} ({by})" if " " in by else f"{text} {sign} {by}"


def factor(text: str) -> str:
    """A sum, to be multiplied.

    >>> factor("a * b + c"), factor("a * b")
    ('(a * b + c)', 'a * b')
    """
    return f"({text})" if " + " in text or " // " in text or " % " in text else text


def signed(number: int) -> str:
    """What is added.

    >>> signed(3), signed(-3), signed(0)
    (' + 3', ' - 3', '')
    """
    return f" - {-number}" if number < 0 else f" + {number}" * (number > 0)


def output_side(window: Window, size: str, is_turned: bool, pads: bool = True) -> str:
    """How long the output is along a dimension of which the input has this size.

    Args:
        is_turned: of a transposed convolution.
        pads: whether the input has no padding yet.
    """
    padded = f"2 * {window.padding}" if window.padding and pads else ""
    wide = f"{window.dilation} * ({window.kernel} - 1)"
    if is_turned:
        size = f"({size} - 1) * {window.stride}" if window.stride > 1 else f"{size} - 1"
        size += f" + {window.kernel}" if window.dilation == 1 else f" + {wide} + 1"
        return size + (f" - {padded}" if padded else "") + (f" + {window.added}" if window.added else "")
    size += f" + {padded}" if padded else ""
    size += f" - {window.kernel}" if window.dilation == 1 else f" - {wide} - 1"
    return f"({size}) // {window.stride} + 1" if window.stride > 1 else f"{size} + 1"


def input_place(windows: Sequence[Window], dim: int, side: str, is_turned: bool) -> str:
    """The place in the input along a dimension, for place `t` of all that the windows have."""
    kernels = [window.kernel for window in windows]
    window, behind = windows[dim], divided("t", kernels[dim + 1 :])
    tap = behind + f" % {window.kernel}" * (prod(kernels[dim:]) < prod(kernels))
    tap = (tap + f" * {window.dilation}" * (window.dilation > 1)) if window.kernel > 1 else ""
    if is_turned:
        return f"x{side}{signed(window.padding)}{tap and f' - {tap}'}"
    place = f"x{side} * {window.stride}" if window.stride > 1 else f"x{side}"
    return f"{place}{tap and f' + {tap}'}{signed(-window.padding)}"
