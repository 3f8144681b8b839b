"""P12 of judge/PROPERTIES.md: nobody pays for a failure of the judge, and nobody can bring one about to escape."""

from __future__ import annotations

import contextlib
import errno
import queue
import socket
import subprocess
import threading
from concurrent.futures import CancelledError, Future
from types import SimpleNamespace

import pytest
import torch

from drkernel.judge import Judge, service
from drkernel.judge.boundary import sandbox
from drkernel.judge.boundary.framing import DeadlineExceeded, ProtocolViolation
from drkernel.judge.devices.simulated import backend, examiner
from drkernel.judge.devices.simulated.examiner import SimulatedExaminer
from drkernel.judge.trusted.exam_config import ExamConfig
from drkernel.judge.trusted.processes import runner_client
from drkernel.judge.trusted.processes.failures import reading
from drkernel.judge.trusted.processes.runner_client import RunnerClient
from drkernel.judge.trusted.processes.worker_process import NotPrepared, WorkerCrashed, WorkerNotStarted
from drkernel.judge.trusted.processes.zygote import ZygoteDied
from drkernel.judge.trusted.verdicts import judge_failure
from drkernel.types import DrKernelError, Task, Verdict
from tests.judge.examples import as_expected, examples

ATTACKS = [example for example in examples("attacks", "simulated") if example.number == 12]
OK, WRONG, NONE = Verdict("ok", "faster"), Verdict("incorrect", "wrong_values"), judge_failure("worker_lost", "it died")


@pytest.fixture(scope="module")
def ungated_verdicts(ungated, tasks):
    pending = {example.name: ungated.submit(tasks[example.task], example.source) for example in ATTACKS}
    return {name: future.result() for name, future in pending.items()}


@pytest.mark.slow
@pytest.mark.xdist_group("without gate")
@pytest.mark.parametrize("example", ATTACKS, ids=lambda e: e.name)
def test_a_submission_cannot_make_the_judge_fail(example, ungated_verdicts):
    verdict = ungated_verdicts[example.name]
    assert not verdict.is_judge_failure and not as_expected(example, verdict)


class Dying:
    """A worker process that dies over every request."""

    def __init__(self, *given):
        self.missing = []

    def request(self, body, timeout_s):
        raise WorkerCrashed("worker process: PeerClosed")

    def kill(self):
        pass


def test_a_submission_whose_workers_die_gets_no_verdict(monkeypatch, tasks):
    monkeypatch.setattr(backend, "Worker", Dying)
    with Judge(device="simulated", workers=1) as judge:
        found = judge.judge(tasks["relu"], "source")
        assert (found.status, found.reason, found.ok) == ("judge_failure", "worker_lost", False)
        assert "failed 2 times: worker process: PeerClosed" in found.detail
        with pytest.raises(NotPrepared, match="a task could not be prepared: worker process"):
            judge.check_task(tasks["relu"])


def test_a_machine_on_which_no_worker_starts_says_nothing_of_task_or_submission(monkeypatch, tasks):
    def start(*given):
        raise WorkerNotStarted("DeadlineExceeded")

    monkeypatch.setattr(backend, "Worker", start)
    with Judge(device="simulated", workers=1) as judge:
        found = judge.judge(tasks["relu"], "source")
        assert found.is_judge_failure and "no worker process starts: DeadlineExceeded" in found.detail
        with pytest.raises(NotPrepared, match="no worker process starts"):
            judge.check_task(tasks["relu"])


@pytest.mark.parametrize("call", ["socketpair", "Popen"])
def test_a_machine_without_processes_or_files_to_spare_is_no_hanging_verdict(
    workers_by_command, monkeypatch, tasks, call
):
    def fail(*given, **more):
        raise OSError(errno.EAGAIN, "Resource temporarily unavailable")

    monkeypatch.setattr(*((socket, call) if call == "socketpair" else (subprocess, call)), fail)
    with Judge(device="simulated", workers=1) as judge:
        found = judge.submit(tasks["relu"], "source").result(timeout=20)
        assert found.is_judge_failure and "Resource temporarily unavailable" in found.detail


