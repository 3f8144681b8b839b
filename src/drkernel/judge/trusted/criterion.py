"""KernelBench's criterion, so that a figure can be laid beside published ones.

By this criterion a submission is right if its outputs agree with the reference's in five trials. Each trial has other
random inputs, at the published shape, from `get_inputs`. Weights are the default ones, from one seed on both sides.
Outputs agree as `torch.allclose` says, with atol = rtol = 1e-4, or 1e-2 where an input or a weight has 16 bits. They
are compared with the reference in its own precision. The speed-up is the reference's time over the submission's.

Everything else by which `examination` decides does not count: hidden shapes, other values and weights, left-out
launches, the share of the work that Triton kernels do, tolerances from fp64, and forbidden names. What stays is how
submissions run and how they are timed: the sandbox, the processes, the clocks, and that a source without a Triton
kernel is refused.

Departures from KernelBench, which its figures do not show: outputs that are not one tensor are compared leaf by leaf;
a task whose training mode is random runs in eval mode; the reference runs in another process, so that its outputs
cannot be found in memory.
"""

from __future__ import annotations

import dataclasses
import functools
import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Generic

import torch
from torch import Tensor

from drkernel.judge.boundary.framing import DeadlineExceeded, PeerClosed, ProtocolViolation
from drkernel.judge.boundary.op_trace import OpTrace
from drkernel.judge.devices.base import Device, Measurement, P, Submission
from drkernel.judge.trusted.cases import cases, reruns
from drkernel.judge.trusted.cases.cases import Case, Seeds
from drkernel.judge.trusted.cases.plans import PUBLISHED, Plan
from drkernel.judge.trusted.cases.reference_model import Perturbation
from drkernel.judge.trusted.comparison.block_tolerance import RelativeBounds, Tolerance
from drkernel.judge.trusted.comparison.mismatch import Mismatch, describe
from drkernel.judge.trusted.comparison.tolerance import Expected
from drkernel.judge.trusted.exam_config import ExamConfig
from drkernel.judge.trusted.outputs import OutputTensor, dtype_of, form_of, kind_of, leaves, shape_of
from drkernel.judge.trusted.paired_models import PairedModels
from drkernel.judge.trusted.processes.failures import Failed, reading
from drkernel.judge.trusted.processes.runner_client import RunnerClient
from drkernel.judge.trusted.processes.zygote import Process
from drkernel.judge.trusted.source import static_check
from drkernel.judge.trusted.verdicts import PROFILE_ROWS, VerdictReached, reason_of, verdict_of_failure
from drkernel.types import Verdict

CRITERIA = ("drkernel", "both", "kernelbench")
"""What decides: this judge, with nothing said of KernelBench; this judge, and KernelBench's criterion is evidence;
KernelBench's criterion, and this judge's verdict is evidence."""
TRIALS = 5
LIMIT, LIMIT_16 = 1e-4, 1e-2
"""atol and rtol, the latter where an input or a weight has 16 bits."""
_CHUNK = 2**24
"""Elements that are compared at once."""


@dataclass(frozen=True)
class Finding:
    """What KernelBench's criterion says of a submission."""

    correct: bool
    verdict: Verdict
    """`ok` with times. Else why it is not correct, or why it has no time although it is."""
    facts: dict[str, Any] = dataclasses.field(default_factory=dict)
    """For the evidence."""

    def evidence(self) -> dict[str, Any]:
        """`evidence["kernelbench"]` of a verdict."""
        verdict = self.verdict
        why = "" if verdict.ok else f"{verdict.reason}: {verdict.detail}"
        times = {name: getattr(verdict, name) for name in ("speedup", "reference_ms", "submission_ms")}
        return {"correct": self.correct, "why": why, "trials": TRIALS} | times | self.facts


def refused(source: str, submission_name: str) -> Finding | None:
    """What is said without running a source: it is no Python, has no model or no Triton kernel. None for others,
    although a name may be forbidden."""
    found = static_check.inspect(source, submission_name)
    if found and found.reason == "forbidden":
        found = static_check.without_kernel(source)
    return Finding(False, found.to_verdict()) if found else None


def decided(criterion: str, own: Verdict, found: Finding | None) -> Verdict:
    """The verdict of a judge with this criterion (of CRITERIA).

    Args:
        own: what this judge says by its own criterion.
        found: None where no trial could be made for the reason of `own`.
    """
    if criterion == "drkernel" or own.is_judge_failure:
        return own
    found = found or Finding(False, own)
    if criterion == "both":
        return dataclasses.replace(own, evidence=own.evidence | {"kernelbench": found.evidence()})
    kept = {name: getattr(own, name) for name in ("status", "reason", "detail", "speedup")}
    evidence = {"criterion": "kernelbench", "kernelbench": found.evidence(), "drkernel": kept}
    detail = f"by KernelBench's criterion: {found.verdict.detail or 'right in every trial'}"
    return dataclasses.replace(
        found.verdict, detail=detail, device=own.device, evidence=found.verdict.evidence | evidence
    )


