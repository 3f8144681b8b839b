"""One submission against one task, from the first question to the verdict. The questions, in order of their cost:

1. load             Does the source run, and does it define the model?
2. first case       Are the outputs right on the given inputs, and is a Triton kernel launched?
3. further cases    Are they right on nearly the same inputs, on other values, other weights and hidden shapes?
4. ablation         Do the outputs depend on each Triton kernel?
5. repeat_cases     Are they still right on cases that were asked before?
6. timing           What do the kernels replace, and how fast are they, here and at other shapes?

The first refusal ends the examination. All that differs between devices is in `self.device`: how cases are chosen
(`ExamPolicy`), and how times are found out (`Device.measure`). Every output is copied out of the shared memory before
it is compared. After every call inputs are checked for edits.
"""

from __future__ import annotations

import contextlib
import functools
import time
from collections.abc import Callable, Iterator
from typing import Any, Generic

import torch

from drkernel.judge.boundary.framing import DeadlineExceeded, ProtocolViolation
from drkernel.judge.boundary.op_trace import OpTrace
from drkernel.judge.devices.base import Device, Measurement, P, Submission
from drkernel.judge.trusted import ablation, attribution, ptx_scan
from drkernel.judge.trusted.cases import cases, plans, reruns
from drkernel.judge.trusted.cases.cases import Case, Seeds
from drkernel.judge.trusted.cases.plans import DEFAULT_WEIGHTS, PUBLISHED, Plan
from drkernel.judge.trusted.cases.reference_model import Perturbation
from drkernel.judge.trusted.comparison.mismatch import OVERWRITES
from drkernel.judge.trusted.exam_config import ExamConfig
from drkernel.judge.trusted.generality import Generality, without_words
from drkernel.judge.trusted.paired_models import PairedModels
from drkernel.judge.trusted.processes.failures import Failed, reading
from drkernel.judge.trusted.processes.runner_client import Answer, RunnerClient
from drkernel.judge.trusted.processes.zygote import Process
from drkernel.judge.trusted.shape_times import ShapeTime, combined, timed
from drkernel.judge.trusted.verdicts import VerdictReached, priced, verdict_of_failure
from drkernel.types import Verdict

_LARGE_CASES = 2
"""Of a large task: at how many cases launches are left out."""


