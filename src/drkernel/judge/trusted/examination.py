"""One submission against one task: from the first question to the verdict.

The order is that of cost: what most submissions fail at comes first. Every answer is copied out of the shared memory
before it is compared, and inputs are checked for edits after every call.
"""

from __future__ import annotations

import contextlib
import dataclasses
import time
from collections.abc import Callable, Iterator
from typing import Any

from torch import Tensor

from drkernel.judge.boundary.framing import DeadlineExceeded, PeerClosed, ProtocolViolation
from drkernel.judge.boundary.op_trace import OpTrace
from drkernel.judge.boundary.zygote import Process
from drkernel.judge.trusted import attribution, cases, static_check, weight_perturbation
from drkernel.judge.trusted.cases import Case, Plan, Seeds, Side
from drkernel.judge.trusted.prepare import PreparedTask
from drkernel.judge.trusted.runner_client import Answer, Failed, RunnerClient
from drkernel.judge.trusted.tolerance import Mismatch
from drkernel.types import Verdict

_ROWS = 16


class VerdictReached(Exception):
    """The verdict is reached: no further question is asked."""

    def __init__(self, status: str, reason: str, detail: str, **evidence: Any):
        super().__init__(detail)
        self.verdict = Verdict(status, reason, detail, evidence=evidence)


@dataclasses.dataclass(frozen=True)
class ExamConfig:
    """What a judge decides by; see Judge."""

    device: str = "simulated:H200"
    timeout_s: float = 20.0
    lazy_below: float = 1.05
    shapes: str = "reject"
    gate: bool = True
    price_hacks: bool = False


