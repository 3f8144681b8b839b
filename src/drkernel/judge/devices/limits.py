"""The limits of GPUs, as their data sheets state them, and how much of its GPU's limit a submission reaches.

The limit of a task is the longer of two times: that of moving its least bytes at the memory's bandwidth, and that of
its products at the fastest arithmetic by which they can be right (`trusted/least_work.py`). Caches, launches and
element-wise arithmetic are left out, so that good kernels stay below: a large copy reaches 92 %, cuBLAS about 75 %.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from drkernel.judge.boundary.op_trace import Math
from drkernel.judge.trusted.least_work import LeastWork
from drkernel.types import Precision


@dataclass(frozen=True)
class Limits:
    """Of one GPU, per second."""

    bandwidth: float
    """Bytes of its memory."""
    flops: Mapping[Math, float]
    """Operations of dense products at the boost clock, accumulated in fp32, by arithmetic. Of fp32 without TF32. Of
    int8 and fp8 twice those of 16 bits; GPUs before capability 8.9 have no fp8."""
    capability: tuple[int, int]
    """CUDA's compute capability; a GPU of this name with another one is not known."""


def _limits(
    terabytes: float, half: float, tf32: float, fp32: float, fp64: float, capability: tuple[int, int]
) -> Limits:
    flops: dict[Math, float] = {
        "byte": 2 * half,
        "half": half,
        "tf32": tf32,
        "tf32x3": tf32 / 3,
        "fp32": fp32,
        "fp64": fp64,
    }
    return Limits(1e12 * terabytes, {math: 1e12 * rate for math, rate in flops.items()}, capability)


LIMITS = {
    "NVIDIA H100 80GB HBM3": _limits(3.35, 989, 495, 67, 67, (9, 0)),
    "NVIDIA H100 PCIe": _limits(2.04, 756, 378, 51, 51, (9, 0)),
    "NVIDIA H100 NVL": _limits(3.94, 835, 418, 60, 60, (9, 0)),
    "NVIDIA H200": _limits(4.8, 989, 495, 67, 67, (9, 0)),
    "NVIDIA H200 NVL": _limits(4.8, 836, 418, 60, 60, (9, 0)),
    "NVIDIA B200": _limits(8.0, 2250, 1125, 80, 40, (10, 0)),
    "NVIDIA A100-SXM4-80GB": _limits(2.04, 312, 156, 19.5, 19.5, (8, 0)),
    "NVIDIA A100 80GB PCIe": _limits(1.94, 312, 156, 19.5, 19.5, (8, 0)),
    "NVIDIA A100-SXM4-40GB": _limits(1.56, 312, 156, 19.5, 19.5, (8, 0)),
    "NVIDIA A100-PCIE-40GB": _limits(1.56, 312, 156, 19.5, 19.5, (8, 0)),
    "NVIDIA L40S": _limits(0.864, 362, 183, 91.6, 1.43, (8, 9)),
    "NVIDIA GeForce RTX 4090": _limits(1.008, 165, 82.6, 82.6, 1.29, (8, 9)),
}
"""By the name that CUDA gives the whole GPU: a part of one (MIG) has another name and no entry. From NVIDIA's data
sheets and architecture papers, without sparsity; fp64 with tensor cores where there are such."""


def limits_of(name: str, capability: tuple[int, int]) -> Limits | None:
    """The limits of a GPU by what CUDA says of it; None where they are not known, and nothing is guessed then."""
    found = LIMITS.get(name)
    return found if found and found.capability == capability else None


def limit_us(work: LeastWork, limits: Limits, precision: Precision) -> tuple[float, float]:
    """Microseconds that the bytes and the operations of a task need at least."""
    operations = sum(flops / _rate(math, limits, precision) for math, flops in work.flops.items())
    return 1e6 * work.bytes / limits.bandwidth, 1e6 * operations


def _rate(math: Math, limits: Limits, precision: Precision) -> float:
    """The fastest arithmetic by which a product is right: of fp32, three TF32 products make one."""
    if math != "fp32":
        return limits.flops[math]
    allowed = {"ieee": limits.flops["tf32x3"], "tf32": limits.flops["tf32"], "low": limits.flops["half"]}
    return max(limits.flops["fp32"], allowed[precision])


def roofline(
    work: LeastWork | None, limits: Limits | None, precision: Precision, submission_us: float
) -> dict[str, Any]:
    """`evidence["roofline"]`: the share of the limit that a time reaches, and where it comes from. `share` is None
    where the reference does not run without large data or the GPU is not known."""
    facts: dict[str, Any] = {"share": None, "limit_us": None, "bytes": None, "flops": None}
    if work is None:
        return facts
    facts |= {"bytes": work.bytes, "flops": work.operations}
    if limits is None or not submission_us:
        return facts
    moving, computing = limit_us(work, limits, precision)
    limit = max(moving, computing)
    bound = "bytes" if moving >= computing else "operations"
    return facts | {"share": round(limit / submission_us, 4), "limit_us": round(limit, 4), "by": bound}