class Examination(Generic[P]):
    """One submission's examination.

    Args:
        process: a runner that has not been asked anything yet.
        restart: replaces the process; for devices that measure in several.
        refusal: a refusal that is already certain, where `config.price_hacks` wants a time all the same.
        products, written: formats in which its kernels multiply (see ptx_scan); the source before numbers got smaller.
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
        refusal: Verdict | None = None,
        products: frozenset[str] = frozenset(),
        written: str = "",
    ):
        self.device, self.prepared, self.config, self.seeds, self.source = device, prepared, config, seeds, source
        self._budget_factor = device.policy.budget_factor * prepared.more_time
        self.pair = PairedModels(self._connect(process), prepared, seeds)
        self._restart, self._refusal, self._products, self._written = restart, refusal, products, written or source
        self.modes = prepared.mode_alternatives[0]
        """The values of `training` to test under."""
        self.generality = Generality(config.shapes == "reject", source)
        """Whether the submission works at other shapes."""
        self.without_effect: set[str] = set()
        """Kernels by site that can all be left out at the published shape; their time is nobody's work."""
        self.evidence: dict[str, Any] = {}
        self.stages: dict[str, float] = {}
        """Milliseconds by stage."""

    def run(self) -> Verdict:
        """The verdict.

        Raises:
            PeerClosed: the runner's process ended, see `verdict_of_crash`.
            DrKernelError: the task turned out to be unusable.
        """
        try:
            return self._ask_all()
        except VerdictReached as reached:
            return self._refusal or reached.verdict
        except Failed as failure:
            return self._refusal or verdict_of_failure(failure, self.source)
        except DeadlineExceeded:
            return self._refusal or self._timed_out()
        except ProtocolViolation as error:
            return self._refusal or Verdict("invalid", "protocol_violation", str(error))

    def _ask_all(self) -> Verdict:
        with self._stage("load"):
            self._load()
        with self._stage("first case"):
            first, reply = self._first_case()
            self._expect_triton_launch(reply)
        with self._stage("further cases"):
            self._expect_no_stale_outputs(first)
            right = [first, *self._further_cases()]
            for plan in plans.special_plans(self.modes[0], bool(self._forbids(reply.trace)), self.prepared.special):
                self.pair.ask_planned(plan)
            if self.config.shapes != "ignore":
                self.generality.ask_resized(self.pair, self.modes, len(self.prepared.resized))
            last = self._last_case(first)
            self._expect_triton_launch(reply := self.pair.ask(last))
            ptx_scan.expect_allowed(self._forbids(reply.trace), reply.outputs)
        at_published = [last, *(case for case in right if case.plan.model == PUBLISHED and case is not last)]
        at_published = at_published[: _LARGE_CASES if last.large else None]
        with self._stage("ablation"):
            self._expect_effect_of_kernels(reply.trace, at_published)
        with self._stage("repeat_cases"):
            for case in at_published[: self.device.policy.repeat_cases]:
                self._expect_triton_launch(self.pair.ask(case))
        with self._stage("timing"):
            return self._timed(last, reply.trace)

    def _forbids(self, trace: OpTrace) -> frozenset[str]:
        found, of = self._products | ptx_scan.traced(trace), self.prepared
        return ptx_scan.forbidden(found, of.task.precision, of.narrow)

    def _load(self) -> None:
        self.pair.client.load(self.source, self.prepared.task.submission_name, self.prepared.task.precision)

    @contextlib.contextmanager
    def _stage(self, name: str) -> Iterator[None]:
        start = time.perf_counter()
        try:
            yield
        finally:
            self.stages[name] = 1e3 * (time.perf_counter() - start)

    def _timed_out(self) -> Verdict:
        if self.pair.client.hangs:
            return Verdict("invalid", "timeout", f"no answer within {self.config.timeout_s:g} s")
        detail = f"all answers together take more than {self._budget_factor * self.config.timeout_s:g} s"
        return Verdict("invalid", "timeout", detail, evidence={"together": True})

    def _connect(self, process: Process) -> RunnerClient:
        given = self._budget_factor, self.device.pause, self.prepared.patience
        return RunnerClient(process, self.config.timeout_s, *given)

    # 2. first case

    def _first_case(self) -> tuple[Case, Answer]:
        """The given inputs, and the right outputs to them.

        Settles the modes to test in and how weights are perturbed: the first combination in which the outputs are
        right, if possible by a Triton kernel and where wrong ones would show. Where there is none, the refusal is that
        of the first combination that could be compared, else of the first.
        """
        refusals: list[Exception] = []
        doubtful: tuple[bool, ...] | None = None  # modes in which outputs are right, but not as is to be wished
        try:
            for modes in self.prepared.mode_alternatives:
                found = self._try_modes(modes, refusals)
                if found and found[1].trace.launches_triton and found[0].expected.well_conditioned:
                    return found
                doubtful = doubtful or (modes if found else None)
            if doubtful and (found := self._try_modes(doubtful, refusals)):
                return found
            raise next((refusal for refusal in refusals if isinstance(refusal, VerdictReached)), refusals[0])
        finally:
            refusals.clear()  # else they and the frames of their tracebacks keep each other, and all tensors

    def _try_modes(self, modes: tuple[bool, ...], refusals: list[Exception]) -> tuple[Case, Answer] | None:
        """The first case under these modes; None, and the refusals more, where its outputs are not right."""
        self.modes = modes
        found = self._try_first_case(Perturbation.OVERWRITE, refusals)
        if not found and self.pair.overwritten and self.pair.rests_on_construction(self.modes[0]):
            found = self._try_first_case(Perturbation.CONSTRUCTION, refusals)
        return found

    def _try_first_case(self, perturbation: Perturbation, refusals: list[Exception]) -> tuple[Case, Answer] | None:
        """The first case under the current modes; None, and one refusal more, where its outputs are not right."""
        self.pair.start_again(perturbation)
        try:
            case = self.pair.given("the given inputs", self.modes[0])
            return case, self.pair.ask(case)
        except (VerdictReached, Failed) as refusal:
            refusals.append(refusal)
            return None

    # 3. further cases

    def _expect_no_stale_outputs(self, first: Case) -> None:
        """Nearly the same inputs at the same place: outputs that were kept from the last call are wrong here."""
        case = self.pair.nearly_same(first)
        if case is None:
            return
        if self.device.policy.near_repeat_in_fp64 or case.large:
            if case.expected.finite and case.can_tell():
                self.pair.ask(case)
            return
        plan, model, inputs = case.plan, self.pair.published, case.inputs
        private = [cases.map_tensors(value, torch.clone) for value in inputs]
        self.pair.client.begin(Case(plan, inputs, first.seed, lambda: first.expected))
        expected = reruns.forward(model, model.model, private, plan.train, first.seed)  # while the submission works
        reply = self.pair.client.answer()
        if problem := first.expected.tolerance().check_tree(expected, reply.outputs):
            raise VerdictReached("incorrect", "wrong_values", f"{problem} (case: {plan.name})", case=plan.name)
        if reply.overwrites:
            raise VerdictReached("incorrect", OVERWRITES.reason, OVERWRITES.text)

    def _further_cases(self) -> list[Case]:
        """Asks other cases. Returns those that had to be answered rightly, and were."""
        shapes = 0 if self.config.shapes == "ignore" else len(self.prepared.hidden)
        if self.device.policy.lean_cases and shapes and self._builds_all(shapes):
            right = self._lean_cases(shapes)
            if right is not None:
                return right
        return self._full_cases(shapes)

    def _full_cases(self, shapes: int) -> list[Case]:
        """Asks the cases of `plans.plans`, as `_further_cases`."""
        right = []
        for plan in filter(self._has_room, plans.plans(self.modes, shapes)):
            if plan.at_hidden_shape:
                self.generality.allow_errors(self.pair.client, functools.partial(self.pair.ask_planned, plan))
            elif case := self.pair.draw(plan):
                self._expect_triton_launch(self.pair.ask(case))
                right.append(case)
        return right

    def _lean_cases(self, shapes: int) -> list[Case] | None:
        """Asks the cases of `plans.lean_plans`, as `_further_cases`; None where the submission takes no hidden shape.

        Each case is drawn while the submission works on the one before.
        """
        weights = self.pair.published.perturbed_weights
        chosen = [plan for plan in plans.lean_plans(self.modes, shapes) if plan.model != DEFAULT_WEIGHTS or weights]
        chosen = list(filter(self._has_room, chosen))
        right, following = [], self.pair.draw(chosen[0])
        for number, plan in enumerate(chosen):
            case = following
            if case:
                self.pair.begin(case)
            following = self.pair.draw(chosen[number + 1]) if number + 1 < len(chosen) else None
            if not case:
                continue
            if plan.at_hidden_shape and plan.regime == "given":
                self.generality.allow_errors(self.pair.client, functools.partial(self.pair.collect, case))
                if not self.generality.general:
                    return None
            else:
                self._expect_triton_launch(self.pair.collect(case), plan.at_hidden_shape)
                right.append(case)
        return right

    def _has_room(self, plan: Plan) -> bool:
        """Whether a second model, with the default weights, takes little memory."""
        return plan.model != DEFAULT_WEIGHTS or self.pair.has_small_weights

    def _builds_all(self, shapes: int) -> bool:
        """Builds the models of the hidden shapes; a submission that cannot be built for one is not general."""
        try:
            for plan in filter(self._has_room, plans.lean_plans(self.modes, shapes)):
                self.pair.build_once(plan.model)
        except Failed as failure:
            self.generality.note(failure)
            return False
        return True

    def _last_case(self, first: Case) -> Case:
        """What launches and operators are counted on: a call in the steady state."""
        if not self.device.policy.fresh_last_case:
            return first
        return self.pair.given("the given inputs, again", self.modes[0], "last")

    # 4. ablation: did the Triton kernels do it

    def _refuse(self, reason: str, detail: str, **evidence: Any) -> None:
        """The outputs may be right, but they are not the work of Triton kernels.

        Raises:
            VerdictReached: unless hacks are priced.
        """
        if not self.config.price_hacks:
            raise VerdictReached("hack", reason, detail, **evidence)
        self._refusal = self._refusal or Verdict("hack", reason, detail, evidence=evidence)

    def _expect_triton_launch(self, reply: Answer, elsewhere: bool = False) -> None:
        if not (reply.trace.launches_triton or elsewhere):  # at another shape PyTorch may do the work
            left = sorted({row.name for row in reply.trace.rows if not row.triton})
            detail = "forward launched no Triton kernel"
            detail += f"; PyTorch ran {', '.join(left[:6])}" if left else " and computed nothing"
            self._refuse("no_triton_launch", detail, operators=left)

    def _expect_effect_of_kernels(self, trace: OpTrace, at_published: list[Case]) -> None:
        """Leaves out launches: all of them, then each kernel (see ablation). Without any, the outputs must be wrong."""
        rows = sorted((row for row in trace.rows if row.triton and row.programs), key=lambda row: -row.programs)
        sites = tuple(row.site for row in rows)
        if not self.pair.depend_on(sites, at_published):
            detail = "the output does not depend on any Triton launch: " + ", ".join(sites)
            elsewhere = self._cases_at_hidden_shapes()
            everywhere = bool(elsewhere) and not self.pair.depend_on(sites, elsewhere)
            return self._refuse("launch_without_effect", detail, kernels=list(sites), at_every_shape=everywhere)
        traced = [case for case in at_published if not case.large] or self._cases_at_hidden_shapes()
        if traced and all(case.is_among(self.pair.computed_by_aten(case, sites)) for case in traced):
            return self._refuse(
                "nothing_replaced", "PyTorch computes the whole answer; the Triton kernels only pass it on"
            )
        here = ablation.without_effect(self.pair, sites, at_published)
        if here:
            self.without_effect = set(here)
            self.evidence |= ablation.evidence(self.pair, sites, here, self._cases_at_hidden_shapes())

    def _cases_at_hidden_shapes(self) -> list[Case]:
        """The cases at hidden shapes that were answered rightly."""
        if self.config.shapes == "ignore" or not self.generality.general:
            return []
        chosen = (plan for plan in plans.plans(self.modes, len(self.prepared.hidden)) if plan.at_hidden_shape)
        return [case for plan in chosen if (case := self.pair.draw(plan))]

    # 6. timing

    def _timed(self, case: Case, trace: OpTrace) -> Verdict:
        """The verdict on a submission that is right and depends on its kernels."""
        measured = self.device.measure(self.prepared, self._submission(case, trace))
        self.evidence |= measured.evidence
        cost = self.prepared.reference_costs[self.modes[0]]
        with reading("a trace"):
            found = attribution.attribute(cost, trace, measured.submission_profile, self.without_effect)
            doubt = attribution.implausible(cost, measured.submission_us)
        kept = sorted({row.name for row in trace.rows if not row.triton})
        if found.nothing_replaced:
            text = f"the Triton kernels replace no work of the reference; PyTorch still runs {', '.join(kept[:6])}"
            self._refuse("nothing_replaced", text, operators=kept)
        self.evidence |= {"replaced": round(found.replaced, 4), "operators_left": kept}
        self.evidence |= {"weights_varied": self.pair.weights_varied}
        speedup = measured.speedup
        if self.config.timed_shapes > 1 and not doubt:
            speedup, doubt = self._over_shapes(measured)
        with self._stage("long shapes"):
            if self.config.shapes != "ignore":
                self.generality.ask_long_shapes(self.pair, self.modes, len(self.prepared.long))
        self.evidence |= self.generality.evidence
        given = speedup, measured, found.coverage, bool(doubt), self.config.lazy_below
        detail = doubt or ablation.about(self.evidence)
        verdict = timed(*given, detail=detail, general=self.generality.general, evidence=self.evidence)
        return priced(self._refusal, verdict) if self._refusal else verdict

    def _over_shapes(self, published: Measurement) -> tuple[float, str]:
        """The speed-up over all shapes that are timed, and why one of the times cannot be true, or an empty string."""
        times = [ShapeTime.of(self.prepared, published), *map(self._time_at, range(len(self.prepared.timed)))]
        across, wanted = self.config.across_shapes, self.config.timed_shapes
        speedup, self.evidence["timed_shapes"] = combined(across, wanted, times, self.prepared.dropped)
        return speedup, next((time.doubt for time in times if time.doubt), "")

    def _time_at(self, number: int) -> ShapeTime:
        """What is found at another shape, as at the published one."""
        if self._restart:  # timing may have left the last process in disorder
            self._start_again(self._restart)
        prepared, ask = self.prepared.timed[number], functools.partial(self._asked_elsewhere, number)
        if not (asked := self.generality.allow_errors(self.pair.client, ask, timed=True)):
            return ShapeTime.of(prepared, None, refused=self.generality.evidence["other_shape"])
        case, trace, effect = asked
        measured = without_words(lambda: self.device.measure(prepared, self._submission(case, trace)))
        return ShapeTime.elsewhere(prepared, measured, case.plan.train, trace, effect)

    def _asked_elsewhere(self, number: int) -> tuple[Case, OpTrace, bool]:
        """A case at another shape that is answered rightly, what it launches, and whether outputs depend on that."""
        other, given = plans.timed_plans(self.modes, number)
        case = self.pair.draw(other, "timed") or self.pair.draw(given, "first")
        assert case, "the regime `given` suits every task"
        self.pair.ask(case)
        case = self.pair.draw(given, "timed")
        assert case
        trace = self.pair.ask(case).trace
        sites = tuple(row.site for row in trace.rows if row.triton and row.programs)
        return case, trace, ablation.decide(self.pair, sites, case)

    def _submission(self, case: Case, trace: OpTrace) -> Submission:
        """The submission as a device sees it."""
        seeds = self.seeds if (number := case.plan.model) == PUBLISHED else self.seeds.under("shape", number)
        known = self.source, self._written, self.pair.client, self.pair.model(number)
        return Submission(*known, case, trace, seeds, self._refuse, functools.partial(self._restarted, case, trace))

    def _restarted(self, case: Case, trace: OpTrace) -> Submission:
        """The submission in a new process, in which its outputs are right as well."""
        assert self._restart, "this examination has one process"
        self._start_again(self._restart)
        self.pair.build(case.plan.model)
        self.pair.ask(case)
        return self._submission(case, trace)

    def _start_again(self, restart: Callable[[], Process]) -> None:
        self.pair = PairedModels(self._connect(restart()), self.prepared, self.seeds, self.pair.perturbation)
        self._load()
