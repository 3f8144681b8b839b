"""How fast, and by whose work: from the traces of one call of the reference and one of the submission.

Source: reference/judging.md 3.5. Coverage is the smaller of two shares: the submission's Triton kernels' share of its
own modelled time, and the share of the reference's compute work that no longer happens in ATen operators.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass

from drkernel.judge.boundary.op_trace import OpTrace
from drkernel.judge.devices.simulated.rescale import Scale
from drkernel.judge.devices.simulated.roofline import Gpu, min_time_us, price
from drkernel.types import KernelTime

_WORDS = """
    copy_ clone _to_copy fill fill_ zero_ zeros zeros_like ones ones_like full full_like new_zeros new_ones new_full
    arange scalar_tensor lift_fresh_copy contiguous _pin_memory constant_pad_nd cat stack _copy_from _local_scalar_dense
"""
_FREE = frozenset(_WORDS.split())
"""ATen operators that allocate, fill, copy or cast: neither work that is replaced nor work that is left."""
_KINDS = dict.fromkeys(["relu", "threshold", "hardtanh", "clamp", "clamp_min", "clamp_max"], "clamp")
_KINDS |= dict.fromkeys(["add", "sub", "rsub"], "add") | dict.fromkeys(["sum", "mean"], "sum")
_KINDS |= dict.fromkeys(["max", "amax"], "max") | dict.fromkeys(["min", "amin"], "min")
"""Operators that stand in for one another; library products are one kind too."""
_NOTHING, _KEPT = 1e-3, 0.9
_LIBRARY_SHARE, _LIBRARY_LIMIT = 0.6, 10.0


@dataclass(frozen=True)
class ReferenceCost:
    """The reference's side of the comparison; the same for every submission to a task."""

    trace: OpTrace
    scale: Scale
    gpu: Gpu
    floor_us: float
    """No honest forward of the full-size task is faster."""

    def profile(self) -> tuple[KernelTime, ...]:
        return price(self.trace, self.gpu, self.scale)


@dataclass(frozen=True)
class Audit:
    speedup: float
    coverage: float
    replaced: float
    """Share in [0, 1] of the reference's compute work (modelled, without launches) that ATen no longer does, kind by
    kind of operator."""
    fewer: bool
    """Whether ATen does clearly less of any one operator than in the reference, however small."""
    reference_us: float
    submission_us: float
    profile: tuple[KernelTime, ...]
    reference_profile: tuple[KernelTime, ...]
    doubt: str = ""
    """Why the time cannot be true, or empty."""

    @property
    def nothing_replaced(self) -> bool:
        return self.replaced < _NOTHING and not self.fewer


def audit(reference_cost: ReferenceCost, trace: OpTrace) -> Audit:
    """Prices a submission's call against the reference's."""
    theirs, ours = reference_cost.profile(), price(trace, reference_cost.gpu, reference_cost.scale)
    reference_us, submission_us = (sum(row.microseconds for row in rows) for rows in (theirs, ours))
    triton = sum(row.microseconds for row in ours if row.triton) / (submission_us or 1.0)
    replaced, fewer = replaced_work(reference_cost, trace)
    speedup = reference_us / submission_us if submission_us else 0.0
    doubt = doubts(reference_cost, speedup, submission_us)
    coverage = min(replaced, triton)
    return Audit(speedup, coverage, replaced, fewer, reference_us, submission_us, ours, theirs, doubt)


def replaced_work(reference_cost: ReferenceCost, trace: OpTrace) -> tuple[float, bool]:
    """The share of the reference's compute work that ATen no longer does, and whether it does clearly less of any."""
    left, before = (_aten_work(rows, reference_cost) for rows in (trace, reference_cost.trace))
    gone = sum(max(0.0, work - left.get(kind, 0.0)) for kind, work in before.items())
    fewer = any(left.get(key, 0.0) < _KEPT * work for key, work in before.items())
    return gone / (sum(before.values()) or 1.0), fewer


def change(usual: OpTrace, found: OpTrace) -> str:
    """What another call of the same submission did otherwise: kernels that it left out, operators that it added."""
    kernels, others = ({row.site for row in one.rows if row.triton and row.programs} for one in (usual, found))
    if left := kernels - others:
        return "leaves out " + ", ".join(sorted(left)[:6])
    before, now = ({row.name for row in one.rows if not row.triton and row.name not in _FREE} for one in (usual, found))
    return "adds " + ", ".join(sorted(now - before)[:6]) if now - before else ""


def input_bytes(trace: OpTrace, sizes: list[tuple[int, int]]) -> int:
    """Bytes of the inputs that the reference really reads; `sizes` are (elements, bytes) of each input tensor."""
    read: dict[int, int] = {}
    for row in trace.rows:
        for tensor in row.tensors:
            if not tensor.stored:
                read[tensor.numel] = max(read.get(tensor.numel, 0), tensor.unique)
    return sum(min(size, read.get(numel, 0)) for numel, size in sizes)


def reference_cost(trace: OpTrace, scale: Scale, gpu: Gpu, inputs: int, outputs: int) -> ReferenceCost:
    """`inputs` and `outputs` are bytes of the small task that must be moved."""
    return ReferenceCost(trace, scale, gpu, min_time_us(gpu, scale, inputs, outputs))


def _aten_work(trace: OpTrace, reference_cost: ReferenceCost) -> dict[tuple[str, int], float]:
    """Modelled device time, without any launch cost, of ATen's compute operators, by kind and output elements."""
    ideal = dataclasses.replace(reference_cost.gpu, kernel_us=0.0, aten_host_us=0.0, triton_host_us=0.0)
    only_copies = all(row.name in _FREE for row in reference_cost.trace.rows)
    work: dict[tuple[str, int], float] = {}
    for row in trace.rows:
        if not row.triton and (only_copies or row.name not in _FREE):
            kind = "product" if row.flops else row.name.removesuffix("_")
            key = _KINDS.get(kind, kind), row.output_numel
            work[key] = work.get(key, 0.0) + sum(
                t.microseconds for t in price(OpTrace([row]), ideal, reference_cost.scale)
            )
    return work


def doubts(reference_cost: ReferenceCost, speedup: float, submission_us: float) -> str:
    """Why a time cannot be true, or nothing."""
    if submission_us < 0.8 * reference_cost.floor_us:
        return f"{submission_us:.3g} us is less than its inputs and outputs need to move ({reference_cost.floor_us:.3g} us)"
    times = reference_cost.profile()
    total = sum(row.microseconds for row in times) or 1.0
    products = {row.name for row in reference_cost.trace.rows if row.flops}
    library = sum(row.microseconds for row in times if row.name in products) / total
    if speedup > _LIBRARY_LIMIT and library > _LIBRARY_SHARE:
        return f"{speedup:.3g}x on a task that {100 * library:.0f}% library products dominate"
    return ""