class SlowToTake(queue.SimpleQueue):
    """A queue of jobs that takes one only when the test lets it."""

    def __init__(self):
        super().__init__()
        self.entered, self.go_on = threading.Event(), threading.Event()

    def put(self, item, *given):
        if item is not None:
            self.entered.set()
            self.go_on.wait(2)
        super().put(item, *given)


@pytest.mark.parametrize("ask", ["check_task", "submit"])
def test_a_judge_that_closes_while_it_is_asked_leaves_nobody_waiting(monkeypatch, tasks, ask):
    monkeypatch.setattr(backend, "Worker", Dying)
    ended = threading.Event()
    monkeypatch.setattr(backend, "queue", SimpleNamespace(SimpleQueue=SlowToTake, Empty=queue.Empty))
    judge = Judge(device="simulated", workers=1)
    jobs = judge._backend._jobs

    def wait():
        with contextlib.suppress(CancelledError, DrKernelError):
            judge.check_task(tasks["relu"]) if ask == "check_task" else judge.judge(tasks["relu"], "source")
        ended.set()

    threading.Thread(target=wait, daemon=True).start()
    assert jobs.entered.wait(5)
    closing = threading.Thread(target=judge.close, daemon=True)
    closing.start()
    closing.join(0.3)
    jobs.go_on.set()
    assert ended.wait(5), "it waits for ever"
    closing.join(5)


class Once:
    """A backend that answers each request by the next of some outcomes."""

    def __init__(self, *outcomes):
        self.outcomes = list(outcomes)

    def enqueue(self, task, source):
        future, outcome = Future(), self.outcomes.pop(0)
        future.set_exception(outcome) if isinstance(outcome, Exception) else future.set_result(outcome)
        return future

    def close(self):
        pass


def test_a_failure_is_not_cached_and_the_next_who_asks_gets_another_attempt(monkeypatch, tasks):
    monkeypatch.setattr(service, "SimulatedBackend", lambda *given: Once(NONE, DrKernelError("no worker"), WRONG))
    with Judge(device="simulated", workers=1) as judge:
        ask = lambda: judge.judge(tasks["relu"], "source")
        assert ask().is_judge_failure
        with pytest.raises(DrKernelError, match="no worker"):
            ask()
        assert ask() is WRONG and ask() is WRONG


@pytest.mark.parametrize(
    "error", [IndexError("9"), ValueError("x"), OverflowError(), RuntimeError("sizes"), TypeError()]
)
def test_what_cannot_be_read_is_the_fault_of_who_sent_it(error):
    with (
        pytest.raises(ProtocolViolation, match=rf"outputs that cannot be read: {type(error).__name__}"),
        reading("outputs"),
    ):
        raise error


@pytest.mark.parametrize(
    "error",
    [
        MemoryError(),
        torch.OutOfMemoryError("CUDA out of memory"),
        RuntimeError("DefaultCPUAllocator: can't allocate memory"),
        DrKernelError("task"),
        DeadlineExceeded(),
    ],
)
def test_memory_that_the_judge_lacks_is_not_the_fault_of_who_sent_something(error):
    with pytest.raises(type(error)) as caught, reading("outputs"):
        raise error
    assert caught.value is error


class Late:
    """A runner that replies at the second attempt, after it has waited for a processor."""

    handshake = None

    def __init__(self, starved_s: float):
        self.starved, self.asked = starved_s, []

    def send_request(self, body, deadline):
        pass

    def receive_reply(self, deadline):
        self.asked.append(deadline)
        if len(self.asked) % 2:
            raise DeadlineExceeded
        return {}

    def starved_s(self):
        return self.starved


def test_time_that_neighbours_took_does_not_count():
    client = RunnerClient(process := Late(starved_s=3.0), timeout_s=5.0)
    client.post("call")
    assert client.collect() == {}
    assert process.asked[1] - process.asked[0] == pytest.approx(-2.0, abs=0.1), "3 s more, from when 5 s were over"


def test_who_waited_for_nobody_gets_no_more_time():
    client = RunnerClient(Late(starved_s=0.2), timeout_s=5.0)
    with pytest.raises(DeadlineExceeded):
        client.collect()


