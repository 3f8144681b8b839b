"""tl.reduce and tl.associative_scan for the interpreter, on batches of programs. Runs in simulated runners.

Any associative combine function works. Triton's own ones have a numpy function.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import triton.language as tl
from triton.runtime import interpreter as upstream

from drkernel.judge.untrusted.simulated.builder import BlockValue, decoded, encoded, with_common_programs
from drkernel.judge.untrusted.simulated.costs import EXCHANGE, REDUCE, SCAN

_REDUCTIONS = {
    "_sum_combine": np.sum,
    "_prod_combine": np.prod,
    "_elementwise_max": np.fmax.reduce,
    "_elementwise_min": np.fmin.reduce,
    "_xor_combine": np.bitwise_xor.reduce,
    "_or_combine": np.bitwise_or.reduce,
}
_POSITIONS = {
    "_argmax_combine_tie_break_left": (np.max, np.argmax),
    "_argmax_combine_tie_break_fast": (np.max, np.argmax),
    "_argmin_combine_tie_break_left": (np.min, np.argmin),
    "_argmin_combine_tie_break_fast": (np.min, np.argmin),
}
_SCANS = {"_sum_combine": np.cumsum, "_prod_combine": np.cumprod}


def _known(table: dict, combine: Any) -> Any:
    """The numpy function for one of Triton's own combine functions."""
    name = getattr(combine, "__name__", "")
    return table.get(name) if combine is getattr(tl.standard, name, None) else None


def _block(data: np.ndarray, dtype: Any) -> Any:
    shape = list(data.shape[1:])
    return tl.core.tensor(BlockValue(data, dtype), tl.block_type(dtype, shape) if shape else dtype)


def reduce(machine: Any, input: Any, axis: Any, combine_fn: Any, keep_dims: bool = False, **_: Any) -> Any:
    """As tl.reduce. input: a tensor or a tuple of them; axis None reduces all axes."""
    inputs = input if isinstance(input, tuple) else (input,)
    axis = axis.value if isinstance(axis, tl.constexpr) else axis
    dtypes = [t.type.scalar for t in inputs]
    arrays = with_common_programs(*(decoded(t.handle.data, d) for t, d in zip(inputs, dtypes, strict=True)))
    rank = arrays[0].ndim - 1
    if (
        axis == 1
        and not keep_dims
        and _known({"_sum_combine": True}, combine_fn)
        and "product" in inputs[0].handle.attr
    ):
        return _as_dot(machine, inputs[0])
    if len(inputs) > 1:
        machine.builder.meter.guess()  # it may tell where the largest one is
    if axis is None:
        arrays, place = [a.reshape(len(a), -1) for a in arrays], 1
    elif -rank <= axis < rank:
        place = axis + 1 if axis >= 0 else axis + rank + 1
    else:
        raise ValueError(f"axis {axis} out of bounds for shape {inputs[0].type.shape}")
    machine.builder.exchange(arrays[0], EXCHANGE if arrays[0].shape[place] == 2 else REDUCE)
    results = _reduced(arrays, dtypes, place, combine_fn)
    if keep_dims:
        results = [r.reshape(len(r), *(1,) * rank) if axis is None else np.expand_dims(r, place) for r in results]
    blocks = tuple(_block(encoded(r, d), d) for r, d in zip(results, dtypes, strict=True))
    return blocks if isinstance(input, tuple) else blocks[0]


def _as_dot(machine: Any, input: Any) -> Any:
    """The sum over axis 1 of a product that the compiler makes a product of matrices, in TF32; see `product_of`."""
    sides = input.handle.attr["product"]
    left, right = (BlockValue(side.data, side.dtype, side.attr | {"turn": None}) for side in sides)
    builder, (programs, rows, _, columns) = machine.builder, input.handle.data.shape
    builder.count(input.handle.data, -1)  # there is no product element by element
    zero = BlockValue(np.zeros((programs, rows, columns), np.float32), tl.float32)
    found = builder.create_dot(left, right, zero, upstream._ir.INPUT_PRECISION.TF32, None)
    return tl.core.tensor(found, tl.block_type(tl.float32, [rows, columns]))


