"""The models of the reference and of a submission, built alike and asked the same cases; outputs are compared here."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
from typing import Any

import torch
from torch import Tensor

from drkernel.judge.trusted.cases import cases, other_signs, reference_model, reruns, weight_perturbation
from drkernel.judge.trusted.cases.cases import Case, Seeds
from drkernel.judge.trusted.cases.plans import DEFAULT_WEIGHTS, PUBLISHED, SINGLES, WIDE_WEIGHTS, Plan
from drkernel.judge.trusted.cases.reference_model import Perturbation, ReferenceModel
from drkernel.judge.trusted.comparison.mismatch import OVERWRITES, Mismatch
from drkernel.judge.trusted.comparison.slices import LARGE, Cut
from drkernel.judge.trusted.outputs import identical, leaves
from drkernel.judge.trusted.prepare import PreparedTask
from drkernel.judge.trusted.processes.failures import Failed, reading
from drkernel.judge.trusted.processes.runner_client import Answer, RunnerClient
from drkernel.judge.trusted.verdicts import VerdictReached
from drkernel.types import DrKernelError


class PairedModels:
    """The models of both sides, by number (see `plans.PUBLISHED`), while one process of the submission lives.

    Every method that asks the submission raises Failed, PeerClosed, DeadlineExceeded or ProtocolViolation for what its
    process does, see RunnerClient.

    Args:
        perturbation: how the weights of all models but DEFAULT_WEIGHTS are perturbed.
    """

    def __init__(
        self,
        client: RunnerClient,
        prepared: PreparedTask,
        seeds: Seeds,
        perturbation: Perturbation = Perturbation.OVERWRITE,
    ):
        self.client, self.perturbation = client, perturbation
        self._prepared, self._seeds, self._shared = prepared, seeds, prepared.shared
        self._models: dict[int, ReferenceModel] = {}

    @property
    def published(self) -> ReferenceModel:
        """The reference's model at the published shape, which must have been built."""
        return self._models[PUBLISHED]

    def model(self, number: int) -> ReferenceModel:
        """The reference's model of this number, which must have been built."""
        return self._models[number]

    @property
    def overwritten(self) -> bool:
        """Whether the published model is built, has weights, and these were overwritten on both sides."""
        built = self._models.get(PUBLISHED)
        return self.perturbation is Perturbation.OVERWRITE and built is not None and bool(built.perturbed_weights)

    @property
    def weights_varied(self) -> bool | str:
        """Whether weights differ from the default ones, or that they do `at construction`."""
        return (
            "at construction"
            if self.perturbation is Perturbation.CONSTRUCTION
            else bool(self.published.perturbed_weights)
        )

    def start_again(self, perturbation: Perturbation) -> None:
        """Forgets all models; those to come are perturbed in this way."""
        self._models.clear()
        self.perturbation = perturbation

    def build(self, number: int) -> None:
        """Constructs a model on both sides under one seed, with the same weights.

        Where the submission packs its weights so that they cannot be overwritten, `perturbation` becomes CONSTRUCTION.
        """
        reference = self._prepared.reference_of(number)
        perturbation = Perturbation.NONE if number == DEFAULT_WEIGHTS else self.perturbation
        seeds = self._shared.seeds if self._shared else self._seeds
        model = self._models[number] = reference_model.build(
            reference, seeds("model", number), perturbation, number == WIDE_WEIGHTS, SINGLES.get(number, 1.0)
        )
        theirs = self.client.build(number, model)
        if not model.perturbed_weights:
            return
        writes = weight_perturbation.follow(model.initial_weights, theirs, model.perturbed_weights)
        model.initial_weights.clear()
        del theirs
        if writes is None:
            self.perturbation = Perturbation.CONSTRUCTION
            self.build(number)
        else:
            self.client.write(number, writes)

    def rests_on_construction(self, train: bool) -> bool:
        """Whether outputs change with the weights that the submission's published model is constructed with, though
        they are overwritten afterwards: it keeps something that it made of them. True, too, where an error follows, and
        for large cases, of whose outputs nobody has a copy. All models have to be built anew afterwards."""
        case, model = self.given("the given inputs", train), self.published
        if case.large:
            return True
        other = reference_model.build(model.reference, model.seed + 1, Perturbation.CONSTRUCTION)
        other.perturbed_weights = model.perturbed_weights
        try:
            first = self.client.call(case).outputs
            theirs = self.client.build(PUBLISHED, other)
            initial = {**dict(other.model.named_parameters()), **dict(other.model.named_buffers())}
            writes = weight_perturbation.follow(initial, theirs, model.perturbed_weights)
            if writes is None:
                return True
            self.client.write(PUBLISHED, writes)
            return not identical(first, self.client.call(case).outputs)
        except Failed:
            return True

    def build_once(self, number: int) -> None:
        """Constructs a model that is missing, as `build`."""
        if number not in self._models:
            self.build(number)

    def draw(self, plan: Plan, *what: Any) -> Case | None:
        """A case as planned, whose model is built where it is missing; None where its regime does not suit the task.

        All submissions share it, unless it is large, or one of the given inputs, or `what` tells it from other cases of
        the same name.
        """
        if plan.model == WIDE_WEIGHTS:
            return self._with_wide_weights(plan)
        if plan.model in SINGLES:
            return self._with_other_singles(plan)
        given = plan.model == PUBLISHED and plan.regime == "given"
        if self._shared is None or given or what or self._cut(plan):
            return self._drawn(plan, *what)
        self.build_once(plan.model)
        return self._shared.draw(plan, self._models[plan.model], self._seeds, functools.partial(self._asked, plan))

    @property
    def has_small_weights(self) -> bool:
        """Whether a further model with weights of its own takes little memory."""
        return sum(value.nbytes for value in self.published.perturbed_weights.values()) < LARGE

    def _with_wide_weights(self, plan: Plan) -> Case | None:
        """A case that fp16 weights get wrong, where TF32 is allowed and fp16 is not; None where the reference leaves
        its domain, or where another model takes much memory or cannot be given its weights."""
        weights = self.published.perturbed_weights.values()
        small = self.has_small_weights and not self._prepared.cuts
        if self._prepared.task.precision != "tf32" or self._prepared.narrow or not (small and self.overwritten):
            return None
        if all(value.dim() < 2 for value in weights):
            return None
        with contextlib.suppress(DrKernelError):
            case = self._drawn(plan)
            if case and self.overwritten and case.expected.finite and case.can_tell():
                return case
        return None

    def _with_other_singles(self, plan: Plan) -> Case | None:
        """A case with other values of the parameters that are single numbers; None where there are none, or the
        reference leaves its domain, or another model takes much memory."""
        small = self.has_small_weights and not self._prepared.cuts
        if not small or not other_signs.of_singles(self.published.model, 1.0):
            return None
        with contextlib.suppress(DrKernelError):
            if (case := self._drawn(plan)) and case.expected.finite and case.can_tell():
                return case
        return None

    def _drawn(self, plan: Plan, *what: Any) -> Case | None:
        self.build_once(plan.model)
        return self._asked(plan, self._models[plan.model], self._seeds, *what)

    def _asked(self, plan: Plan, model: ReferenceModel, seeds: Seeds, *what: Any) -> Case | None:
        seed = seeds("inputs", plan.name, *what)
        if plan.resized is not None:
            model = dataclasses.replace(model, reference=self._prepared.resized[plan.resized])
        return cases.draw(self._prepared.task, plan, model, seed, self._prepared.sources, self._cut(plan))

    def _cut(self, plan: Plan) -> Cut | None:
        """How the inputs of a large case are cut; None for others."""
        if plan.resized is not None:
            return None
        return self._prepared.cuts.get(plan.train) if plan.timed or plan.model == DEFAULT_WEIGHTS else None

    def nearly_same(self, first: Case) -> Case | None:
        """A case with the inputs of another one but for single numbers; None where there is none. One becomes an
        outlier, unless the reference refuses that."""
        seed = self._seeds("touched")
        plan = dataclasses.replace(first.plan, name="the last inputs with single elements changed")
        for in_range in (False, True):
            inputs = cases.nearly_same(self.published, self._prepared.sources, first, seed, in_range)
            if inputs is None:
                return None
            with contextlib.suppress(DrKernelError):
                if not first.large:
                    given = [cases.map_tensors(value, torch.clone) for value in inputs()]
                    reruns.forward(self.published, self.published.model, given, plan.train, seed)
                return cases.case_with(inputs, self._prepared.task, plan, self.published, seed, self._cut(plan))
        return None

    def given(self, name: str, train: bool, *what: Any) -> Case:
        """A case with inputs as the task draws them."""
        case = self.draw(Plan(name, PUBLISHED, "given", train), *what)
        assert case is not None, "the regime `given` suits every task"
        return case

    def ask(self, case: Case) -> Answer:
        """Asks a case. Returns the reply, whose outputs are right.

        Raises:
            VerdictReached: they are not.
        """
        self.begin(case)
        return self.collect(case)

    def begin(self, case: Case) -> None:
        """Asks a case, and computes the expected outputs while the submission works; `collect` must follow."""
        self.client.begin(case)
        _ = case.expected

    def collect(self, case: Case) -> Answer:
        """The reply to a case that was begun, whose outputs are right.

        Raises:
            VerdictReached: they are not.
        """
        reply = self.client.answer()
        with reading("outputs"):
            problem = case.check(reply.outputs) or self._wrong_edits(case)
        if reply.edited and not case.expected.edits:
            problem = Mismatch("edits_input", "forward changes its input tensors in place")
        elif not problem and reply.aliases and not case.expected.aliases:
            problem = Mismatch("aliases_input", "the output lies in an input's memory")
        elif not problem and reply.overwrites:
            problem = OVERWRITES
        if problem:
            evidence = {k: v for k, v in dataclasses.asdict(problem).items() if v not in ("", (), None)}
            for key in ("text", "reason"):
                evidence.pop(key)
            detail = f"{problem.text} (case: {case.plan.name}, inputs {_shapes(case.inputs)})"
            raise VerdictReached("incorrect", problem.reason, detail, case=case.plan.name, **_plain(evidence))
        return reply

    def _wrong_edits(self, case: Case) -> Mismatch | None:
        """What is wrong with the inputs that the last call has left, where the reference changes them."""
        return case.check_edits(self.client.edited()) if case.expected.edits else None

    def ask_planned(self, plan: Plan) -> None:
        """Asks a case as planned, if it suits the task.

        Raises:
            VerdictReached: the outputs are wrong.
        """
        if case := self.draw(plan):
            self.client.begin(case)
            self.collect(case)

    def depend_on(self, sites: tuple[str, ...], among: list[Case]) -> bool:
        """Whether the submission's outputs are wrong in any of the cases when these launches are left out."""
        for case in among:
            try:
                reply = self.client.call(case, skip=sites)
            except Failed:
                return True
            with reading("outputs"):
                if not case.fits(reply.outputs) or self._wrong_edits(case):
                    return True
        return False

    def computed_by_aten(self, case: Case, sites: tuple[str, ...]) -> list[Tensor]:
        """What ATen operators compute in the submission when these launches are left out."""
        try:
            return self.client.call(case, skip=sites).seen
        except Failed:
            return []


def _shapes(inputs: list) -> str:
    tensors = (value for _, value in leaves(inputs) if isinstance(value, torch.Tensor))
    return ", ".join("x".join(map(str, t.shape)) or "scalar" for t in tensors)


def _plain(evidence: dict[str, Any]) -> dict[str, Any]:
    """The evidence as JSON can hold it."""
    return {
        k: list(v) if isinstance(v, tuple) else str(v) if isinstance(v, float) and v - v else v
        for k, v in evidence.items()
    }
