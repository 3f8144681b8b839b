"""A judge on other machines: which server gets a task, and what becomes of it where the server is lost."""

from __future__ import annotations

import multiprocessing
import os
import signal
import time
import warnings
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from http import HTTPStatus

import pytest

from drkernel.judge import NotPrepared, RemoteJudge
from drkernel.judge.network import client, connection, server
from drkernel.judge.network.client import LEAST, asked
from drkernel.judge.network.messages import Failed
from drkernel.judge.network.server import HttpServer
from drkernel.types import DrKernelError, Task, Verdict, WorkerLost
from tests.judge.network.fakes import FakeJudge, comes_true, served, threads

TASKS = [Task(f"t{i}", f"class Model: x = {i}") for i in range(60)]
TOKEN = "0123456789abcdef"


@pytest.fixture(autouse=True)
def _short_pauses(monkeypatch):
    monkeypatch.setattr(connection, "PAUSES_S", (0.01, 0.02, 0.05))
    monkeypatch.setattr(client, "PATIENCE_S", 0.0)


def seen_by(judge: FakeJudge) -> list[str]:
    return [task.id for task, _ in judge.seen]


def test_a_client_is_a_judge():
    with served(FakeJudge(), token=TOKEN) as (one,), RemoteJudge([one.url], TOKEN) as judge:
        expected = Verdict("ok", "faster", detail="0", evidence={"task": "t0"}, speedup=1.5, coverage=1.0)
        assert judge.judge(TASKS[0], "0") == expected == judge.submit(TASKS[0], "0").result()
        assert judge.check_task(TASKS[0]) == "" and judge.check_task(Task("degenerate", "")) == "zeros"
        with pytest.raises(DrKernelError, match=r"^task bad: trivial answer passes$") as unusable:
            judge.check_task(Task("bad", ""))
        assert not isinstance(unusable.value, NotPrepared)
        with pytest.raises(NotPrepared, match="could not be prepared"):
            judge.check_task(Task("failed", ""))
        with pytest.raises(DrKernelError, match=r"^task t: cannot be used$"):
            judge.judge(TASKS[0], "unusable")


def test_a_task_always_goes_to_the_same_server_and_all_clients_choose_alike():
    judges = [FakeJudge() for _ in range(3)]
    with served(*judges) as servers:
        urls = [one.url for one in servers]
        for order in (urls, urls[::-1]):
            with RemoteJudge(order) as judge:
                assert all(future.result().ok for future in [judge.submit(task, "0") for task in TASKS])
    counts = [Counter(seen_by(judge)) for judge in judges]
    assert all(set(count.values()) == {2} for count in counts), "both clients sent a task to the same server"
    assert sum(map(len, counts)) == len(TASKS) and all(len(count) >= 8 for count in counts)


def test_many_threads_each_get_their_own():
    sources = [f"{i * 1e-5:.5f}" for i in range(200)]
    with (
        served(FakeJudge(), FakeJudge()) as servers,
        RemoteJudge([one.url for one in servers]) as judge,
        ThreadPoolExecutor(14) as pool,
    ):
        sent = [pool.submit(judge.submit, TASKS[i % 60], source) for i, source in enumerate(sources)]
        assert [future.result().result(20).detail for future in sent] == sources


def test_a_server_has_a_bounded_number_of_requests_and_the_caller_does_not_wait():
    fake = FakeJudge()
    with served(fake) as (one,), RemoteJudge([one.url]) as judge:
        futures = [judge.submit(task, "never") for task in TASKS]
        comes_true(lambda: len(fake.never) == LEAST, "it has as many as it may")
        time.sleep(0.05)
        assert len(fake.never) == LEAST and not any(future.done() for future in futures)
        for future in list(fake.never):
            future.set_result(Verdict("ok", "slower"))
        comes_true(lambda: len(fake.never) == 2 * LEAST, "the next ones follow")


def test_where_a_server_closes_the_others_take_its_tasks_and_keep_their_own():
    judges = [FakeJudge() for _ in range(3)]
    with served(*judges) as servers, RemoteJudge([one.url for one in servers]) as judge:
        assert all(future.result().ok for future in [judge.submit(task, "0") for task in TASKS])
        before = [set(seen_by(each)) for each in judges]
        servers[0].close()
        with pytest.warns(UserWarning, match=r"judge: http://127.0.0.1:\d+ is lost .*others get its tasks") as told:
            assert all(future.result().ok for future in [judge.submit(task, "0.01") for task in TASKS])
        assert len(told) == 1
        after = [set(seen_by(each)) for each in judges]
        assert after[0] == before[0] and before[1] <= after[1] and before[2] <= after[2]
        assert after[1] | after[2] == {task.id for task in TASKS}


def serve_forever(pipe) -> None:
    one = HttpServer(FakeJudge(), "127.0.0.1", 0)
    pipe.send(one.url)
    time.sleep(60)


def test_where_a_server_is_killed_another_one_takes_over_what_it_had():
    context = multiprocessing.get_context("fork")
    ours, theirs = context.Pipe()
    process = context.Process(target=serve_forever, args=(theirs,))
    process.start()
    other = FakeJudge()
    with served(other) as (one,), RemoteJudge([ours.recv(), one.url]) as judge:
        futures = [judge.submit(task, "0.3") for task in TASKS[:12]]
        comes_true(lambda: one.pending > 0, "both judge")
        os.kill(process.pid, signal.SIGKILL)
        with pytest.warns(UserWarning, match="is lost") as told:
            assert all(future.result(10).ok for future in futures)
        assert len(told) == 1 and set(seen_by(other)) == {task.id for task in TASKS[:12]}
    process.join()