def _reduced(arrays: list[np.ndarray], dtypes: list, axis: int, combine: Any) -> list[np.ndarray]:
    if len(arrays) == 1 and (function := _known(_REDUCTIONS, combine)) is not None:
        return [function(arrays[0], axis=axis)]
    if len(arrays) == 2 and (pair := _known(_POSITIONS, combine)) is not None:
        value, position = pair
        found = np.expand_dims(position(arrays[0], axis=axis), axis)
        return [value(arrays[0], axis=axis), np.take_along_axis(arrays[1], found, axis).squeeze(axis)]
    while (length := arrays[0].shape[axis]) > 1:
        even = length - length % 2
        left = [_slice(a, axis, 0, even, 2) for a in arrays]
        right = [_slice(a, axis, 1, even, 2) for a in arrays]
        joined = _combined(left, right, dtypes, combine)
        rest = [_slice(a, axis, even, length) for a in arrays]
        arrays = [np.concatenate((j, r), axis=axis) for j, r in zip(joined, rest, strict=True)]
    return [a.squeeze(axis) for a in arrays]


def scan(machine: Any, input: Any, axis: Any, combine_fn: Any, reverse: bool = False, **_: Any) -> Any:
    """As tl.associative_scan, inclusive."""
    inputs = input if isinstance(input, tuple) else (input,)
    axis = axis.value if isinstance(axis, tl.constexpr) else axis
    dtypes = [t.type.scalar for t in inputs]
    arrays = with_common_programs(*(decoded(t.handle.data, d) for t, d in zip(inputs, dtypes, strict=True)))
    place = axis + 1 if axis >= 0 else axis + arrays[0].ndim
    if len(inputs) > 1:
        machine.builder.meter.guess()
    machine.builder.exchange(arrays[0], SCAN)
    if reverse:
        arrays = [np.flip(a, place) for a in arrays]
    function = _known(_SCANS, combine_fn) if len(arrays) == 1 else None
    if function is not None:
        arrays = [function(arrays[0], axis=place, dtype=arrays[0].dtype)]
    else:
        arrays = _scanned(arrays, dtypes, place, combine_fn)
    if reverse:
        arrays = [np.flip(a, place) for a in arrays]
    blocks = tuple(_block(encoded(a, d), d) for a, d in zip(arrays, dtypes, strict=True))
    return blocks if isinstance(input, tuple) else blocks[0]


def _scanned(arrays: list[np.ndarray], dtypes: list, axis: int, combine: Callable) -> list[np.ndarray]:
    """The scan in steps that double. Blocks keep their shape, which has to be a power of two: what has nothing to be
    combined with is combined with anything and then left as it was."""
    step, length = 1, arrays[0].shape[axis]
    position = np.arange(length).reshape(-1, *(1,) * (arrays[0].ndim - axis - 1))
    while step < length:
        before = [np.roll(a, step, axis) for a in arrays]
        joined = _combined(before, arrays, dtypes, combine)
        arrays = [np.where(position < step, a, j) for a, j in zip(arrays, joined, strict=True)]
        step *= 2
    return arrays


def _slice(array: np.ndarray, axis: int, start: int, stop: int, step: int = 1) -> np.ndarray:
    index: list[slice] = [slice(None)] * array.ndim
    index[axis] = slice(start, stop, step)
    return array[tuple(index)]


def _combined(left: list[np.ndarray], right: list[np.ndarray], dtypes: list, combine: Callable) -> list[np.ndarray]:
    """combine(left, right) element by element, with all positions of all programs in one call."""
    operands = [_block(encoded(a, d), d) for side in (left, right) for a, d in zip(side, dtypes, strict=True)]
    result = combine(*operands)
    result = result if isinstance(result, tuple) else (result,)
    data = [decoded(r.handle.data, d) for r, d in zip(result, dtypes, strict=True)]
    return [np.broadcast_to(d, a.shape) for d, a in zip(data, left, strict=True)]