class Close(Expected):
    """Expected outputs of one trial: the reference's own, and how far others may be from them.

    Args:
        rounded: a tree of tensors and scalars.
        limit: atol and rtol of torch.allclose.
    """

    def __init__(self, rounded: Any, limit: float):
        self.rounded, self._limit = rounded, limit

    def check(self, tree: Any, slack: float = 1.0) -> Mismatch | None:
        """As Expected.check."""
        found, expected = leaves(tree), leaves(self.rounded)
        if [path for path, _ in found] != [path for path, _ in expected]:
            return Mismatch("wrong_structure", f"returned {form_of(tree)}, expected {form_of(self.rounded)}")
        pairs = zip(expected, found, strict=True)
        problems = (self._problem(path, value, actual, slack * self._limit) for (path, value), (_, actual) in pairs)
        return next((problem for problem in problems if problem), None)

    def tolerance(self) -> Tolerance:
        """Timed outputs are not compared: KernelBench times without looking at what comes out."""
        return Tolerance({})

    def bounds(self) -> list[RelativeBounds | None]:
        """None of a large task's either."""
        return []

    def _problem(self, path: str, value: Any, actual: Any, limit: float) -> Mismatch | None:
        if isinstance(value, Tensor) != isinstance(actual, OutputTensor):
            return Mismatch("wrong_type", f"{path} is {kind_of(actual)}, expected {kind_of(value)}", path)
        if not isinstance(value, Tensor):
            numbers = all(type(number) in (int, float) for number in (value, actual))
            same = math.isclose(actual, value, rel_tol=limit, abs_tol=limit) if numbers else actual == value
            return None if same else Mismatch("wrong_values", f"{path} is {actual!r}, expected {value!r}", path)
        output = actual.value
        if output.shape != value.shape:
            return Mismatch("wrong_shape", f"{path} has shape {shape_of(output)}, expected {shape_of(value)}", path)
        if output.dtype != value.dtype:
            return Mismatch("wrong_dtype", f"{path} is {dtype_of(output)}, expected {dtype_of(value)}", path)
        return _first_far(path, value, output, limit)


def furthest(expected: Any, tree: Any) -> float:
    """The largest absolute difference of floating outputs, a tree whose tensors are `OutputTensor`, from the expected
    ones of the same form; NaN where either has NaN."""
    pairs = zip(leaves(expected), leaves(tree), strict=True)
    tensors = [(a, b.value) for (_, a), (_, b) in pairs if isinstance(a, Tensor) and isinstance(b, OutputTensor)]
    parts = (
        (ours[first : first + _CHUNK].double() - theirs[first : first + _CHUNK].double()).abs().max()
        for theirs, ours in ((a.reshape(-1), b.reshape(-1)) for a, b in tensors if a.is_floating_point())
        for first in range(0, len(theirs), _CHUNK)
    )
    return float(torch.stack([torch.zeros(()), *(part.cpu() for part in parts)]).max())


def _first_far(path: str, value: Tensor, output: Tensor, limit: float) -> Mismatch | None:
    """What is wrong in the first part of an output that is not close."""
    expected, found = value.reshape(-1), output.reshape(-1)
    for first in range(0, len(expected), _CHUNK):
        theirs, ours = expected[first : first + _CHUNK], found[first : first + _CHUNK]
        if torch.allclose(ours, theirs, rtol=limit, atol=limit):
            continue
        far = ~torch.isclose(ours, theirs, rtol=limit, atol=limit)
        found_at, expected_at, far_at = (part.reshape(-1, 1) for part in (ours, theirs, far))
        whole = len(ours) == len(found)
        return describe("wrong_values", path, value.shape, first, found_at, expected_at, far_at, whole)
    return None


