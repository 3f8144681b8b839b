"""A server among hostile clients: what they send is refused as a whole, and holds nothing for long."""

from __future__ import annotations

import contextlib
import json
import resource
import socket
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from drkernel.judge import RemoteJudge
from drkernel.judge.network import listener, server
from drkernel.judge.network.server import HttpServer
from drkernel.types import Task, Verdict
from tests.judge.network.fakes import FakeJudge, comes_true, served, threads

TOKEN = "0123456789abcdef"
KNOWN = f"Authorization: Bearer {TOKEN}\r\n".encode()
FILE = "class Model: ...\ndef get_inputs(): ...\ndef get_init_inputs(): ...\n"
BODY = json.dumps({"task": FILE, "submission": "0"}).encode()
TASK = Task("t", FILE)


@pytest.fixture(scope="module")
def one() -> Iterator[HttpServer]:
    with served(FakeJudge(), token=TOKEN) as (one,):
        yield one


def connected(one: HttpServer) -> socket.socket:
    host, _, port = one.url.removeprefix("http://").rpartition(":")
    return socket.create_connection((host, int(port)), timeout=10)


def said(connection: socket.socket) -> bytes:
    """All that is answered until the server closes the connection."""
    parts = []
    with contextlib.suppress(ConnectionError):
        while part := connection.recv(2**16):
            parts.append(part)
    return b"".join(parts)


def answered(one: HttpServer, sent: bytes) -> tuple[int, dict]:
    """The status of the only reply to these bytes, and its body."""
    with connected(one) as connection:
        connection.sendall(sent)
        head, _, body = said(connection).partition(b"\r\n\r\n")
    assert head.count(b"HTTP/1.") == 1 and b"Content-Type: application/json" in head, head
    return int(head.split()[1]), json.loads(body)


def post(body: bytes, *headers: str, length: object = None, known: bytes = KNOWN) -> bytes:
    stated = len(body) if length is None else length
    fields = "".join(f"{field}\r\n" for field in (f"Content-Length: {stated}", *headers)).encode()
    return b"POST /judge HTTP/1.1\r\n" + known + fields + b"\r\n" + body


@pytest.mark.parametrize(
    ("sent", "status"),
    [
        (b"FOO /judge HTTP/1.1\r\n\r\n", 501),
        (b"OPTIONS * HTTP/1.1\r\n\r\n", 501),
        (b"\x16\x03\x01\x02\r\n\r\n", 400),
        (b"GET /health HTTP/9.0\r\n\r\n", 505),
        (b"GET /health HTTP/1.1\r\n" + b"a: b\r\n" * 200 + b"\r\n", 431),
        (b"GET /health\r\n\r\n", 401),
        (b"GET /health HTTP/1.1\r\nAuthorization:\r\n Bearer " + TOKEN.encode() + b"\r\n\r\n", 401),
        (b"GET /health HTTP/1.1\r\nAuthorization: x\r\n" + KNOWN + b"\r\n", 401),
        (b"GET /../health HTTP/1.1\r\n" + KNOWN + b"\r\n", 404),
        (b"GET /health?x HTTP/1.1\r\n" + KNOWN + b"\r\n", 404),
        (b"GET http://127.0.0.1/health HTTP/1.1\r\n" + KNOWN + b"\r\n", 404),
    ],
)
def test_what_is_no_request_is_refused_in_one_line_of_json(one, sent, status):
    found, reply = answered(one, sent)
    assert found == status and list(reply) == ["error"] and TOKEN not in reply["error"]


@pytest.mark.parametrize("length", [-5, "+5", "0x10", "5, 5", " 5 ", "", "\u0665", "9" * 19, "0" * 30, "1_0"])
def test_a_length_is_one_number(one, length):
    status, reply = answered(one, post(b"", length=length))
    assert status == 411 and "expected the number of bytes" in reply["error"]


@pytest.mark.parametrize("headers", [["Content-Length: 3"], [f"Content-Length: {len(BODY)}"]])
def test_two_lengths_are_refused(one, headers):
    assert answered(one, post(BODY, *headers))[0] == 411


