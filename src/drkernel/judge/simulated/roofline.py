"""From counts to microseconds: a roofline of a named GPU, with launch costs, the L2 cache and idle SMs."""

from __future__ import annotations

from dataclasses import dataclass

from drkernel.types import KernelTime

from .ledger import Ledger, Row
from .scale import Scale


@dataclass(frozen=True)
class Gpu:
    """Rates are per second and what good kernels measure, not data-sheet peaks, unless they say `peak`."""

    name: str
    sms: int
    peak_bandwidth: float
    """DRAM bytes, data sheet: the physics floor uses it."""
    bandwidth: float
    """DRAM bytes that a large copy reaches, read plus written."""
    l2_bandwidth: float
    l2_bytes: float
    flops: dict[str, float]
    """Products by Math: what cuBLAS reaches on large square matrices."""
    peak_flops: float
    """Dense bf16, data sheet."""
    vector_ops: float
    """Element-wise fp32 operations, index arithmetic and transcendental functions mixed in."""
    kernel_us: float = 2.0
    """Start and end of a kernel on the device."""
    aten_host_us: float = 5.0
    """Interval between two eager operators of a host that keeps a queue filled."""
    triton_host_us: float = 9.0
    """The same between two Triton launches, whose launcher is Python."""


GPUS = {
    "H200": Gpu(
        "H200", 132, 4.8e12, 4.2e12, 7.5e12, 50e6,
        {"half": 700e12, "tf32": 350e12, "fp32": 50e12, "fp64": 55e12}, 989e12, 14e12,
    ),
    "H100": Gpu(
        "H100", 132, 3.35e12, 2.9e12, 7.0e12, 50e6,
        {"half": 650e12, "tf32": 350e12, "fp32": 50e12, "fp64": 55e12}, 989e12, 14e12,
    ),
    "A100": Gpu(
        "A100", 108, 2.04e12, 1.7e12, 4.5e12, 40e6,
        {"half": 260e12, "tf32": 125e12, "fp32": 18e12, "fp64": 18e12}, 312e12, 6e12,
    ),
}  # fmt: skip
"""Data sheets of NVIDIA's H200 (141 GB), H100 (SXM5) and A100 (80 GB SXM4)."""

TRITON_DOT = {"half": 0.75, "tf32": 0.6, "fp32": 0.5, "fp64": 0.3}
"""What a plain tl.dot kernel reaches of cuBLAS."""

EAGER: dict[str, tuple[int, float]] = {
    "native_group_norm": (3, 1.5), "native_batch_norm": (2, 1.5), "logsumexp": (6, 2.5), "mse_loss": (2, 1.0),
    "smooth_l1_loss": (2, 1.0), "huber_loss": (2, 1.0), "binary_cross_entropy": (2, 1.0), "cumsum": (1, 1.3), "cumprod": (1, 1.3),
    "logcumsumexp": (1, 1.3), "nll_loss_forward": (1, 1.0), "sort": (6, 6.0), "topk": (3, 2.0), "median": (6, 6.0),
    "var_mean": (1, 1.2), "var": (1, 1.2), "std": (1, 1.2), "convolution": (1, 1.0), "_local_scalar_dense": (2, 1.0),
}  # fmt: skip
"""Operators that eager CUDA runs as several kernels, or with more traffic than their inputs and outputs: (kernels, factor)."""


def price(ledger: Ledger, gpu: Gpu, scale: Scale) -> tuple[KernelTime, ...]:
    """Modelled time of every row of one forward at full size, most expensive first, in microseconds.

    Kernels run one after the other; where the device would wait for the host to launch them, the wait is shared out in
    proportion to the rows' launch costs.
    """
    device = [_device_us(row, gpu, scale) for row in ledger.rows]
    host = [_host_us(row, gpu) for row in ledger.rows]
    wait = max(0.0, sum(host) - sum(device)) / (sum(host) or 1.0)
    times = [
        KernelTime(row.site if row.triton else row.name, row.calls, busy + wait * launch, row.triton)
        for row, busy, launch in zip(ledger.rows, device, host, strict=True)
    ]
    return tuple(sorted(times, key=lambda t: -t.microseconds))


def _host_us(row: Row, gpu: Gpu) -> float:
    return row.calls * (gpu.triton_host_us if row.triton else gpu.aten_host_us)


def _device_us(row: Row, gpu: Gpu, scale: Scale) -> float:
    kernels, factor = (1, 1.0) if row.triton else EAGER.get(row.name, (1, 1.0))
    unique = sum(t.unique * scale.of_tensor(t.numel) for t in row.tensors)
    total = sum(t.total * scale.of_tensor(t.numel) for t in row.tensors)
    growth = unique / row.bytes_unique if row.bytes_unique else scale.bytes
    products = (
        row.flops * scale.of_products(row) / (gpu.flops[row.math] * (TRITON_DOT[row.math] if row.triton else 1.0))
    )
    vector = row.arithmetic * growth / gpu.vector_ops if row.triton else 0.0
    share, dispatch = _parallel(row, gpu, scale) if row.triton else (1.0, 0.0)
    memory = max(unique * factor / gpu.bandwidth, total * factor / gpu.l2_bandwidth)
    return 1e6 * max(max(memory, products, vector) / share, dispatch) + kernels * row.calls * gpu.kernel_us


def _parallel(row: Row, gpu: Gpu, scale: Scale) -> tuple[float, float]:
    """The share of the device that the launches fill, and the seconds that starting their programs takes at least."""
    calls = max(row.calls, 1)
    programs = row.programs / calls
    if programs > 1:
        stored = [t for t in row.tensors if t.stored] or row.tensors
        programs *= scale.of_tensor(max((t.numel for t in stored), default=0))
    return min(1.0, max(programs, 1.0) / gpu.sms), row.calls * programs * 25e-9 / gpu.sms


def floor_microseconds(gpu: Gpu, scale: Scale, inputs_bytes: int, outputs_bytes: int) -> float:
    """No honest forward is faster: each byte of its inputs read and of its outputs written once at the data sheet's rate."""
    moved = (inputs_bytes + outputs_bytes) * scale.bytes
    rate = gpu.peak_bandwidth if moved > gpu.l2_bytes else gpu.l2_bandwidth
    return 1e6 * moved / rate
