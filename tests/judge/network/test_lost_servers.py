"""A client whose servers restart, hang or are not what they should be, and requests that servers do not survive."""

from __future__ import annotations

import multiprocessing
import os
import signal
import socketserver
import threading
import time
import warnings
from collections.abc import Iterator

import msgspec
import pytest

from drkernel.judge import NotPrepared, RemoteJudge
from drkernel.judge.network import client, connection, server
from drkernel.judge.network.messages import MAX_REQUEST
from drkernel.judge.network.server import HttpServer
from drkernel.types import DrKernelError, Task, Verdict, WorkerLost
from tests.judge.network.fakes import FakeJudge, comes_true, served
from tests.judge.network.test_client import serve_forever

TASKS = [Task(f"t{i}", f"class Model: x = {i}") for i in range(30)]
pytestmark = pytest.mark.filterwarnings("ignore:judge. http")


@pytest.fixture(autouse=True)
def _short_times(monkeypatch):
    monkeypatch.setattr(connection, "PAUSES_S", (0.01, 0.02))
    monkeypatch.setattr(connection, "_CONNECT_S", 0.3)
    monkeypatch.setattr(client, "AGAIN_S", 0.05)


def again(one: HttpServer, judge: FakeJudge) -> HttpServer:
    """A server in place of one that has closed."""
    return HttpServer(judge, "127.0.0.1", int(one.url.rpartition(":")[2]))


def test_a_server_that_answers_again_gets_its_tasks_back():
    judges = FakeJudge(), FakeJudge()
    with served(*judges) as servers, RemoteJudge([one.url for one in servers]) as judge:
        assert all(future.result(10).ok for future in [judge.submit(task, "0") for task in TASKS])
        own = {task.id for task, _ in judges[0].seen}
        servers[0].close()
        assert all(future.result(10).ok for future in [judge.submit(task, "0.01") for task in TASKS])
        with again(servers[0], restarted := FakeJudge()):
            comes_true(lambda: not judge._servers[0].connection.lost, "it is found")
            assert all(future.result(10).ok for future in [judge.submit(task, "0.02") for task in TASKS])
        assert own and {task.id for task, _ in restarted.seen} == own


def test_while_the_only_server_restarts_nothing_is_lost_and_nothing_fails():
    with served(FakeJudge()) as (one,), RemoteJudge([one.url]) as judge:
        early = [judge.submit(task, "never") for task in TASKS[:5]]
        comes_true(lambda: one.pending == 5, "it judges")
        with warnings.catch_warnings(record=True) as told:
            warnings.simplefilter("always")
            one.close()
            late = [judge.submit(task, "0") for task in TASKS]
            comes_true(lambda: len(judge._waiting) == 35, "all wait")
        assert [str(each.message).endswith("tasks wait 300 s for it") for each in told] == [True]
        with again(one, restarted := FakeJudge()):
            assert all(future.result(10).ok for future in late)
            comes_true(lambda: len(restarted.never) == 5, "what was under way is asked again")
            for each in restarted.never:
                each.set_result(Verdict("ok", "slower", speedup=0.5, coverage=1.0))
            assert all(future.result(10).ok for future in early)


def test_where_no_server_returns_tasks_fail_after_a_while(monkeypatch):
    monkeypatch.setattr(client, "PATIENCE_S", 0.3)
    with served(FakeJudge()) as (one,), RemoteJudge([one.url]) as judge:
        one.close()
        futures = [judge.submit(task, "0") for task in TASKS]
        started = time.monotonic()
        for future in futures:
            with pytest.raises(WorkerLost, match=r"no server is left: http\S+ \(ConnectionRefusedError"):
                future.result(10)
        assert 0.2 < time.monotonic() - started < 3


def test_a_server_that_returns_with_other_options_stays_lost():
    judges = FakeJudge(), FakeJudge()
    with served(*judges) as servers, RemoteJudge([one.url for one in servers]) as judge:
        servers[0].close()
        with again(servers[0], FakeJudge(gpu="A100")):
            assert all(future.result(10).ok for future in [judge.submit(task, "0") for task in TASKS])
            time.sleep(0.3)
            assert all(future.result(10).ok for future in [judge.submit(task, "0.01") for task in TASKS])
            assert judge._servers[0].connection.lost == "it was started anew with other options"
        assert {task.id for task, _ in judges[1].seen} == {task.id for task in TASKS}