def test_chunks_are_refused_with_a_length_and_without(one):
    status, reply = answered(one, post(BODY, "Transfer-Encoding: chunked"))
    assert status == 411 and "chunked" in reply["error"]
    chunked = b"POST /judge HTTP/1.1\r\n" + KNOWN + b"Transfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n"
    assert answered(one, chunked)[0] == 411


def test_a_connection_has_one_request_whatever_follows_it(one):
    seen = len(one.judge.seen)
    assert answered(one, post(BODY, "Connection: keep-alive") + post(BODY))[0] == 200
    assert len(one.judge.seen) == seen + 1


@pytest.mark.parametrize(
    "body",
    [
        b'{"\\ud800": 1}',
        b'{"task": {"source": "x", "precision": "\\ud800"}, "submission": ""}',
        b'{"task": {"source": "x", "small": {"N": Infinity}}, "submission": ""}',
        b'{"task": {"source": "x", "small": {"N": 1' + b"0" * 5000 + b'}}, "submission": ""}',
        b'{"task": "x", "submission": "", "feedback_tokens": NaN}',
        b'{"task": "x", "submission": "", "feedback_tokens": true}',
        b'{"task": "x", "submission": "", "criterion": "kernelbench"}',
        b'{"task": "x", "submission": "", "timeout_s": 1e9}',
        b'{"task": "\xff", "submission": ""}',
        b'{"a":' * 10**5,
        b'{"task": {"source": "x", "entry_point": "Model\\n"}, "submission": ""}',
        b'{"task": {"source": "x", "entry_point": "M\\u00b2"}, "submission": ""}',
        b'{"task": {"source": "x", "entry_point": "' + b"M" * 200 + b'"}, "submission": ""}',
    ],
    ids=range(13),
)
def test_a_body_that_does_not_fit_is_the_clients_fault(one, body):
    seen = len(one.judge.seen)
    assert answered(one, post(body))[0] == 400 and len(one.judge.seen) == seen


@pytest.mark.parametrize(
    "source",
    ["(" * 10**5, "x=" + "-" * 10**6 + "1", "x=a" + ".a" * 10**5, "x=1" + "+1" * 10**5, "#\ud800", "\0"],
    ids=range(6),
)
def test_a_source_that_cannot_be_parsed_is_the_tasks_fault(one, source):
    assert answered(one, post(json.dumps({"task": FILE + source, "submission": "0"}).encode()))[0] == 422


@pytest.mark.parametrize(
    ("begun", "drop"),
    [
        (b"GET /health HTTP/1.1\r\na: ", b"x"),
        (b"GET /health HTTP/1.1\r\n", b"a: x\r\n"),
        (post(b"{", length=1000), b"x"),
        (post(b"{", length=10**6, known=b""), b"x"),
        (b"", b""),
    ],
    ids=["a field", "fields", "the body", "what is refused", "nothing"],
)
def test_who_sends_slowly_has_a_time_in_all_and_not_for_each_byte(monkeypatch, one, begun, drop):
    for each in ("_HEAD_S", "_BODY_S", "_DISCARD_S"):
        monkeypatch.setattr(server, each, 0.3)
    with connected(one) as connection, contextlib.suppress(ConnectionError):
        connection.sendall(begun)
        deadline = time.monotonic() + 3
        connection.settimeout(0.05)
        while time.monotonic() < deadline:
            with contextlib.suppress(TimeoutError):
                if not connection.recv(2**16):
                    break
            connection.sendall(drop)
    assert time.monotonic() < deadline, "it was closed"
    comes_true(lambda: threads("process_request_thread") == 0, "no thread is left")


@pytest.mark.parametrize("field", [b"a: " + b"b" * 60_000, b"a" * 10**6], ids=["many", "one"])
def test_headers_have_a_size_in_all(one, field):
    with connected(one) as connection, contextlib.suppress(ConnectionError):
        connection.sendall(b"GET /health HTTP/1.1\r\n" + KNOWN + (field + b"\r\n") * 90 + b"\r\n")
        assert said(connection) == b""


