"""Executes the operations of Triton kernels with numpy, many programs at a time. Runs in simulated runners.

Triton's own `InterpreterBuilder` runs one program after the other, on numpy arrays of the block's shape. This one gives
every array a leading axis over programs: of length P, or 1 where all programs agree. One numpy call then serves P
programs. Where programs disagree about control flow, `Divergence` tells the interpreter how to split them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import triton.language as tl
from triton.runtime import interpreter as upstream

from drkernel.judge.untrusted.simulated import numerics
from drkernel.judge.untrusted.simulated.costs import COSTS, EXCHANGE, INTEGER, is_narrow, long_cost, simple_cost
from drkernel.judge.untrusted.simulated.memory import gather, in_any_order, scatter, store
from drkernel.judge.untrusted.simulated.meter import Meter, NoLaunch
from drkernel.judge.untrusted.simulated.products import dot_math, is_tf32, loaded, product_fill, product_of, turned
from drkernel.judge.untrusted.simulated.shared_memory import Loop

UNDO_ELEMENTS = 1 << 24
"""Stored elements whose old values a batch of programs may keep. Programs that store more run one by one."""


class Divergence(Exception):
    """Programs of one batch need different control flow; `values` [P]: equal where programs go on alike."""

    def __init__(self, values: np.ndarray):
        self.values = values


class BlockValue:
    """In the place of Triton's TensorHandle. data: [P or 1, *block shape]; a scalar has no further axes."""

    __slots__ = ("attr", "data", "dtype")

    def __init__(self, data: np.ndarray, dtype: Any, attr: dict | None = None):
        self.data = data
        self.dtype = dtype
        self.attr = attr if attr is not None else {}

    def __bool__(self) -> bool:
        return bool(self.data.all())

    def get_element_ty(self) -> Any:
        dtype = self.dtype
        while hasattr(dtype, "element_ty"):
            dtype = dtype.element_ty
        return dtype

    def clone(self) -> BlockValue:
        return BlockValue(self.data.copy(), self.dtype)

    def set_attr(self, key: str, value: Any) -> None:
        self.attr[key] = value


_NUMPY: dict[Any, np.dtype] = {}
_plain_np_dtype = upstream._get_np_dtype


def np_dtype(dtype: Any) -> np.dtype:
    """The dtype of the arrays that hold values of a Triton dtype."""
    dtype = dtype.scalar
    if dtype.is_ptr():
        return np.dtype(np.uint64)
    found = _NUMPY.get(dtype)
    if found is None:
        found = _NUMPY[dtype] = _plain_np_dtype(dtype)
    return found


def decoded(data: np.ndarray, dtype: Any) -> np.ndarray:
    """Stored numbers as numbers that numpy can compute with."""
    if dtype == tl.bfloat16:
        return numerics.bf16_to_fp32(data)
    return numerics.fp8_to_fp32(data, dtype.name) if dtype.name in numerics.FP8 else data


def encoded(data: np.ndarray, dtype: Any) -> np.ndarray:
    """Numbers as arrays of this Triton dtype store them: the inverse of `decoded`, with rounding."""
    if dtype == tl.bfloat16:
        return numerics.fp32_to_bf16(data.astype(np.float32, copy=False))
    if dtype.name in numerics.FP8:
        return numerics.fp32_to_fp8(data, dtype.name)
    return data.astype(np_dtype(dtype), copy=False)


def agree(data: np.ndarray) -> bool:
    """Whether all programs have the same number. data: [P or 1]."""
    return bool((data == data.flat[0]).all())


def with_common_programs(*arrays: np.ndarray) -> list[np.ndarray]:
    """The arrays with a common program axis."""
    count = max(len(a) for a in arrays)
    return [np.broadcast_to(a, (count, *a.shape[1:])) for a in arrays]


