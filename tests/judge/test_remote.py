"""One judge for all ranks of a node: clients get what the judge says, and nobody waits for who is gone."""

from __future__ import annotations

import contextlib
import dataclasses
import multiprocessing
import os
import signal
import stat
import threading
import time
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import closing
from multiprocessing.connection import Client as connect

import pytest

from drkernel.judge import NotPrepared
from drkernel.judge.remote import Client, serve
from drkernel.rollout.verdicts import judged
from drkernel.types import DrKernelError, Task, Verdict, WorkerLost
from tests.judge.examples import examples

TASK = Task("t", "class Model: ...")
RELU = next(e.source for e in examples("honest") if e.name == "90_helpers")


class Unpicklable(Exception):
    """An error that no other process can have."""


class FakeJudge:
    """Answers `after` seconds that the source names; `never` stays open until `release`."""

    def __init__(self):
        self.pool, self.seen, self.never = ThreadPoolExecutor(32), [], Future()

    def submit(self, task: Task, source: str) -> Future:
        self.seen.append(source)
        return self.never if source == "never" else self.pool.submit(self._judge, task, source)

    def _judge(self, task: Task, source: str) -> Verdict:
        if source == "unusable":
            raise DrKernelError("task t: cannot be used")
        if source == "broken":
            raise KeyError("a bug")
        if source == "lost":
            raise WorkerLost("judge: no server is left")
        if source == "odd":
            raise Unpicklable(threading.Lock())
        time.sleep(float(source))
        return Verdict("ok", "faster", detail=source, evidence={"task": task.id}, speedup=1.5)

    def check_task(self, task: Task) -> None:
        if "failed" in task.id:
            raise NotPrepared("judge: a task could not be prepared")
        if "bad" in task.id:
            raise DrKernelError(f"task {task.id}: trivial answer passes")


@pytest.fixture
def fake():
    return FakeJudge()


@pytest.fixture
def server(fake):
    with serve(fake) as server:
        yield server


@pytest.fixture
def client(server):
    with closing(Client(server.address, server.key)) as client:
        yield client


def test_a_failure_of_the_judge_is_told_from_an_unusable_task(client):
    with pytest.raises(NotPrepared, match="could not be prepared"):
        client.check_task(dataclasses.replace(TASK, id="failed"))
    with pytest.raises(DrKernelError, match="trivial answer passes") as caught:
        client.check_task(dataclasses.replace(TASK, id="bad"))
    assert not isinstance(caught.value, NotPrepared)


def test_verdicts_arrive_whole_and_in_any_order(client):
    order = []
    futures = [client.submit(TASK, f"{delay:.2f}") for delay in (0.3, 0.15, 0.0)]
    for future in futures:
        future.add_done_callback(lambda done: order.append(done.result().detail))
    assert [future.result(5).detail for future in futures] == ["0.30", "0.15", "0.00"]
    assert order == ["0.00", "0.15", "0.30"]
    expected = Verdict("ok", "faster", detail="0", evidence={"task": "t"}, speedup=1.5)
    assert client.judge(TASK, "0") == expected


def test_many_threads_of_many_clients_each_get_their_own(server):
    clients = [Client(server.address, server.key) for _ in range(7)]
    with ThreadPoolExecutor(14) as pool:
        asked = [(f"{i * 1e-5:.5f}", pool.submit(clients[i % 7].submit, TASK, f"{i * 1e-5:.5f}")) for i in range(600)]
        assert all(future.result().result(20).detail == source for source, future in asked)
    for client in clients:
        client.close()


def test_errors_of_the_judge_are_those_of_its_user(client, fake):
    client.check_task(TASK)
    with pytest.raises(DrKernelError, match=r"^task bad: trivial answer passes$"):
        client.check_task(Task("bad", ""))
    with pytest.raises(DrKernelError, match=r"^task t: cannot be used$"):
        client.judge(TASK, "unusable")
    fake.submit = lambda *_: (_ for _ in ()).throw(DrKernelError("judge: already closed"))
    with pytest.raises(DrKernelError, match="already closed"):
        client.judge(TASK, "0")


@pytest.mark.parametrize("source", ["broken", "lost", "odd"])
def test_a_bug_of_the_judge_ends_every_rank_of_a_node_alike(client, fake, source):
    """The first rank has the judge's own future, the others a client's: on neither does it become a verdict."""
    asked = [judge.submit(TASK, source) for judge in (fake, client)]
    errors = [future.exception(5) for future in asked]
    assert str(errors[0]) in str(errors[1]) or source == "odd"
    assert type(errors[1]) is (RuntimeError if source == "odd" else type(errors[0]))
    for future in asked:
        with pytest.raises(type(future.exception())):
            judged(future)


def test_a_task_that_is_refused_once_it_was_taken_is_a_failure_of_the_judge_on_every_rank(client, fake):
    for judge in (fake, client):
        future = judge.submit(TASK, "unusable")
        future.exception(5)
        assert judged(future) == Verdict("judge_failure", "not_prepared", "task t: cannot be used")