class Examination:
    """One submission's examination.

    Args:
        patience: how many times `config.timeout_s` all answers together may take.
        pause: see RunnerClient.
        hack: a refusal that is already certain, where `config.price_hacks` wants a time all the same.
    """

    repeat_cases = 5
    """Cases that are asked again at the end."""

    def __init__(
        self,
        prepared: PreparedTask,
        config: ExamConfig,
        seeds: Seeds,
        process: Process,
        source: str,
        patience: float = 3.0,
        pause: Callable[[], float] | None = None,
        hack: Verdict | None = None,
    ):
        self.prepared, self.config, self.seeds, self.source, self.patience = prepared, config, seeds, source, patience
        self.client = RunnerClient(process, config.timeout_s, patience, pause)
        self.sides: dict[int, Side] = {}
        self.varied = False
        self.modes = prepared.modes[0]
        self.general = True
        self.hack = hack
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
            with self._stage("load"):
                self.client.load(self.source, self.prepared.task.answer_name)
            with self._stage("first case"):
                first, answer = self._first_case()
                self._expect_triton(answer)
            with self._stage("further cases"):
                self._near_repeat(first)
                drawn = [first, *self._further_cases(self.modes)]
                last = self._last_case(first)
                final = self._right(last)
                self._expect_triton(final)
            known = [last, *(case for case in drawn if case.plan.model == 0 and case is not last)]
            with self._stage("ablation"):
                self._ablate(final.trace, known)
            with self._stage("repeat_cases"):
                for case in known[: self.repeat_cases]:
                    self._expect_triton(self._right(case))
            with self._stage("timing"):
                return self._priced(final.trace)
        except VerdictReached as reached:
            return self.hack or reached.verdict
        except Failed as failure:
            return self.hack or verdict_of_failure(failure, self.source).verdict
        except DeadlineExceeded:
            return self.hack or self._late().verdict
        except ProtocolViolation as error:
            return self.hack or VerdictReached("invalid", "protocol_violation", str(error)).verdict

    def _late(self) -> VerdictReached:
        limit_s = self.config.timeout_s
        if self.client.hangs:
            return VerdictReached("invalid", "timeout", f"no answer within {limit_s:g} s")
        detail = f"all answers together take more than {self.patience * limit_s:g} s"
        return VerdictReached("invalid", "timeout", detail, together=True)

    @contextlib.contextmanager
    def _stage(self, name: str) -> Iterator[None]:
        start = time.perf_counter()
        try:
            yield
        finally:
            self.stages[name] = 1e3 * (time.perf_counter() - start)

    def _last_case(self, first: Case) -> Case:
        """What the counts of launches and operators are taken from: a call in the steady state."""
        return self._draw(Plan("the given inputs, again", 0, "given", self.modes[0]), "last")

    def _build(self, model: int) -> None:
        """Constructs a model on both sides under one seed, and gives both the same other weights (but for model 1)."""
        reference = self.prepared.reference if model < 2 else self.prepared.hidden[model - 2]
        perturb = model != 1
        side = cases.side(reference, self.seeds("model", model), perturb and not self.varied, perturb and self.varied)
        self.sides[model] = side
        theirs = self.client.build(model, side)
        if not side.values:
            return
        writes = weight_perturbation.follow(side.weights, theirs, side.values)
        if writes is None:
            self.varied = True
            self._build(model)
        else:
            self.client.write(model, writes)

    # cases

    def _draw(self, plan: Plan, *what: Any) -> Case | None:
        if plan.model not in self.sides:
            self._build(plan.model)
        side, seed = self.sides[plan.model], self.seeds("inputs", plan.name, *what)
        return cases.draw(self.prepared.task, plan, side, seed, self.prepared.depth)

    def _first_case(self) -> tuple[Case, Answer]:
        """The given inputs and the right answer to them; settles the modes to test in, and how weights are varied."""
        problems: list[Exception] = []
        try:
            for modes in self.prepared.modes:
                for varied in (False, True):
                    self.modes, self.varied = modes, varied
                    self.sides.clear()
                    try:
                        case = self._draw(Plan("the given inputs", 0, "given", self.modes[0]))
                        return case, self._right(case)
                    except (VerdictReached, Failed) as problem:
                        problems.append(problem)
                    if self.varied or 0 not in self.sides or not self.sides[0].values:
                        break
            raise problems[0]
        finally:
            problems.clear()  # else they and this frame keep each other, and all tensors

    def _further_cases(self, train: tuple[bool, ...]) -> list[Case]:
        drawn = []
        shapes = 0 if self.config.shapes == "ignore" else len(self.prepared.hidden)
        for plan in cases.plans(train, shapes):
            if plan.model >= 2:
                self._other_shape(plan)
            elif case := self._draw(plan):
                self._expect_triton(self._right(case))
                drawn.append(case)
        return drawn

    def _other_shape(self, plan: Plan) -> None:
        """A clear error on another legal shape is allowed (`general` is then false); a wrong answer is not."""
        try:
            if case := self._draw(plan):
                self.client.begin(case)
                self._other_shape_answer(case)
        except Failed as failure:
            self._not_general(failure)
        except PeerClosed:
            self._gone_elsewhere()

    def _other_shape_answer(self, case: Case) -> None:
        try:
            self._or_verdict(case, self.client.answer())
        except Failed as failure:
            self._not_general(failure)
        except PeerClosed:
            self._gone_elsewhere()
        except VerdictReached as reached:
            if self.config.shapes == "reject":
                verdict = reached.verdict
                raise VerdictReached(
                    "not_general", "wrong_on_other_shape", verdict.detail, **verdict.evidence
                ) from None
            self.general = False
            self.evidence["other_shape"] = reached.verdict.detail

    def _not_general(self, failure: Failed) -> None:
        self.general = False
        self.evidence["other_shape"] = f"{failure.kind}: {failure.message}"[:300]

    def _gone_elsewhere(self) -> None:
        """The process died on another shape, unless it was worn out anyway."""
        if self.client.used_full_timeout:
            raise PeerClosed
        raise VerdictReached("not_general", "crash_on_other_shape", "the process died on another shape") from None

    def _near_repeat(self, first: Case) -> None:
        """Almost the same inputs at the same place: an answer kept from the last call is wrong here."""
        plan = dataclasses.replace(first.plan, name="the last inputs with single elements changed")
        seed = self.seeds("touched")
        inputs = cases.touched(first.inputs, seed)
        if inputs is None:
            return
        case = cases.pose(self.prepared.task, plan, self.sides[0], inputs, seed, self.prepared.depth)
        if case.expected.finite and case.expected.sharp:
            self._right(case)

    def _right(self, case: Case) -> Answer:
        """The answer to a case, which is a refusal unless it is right."""
        self.client.begin(case)
        _ = case.expected  # while the submission works
        return self._or_verdict(case, self.client.answer())

    def _or_verdict(self, case: Case, answer: Answer) -> Answer:
        problem = case.expected.check(answer.outputs)
        if answer.edited and not case.expected.edits:
            problem = Mismatch("edits_input", "forward changes its input tensors in place")
        elif not problem and answer.aliases and not case.expected.aliases:
            problem = Mismatch("aliases_input", "the output lies in an input's memory")
        if problem:
            evidence = {k: v for k, v in dataclasses.asdict(problem).items() if v not in ("", (), None)}
            for key in ("text", "reason"):
                evidence.pop(key)
            detail = f"{problem.text} (case: {case.plan.name}, inputs {_shapes(case.inputs)})"
            raise VerdictReached("incorrect", problem.reason, detail, case=case.plan.name, **_plain(evidence))
        return answer

    # did the Triton kernels do it

    def _refuse(self, reason: str, detail: str, **evidence: Any) -> None:
        """The answers may be right, but they are not the work of Triton kernels."""
        if not self.config.price_hacks:
            raise VerdictReached("hack", reason, detail, **evidence)
        self.hack = self.hack or Verdict("hack", reason, detail, evidence=evidence)

    def _expect_triton(self, answer: Answer) -> None:
        if not any(row.triton and row.programs for row in answer.trace.rows):
            left = sorted({row.name for row in answer.trace.rows if not row.triton})
            detail = "forward launched no Triton kernel"
            detail += f"; PyTorch ran {', '.join(left[:6])}" if left else " and computed nothing"
            self._refuse("no_triton_launch", detail, operators=left)

    def _ablate(self, trace: OpTrace, drawn: list[Case]) -> None:
        """Leaves out launches: all of them, then each kernel alone. The answer must become wrong somewhere.

        Several cases are tried in turn, because a buffer that is kept between calls may still hold the right answer
        to the last one, and because a kernel (a clamp) may have nothing to do in some of them.
        """
        sites = tuple(row.site for row in trace.rows if row.triton and row.programs)
        if not self._needs(sites, drawn):
            detail = "the output does not depend on any Triton launch: " + ", ".join(sites)
            return self._refuse("launch_without_effect", detail, kernels=list(sites))
        if all(case.expected.is_among(self._seen(case, sites)) for case in drawn):
            return self._refuse(
                "nothing_replaced", "PyTorch computes the whole answer; the Triton kernels only pass it on"
            )
        for site in sites if len(sites) > 1 else []:
            if not self._needs((site,), drawn):
                detail = f"the kernel {site} does not affect the output"
                self._refuse("useless_kernel", detail, kernel=site)

    def _needs(self, sites: tuple[str, ...], drawn: list[Case]) -> bool:
        for case in drawn:
            try:
                answer = self.client.call(case, skip=sites)
            except Failed:
                return True
            if not case.expected.fits(answer.outputs):
                return True
        return False

    def _seen(self, case: Case, sites: tuple[str, ...]) -> list[Tensor]:
        """What PyTorch computes when these launches are left out."""
        try:
            return self.client.call(case, skip=sites).seen
        except Failed:
            return []

    def _priced(self, trace: OpTrace) -> Verdict:
        result = self._audited(trace)
        kept = sorted({row.name for row in trace.rows if not row.triton})
        if result.nothing_replaced:
            detail = f"the Triton kernels replace no work of the reference; PyTorch still runs {', '.join(kept[:6])}"
            self._refuse("nothing_replaced", detail, operators=kept)
        lazy = result.speedup < self.config.lazy_below
        status, reason = "ok", "faster" if not lazy else "slower" if result.speedup < 1 else "lazy"
        if result.doubt:
            status, reason = "suspicious", "too_fast"
        self.evidence |= {"replaced": round(result.replaced, 4), "operators_left": kept}
        self.evidence["weights_varied"] = "at construction" if self.varied else bool(self.sides[0].values)
        verdict = Verdict(
            status,
            reason,
            result.doubt,
            speedup=result.speedup,
            coverage=result.coverage,
            reference_ms=result.reference_us / 1000,
            submission_ms=result.submission_us / 1000,
            general=self.general,
            lazy=lazy,
            evidence=self.evidence,
            profile=result.profile[:_ROWS],
            reference_profile=result.reference_profile[:_ROWS],
        )
        return self._marked(verdict) if self.hack else verdict

    def _marked(self, priced: Verdict) -> Verdict:
        """The hack's verdict, with the times of an answer that was examined to the end, where they can be true."""
        if priced.status != "ok":
            return self.hack
        hack = {"status": self.hack.status, "reason": self.hack.reason, "detail": self.hack.detail, "lazy": False}
        evidence = priced.evidence | self.hack.evidence | {"priced_as": priced.reason}
        return dataclasses.replace(priced, **hack, evidence=evidence)

    def _audited(self, trace: OpTrace) -> attribution.Audit:
        return attribution.audit(self.prepared.reference_costs[self.modes[0]], trace)


