"""Calls whose arguments are too small for what a kernel reads of them.

    def kernel1(t0_ptr, t5_ptr, o_ptr, T, BLOCK):        f1(t0, t5) with t0: (64, 32, 48), t5: (64, 1, 48)
        t0 = tl.load(t0_ptr + i, mask=m)
        t5 = tl.load(t5_ptr + i, mask=m)             <-- read where the result is written, so it must be as large
        tl.store(o_ptr + i, t0 + t5, mask=m)

A kernel that alone writes to a tensor without values writes all its elements. What it reads at the places where it
writes has as many. So `t5` is given as `t5.expand_as(t0)`.
"""

from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from torch import Tensor

from drkernel.policy.canonical import host
from drkernel.policy.canonical.told import names_in


def widened(call: ast.Call, functions: Mapping[str, ast.FunctionDef], given: Sequence[Any]) -> ast.Call | None:
    """A call with arguments as large as they are read; itself where all are, None where one cannot be as large.

    Args:
        functions: those of the completion, the one that is called and its kernels, by name.
        given: the arguments, tensors without data and numbers; None is what is not known.

    Raises:
        Wrong: the function fails.
    """
    function = functions[ast.unparse(call.func)]
    args, wide = list(call.args), list(given)
    for place, shape in _too_small(function, functions, given):
        like = next((k for k, one in enumerate(given) if isinstance(one, Tensor) and one.shape == shape), None)
        if like is None or not isinstance(given[place], Tensor) or not _expands(given[place].shape, shape):
            return None
        text = f"{ast.unparse(call.args[place])}.expand_as({ast.unparse(call.args[like])})"
        args[place], wide[place] = ast.parse(text, mode="eval").body, host.tensor(shape)
    if args == call.args:
        return call
    return None if list(_too_small(function, functions, wide)) else ast.Call(call.func, args, call.keywords)


def _expands(shape: Sequence[int], wide: Sequence[int]) -> bool:
    """Whether a tensor of a shape can be expanded to a wider one."""
    pairs = zip(reversed(shape), reversed(wide), strict=False)
    return len(shape) <= len(wide) and all(size in (1, other) for size, other in pairs)


def _too_small(
    function: ast.FunctionDef, functions: Mapping[str, ast.FunctionDef], given: Sequence[Any]
) -> Iterator[tuple[int, tuple[int, ...]]]:
    """The places of arguments that are too small, and the shape that they are read as."""
    names = [argument.arg for argument in function.args.args]
    launches = list(host.launches(function, given))
    if len(launches) > 1 or "zeros" in ast.unparse(function):
        return
    for launch in launches:
        if launch.kernel not in functions:
            continue
        kernel = functions[launch.kernel]
        texts = {name: ast.unparse(text) for name, text in launch.arguments(kernel).items()}
        for read, written in _read_where_written(kernel):
            small, large = (launch.known.get(texts.get(name, "")) for name in (read, written))
            if not isinstance(small, Tensor) or not isinstance(large, Tensor):
                continue
            if texts[read] in names and small.numel() < large.numel():
                yield names.index(texts[read]), tuple(large.shape)


def _read_where_written(kernel: ast.FunctionDef) -> Iterator[tuple[str, str]]:
    """Pointers that are read at the same places, under the same mask, as others are written."""
    often = Counter(names_in(kernel, ast.Store))
    loads, stores = list(_accesses(kernel, "load")), list(_accesses(kernel, "store"))
    for pointer, *place in stores if len(stores) == 1 else ():
        for other, *same in loads:
            steady = all(often[name] <= 1 for text in place if text for name in names_in(ast.parse(text)))
            if place == same and pointer != other and steady:
                yield other, pointer


def _accesses(kernel: ast.FunctionDef, kind: str) -> Iterator[tuple[str, str, str]]:
    """The pointer, the place and the mask of each load or store."""
    for node in ast.walk(kernel):
        match node:
            case ast.Call(
                ast.Attribute(ast.Name("tl"), name), [ast.BinOp(ast.Name(pointer), ast.Add(), place), *_]
            ) if name == kind:
                masks = [ast.unparse(word.value) for word in node.keywords if word.arg == "mask"]
                yield pointer, ast.unparse(place), "".join(masks)