def test_only_this_user_with_the_key_gets_in(server):
    assert stat.S_IMODE(os.stat(os.path.dirname(server.address)).st_mode) == 0o700
    with pytest.raises(DrKernelError, match=r"no server answers at .*AuthenticationError"):
        Client(server.address, b"a guess")
    with closing(Client(server.address, server.key)) as client:
        assert client.judge(TASK, "0").ok


def test_a_server_that_closes_fails_what_is_open_and_leaves_nothing(server, client):
    waiting = [client.submit(TASK, "never") for _ in range(3)]
    server.close()
    for future in waiting:
        with pytest.raises(WorkerLost, match="closed its judge"):
            future.result(5)
    with pytest.raises(WorkerLost, match="closed its judge"):
        client.submit(TASK, "0")
    assert not os.path.exists(os.path.dirname(server.address))
    with pytest.raises(DrKernelError, match="no server answers"):
        Client(server.address, server.key)


def test_a_server_that_dies_fails_what_is_open(tmp_path):
    context = multiprocessing.get_context("fork")
    ours, theirs = context.Pipe()
    process = context.Process(target=_serve_forever, args=(theirs,))
    process.start()
    client = Client(*ours.recv())
    waiting = [client.submit(TASK, "never") for _ in range(3)]
    assert client.judge(TASK, "0").ok
    os.kill(process.pid, signal.SIGKILL)
    for future in waiting:
        with pytest.raises(WorkerLost, match="which owns the judge, has died"):
            future.result(5)
    with pytest.raises(WorkerLost, match="has died"):
        client.check_task(TASK)
    client.close()
    process.join()


def _serve_forever(pipe) -> None:
    server = serve(FakeJudge())
    pipe.send((server.address, server.key))
    time.sleep(60)


def test_a_client_that_dies_or_closes_leaves_the_server_well(server, fake, client):
    context = multiprocessing.get_context("fork")
    process = context.Process(target=_ask_and_die, args=(server.address, server.key))
    process.start()
    process.join(10)
    other = Client(server.address, server.key)
    mine = other.submit(TASK, "never")
    other.close()
    with pytest.raises(WorkerLost, match="this client was closed"):
        mine.result(5)
    assert fake.seen.count("never") >= 3
    fake.never.set_result(Verdict("ok", "faster"))
    assert client.judge(TASK, "never").ok and client.judge(TASK, "0.01").ok
    _comes_true(lambda: len(server._outboxes) == 1, "only the client that is left has a mailbox")


def _comes_true(condition, what: str) -> None:
    deadline = time.time() + 5
    while not condition() and time.time() < deadline:
        time.sleep(0.01)
    assert condition(), what


def _ask_and_die(address: str, key: bytes) -> None:
    client = Client(address, key)
    for _ in range(3):
        client.submit(TASK, "never")
    client.judge(TASK, "0")
    os._exit(1)


class Slow:
    """An answer that is being written from `begun` until `go_on`."""

    def __init__(self):
        self.begun, self.go_on = threading.Event(), threading.Event()

    def __reduce__(self):
        self.begun.set()
        self.go_on.wait(10)
        return str, ("an answer",)


def test_an_answer_to_a_client_that_has_died_goes_to_nobody_else(server, fake):
    """Its connection's number is given to the next client, so it stays open until nothing is written to it any more."""
    answer, dead = Slow(), connect(server.address, authkey=server.key)
    dead.send((0, "submit", TASK, "never"))
    fake.never.set_result(answer)
    assert answer.begun.wait(5)
    dead.close()
    with closing(Client(server.address, server.key)) as client:
        assert client.judge(TASK, "0.2").ok
        answer.go_on.set()
        assert client.judge(TASK, "0").ok
        _comes_true(lambda: len(server._outboxes) == 1, "only the client that is left has a mailbox")


def test_closing_waits_for_nobody_who_is_just_being_let_in(fake):
    for _ in range(100):
        server = serve(fake)
        clients = [threading.Thread(target=_call_in, args=(server,)) for _ in range(3)]
        for client in clients:
            client.start()
        server.close()
        for client in clients:
            client.join(5)
            assert not client.is_alive()


def _call_in(server) -> None:
    with contextlib.suppress(DrKernelError):
        Client(server.address, server.key).close()


def test_closing_ends_the_threads_of_both_sides(fake):
    before = threading.active_count()
    server = serve(fake)
    clients = [Client(server.address, server.key) for _ in range(3)]
    clients[0].close()
    server.close()
    _comes_true(lambda: threading.active_count() <= before, "no thread is left")


@pytest.mark.slow
def test_the_real_judge_says_the_same_through_a_client(judge, tasks):
    with serve(judge) as server, closing(Client(server.address, server.key)) as client:
        client.check_task(tasks["relu"])
        assert client.judge(tasks["relu"], RELU) == judge.judge(tasks["relu"], RELU)
        assert client.judge(tasks["relu"], "class ModelNew(:").reason == "syntax_error"
        with pytest.raises(DrKernelError) as direct:
            judge.check_task(Task("broken", "import torch\nclass Model: pass\n"))
        with pytest.raises(DrKernelError) as remote:
            client.check_task(Task("broken", "import torch\nclass Model: pass\n"))
        assert str(remote.value) == str(direct.value)
