"""By whose work: which of the reference's operators a submission's Triton kernels replace, and how much of its time
they take.

Coverage is the smaller of two proportions: that of the submission's own Triton kernels in its device time, and that of
the reference's compute work that no longer happens in ATen operators. Work is weighed by a cost model, which the device
brings along (`CostModel`): this module knows no GPU. See judge/CHEATS.md and P5.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Protocol

from drkernel.judge.boundary.dimensions import MOMENTS, SORTS
from drkernel.judge.boundary.op_trace import OpTrace, Row
from drkernel.judge.trusted.least_work import LeastWork
from drkernel.types import KernelTime

_COPY_NAMES = """
    copy_ clone _to_copy fill fill_ zero_ zeros zeros_like ones ones_like full full_like new_zeros new_ones new_full
    arange scalar_tensor lift_fresh_copy contiguous _pin_memory constant_pad_nd cat stack _copy_from _local_scalar_dense
"""
_COPIES = frozenset(_COPY_NAMES.split())
"""ATen operators that allocate, fill, copy or cast: neither work that is replaced nor work that is left."""
_KINDS = dict.fromkeys(["relu", "threshold", "hardtanh", "clamp", "clamp_min", "clamp_max"], "clamp")
_KINDS |= dict.fromkeys(["add", "sub", "rsub"], "add") | dict.fromkeys(["sum", "mean"], "sum")
_KINDS |= dict.fromkeys(["max", "amax"], "max") | dict.fromkeys(["min", "amin"], "min")
_KINDS |= dict.fromkeys([*SORTS, "topk"], "sort") | dict.fromkeys(MOMENTS, "var")
"""Operators that stand in for one another; library products are one kind too."""
_MIN_REPLACED, _CLEARLY_LESS = 1e-3, 0.9
"""Below _MIN_REPLACED nothing is replaced, unless ATen's time in some operator is less than this proportion of the
reference's."""
_LARGE = 2**20
"""Bytes that an operator moves at least, which another call may not leave out."""
_MEASURED_MARGIN = 1.5
"""How much longer than in the reference's profile an operator may take."""
_MIN_TIME_MARGIN = 0.8
"""A time is refused where it is below this proportion of the least that is possible."""


class CostModel(Protocol):
    """Modelled times of recorded operators, at the sizes that count."""

    def kernel_times(self, trace: OpTrace) -> tuple[KernelTime, ...]:
        """The time of every row of one forward in microseconds, launches included, longest first."""

    def work_us(self, row: Row) -> float:
        """The device time of a row in microseconds, without any cost of launching."""

    def min_time_us(self, input_bytes: int, output_bytes: int) -> float:
        """Microseconds that no honest forward is faster than, for the bytes of the reference's run."""


@dataclass(frozen=True)
class ReferenceCost:
    """What one forward of the reference costs; the same for every submission to a task."""

    trace: OpTrace
    cost_model: CostModel
    min_time_us: float
    """No honest forward at the sizes that count is faster."""
    least: LeastWork | None = None
    """What a forward at the sizes that count takes at least, where a dry run tells."""

    def profile(self) -> tuple[KernelTime, ...]:
        return self.cost_model.kernel_times(self.trace)


@dataclass(frozen=True)
class Attribution:
    """By whose work a submission's outputs come about."""

    coverage: float
    """In [0, 1]: the smaller of `replaced` and the proportion of the device time in the submission's Triton kernels."""
    replaced: float
    """In [0, 1]: the proportion of the reference's compute work (modelled, without launches) that ATen no longer does,
    kind by kind of operator."""
    does_less: bool
    """Whether ATen does clearly less of any one operator than in the reference, however small."""

    @property
    def nothing_replaced(self) -> bool:
        return self.replaced < _MIN_REPLACED and not self.does_less


def attribute(
    cost: ReferenceCost, trace: OpTrace, profile: Sequence[KernelTime], without_effect: Collection[str] = ()
) -> Attribution:
    """Attributes a submission's work.

    Args:
        trace: of one forward of the submission.
        profile: how long each kernel of the forward takes.
        without_effect: sites of Triton kernels on which no output depends; their time is nobody's work.
    """
    replaced, does_less = replaced_work(cost, trace)
    total_us = sum(row.microseconds for row in profile)
    own_us = sum(row.microseconds for row in profile if row.triton and row.name not in without_effect)
    return Attribution(min(replaced, own_us / (total_us or 1.0)), replaced, does_less)