class KernelBenchTrials(Generic[P]):
    """The trials and the time of one submission, in a process of its own.

    Args:
        process: a runner that has not been asked anything yet; the caller ends it.
        restart: replaces the process by a new one; for devices that measure in several processes.
    """

    def __init__(
        self,
        device: Device[P],
        prepared: P,
        config: ExamConfig,
        seeds: Seeds,
        process: Process,
        source: str,
        restart: Callable[[], Process] | None = None,
    ):
        self.device, self.prepared, self.config, self.seeds, self.source = device, prepared, config, seeds, source
        self._process, self._restart = process, restart
        self._train = prepared.mode_alternatives[0][0]
        self._limit = LIMIT_16 if prepared.halves else LIMIT
        self._error: float | None = None
        """The largest absolute difference of an output from the reference's, where they could be compared."""

    def run(self) -> Finding:
        """What the criterion says.

        Raises:
            DrKernelError: the task turned out to be unusable.
        """
        correct = False
        try:
            pair = self._loaded(self._process)
            case, trace = self._last_trial(pair)
            correct = True
            verdict = self._timed(self._submission(pair, case, trace))
        except VerdictReached as reached:
            verdict = reached.verdict
        except Failed as failure:
            verdict = verdict_of_failure(failure, self.source)
        except DeadlineExceeded:
            verdict = Verdict("invalid", "timeout", f"no answer within {self.config.timeout_s:g} s")
        except ProtocolViolation as error:
            verdict = Verdict("invalid", "protocol_violation", str(error))
        except PeerClosed:
            verdict = Verdict("invalid", "crashed", "the process ended without an answer")
        far = self._error if self._error is None or math.isfinite(self._error) else None
        return Finding(correct, verdict, {"tolerance": self._limit, "error": far, "training": self._train})

    def _loaded(self, process: Process) -> PairedModels:
        """The model at the published shape with its default weights, on both sides."""
        factor = self.device.policy.budget_factor * self.prepared.more_time
        client = RunnerClient(process, self.config.timeout_s, factor, self.device.pause, self.prepared.patience)
        pair = PairedModels(client, self.prepared, self.seeds, Perturbation.NONE)
        client.load(self.source, self.prepared.task.submission_name, self.prepared.task.precision)
        pair.build(PUBLISHED)
        return pair

    def _last_trial(self, pair: PairedModels) -> tuple[Case, OpTrace]:
        """The last of the trials, which were all right, and what it launched."""
        case = self._case(pair, 0)
        trace = self._ask(pair, case)
        for number in range(1, TRIALS):
            del case  # there may be no room for two
            case = self._case(pair, number)
            trace = self._ask(pair, case)
        return case, trace

    def _case(self, pair: PairedModels, number: int) -> Case:
        seed = self.seeds("trial", number)
        inputs = self.prepared.reference.inputs(seed)
        plan = Plan(f"trial {number + 1} of {TRIALS}", PUBLISHED, "given", self._train)
        return Case(plan, inputs, seed, functools.partial(self._expected, pair, inputs, seed))

    def _expected(self, pair: PairedModels, inputs: list, seed: int) -> Close:
        model = pair.published
        effects = model.reference.argument_effects.get(self._train)
        given = cases.map_tensors(inputs, torch.clone) if effects is None or effects.edits else inputs
        return Close(reruns.forward(model, model.model, given, self._train, seed), self._limit)

    def _ask(self, pair: PairedModels, case: Case) -> OpTrace:
        """What a trial launched.

        Raises:
            VerdictReached: its outputs are not close.
        """
        pair.begin(case)
        reply = pair.client.answer()
        with reading("outputs"):
            problem = case.check(reply.outputs)
        if problem:
            self._error = problem.error
            raise VerdictReached("incorrect", problem.reason, f"{problem.text} ({case.plan.name})")
        self._error = max(self._error or 0.0, furthest(case.expected.rounded, reply.outputs))
        return reply.trace

    def _submission(self, pair: PairedModels, case: Case, trace: OpTrace) -> Submission:
        """The submission as a device sees it. What timing would refuse as a hack, this criterion pays; times that are
        forged stay refused."""
        restart = functools.partial(self._restarted, case, trace)
        go_on = lambda reason, detail: None
        return Submission(
            self.source, self.source, pair.client, pair.published, case, trace, self.seeds, go_on, restart
        )

    def _restarted(self, case: Case, trace: OpTrace) -> Submission:
        assert self._restart, "this device measures in one process"
        pair = self._loaded(self._restart())
        self._ask(pair, case)
        return self._submission(pair, case, trace)

    def _timed(self, submission: Submission) -> Verdict:
        """The verdict on a submission that is right."""
        measured = self.device.measure(self.prepared, submission)
        if not measured.submission_us:
            return Verdict("hack", "no_triton_launch", "forward computes nothing, so that it has no time")
        speedup = measured.reference_us / measured.submission_us
        lazy = speedup < self.config.lazy_below
        return Verdict(
            "ok",
            reason_of(speedup, lazy),
            speedup=speedup,
            coverage=_coverage(measured),
            reference_ms=measured.reference_us / 1000,
            submission_ms=measured.submission_us / 1000,
            lazy=lazy,
            evidence=measured.evidence,
            profile=measured.submission_profile[:PROFILE_ROWS],
            reference_profile=measured.reference_profile[:PROFILE_ROWS],
        )


def _coverage(measured: Measurement) -> float:
    """The share of time in the submission's own Triton kernels, whatever they do."""
    times = [(row.microseconds, row.triton) for row in measured.submission_profile]
    whole = sum(us for us, _ in times)
    return min(measured.own_share, sum(us for us, own in times if own) / whole) if whole else 0.0