@pytest.mark.filterwarnings("ignore:judge. http")
def test_where_no_server_is_left_everything_open_fails_and_says_why():
    judges = FakeJudge(), FakeJudge()
    with served(*judges) as servers, RemoteJudge([one.url for one in servers]) as judge:
        futures = [judge.submit(task, "never") for task in TASKS]
        for one in servers:
            one.close()
        for future in futures:
            with pytest.raises(WorkerLost, match=r"no server is left: http://127\S+ \(.*\), http://127\S+ \(.*\)"):
                future.result(10)
        with pytest.raises(WorkerLost, match="no server is left"):
            judge.check_task(TASKS[0])


def test_a_request_whose_connection_is_lost_is_sent_again(monkeypatch):
    real, lost = server._Handler._reply, []

    def lose_some(handler):
        if handler.path != "/judge" or len(lost) == 3:
            return real(handler)
        lost.append(handler)
        if len(lost) == 3:
            return HTTPStatus.GATEWAY_TIMEOUT, Failed("as a proxy says that waits no longer")
        raise ConnectionResetError

    monkeypatch.setattr(server._Handler, "_reply", lose_some)
    with served(FakeJudge()) as (one,), RemoteJudge([one.url]) as judge, warnings.catch_warnings():
        warnings.simplefilter("error")
        assert judge.judge(TASKS[0], "0").ok and len(lost) == 3


@pytest.mark.filterwarnings("ignore:judge. http")
def test_a_server_that_was_started_anew_with_other_options_is_lost():
    with served(FakeJudge()) as (one,), RemoteJudge([one.url]) as judge:
        port = int(one.url.rpartition(":")[2])
        one.close()
        with HttpServer(FakeJudge(), "127.0.0.1", port):
            assert judge.judge(TASKS[0], "0").ok, "the same options: the same judge"
        with (
            HttpServer(FakeJudge(gpu="A100"), "127.0.0.1", port),
            pytest.raises(WorkerLost, match="it was started anew with other options"),
        ):
            judge.judge(TASKS[0], "0")


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"gpu": "A100"}, ["device=simulated:H200", "device=simulated:A100"]),
        ({"lazy_below": 1.2, "timeout_s": 3.0}, ["timeout_s=20.0, lazy_below=1.05", "timeout_s=3.0, lazy_below=1.2"]),
        ({"criterion": "kernelbench"}, ["criterion=drkernel", "criterion=kernelbench"]),
        ({"host_memory_mib": 9}, ["host_memory_mib=4096", "host_memory_mib=9"]),
    ],
)
def test_servers_that_differ_are_refused_and_the_message_says_in_what(options, words):
    two = FakeJudge(workers=1), FakeJudge(workers=5, **options)
    with served(*two) as servers, pytest.raises(DrKernelError) as refused:
        RemoteJudge([one.url for one in servers])
    assert all(word in str(refused.value) for word in (*words, *(one.url for one in servers)))


def test_servers_must_have_the_options_that_are_expected():
    with served(FakeJudge(degenerate="mark")) as (one,):
        assert asked([one.url], expected={"degenerate": "mark", "timed_shapes": 1}).device == "simulated:H200"
        with pytest.raises(DrKernelError, match=r"they judge with degenerate=mark; this run expects degenerate=refuse"):
            asked([one.url], expected={"degenerate": "refuse", "timed_shapes": 1})


@pytest.mark.parametrize("address", ["node1:8000", "ftp://node1:8000", "http://", "http://h:x", "http://h:1/path"])
def test_an_address_is_a_url(address):
    with pytest.raises(DrKernelError, match=r"judge\.servers: found '.*', expected http://HOST:PORT"):
        RemoteJudge([address])


def test_servers_that_do_not_answer_are_named():
    with pytest.raises(DrKernelError, match=r"judge\.servers: found none"):
        RemoteJudge([])
    with pytest.raises(DrKernelError, match=r"http://127\.0\.0\.1:9: ConnectionRefused.*a running `drkernel-judge"):
        RemoteJudge(["http://127.0.0.1:9"])
    unknown = pytest.raises(DrKernelError, match=r"http://127\S+: Authorization: expected `Bearer TOKEN`")
    with served(FakeJudge(), token=TOKEN) as (one,), unknown:
        RemoteJudge([one.url], "another token")


def test_closing_fails_what_is_open_waits_for_nobody_and_ends_the_threads():
    with served(FakeJudge(), FakeJudge()) as servers:
        judge = RemoteJudge([one.url for one in servers])
        futures = [judge.submit(task, "never") for task in TASKS]
        comes_true(lambda: all(one.pending == LEAST for one in servers), "all threads wait")
        started = time.monotonic()
        judge.close()
        for future in futures:
            with pytest.raises(WorkerLost, match="this client was closed"):
                future.result(0)
        with pytest.raises(WorkerLost, match="this client was closed"):
            judge.submit(TASKS[0], "0")
        assert time.monotonic() - started < 1
        judge.close()
        comes_true(lambda: threads("judge-client") == 0, "no thread is left")