def test_idle_connections_keep_nobody_out_and_end_nobody_who_is_admitted(monkeypatch):
    monkeypatch.setattr(listener, "MAX_UNAUTHORIZED", 8)
    fake = FakeJudge()
    with served(fake, token=TOKEN) as (one,), RemoteJudge([one.url], TOKEN) as judge, contextlib.ExitStack() as stack:
        early = judge.submit(TASK, "never")
        comes_true(lambda: len(fake.never) == 1, "it waits")
        idle = [stack.enter_context(connected(one)) for _ in range(60)]
        assert judge.submit(TASK, "0").result(5).ok
        comes_true(lambda: threads("process_request_thread") <= 9, "the oldest have ended")
        fake.never[0].set_result(Verdict("ok", "slower", speedup=0.5, coverage=1.0))
        assert early.result(5).ok
        assert idle[0].recv(1) == b""


def test_connections_leave_the_judge_files_to_open(monkeypatch):
    raised: list = []
    monkeypatch.setattr(resource, "setrlimit", lambda _, limits: raised.append(limits))
    monkeypatch.setattr(resource, "getrlimit", lambda _: (64, 64))
    with served(FakeJudge()) as (small,):
        assert (small._listener._most_admitted, small._listener._most_unauthorized) == (32, 16) and not raised
    monkeypatch.setattr(resource, "getrlimit", lambda _: (1024, 4096))
    assert listener._files() == 4096 and raised == [(4096, 4096)]
    monkeypatch.setattr(resource, "getrlimit", lambda _: (1024, resource.RLIM_INFINITY))
    assert listener._files() == 2 * listener.MAX_CONNECTIONS


def test_nothing_is_judged_for_clients_that_are_gone(monkeypatch):
    monkeypatch.setattr(server, "_GONE_S", 0.05)
    fake = FakeJudge()
    fake.pool = ThreadPoolExecutor(1)
    with served(fake) as (one,):
        gone = [connected(one) for _ in range(30)]
        for number, connection in enumerate(gone):
            source = f"{0.3 + number * 1e-6:.6f}"
            connection.sendall(post(json.dumps({"task": FILE, "submission": source}).encode()))
        comes_true(lambda: one.pending == 30, "all are under way")
        for connection in gone:
            connection.close()
        comes_true(lambda: one.pending == 0, "all have ended")
        started = time.monotonic()
        assert answered(one, post(BODY))[0] == 200
        assert time.monotonic() - started < 1, "29 of them were not begun"


def test_a_submission_is_judged_while_one_client_of_several_waits_for_it(monkeypatch):
    monkeypatch.setattr(server, "_GONE_S", 0.05)
    fake, shared = FakeJudge(), []
    fake.submit = lambda *_: shared[0]
    shared.append(FakeJudge().submit(TASK, "never"))
    with served(fake) as (one,):
        first, second = connected(one), connected(one)
        for connection in (first, second):
            connection.sendall(post(BODY))
        comes_true(lambda: one.pending == 2, "both wait")
        first.close()
        comes_true(lambda: one.pending == 1, "one waits")
        assert not shared[0].cancelled()
        second.close()
        comes_true(shared[0].cancelled, "nobody waits")


def test_a_client_that_does_not_read_holds_a_thread_for_a_while_only(monkeypatch):
    monkeypatch.setattr(server, "_REPLY_S", 0.3)
    fake = FakeJudge()
    fake.submit = lambda *_: ThreadPoolExecutor(1).submit(
        Verdict, "ok", "faster", "x" * 2 * 10**7, speedup=1, coverage=1
    )
    with served(fake) as (one,), connected(one) as connection:
        connection.sendall(post(BODY))
        comes_true(lambda: one._listener.open == 1, "it is admitted")
        comes_true(lambda: one._listener.open == 0, "it is given up")


def test_many_clients_at_once_each_get_their_own():
    with served(FakeJudge(), token=TOKEN) as (one,), contextlib.ExitStack() as stack:
        clients = [stack.enter_context(RemoteJudge([one.url], TOKEN)) for _ in range(64)]
        asked = [(f"{i * 1e-5:.5f}", clients[i % 64].submit(TASK, f"{i * 1e-5:.5f}")) for i in range(256)]
        assert all(future.result(20).detail == source for source, future in asked)