def test_a_submission_that_starves_itself_gets_its_time_twice_at_most():
    client = RunnerClient(process := Late(starved_s=1e6), timeout_s=5.0, budget_factor=3.0)
    before = client._end
    assert client.collect() == {}
    with pytest.raises(DeadlineExceeded):
        client.collect()
    assert client._end - before == pytest.approx(15.0, abs=0.05)
    assert process.asked


class Prompt(Late):
    """A runner that replies after a time, by a clock of its own."""

    def __init__(self, takes_s: float, monkeypatch: pytest.MonkeyPatch):
        super().__init__(0.0)
        self.takes, self.now = takes_s, 1000.0
        monkeypatch.setattr(runner_client, "time", SimpleNamespace(monotonic=lambda: self.now))

    def receive_reply(self, deadline):
        self.asked.append(deadline - self.now)
        self.now += self.takes
        return {}


@pytest.mark.parametrize("works", ["before requests", "while they are answered"])
def test_time_that_the_examiner_takes_itself_does_not_count_up_to_that_of_all_replies(works, monkeypatch):
    process = Prompt(0.0, monkeypatch)
    client = RunnerClient(process, timeout_s=5.0, budget_factor=2.0)
    for _ in range(7):
        process.now += 2.0 if works == "before requests" else 0.0
        client.post("call")
        process.now += 2.0 if works == "while they are answered" else 0.0
        client.collect()
    assert process.asked == pytest.approx([5.0] * 7), "10 s of 14 do not count"
    process.now += 2.0
    client.post("call")
    assert client.collect() == {} and process.asked[-1] == pytest.approx(4.0)


def test_on_a_gpu_what_the_examiner_takes_between_a_reply_and_a_request_does_not_count(monkeypatch):
    """Of a network with a hundred layers, references in fp64 and with noise take longer than all replies may."""
    process = Prompt(1.0, monkeypatch)
    process.handshake = object()
    client = RunnerClient(process, timeout_s=5.0, budget_factor=1.0)
    for _ in range(3):
        process.now += 4.0
        client.post("call")
        client.collect()
    client.post("call")
    process.now += 1.0  # waited for by other means
    client.collect()
    assert process.asked == pytest.approx([5.0, 4.0, 3.0, 1.0])


def test_time_for_which_the_examiner_waits_counts(monkeypatch):
    process = Prompt(2.0, monkeypatch)
    client = RunnerClient(process, timeout_s=5.0, budget_factor=2.0)
    for _ in range(5):
        client.post("call")
        client.collect()
    assert process.asked == pytest.approx([5.0, 5.0, 5.0, 4.0, 2.0])


def examiner_that_finds(*verdicts: Verdict) -> SimpleNamespace:
    found = list(verdicts)
    config = ExamConfig(device="simulated:H200", gate=False)
    return SimpleNamespace(
        config=config, secret=b"", _examined=lambda *_: found.pop(0), _uncompiled=lambda *_: None, left=found
    )


ANY_TASK = Task("any", "")
KILLED = Verdict("invalid", "timeout", "killed", evidence={"killed": True})


@pytest.mark.parametrize(
    ("kills", "first", "second", "left"),
    [([0, 0], KILLED, "timeout", 1), ([0, 1], KILLED, "faster", 0), ([0, 1], WRONG, "wrong_values", 1)],
)
def test_a_runner_that_is_killed_while_the_machine_has_no_memory_is_tried_again(
    monkeypatch, kills, first, second, left
):
    monkeypatch.setattr(sandbox, "oom_kills", iter(kills).__next__)
    mine = examiner_that_finds(first, OK)
    assert SimulatedExaminer.judge(mine, ANY_TASK, "").reason == second
    assert len(mine.left) == left


def test_a_submission_that_is_killed_again_is_blamed(monkeypatch):
    monkeypatch.setattr(sandbox, "oom_kills", iter([0, 1]).__next__)
    assert SimulatedExaminer.judge(examiner_that_finds(KILLED, KILLED), ANY_TASK, "").reason == "timeout"


def test_a_verdict_that_is_reached_stands_though_the_zygote_dies():
    def end():
        raise ZygoteDied

    process = SimpleNamespace(end=end)
    assert examiner.ended(process, WRONG) == ""
    with pytest.raises(ZygoteDied):
        examiner.ended(process, None)
