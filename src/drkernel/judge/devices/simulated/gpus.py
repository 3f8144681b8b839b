"""The GPUs of the simulated device: what good kernels reach on them."""

from __future__ import annotations

from dataclasses import dataclass

from drkernel.judge.boundary.op_trace import Math


@dataclass(frozen=True)
class Gpu:
    """Rates per second: what good kernels reach, not data-sheet peaks, unless they say `peak`."""

    name: str
    sheet: str
    """Its name in `devices.limits.LIMITS`."""
    memory_gib: float
    """What CUDA says that it has."""
    sms: int
    peak_bandwidth: float
    """DRAM bytes, data sheet: `min_time_us` uses it."""
    bandwidth: float
    """DRAM bytes that a large copy reaches, read plus written."""
    l2_bandwidth: float
    """Bytes of 32-byte sectors, when they are touched again or only partly used."""
    l2_bytes: float
    flops: dict[str, float]
    """Products by Math: what cuBLAS reaches on large square matrices."""
    vector_ops: float
    """Element-wise fp32 operations."""
    kernel_us: float = 2.2
    """Start and end of a kernel on the device. What its host takes is hidden, as it is where a GPU is timed."""
    start_us: float = 1.0
    """Of the first kernel of a forward, beside that."""
    program_ns: float = 0.6
    """Interval at which the device starts programs."""
    eager_fp32: Math = "fp32"
    """The arithmetic of eager products of fp32."""

    def arithmetic(self, math: Math) -> Math:
        """That of an eager product of these numbers."""
        return self.eager_fp32 if math == "fp32" else math


GPUS = {
    "H200": Gpu(
        name="H200", sheet="NVIDIA H200", memory_gib=139.0, sms=132,
        peak_bandwidth=4.8e12, bandwidth=4.4e12, l2_bandwidth=5.2e12, l2_bytes=50e6,
        flops={"byte": 1521e12, "half": 760e12, "tf32": 400e12, "tf32x3": 133e12, "fp32": 51e12, "fp64": 55e12},
        vector_ops=33e12,
    ),
    "H100": Gpu(
        name="H100", sheet="NVIDIA H100 80GB HBM3", memory_gib=79.0, sms=132,
        peak_bandwidth=3.35e12, bandwidth=3.07e12, l2_bandwidth=5.2e12, l2_bytes=50e6,
        flops={"byte": 1400e12, "half": 700e12, "tf32": 380e12, "tf32x3": 127e12, "fp32": 51e12, "fp64": 55e12},
        vector_ops=33e12,
    ),
    "A100": Gpu(
        name="A100", sheet="NVIDIA A100-SXM4-80GB", memory_gib=79.0, sms=108,
        peak_bandwidth=2.04e12, bandwidth=1.8e12, l2_bandwidth=3.3e12, l2_bytes=40e6,
        flops={"byte": 520e12, "half": 260e12, "tf32": 130e12, "tf32x3": 43e12, "fp32": 18e12, "fp64": 18e12},
        vector_ops=9e12,
    ),
}  # fmt: skip
"""The GPUs of the simulated device; `judge.gpu` may name them. H200: measured. H100 (SXM5) and A100 (80 GB SXM4):
NVIDIA's data sheets, with the H200's ratios to its own. So are products of int8 and fp8: twice those of 16 bits."""
