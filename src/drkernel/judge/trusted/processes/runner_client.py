"""The examiner's client of a runner: requests as methods, replies parsed strictly and copied into private memory.

It runs in an examiner's process and believes nothing that it receives. The other end is untrusted/runner.py.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from torch import Tensor

from drkernel.judge.boundary import tf32
from drkernel.judge.boundary.framing import DeadlineExceeded, ProtocolViolation
from drkernel.judge.boundary.op_trace import OpTrace
from drkernel.judge.boundary.parsing import parse
from drkernel.judge.boundary.records import recorded
from drkernel.judge.boundary.shared_tensors import NotSerializable, Slot, decode, encode
from drkernel.judge.trusted.cases.cases import Case
from drkernel.judge.trusted.cases.reference_model import ReferenceModel
from drkernel.judge.trusted.outputs import OutputTensor
from drkernel.judge.trusted.processes import replies
from drkernel.judge.trusted.processes.failures import Unanswered, failed, failure_of, reading
from drkernel.judge.trusted.processes.zygote import Process
from drkernel.types import DrKernelError, KernelTime, Precision

T = TypeVar("T")
MAX_ROWS = 2000
"""Rows of a trace."""
_MAX_NAME = 200
_MIN_STARVED = 0.1
"""A runner that waited for a processor for less than this proportion of the time limit did not miss it by that."""
_WORK_PER_SECOND = 1.5e7
"""Simulated work that one call may cost per second of the time limit: a quarter of it on a slow core, so that an
endless kernel meets this limit, the same on every machine, before it meets the clock."""
_OWN_ON_A_GPU = 3.0
"""How many times the runner's time the examiner's own may be on a GPU: of a large network, its references take most."""


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
    overwrites: bool
    """Whether the call changed the outputs of the one before."""


class RunnerClient:
    """Every method raises Failed, framing.PeerClosed, DeadlineExceeded or ProtocolViolation for what a runner does.

    Args:
        timeout_s: longest wall time of one reply.
        budget_factor: how many times as long all replies together may take.
        pause: called now and then while the runner is idle; returns the seconds that it took, which do not count.
        patience: how many times the usual simulated work one call may cost.
    """

    def __init__(
        self,
        process: Process,
        timeout_s: float,
        budget_factor: float = 3.0,
        pause: Callable[[], float] | None = None,
        patience: float = 1.0,
    ):
        self._process, self.timeout_s, self._pause = process, timeout_s, pause
        self._work = patience * timeout_s * _WORK_PER_SECOND
        self._began = self._sent = time.monotonic()
        self._end, self._own = self._began + budget_factor * timeout_s, self._began
        """When all replies must have come, and since when the examiner has waited for none."""
        own_factor = _OWN_ON_A_GPU if process.handshake else 1.0
        self._own_left, self._asked = own_factor * budget_factor * timeout_s, False
        """Seconds that the examiner itself may take before they count; whether a reply is awaited."""
        self._large = False
        self._excused, self._excusable = 0.0, budget_factor * timeout_s
        """Seconds for which the runner waited for a processor and that were added to its time; at most so many are."""

    @property
    def hangs(self) -> bool:
        """Whether most of the time limit has gone by since the last request. Otherwise many replies were slow."""
        return time.monotonic() - self._sent > self.timeout_s / 2

    @property
    def used_full_timeout(self) -> bool:
        """Whether it has had enough time to use up its processor time."""
        return time.monotonic() - self._began > self.timeout_s

    def extend_deadline(self, seconds: float) -> None:
        """Time that others took."""
        self._end += seconds

    def load(self, source: str, name: str, precision: Precision = "ieee") -> None:
        """Executes the source and looks for the class with this name. The task's precision tells whether PyTorch may
        use TF32 there."""
        self._request(replies.Done, do="load", source=source, name=name, tf32=tf32.allowed_by(precision))

    def build(self, model: int, reference_model: ReferenceModel) -> dict[str, Tensor]:
        """Constructs a model as the reference's was; returns its parameters and buffers by name."""
        self._idle()
        tree, slots = self._put(list(reference_model.reference.init_args()))
        how = {"active": reference_model.perturbed_at_construction, **reference_model.construction}
        build = {"model": model, "args": tree, "slots": slots, "seed": reference_model.seed, "how": how}
        pairs = self._request(replies.Weights, do="build", **build).weights
        with reading("weights"):
            self._expect_room([slot for _, slot in pairs])
            return {name: self._copy(slot) for name, slot in pairs} if reference_model.perturbed_weights else {}

    def write(self, model: int, values: Mapping[str, Tensor]) -> None:
        """Overwrites some of a model's parameters and buffers: together, or one by one where there is not the room."""
        together = sum(value.nbytes for value in values.values()) < self._process.inputs.size // 2
        for some in [values] if together else [{name: value} for name, value in values.items()]:
            _, slots = self._put(list(some.values()))
            pairs = [[name, i] for i, name in enumerate(some)]
            self._request(replies.Done, do="weights", model=model, values=pairs, slots=slots)

    def call(self, case: Case, skip: Sequence[str] = ()) -> Answer:
        """One forward; the launches of kernels at the sites in `skip` are left out."""
        self.begin(case, skip)
        return self.answer()

    def begin(self, case: Case, skip: Sequence[str] = ()) -> None:
        """As `call`, without waiting for the reply, which `answer` returns."""
        self._idle()
        self._large = case.large
        tree, slots = self._laid = self._put(case.inputs)
        self._before = self._process.inputs.snapshot()
        self._process.inputs.settle()
        handshake = self._process.handshake
        go = {"go": handshake.next_value()} if handshake else {}
        self.post(
            "call",
            model=case.plan.model,
            args=tree,
            slots=slots,
            train=case.plan.train,
            seed=case.seed,
            skip=list(skip),
            budget=self._work,
            **go,
        )
        if handshake:
            handshake.release()

    def answer(self) -> Answer:
        """What the call that was begun returned, in private memory; of a large case, in the shared memory."""
        reply = parse(self.collect(), replies.CallResult)
        edited = not self._process.inputs.same(self._before)
        with reading("outputs"):
            self._expect_room([*(output.slot for output in reply.tensors), *reply.seen])
            values = [self._output(output) for output in reply.tensors]
            outputs = decode(reply.outputs, lambda index: values[index] if index >= 0 else None)
            seen = [self._copy(slot) for slot in reply.seen if not self._large]
            trace = _trace(reply.trace)
        self._idle()
        return Answer(outputs, trace, any(value.aliases_input for value in values), edited, seen, reply.overwrites)

    def edited(self) -> Any:
        """The arguments of the call that was answered last as it has left them, in memory as that of its outputs."""
        tree, slots = self._laid
        area = self._process.inputs
        views = [area.view(Slot.parse(slot, area.size)) for slot in slots]
        return decode(tree, lambda index: OutputTensor(views[index] if self._large else views[index].clone()))

    def _idle(self) -> None:
        """Called while the runner is idle."""
        if self._pause:
            seconds = self._pause()
            self.extend_deadline(seconds)
            self._own += seconds

    def post(self, do: str, **request: Any) -> None:
        """Sends a request; `collect` must follow. What is put into the runner's memory may come later."""
        self._sent = time.monotonic()
        self._process.send_request({"do": do, **request}, self.deadline())
        self._asked = True

    @property
    def handshake(self) -> Any:
        """Of the runner's process, on a GPU."""
        return self._process.handshake

    @property
    def activity(self) -> Any:
        """What the device executed for the runner's process, on a GPU."""
        return self._process.activity

    def deadline(self) -> float:
        """When the next reply must be there at the latest, on time.monotonic()'s clock. What the examiner itself takes
        between two replies does not count, up to some times that of all replies. On a GPU what it does while the runner
        is asked counts: there replies are waited for by other means, too."""
        now = time.monotonic()
        if not (self._asked and self.handshake):
            own = min(now - self._own, self._own_left)
            self.extend_deadline(own)
            self._own, self._own_left = now, self._own_left - own
        return min(now + self.timeout_s, self._end)

    def answered(self, seconds: float) -> bool:
        """Waits for the reply to what was sent, at most so long. Whether it is there."""
        return self._process.reply_ready(seconds)

    def collect(self) -> dict[str, Any]:
        """The reply to what was sent, not yet parsed. Time that the runner waited for a processor does not count."""
        try:
            reply = self._process.receive_reply(self.deadline())
        except DeadlineExceeded:
            starved = min(self._process.starved_s(), self._excusable) - self._excused
            if starved < _MIN_STARVED * self.timeout_s:
                raise
            self._excused += starved
            self.extend_deadline(starved)
            deadline = time.monotonic() + min(starved, self.timeout_s)
            reply = self._process.receive_reply(min(deadline, self._end))
        finally:
            self._own, self._asked = time.monotonic(), False
        if error := reply.get("error"):
            raise failure_of(error)
        return reply

    def dry_run(self, init: Any, inputs: Any, train: bool, seed: int, answers: Sequence[bool] = ()) -> OpTrace:
        """The numbers of programs that one forward launches, on meta tensors, by a model of its own, and what they
        execute, of which some say; `seed` decides which; `answers`: see untrusted.simulated.guesses. It may raise
        Unanswered, too."""
        metas: list[list] = []

        def put(tensor: Tensor) -> int:
            metas.append([str(tensor.dtype).removeprefix("torch."), list(tensor.shape), list(tensor.stride())])
            return len(metas) - 1

        init, inputs = encode(recorded(init), put), encode(recorded(inputs), put)
        given = {"init": init, "args": inputs, "metas": metas, "train": train, "seed": seed, "answers": list(answers)}
        reply = self._request(replies.Launched, do="dry", **given)
        if reply.ended:
            raise Unanswered(failed(reply.ended), reply.unclear, reply.read)
        trace = _trace(reply.trace)
        trace.read = reply.read
        return trace

    def claims(self) -> dict[str, Any]:
        """What the runner reports of the calls that it had enqueued, not yet parsed."""
        return self._request(dict[str, Any], do="claims")

    def forget_activity(self) -> None:
        """What the device has executed so far is not among the next records."""
        self._request(replies.Done, do="flush")
        self.activity.skip()

    def watched(self, case: Case) -> tuple[Answer, list[Any]]:
        """An ordinary call, and what the device executed for it."""
        self.forget_activity()
        answer = self.call(case)
        self._request(replies.Done, do="flush")
        return answer, self.activity.new()

    def profile(self, case: Case, empty_us: float) -> list[KernelTime]:
        """The launches and operators of one forward, and how long each took; see recorder.times."""
        profile = self._request(replies.Profile, do="profile", empty_us=empty_us, **self._forward(case))
        return [_kernel_time(*row) for row in profile.rows]

    def joins(self, case: Case) -> bool:
        """Whether forward waits for all that it starts on other streams. The process may be unusable afterwards."""
        return self._request(replies.Joined, do="joins", **self._forward(case)).joined

    def _forward(self, case: Case) -> dict[str, Any]:
        """The fields of a request about one forward on a case's inputs."""
        tree, slots = self._put(case.inputs)
        return {
            "model": case.plan.model,
            "args": tree,
            "slots": slots,
            "train": case.plan.train,
            "seed": case.seed,
        }

    def _request(self, kind: type[T], /, **request: Any) -> T:
        """Sends a request and returns its reply, parsed."""
        self._process.inputs.settle()
        self.post(**request)
        return parse(self.collect(), kind)

    def _put(self, value: Any) -> tuple[Any, list]:
        """Writes a value's tensors into the shared memory; returns its JSON form and where they lie."""
        try:
            return self._process.inputs.lay(value)
        except NotSerializable as error:
            raise DrKernelError(f"the task's inputs or arguments cannot be handed to a submission: {error}") from error

    def _expect_room(self, slots: Sequence[Slot]) -> None:
        """A runner lays tensors one behind the other in its area. So copies of all need no more than that much memory,
        whatever it says of them.

        Raises:
            ProtocolViolation.
        """
        area = self._process.outputs
        for slot in slots:
            slot.check(area.size)
        if sum(slot.copied_bytes for slot in slots) > area.size:
            raise ProtocolViolation("more tensors than the shared memory has room for")

    def _copy(self, slot: Slot) -> Tensor:
        """A private copy of a tensor that the runner has written: nothing can change it while it is compared."""
        return self._process.outputs.view(slot).clone()

    def _output(self, output: replies.Output) -> OutputTensor:
        value = self._process.outputs.view(output.slot) if self._large else self._copy(output.slot)
        return OutputTensor(value, output.expanded, output.shares)


def traces_of(reply: Any, number: int) -> list[OpTrace]:
    """What each of so many calls launched, from an untrusted reply to `enqueue_gated`."""
    traces = parse(reply, replies.Traces).traces
    if len(traces) != number:
        raise ProtocolViolation(f"launches of {len(traces)} of {number} calls described")
    return [_trace(text) for text in traces]


def _trace(text: str) -> OpTrace:
    try:
        return OpTrace.from_json(text, MAX_ROWS)
    except ValueError as error:
        raise ProtocolViolation(str(error)) from error


def _kernel_time(name: str, triton: bool, calls: int, us: str) -> KernelTime:
    return KernelTime(name[:_MAX_NAME], calls, replies.hexadecimal(us, 0, 1e9), triton)