def deferred_refusal(config: ExamConfig, source: str, answer_name: str) -> Verdict | None:
    """The refusal that a judge which prices hacks does not act upon: a source without a Triton kernel."""
    found = static_check.inspect(source, answer_name) if config.gate and config.price_hacks else None
    return found.to_verdict() if found else None


def verdict_of_crash(how: str) -> Verdict:
    """The verdict on a submission whose process ended before it answered; `how` as Process.end() puts it."""
    if how in ("signal SIGXCPU", "signal SIGKILL"):
        return VerdictReached("invalid", "timeout", "the process used up its processor time or memory").verdict
    return VerdictReached(
        "invalid", "crashed", f"the process ended without an answer ({how or 'connection closed'})"
    ).verdict


_REASONS = {
    "SyntaxError": "syntax_error",
    "IndentationError": "syntax_error",
    "ModuleNotFoundError": "import_error",
    "ImportError": "import_error",
    "WorkBudgetExceeded": "timeout",
    "MemoryFault": "out_of_bounds",
    "MemoryError": "out_of_memory",
    "SystemExit": "crashed",
}


def verdict_of_failure(failure: Failed, source: str) -> VerdictReached:
    lines = source.splitlines()
    code = lines[failure.line - 1].strip()[:160] if failure.line and failure.line <= len(lines) else ""
    place = f"line {failure.line}: `{code}`: " if code and not failure.message.startswith("kernel `") else ""
    reason = _REASONS.get(failure.kind, "runtime_error")
    detail = f"{place}{failure.kind}: {' '.join(failure.message.split())}"
    return VerdictReached("invalid", reason, detail[:800], error=failure.kind, line=failure.line)


def _shapes(inputs: list) -> str:
    return ", ".join("x".join(map(str, t.shape)) or "scalar" for t in inputs if hasattr(t, "shape"))


def _plain(evidence: dict[str, Any]) -> dict[str, Any]:
    return {
        k: list(v) if isinstance(v, tuple) else str(v) if isinstance(v, float) and v - v else v
        for k, v in evidence.items()
    }