def replaced_work(cost: ReferenceCost, trace: OpTrace) -> tuple[float, bool]:
    """The proportion of the reference's compute work that ATen no longer does, and whether it does clearly less of any
    operator."""
    left, before = (_aten_work(rows, cost) for rows in (trace, cost.trace))
    does_less = any(left.get(key, 0.0) < _CLEARLY_LESS * work for key, work in before.items())
    still = _by_kind(left)  # of whatever sizes: a half and another half are the whole
    gone = sum(max(0.0, work - still.get(kind, 0.0)) for kind, work in _by_kind(before).items())
    return gone / (sum(before.values()) or 1.0), does_less


def _aten_work(trace: OpTrace, cost: ReferenceCost) -> dict[tuple[str, int], float]:
    """Modelled device time of ATen's compute operators, by kind and output elements."""
    only_copies = all(row.name in _COPIES for row in cost.trace.rows)
    work: dict[tuple[str, int], float] = {}
    for row in trace.rows:
        if not row.triton and (only_copies or row.name not in _COPIES):
            kind = "product" if row.flops else _bare(row).removesuffix("_")
            key = _KINDS.get(kind, kind), row.output_numel
            work[key] = work.get(key, 0.0) + cost.cost_model.work_us(row)
    return work


def _by_kind(work: dict[tuple[str, int], float]) -> dict[str, float]:
    total: dict[str, float] = {}
    for (kind, _), us in work.items():
        total[kind] = total.get(kind, 0.0) + us
    return total


def difference(usual: OpTrace, found: OpTrace) -> str:
    """What another call of the same submission did differently, or an empty string: kernels or operators of some size
    that it left out, or operators that it added."""
    kernels, others = ({row.site for row in one.rows if row.triton and row.programs} for one in (usual, found))
    called = {_bare(row) for row in found.rows if not row.triton}
    large = {_bare(row) for row in usual.rows if not row.triton and row.bytes_total >= _LARGE} - _COPIES
    if left := kernels - others | large - called:
        return "leaves out " + ", ".join(sorted(left)[:6])
    before, now = ({_bare(row) for row in one.rows if not row.triton} - _COPIES for one in (usual, found))
    return "adds " + ", ".join(sorted(now - before)[:6]) if now - before else ""


def most_explained_us(cost: ReferenceCost, trace: OpTrace, profile: Sequence[KernelTime], factor: float) -> float:
    """Most device time in microseconds that the ATen operators of a submission's forward account for.

    It is `factor` times what the model says. Where the reference makes the same calls of an operator, too, it is at
    least what the operator took when the reference was profiled: a library may be far from what its work needs.

    Args:
        trace: of the submission.
        profile: of the reference, as measured.
    """
    measured = {row.name: row.microseconds for row in profile if not row.triton}
    ours, theirs = (_by_operator(one) for one in (trace, cost.trace))
    total = 0.0
    for name, rows in ours.items():
        same = not _calls(rows) - _calls(theirs.get(name, []))
        modelled = factor * sum(cost.cost_model.work_us(row) for row in rows)
        total += max(modelled, _MEASURED_MARGIN * measured.get(name, 0.0) if same else 0.0)
    return total


def _by_operator(trace: OpTrace) -> dict[str, list[Row]]:
    found: dict[str, list[Row]] = {}
    for row in trace.rows:
        if not row.triton:
            found.setdefault(_bare(row), []).append(row)
    return found


def _calls(rows: list[Row]) -> Counter[tuple]:
    """How often the rows do what. A cheaper operator with outputs as large as the reference's is another one, and so is
    one that works along another dimension."""
    found: Counter[tuple] = Counter()
    for row in rows:
        amounts = row.flops, row.bytes_unique, row.bytes_total
        each = tuple(amount / max(row.calls, 1) for amount in amounts)
        found[row.name, row.output_numel, row.block, each] += row.calls
    return found


def _bare(row: Row) -> str:
    """The operator's name. A brief record has no more; others say how it is called, after a colon."""
    return row.name.partition(":")[0]


def too_little(cost: ReferenceCost, submission_us: float) -> bool:
    """Whether a time is clearly too short to move what the reference moves."""
    return submission_us < _MIN_TIME_MARGIN * cost.min_time_us


def implausible(cost: ReferenceCost, submission_us: float) -> str:
    """Why a time cannot be true, or an empty string."""
    if too_little(cost, submission_us):
        return f"{submission_us:.3g} us is less than its inputs and outputs need to move ({cost.min_time_us:.3g} us)"
    return ""


def bytes_read(trace: OpTrace, sizes: list[tuple[int, int]]) -> int:
    """Bytes of the inputs that the reference really reads.

    Args:
        sizes: elements, and bytes of those that are not zero, of each input tensor.
    """
    read: dict[int, int] = {}
    for row in trace.rows:
        for tensor in row.tensors:
            if not tensor.stored:
                read[tensor.numel] = max(read.get(tensor.numel, 0), tensor.unique)
    return sum(min(size, read.get(numel, 0)) for numel, size in sizes)
