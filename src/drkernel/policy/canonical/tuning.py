"""Kernels of tiles as Triton's compiler takes them best: what is known of their places, and tiles wide enough.

A row of a tile is a place in the output of a convolution, and places come from rows by division. So the compiler does
not see that rows lie side by side in memory. Where it knows nothing, Triton 3.6 lets neighbouring threads take
neighbouring rows, and 3.7 neighbouring columns, whose elements lie far apart: the same kernel takes 3.7 times as long.
`tl.max_contiguous` tells it. The compiler also loads several elements at once where it knows that their number
divides the place. Rows that are two elements apart would be such: there the third coordinate of the program is added,
which is zero, and of which no divisor is known.

A function that several lines call has the tile of the first of them, and may have more columns for others.
"""

from __future__ import annotations

import re

_KERNEL = re.compile(r"^@triton\.jit\ndef \w+\(.*?\n(?=\S|\Z)", re.MULTILINE | re.DOTALL)
_ROWS = "BM + tl.arange(0, BM)[:, None]"
_LOADED = re.compile(r"\bx = tl\.load\((\w+_ptr) \+ (.*?), mask=\(r < M\)")
_STORED = re.compile(r"^( +)i = (.* \+ x[A-Z])$", re.MULTILINE)
_LAST = re.compile(r" \+ [xy][A-Z]( \* \d+)?$")
_FUNCTION = re.compile(r"^def (\w+)\(.*?\n(?=\S|\Z)", re.MULTILINE | re.DOTALL)
_NARROW, _COLUMNS = re.compile(r"\btriton\.cdiv\(N, 32\)(.*\bBN=)32\b"), "64 if N > 32 else 32"


def tuned(kernels: str, methods: str = "") -> str:
    """The kernels and functions of a completion, with hints and wider tiles; others stay as they are.

    Args:
        methods: what calls the functions.
    """
    kernels = _KERNEL.sub(lambda found: _hinted(found[0]), kernels)
    return _FUNCTION.sub(lambda found: _widened(found[0]) if methods.count(f"{found[1]}(") > 1 else found[0], kernels)


def _hinted(kernel: str) -> str:
    if _ROWS not in kernel or "max_contiguous" in kernel:
        return kernel
    kernel = _LOADED.sub(lambda found: _load(kernel, found), kernel)
    stores = list(_STORED.finditer(kernel))
    if not stores or "tl.store(o_ptr + i," not in kernel:
        return kernel
    last = stores[-1]
    return f"{kernel[: last.start()]}{last[1]}i = {_told(last[2])}{kernel[last.end() :]}"


def _told(index: str) -> str:
    return f"tl.max_contiguous({index}, [BM, 1])"


def _load(kernel: str, found: re.Match[str]) -> str:
    pointer, index = found.groups()
    first = re.search(r"^ +i = (.*)$", kernel, re.MULTILINE) if index == "i + k[None, :]" else None
    last = _LAST.search(first[1] if first else index)
    place = last[0].removeprefix(" + ") if last else ""
    if not _are_beside(kernel, place):
        if not place or "tl.program_id(2)" in kernel:
            return found[0]
        index += " + tl.program_id(2)"
    return f"x = tl.load({pointer} + {_told(index)}, mask=(r < M)"


def _are_beside(kernel: str, place: str) -> bool:
    """Whether rows lie side by side, or are moved by a number of which no divisor is known."""
    if place.startswith("x"):
        return "*" not in place
    made = re.search(rf"^ +{place} = (.*)$", kernel, re.MULTILINE) if place else None
    if made is None:
        return False
    return bool(re.fullmatch(r"x[A-Z]( [+-] .*)?", made[1]) or re.search(r"\bt\b|//", made[1]))


def _widened(function: str) -> str:
    """The function, whose tiles of 32 columns are of 64 where there are more: those take 1/1.4 of the time."""
    return _NARROW.sub(rf"triton.cdiv(N, {_COLUMNS})\g<1>{_COLUMNS}", function)
