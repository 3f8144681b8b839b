"""Addresses of blocks behind block pointers and tensor descriptors. Runs in simulated runners."""

from __future__ import annotations

from typing import Any

import numpy as np
import triton.language as tl
from triton.runtime import interpreter as upstream

from drkernel.judge.untrusted.simulated.builder import BlockValue
from drkernel.judge.untrusted.simulated.limits import LaunchLimitExceeded


def block_pointers(
    base: BlockValue, block_shape: Any, strides: list, offsets: list, shape: list, checked: Any
) -> tuple[BlockValue, BlockValue]:
    """Addresses and in-bounds mask of a block. Both [P or 1, *block shape]; `checked` names the guarded dimensions."""
    rank = len(block_shape)
    width = max(1, base.get_element_ty().primitive_bitwidth // 8)

    def column(data: np.ndarray) -> np.ndarray:
        return data.reshape(len(data), *(1,) * rank)

    pointers = column(base.data)
    mask = np.ones((1,) * (rank + 1), bool)
    for axis, size in enumerate(block_shape):
        steps = np.arange(size).reshape(1, *(size if a == axis else 1 for a in range(rank)))
        offset = column(offsets[axis].data).astype(np.int64) + steps
        pointers = pointers + (width * offset * column(strides[axis].data)).astype(np.uint64)
        if axis in checked:
            mask = mask & (offset >= 0) & (offset < column(shape[axis].data))
    return BlockValue(pointers, base.dtype.scalar), BlockValue(
        np.broadcast_to(mask, (len(mask), *block_shape)), tl.int1
    )


def materialize_block_pointer(self: Any, boundary_check: Any) -> tuple[BlockValue, BlockValue]:
    """In the place of BlockPointerHandle.materialize_pointers."""
    return block_pointers(self.base, self.block_shape, self.strides, self.offsets, self.shape, boundary_check)


def checked_descriptor(self: Any) -> None:
    """Before TensorDescHandle.validate. Raises LaunchLimitExceeded for strides that a GPU's descriptor cannot have."""
    width = self.base.get_element_ty().primitive_bitwidth // 8
    for stride in self.strides[:-1]:
        steps = stride.data.astype(np.int64) * width
        if (steps % _STRIDE_BYTES).any():
            raise LaunchLimitExceeded(
                f"a stride of a tensor descriptor has {steps.flat[0]} bytes, a multiple of {_STRIDE_BYTES} is expected"
            )
    _validate(self)


_STRIDE_BYTES = 16
_validate = upstream.TensorDescHandle.validate


def materialize_descriptor(self: Any, offsets: list[BlockValue]) -> tuple[BlockValue, BlockValue]:
    """In the place of TensorDescHandle.materialize_pointers."""
    return block_pointers(self.base, self.block_shape, self.strides, offsets, self.shape, range(self.ndim))