class BatchBuilder(upstream.InterpreterBuilder):
    """Executes what the kernel's Python code asks for, on `self.programs` [P, 3] grid positions at once."""

    meter: Meter | Any = NoLaunch()
    programs: np.ndarray
    undo: list[tuple]
    remembered: int
    loop: Loop | None = None
    stages = 0
    """See shared_memory."""
    order: np.random.Generator
    """Draws the order of atomic operations; the same in each launch, so that verdicts repeat."""

    def _done(self, data: np.ndarray, dtype: Any, cost: float = 1, op: Callable | None = None) -> BlockValue:
        self.count(data, cost)
        if more := long_cost(op, data):
            self.meter.long(data.size * self._repeat(data), more)
        return BlockValue(data, dtype)

    def count(self, data: np.ndarray, cost: float) -> None:
        """Counts an operation with this result, of so many instructions per element."""
        self.meter.step(data.size, cost * self._repeat(data), cost * (data.ndim > 1))

    def exchange(self, data: np.ndarray, cost: float = EXCHANGE) -> None:
        """Counts an operation whose numbers come from other threads."""
        self.meter.exchange()
        self.count(data, cost)

    def _repeat(self, data: np.ndarray) -> int:
        return len(self.programs) if len(data) == 1 else 1

    # programming model

    def create_get_program_id(self, axis: int) -> BlockValue:
        ids = self.programs[:, axis]
        return BlockValue(ids[:1] if agree(ids) else ids, tl.int32)

    def get_bf16(self, value: float) -> Any:
        """A constant beside a block of bf16, which Triton's own interpreter does not have."""
        return upstream.TensorHandle(numerics.fp32_to_bf16(np.array([value], dtype=np.float32)), tl.bfloat16)

    def scalar(self, data: np.ndarray) -> Any:
        """The Python value of a scalar that decides control flow. data: [P or 1]."""
        if self.loop:
            self.loop.certain = False
        if data.size > 1 and not agree(data):
            raise Divergence(np.broadcast_to(data.reshape(-1), len(self.programs)))
        return data.flat[0]

    def create_print(self, *_: Any) -> None:
        """Prints nothing: nobody reads what a runner prints, and numpy would hand each number to its formatters."""

    # memory

    def create_load(self, ptr: BlockValue, cache: Any, eviction: Any, volatile: Any) -> BlockValue:
        return self.create_masked_load(
            ptr, BlockValue(np.ones((1,) * ptr.data.ndim, bool), tl.int1), None, cache, eviction, volatile
        )

    def create_store(self, ptr: BlockValue, value: BlockValue, cache: Any, eviction: Any) -> None:
        self.create_masked_store(ptr, value, BlockValue(np.ones((1,) * ptr.data.ndim, bool), tl.int1), cache, eviction)

    def create_masked_load(
        self,
        ptr: BlockValue,
        mask: BlockValue,
        other: BlockValue | None,
        cache_modifier: Any = None,
        eviction_policy: Any = None,
        is_volatile: bool = False,
    ) -> BlockValue:
        dtype = ptr.get_element_ty()
        kind = np_dtype(dtype)
        fill = np.zeros((1,) * ptr.data.ndim, kind) if other is None else other.data.astype(kind, copy=False)
        pointers, where, fill = (np.ascontiguousarray(a) for a in np.broadcast_arrays(ptr.data, mask.data, fill))
        place = self.meter.access(pointers, where, kind.itemsize, False, self._repeat(pointers))
        data = gather(place, pointers, where, fill, kind, self.meter.addresses)
        if not dtype.is_floating():
            self.meter.guess()
        in_loop = self.loop.loaded(dtype, is_volatile) if self.loop else {}
        return BlockValue(data, dtype, loaded(where, pointers, kind.itemsize) | in_loop | {"waits": is_volatile})

    def create_masked_store(self, ptr: BlockValue, value: BlockValue, mask: BlockValue, *_: Any, **__: Any) -> None:
        kind = np_dtype(ptr.get_element_ty())
        data = value.data.astype(kind, copy=False)
        pointers, where, data = (np.ascontiguousarray(a) for a in np.broadcast_arrays(ptr.data, mask.data, data))
        place = self.meter.access(pointers, where, kind.itemsize, True, self._repeat(pointers))
        self._remember(place, pointers, where, kind)
        store(place, pointers, where, data, self.meter.addresses, lambda some: decoded(some, ptr.get_element_ty()))

    def _remember(self, place: Any, pointers: np.ndarray, where: np.ndarray, kind: np.dtype) -> None:
        if len(self.programs) > 1:
            self.remembered += where.size
            if self.remembered > UNDO_ELEMENTS:
                self.meter.take_back(place)
                raise Divergence(np.arange(len(self.programs)))
            old = gather(place, pointers, where, np.zeros(where.shape, kind), kind, self.meter.addresses)
            self.undo.append((place, pointers, where, old))

    def roll_back(self) -> None:
        """Takes back every store of this batch."""
        for place, pointers, where, old in reversed(self.undo):
            scatter(place, pointers, where, old, self.meter.addresses)
            self.meter.take_back(place)

    def _atomic(
        self, ptr: BlockValue, value: BlockValue, mask: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        every = np.empty((len(self.programs),) + (1,) * (ptr.data.ndim - 1))
        arrays = np.broadcast_arrays(ptr.data, value.data, mask, every)[:3]
        pointers, data, where = (np.ascontiguousarray(a) for a in arrays)
        self.meter.atomic(pointers[where.astype(bool)])
        with self.meter.programs.in_turn():
            self.meter.access(pointers, where, data.itemsize, False, 1)
            self._remember(self.meter.access(pointers, where, data.itemsize, True, 1), pointers, where, data.dtype)
        return pointers - self.meter.addresses, data, where

    def create_atomic_cas(self, ptr: BlockValue, cmp: BlockValue, val: BlockValue, sem: Any, scope: Any) -> BlockValue:
        pointers, data, _ = self._atomic(ptr, val, np.ones((1,) * ptr.data.ndim, bool))
        if self.meter.blind:
            return BlockValue(np.zeros_like(data), cmp.dtype.scalar)
        expected = np.ascontiguousarray(np.broadcast_to(cmp.data, data.shape))
        order = self.ir_sem_to_interpreter_sem[sem]
        cas = lambda *arrays: upstream._interpreter.atomic_cas(*arrays, order)
        return BlockValue(in_any_order(self.order, cas, pointers, expected, data), cmp.dtype.scalar, {"waits": True})

    def create_atomic_rmw(
        self, op: Any, ptr: BlockValue, val: BlockValue, mask: BlockValue, sem: Any, scope: Any
    ) -> BlockValue:
        pointers, data, where = self._atomic(ptr, val, mask.data)
        if self.meter.blind:
            return BlockValue(np.zeros_like(data), val.dtype.scalar)
        op, order = self.ir_rmw_op_to_interpreter_rmw_op[op], self.ir_sem_to_interpreter_sem[sem]
        rmw = lambda *arrays: upstream._interpreter.atomic_rmw(op, *arrays, order)
        return BlockValue(in_any_order(self.order, rmw, pointers, data, where), val.dtype.scalar, {"waits": True})

    # arithmetic

    def cast_impl(self, src: BlockValue, dst_type: Any) -> BlockValue:
        target = dst_type.scalar
        data = encoded(decoded(src.data, src.dtype.scalar), target)
        result = self._done(data, target, simple_cost(decoded(data[:0], target)))
        result.attr = {key: src.attr[key] for key in ("filled", "along") if key in src.attr}
        return result

    def create_fp_to_fp(self, src: BlockValue, dst_type: Any, rounding: Any) -> BlockValue:
        source, target = src.dtype.scalar, dst_type.scalar
        truncates = rounding is not None and rounding != upstream._ir.ROUNDING_MODE.RTNE
        if truncates:
            return super().create_fp_to_fp(BlockValue(np.ascontiguousarray(src.data), source), target, rounding)
        return self.cast_impl(src, dst_type)

    def binary_op(self, lhs: BlockValue, rhs: BlockValue, op: Callable) -> BlockValue:
        result = self._numbers(op, lhs.dtype.scalar, lhs, rhs)
        if op is np.multiply:
            result.attr = product_of(lhs, rhs)
        return result

    def ternary_op(self, first: BlockValue, second: BlockValue, third: BlockValue, op: Callable) -> BlockValue:
        dtype = third.dtype.scalar
        if op is np.where:
            data = np.where(first.data, second.data, third.data)
            return self._done(data, dtype)
        return self._numbers(op, dtype, first, second, third)

    def unary_op(self, arg: BlockValue, op: Callable) -> BlockValue:
        return self._numbers(op, arg.dtype.scalar, arg)

    def _numbers(self, op: Callable, dtype: Any, *operands: BlockValue) -> BlockValue:
        """Applies op; comparisons stay bool, and numpy's wider results go back to the operand's type."""
        result = op(*(decoded(operand.data, dtype) for operand in operands))
        if result.dtype == np.bool_ and dtype.is_floating():
            self.meter.guess()
        elif result.dtype != np.bool_ and result.itemsize > np_dtype(dtype).itemsize:
            result = encoded(result, dtype)
        return self._done(result, dtype, COSTS.get(op, simple_cost(decoded(operands[0].data[:0], dtype))), op)

    def create_idiv(self, lhs: BlockValue, rhs: BlockValue) -> BlockValue:
        data = (lhs.data - np.fmod(lhs.data, rhs.data)) // rhs.data
        return self._done(data, lhs.dtype.scalar, COSTS[np.fmod], np.fmod)

    def create_umulhi(self, lhs: BlockValue, rhs: BlockValue) -> BlockValue:
        return self._done(super().create_umulhi(lhs, rhs).data, lhs.dtype.scalar, INTEGER, np.multiply)

    def create_fma(self, x: BlockValue, y: BlockValue, z: BlockValue) -> BlockValue:
        return self._numbers(lambda a, b, c: a * b + c, z.dtype.scalar, x, y, z)

    def create_erf(self, arg: BlockValue) -> BlockValue:
        return self.unary_op(arg, numerics.erf)

    def create_rsqrt(self, arg: BlockValue) -> BlockValue:
        return self.unary_op(arg, lambda x: 1 / np.sqrt(x))

    def create_addptr(self, ptr: BlockValue, offset: BlockValue) -> BlockValue:
        width = max(1, ptr.get_element_ty().primitive_bitwidth // 8)
        return self._done(ptr.data + np.uint64(width) * offset.data.astype(np.uint64), ptr.dtype, INTEGER)

    def create_dot(self, a: BlockValue, b: BlockValue, d: BlockValue, precision: Any, imprecise: Any) -> BlockValue:
        if self.loop:
            self.loop.product(a, b)
        left, right = self._dot_operand(a, precision), self._dot_operand(b, precision)
        result = np.matmul(left, right, dtype=d.data.dtype if d.data.dtype != np.float16 else np.float32)
        rows, inner, columns = *left.shape[-2:], right.shape[-1]
        batch = int(np.prod(result.shape[:-2]))
        flops = 2 * batch * rows * inner * columns * self._repeat(result)
        math, k_major = dot_math(a, b, precision), a.attr.get("along") == 1 and b.attr.get("along") == 0
        self.meter.product(flops, product_fill(a, b), math, rows * columns, k_major)
        self.meter.work += batch * rows * inner * columns / 32
        return BlockValue((result + d.data).astype(d.data.dtype, copy=False), d.dtype.scalar)

    def _dot_operand(self, handle: BlockValue, precision: Any) -> np.ndarray:
        dtype = handle.dtype.scalar
        if dtype == tl.float32 and is_tf32(precision):
            return numerics.round_to_tf32(handle.data)
        data = decoded(handle.data, dtype)
        return data.astype(np.float32) if data.dtype == np.float16 else data

    def create_extern_elementwise(
        self, library: Any, path: Any, symbol: str, args: list, kind: Any, pure: Any
    ) -> BlockValue:
        function = numerics.libdevice(symbol)
        data = [decoded(a.data, a.dtype.scalar) for a in args]
        result = encoded(function(*np.broadcast_arrays(*data)), kind.scalar)
        self.meter.guess()
        return self._done(result, kind.scalar, COSTS.get(function, 16))

    def create_inline_asm(self, *_: Any) -> BlockValue:
        raise NotImplementedError("inline assembly does not run on the simulated device")

    # shapes

    def create_make_range(self, ret_ty: Any, start: int, stop: int) -> BlockValue:
        return BlockValue(np.arange(start, stop, dtype=np.int32)[None], tl.int32)

    def create_splat(self, ret_ty: Any, arg: BlockValue) -> BlockValue:
        shape = tuple(ret_ty.shape)
        data = arg.data.reshape(len(arg.data), *(1,) * len(shape))
        return _view(arg, np.broadcast_to(data, (len(data), *shape)))

    def create_unsplat(self, arg: BlockValue) -> BlockValue:
        return _view(arg, arg.data.reshape(len(arg.data)))

    def create_broadcast(self, arg: BlockValue, shape: Any) -> BlockValue:
        expanded = {key: arg.attr[key] for key in ("expanded",) if key in arg.attr}
        return _view(arg, np.broadcast_to(arg.data, (len(arg.data), *shape)), expanded)

    def create_expand_dims(self, arg: BlockValue, axis: int) -> BlockValue:
        data = np.expand_dims(arg.data, axis + 1 if axis >= 0 else axis)
        return _view(arg, data, {"expanded": (axis, arg)})

    def create_reshape(self, arg: BlockValue, shape: Any, allow_reorder: bool) -> BlockValue:
        return _view(arg, arg.data.reshape(len(arg.data), *shape))

    def create_trans(self, arg: BlockValue, perm: Any) -> BlockValue:
        attr = turned(arg.attr) if len(perm) == 2 else {}
        if is_narrow(arg.data.shape[1:]):
            self.exchange(arg.data)
        return _view(arg, np.transpose(arg.data, (0, *(int(axis) + 1 for axis in perm))), attr)

    def create_cat(self, lhs: BlockValue, rhs: BlockValue) -> BlockValue:
        return _view(lhs, np.concatenate(with_common_programs(lhs.data, rhs.data), axis=1))

    def create_join(self, lhs: BlockValue, rhs: BlockValue) -> BlockValue:
        return _view(lhs, np.stack(with_common_programs(lhs.data, rhs.data), axis=-1))

    def create_gather(self, src: BlockValue, indices: BlockValue, axis: int) -> BlockValue:
        data, index = with_common_programs(src.data, indices.data)
        found = np.take_along_axis(data, index, axis=axis + 1 if axis >= 0 else axis)
        self.exchange(found)
        return BlockValue(found, src.dtype.scalar)

    def create_histogram(self, data: BlockValue, bins: int, mask: BlockValue | None) -> BlockValue:
        where = np.ones_like(data.data, bool) if mask is None else mask.data
        values, where = with_common_programs(data.data, where)
        self.count(values, bins.bit_length() + bins / 8)  # a warp votes on each bit, then each thread counts some bins
        rows = [np.bincount(v[w], minlength=bins)[:bins] for v, w in zip(values, where, strict=True)]
        return self._done(np.stack(rows).astype(np.int32), tl.int32)

    # block pointers and descriptors

    def create_descriptor_load(self, *arguments: Any) -> BlockValue:
        found = super().create_descriptor_load(*arguments)
        found.attr.pop("turn", None)  # another unit loads it
        return found

    def create_advance(self, ptr: Any, offsets: list[BlockValue]) -> Any:
        moved = [
            BlockValue(o.data + d.data.astype(o.data.dtype), o.dtype) for o, d in zip(ptr.offsets, offsets, strict=True)
        ]
        return upstream.BlockPointerHandle(ptr.base, ptr.shape, ptr.strides, moved, ptr.block_shape, ptr.order)


def _view(arg: BlockValue, data: np.ndarray, attr: dict | None = None) -> BlockValue:
    """The values of a block in another form, which costs nothing."""
    return BlockValue(data, arg.dtype.scalar, attr)