def test_a_server_that_hangs_is_lost_and_its_tasks_go_to_others():
    context = multiprocessing.get_context("fork")
    ours, theirs = context.Pipe()
    process = context.Process(target=serve_forever, args=(theirs,))
    process.start()
    other = FakeJudge()
    with served(other) as (one,), RemoteJudge([ours.recv(), one.url]) as judge:
        os.kill(process.pid, signal.SIGSTOP)  # its kernel still accepts connections
        futures = [judge.submit(task, "0") for task in TASKS]
        assert all(future.result(10).ok for future in futures)
        assert {task.id for task, _ in other.seen} == {task.id for task in TASKS}
    os.kill(process.pid, signal.SIGKILL)
    process.join()


def test_a_task_that_no_request_can_hold_is_an_error_and_loses_no_server():
    fake = FakeJudge()
    with served(fake) as (one,), RemoteJudge([one.url]) as judge:
        huge = Task("huge", "x" * 3 * MAX_REQUEST)
        for ask in (lambda: judge.judge(huge, "0"), lambda: judge.check_task(huge)):
            with pytest.raises(DrKernelError, match=rf"a request of \d+ bytes, expected at most {MAX_REQUEST}"):
                ask()
        assert judge.judge(TASKS[0], "0").ok and not judge._servers[0].connection.lost
        assert judge.judge(TASKS[0], "0.0001" + " " * 10**7).ok, "of a submission enough is sent"


def test_a_request_that_every_server_is_lost_with_fails_alone(monkeypatch):
    real, tried = server._Handler._reply, []

    def reply(handler):
        if handler.headers["Content-Length"] == "0" or handler.path != "/check":
            return real(handler)
        tried.append(handler)
        raise ConnectionResetError

    monkeypatch.setattr(server._Handler, "_reply", reply)
    with served(FakeJudge(), FakeJudge()) as servers, RemoteJudge([one.url for one in servers]) as judge:
        with pytest.raises(NotPrepared, match="a server was lost 4 times while it had this request"):
            judge.check_task(TASKS[0])
        assert len(tried) == 4 * 3
        assert all(future.result(10).ok for future in [judge.submit(task, "0") for task in TASKS])


def test_servers_of_another_version_are_refused_before_anything_is_asked():
    with served(FakeJudge()) as (one,):
        one.about = msgspec.structs.replace(one.about, drkernel="99.0")
        with pytest.raises(DrKernelError, match=r"they judge with drkernel=99\.0; this run expects drkernel="):
            RemoteJudge([one.url])
        one.about = msgspec.structs.replace(one.about, drkernel="not installed")
        RemoteJudge([one.url]).close()


@pytest.mark.parametrize("address", ["http://user:word@127.0.0.1:8000", "http://a..b:80", "http://" + "a" * 70 + ":80"])
def test_an_address_that_cannot_be_one_is_an_error(address):
    with pytest.raises(DrKernelError, match=r"^judge\.servers: "):
        RemoteJudge([address])


OK = b"HTTP/1.0 200 OK\r\n"
NO_JUDGES = {
    "a list": OK + b"\r\n[1]",
    "no JSON": OK + b"\r\n" + b"x" * 10**6,
    "many fields": OK + b"a: b\r\n" * 10**4,
    "another place": b"HTTP/1.0 302 Found\r\nLocation: http://127.0.0.1:1/\r\n\r\n",
    "no HTTP": b"SSH-2.0-x\r\n",
    "nothing": b"",
}


@pytest.mark.parametrize("reply", NO_JUDGES.values(), ids=NO_JUDGES)
def test_what_is_no_judge_is_refused_at_the_start(liar, reply):
    with pytest.raises(DrKernelError, match=r"^judge\.servers: http://127\S+: .*expected a running `drkernel-judge"):
        RemoteJudge([liar(reply)])


@pytest.fixture
def liar() -> Iterator:
    """Starts something that answers every connection with the same bytes."""
    started = []

    def start(reply: bytes) -> str:
        class Handler(socketserver.BaseRequestHandler):
            def handle(self) -> None:
                self.request.recv(2**16)
                self.request.sendall(reply)

        one = socketserver.ThreadingTCPServer(("127.0.0.1", 0), Handler)
        started.append(one)
        threading.Thread(target=one.serve_forever, args=(0.01,), daemon=True).start()
        return f"http://127.0.0.1:{one.server_address[1]}"

    yield start
    for one in started:
        one.shutdown()
        one.server_close()
