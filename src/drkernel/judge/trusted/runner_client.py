"""The examiner's view of a runner: questions as methods, answers parsed strictly and copied into private memory."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from torch import Tensor

from drkernel.judge.boundary.framing import ProtocolViolation
from drkernel.judge.boundary.op_trace import OpTrace
from drkernel.judge.boundary.shared_tensors import NotSerializable, Slot, decode
from drkernel.judge.boundary.zygote import Process
from drkernel.judge.trusted.cases import Case, ReferenceModel
from drkernel.judge.trusted.outputs import OutputTensor
from drkernel.types import DrKernelError, KernelTime

MAX_ITEMS, MAX_ROWS = 10_000, 2000
_WORK_PER_SECOND = 1.5e7
"""Simulated work that one call may cost per second of the time limit: a quarter of it on a slow core, so that an
endless kernel meets this limit, the same on every machine, before it meets the clock."""


class Failed(Exception):
    """The submission raised an error in answer to a question."""

    def __init__(self, kind: str, message: str, line: int | None):
        super().__init__(message)
        self.kind, self.message, self.line = kind, message, line


class Missing(Exception):
    """The submission launched kernels that have not been compiled; see cuda.kernelcache for their descriptions."""

    def __init__(self, kernels: list[dict[str, Any]]):
        super().__init__("kernels that have not been compiled")
        self.kernels = kernels


@dataclass(frozen=True)
class Answer:
    """What one call returned."""

    outputs: Any
    """A tree as the reference's, with `OutputTensor` for tensors."""
    trace: OpTrace
    aliases: bool
    """Whether an output lies in an input's memory."""
    edited: bool
    """Whether the call changed its inputs."""
    seen: list[Tensor]
    """Where launches were left out: what ATen operators computed all the same."""


class RunnerClient:
    """Every method raises Failed, framing.PeerClosed, DeadlineExceeded or ProtocolViolation for what a runner does.

    Args:
        timeout_s: longest wall time of one answer.
        patience: how many times as long all together may take.
        pause: called now and then while the runner has nothing to do; returns the seconds that it took, which do not
            count.
    """

    def __init__(
        self, process: Process, timeout_s: float, patience: float = 3.0, pause: Callable[[], float] | None = None
    ):
        self._process, self._timeout, self._pause = process, timeout_s, pause
        self._began = self._asked = time.monotonic()
        self._end = self._began + patience * timeout_s

    @property
    def hangs(self) -> bool:
        """Whether most of the time limit has gone by since the last question; else many answers were slow."""
        return time.monotonic() - self._asked > self._timeout / 2

    @property
    def used_full_timeout(self) -> bool:
        """Whether it has had enough time to use up its processor time."""
        return time.monotonic() - self._began > self._timeout

    def extend_deadline(self, seconds: float) -> None:
        """Time that others took."""
        self._end += seconds

    def load(self, source: str, name: str) -> None:
        """Executes the source and looks for the class with this name."""
        self._ask(do="load", source=source, name=name)

    def build(self, model: int, theirs: ReferenceModel) -> dict[str, Tensor]:
        """Constructs a model as the reference's was; returns its parameters and buffers by name."""
        self._rest()
        tree, slots = self._put(list(theirs.reference.init_args()))
        varied = theirs.perturbed_at_construction
        answer = self._ask(do="build", model=model, args=tree, slots=slots, seed=theirs.seed, varied=varied)
        pairs = _list(answer.get("weights"))
        if not all(isinstance(pair, list) and len(pair) == 2 and isinstance(pair[0], str) for pair in pairs):
            raise ProtocolViolation("weights described wrongly")
        return {name: self._take(slot) for name, slot in pairs} if theirs.perturbed_weights else {}

    def write(self, model: int, values: Mapping[str, Tensor]) -> None:
        """Overwrites some of a model's parameters and buffers."""
        _, slots = self._put(list(values.values()))
        self._ask(do="weights", model=model, values=[[name, i] for i, name in enumerate(values)], slots=slots)

    def call(self, case: Case, skip: Sequence[str] = ()) -> Answer:
        """One forward; the launches of kernels at the sites in `skip` are left out."""
        self.begin(case, skip)
        return self.answer()

    def begin(self, case: Case, skip: Sequence[str] = ()) -> None:
        """As `call`, without waiting for the answer, which `answer` returns."""
        self._rest()
        tree, slots = self._put(case.inputs)
        self._before = self._process.inputs.snapshot()
        self._process.inputs.settle()
        self.post(
            "call",
            model=case.plan.model,
            args=tree,
            slots=slots,
            train=case.plan.train,
            seed=case.seed,
            skip=list(skip),
            budget=self._timeout * _WORK_PER_SECOND,
        )

    def answer(self) -> Answer:
        """What the call that was begun returned, in private memory."""
        answer = self.collect()
        edited = not self._process.inputs.same(self._before)
        values = [self._got(fact) for fact in _list(answer.get("tensors"))]
        try:
            outputs = decode(answer.get("outputs"), lambda index: values[index] if index >= 0 else None)
        except (NotSerializable, IndexError, ValueError) as error:
            raise ProtocolViolation(str(error)) from error
        seen = [self._take(slot) for slot in _list(answer.get("seen"))]
        self._rest()
        return Answer(outputs, _trace(answer.get("trace")), any(value.aliases_input for value in values), edited, seen)

    def _rest(self) -> None:
        """A moment at which the runner has nothing to do."""
        if self._pause:
            self.extend_deadline(self._pause())

    def post(self, do: str, **question: Any) -> None:
        """Asks without waiting for the answer; `collect` must follow. What is put into its memory may come later."""
        self._asked = time.monotonic()
        self._process.post({"do": do, **question}, self._deadline())

    def answered(self, seconds: float) -> bool:
        """Waits for the answer to what was posted, at most so long. Whether it is there."""
        return self._process.answered(seconds)

    def collect(self) -> dict[str, Any]:
        answer = self._process.collect(self._deadline())
        if error := answer.get("error"):
            raise _failure(error)
        return answer

    def claims(self) -> dict[str, Any]:
        """What the runner claims of the calls that it had enqueued."""
        return self._ask(do="claims")

    def profile(self, case: Case, empty_us: float) -> list[KernelTime]:
        """The launches and operators of one forward, and how long each took; see recorder.times."""
        return [_kernel_time(row) for row in _list(self._ask_of("profile", case, empty_us=empty_us).get("rows"))]

    def joins(self, case: Case) -> bool:
        """Whether forward waits for all that it starts on other streams. The process may be in disorder afterwards."""
        return self._ask_of("joins", case).get("joined") is True

    def _ask_of(self, do: str, case: Case, **more: Any) -> dict[str, Any]:
        """A question about one forward on a case's inputs."""
        tree, slots = self._put(case.inputs)
        train, model = case.plan.train, case.plan.model
        return self._ask(do=do, model=model, args=tree, slots=slots, train=train, seed=case.seed, **more)

    def _deadline(self) -> float:
        return min(time.monotonic() + self._timeout, self._end)

    def _ask(self, **question: Any) -> dict[str, Any]:
        self._process.inputs.settle()
        self.post(**question)
        return self.collect()

    def _put(self, value: Any) -> tuple[Any, list]:
        """Writes a value's tensors into the shared memory; returns its JSON form and where they lie."""
        try:
            return self._process.inputs.lay(value)
        except NotSerializable as error:
            raise DrKernelError(f"the task's inputs or arguments cannot be handed to a submission: {error}") from error

    def _take(self, slot: Any) -> Tensor:
        """A private copy of a tensor that the runner has written: nothing can change it while it is compared."""
        area = self._process.outputs
        try:
            return area.view(Slot.parse(slot, area.size)).clone()
        except NotSerializable as error:
            raise ProtocolViolation(str(error)) from error

    def _got(self, fact: Any) -> OutputTensor:
        if not isinstance(fact, dict) or any(type(fact.get(key)) is not bool for key in ("expanded", "shares")):
            raise ProtocolViolation("an output described wrongly")
        return OutputTensor(self._take(fact.get("slot")), fact["expanded"], fact["shares"])


