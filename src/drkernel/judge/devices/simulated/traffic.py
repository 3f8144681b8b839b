"""What a kernel or an operator moves at full size, and how often it runs."""

from __future__ import annotations

import math
from collections.abc import Iterable

from drkernel.judge.boundary.op_trace import Row, Traffic
from drkernel.judge.devices.simulated.gpus import Gpu
from drkernel.judge.devices.simulated.rescale import Scale

RAMP_US, RAMP = 6.0, 0.1
"""A kernel reaches its bandwidth only after a while: up to a tenth of its time, at most this long."""

L1_BYTES = 96 * 1024
"""What an SM keeps for its programs; the rest of the cache is shared memory."""


def calls_of(row: Row, scale: Scale) -> float:
    """At full size: as the submission says, but no fewer than were seen; else as those of the reference grow. Copies to
    the host are priced by elements (`interpreter.COPIED_AT_ONCE`)."""
    if row.name == "_local_scalar_dense":
        return math.ceil(row.calls * max((scale.of_tensor(tensor.numel) for tensor in row.tensors), default=1.0))
    return max(row.calls, row.full_calls or row.calls * scale.of_calls(row))


def traffic(row: Row, scale: Scale, products: float = 0.0) -> tuple[float, float]:
    """Distinct and total bytes at full size; `products` is what the kernel's products grow by, if it has any.

    What a kernel loads again grows like its products where it has any, else like its data; but what fits the L1 cache
    is loaded once.
    """
    unique = sum(t.unique * scale.of_tensor(t.numel) for t in row.tensors)
    total = unique
    growth = products or unique / (row.bytes_unique or 1)
    for tensor in row.tensors:
        again, size = tensor.total - tensor.unique, tensor.unique * scale.of_tensor(tensor.numel)
        total += again * (growth if row.triton and size > L1_BYTES else scale.of_tensor(tensor.numel))
    return unique, total


def largest(tensors: Iterable[Traffic], scale: Scale) -> float:
    """Elements of the largest of these tensors at full size."""
    return max((tensor.numel * scale.of_tensor(tensor.numel) for tensor in tensors), default=0.0)


def stream_s(size: float, calls: int, gpu: Gpu) -> float:
    """Seconds that DRAM takes to move these bytes, in this many kernels."""
    seconds = size / gpu.bandwidth
    return seconds + min(RAMP * seconds, RAMP_US * 1e-6 * calls)