def traces_of(answer: dict[str, Any], number: int) -> list[OpTrace]:
    """What each of so many calls launched, as an untrusted answer to `enqueue_gated` describes it."""
    described = _list(answer.get("traces"))
    if len(described) != number:
        raise ProtocolViolation(f"launches of {len(described)} of {number} calls described")
    return [_trace(text) for text in described]


def _trace(text: Any) -> OpTrace:
    try:
        return OpTrace.from_json(str(text), MAX_ROWS)
    except ValueError as error:
        raise ProtocolViolation(str(error)) from error


def _list(data: Any) -> list:
    if not isinstance(data, list) or len(data) > MAX_ITEMS:
        raise ProtocolViolation("a list that is none, or too long")
    return data


def _kernel_time(row: Any) -> KernelTime:
    try:
        name, triton, calls, us = row
        time_us = float.fromhex(us)
        if not (type(name) is str and type(triton) is bool and type(calls) is int and 0 <= time_us < 1e9):
            raise ValueError
    except (TypeError, ValueError, OverflowError) as error:
        raise ProtocolViolation("a profile described wrongly") from error
    return KernelTime(name[:200], calls, time_us, triton)


def _failure(error: Any) -> Exception:
    if not isinstance(error, dict) or not all(isinstance(error.get(key), str) for key in ("type", "message")):
        return ProtocolViolation("an error described wrongly")
    if (missing := error.get("missing")) and isinstance(missing, list) and all(isinstance(m, dict) for m in missing):
        return Missing(missing)
    line = error.get("line")
    text = "".join(c if c.isprintable() else " " for c in error["message"][:2000])
    kind = error["type"][:80] if error["type"].isidentifier() else "Error"
    return Failed(kind, text, line if type(line) is int and 0 < line < 10**6 else None)
