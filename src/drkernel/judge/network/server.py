"""A server around a Judge, for clients on other machines and in other languages: HTTP and JSON.

    with Judge(...) as judge, HttpServer(judge, "127.0.0.1", 8000) as server:
        ...                                # server.url; until closed, threads of this process answer

    POST /judge    {"task": ..., "submission": source} -> {"verdict": ..., "feedback": text}, once there is a verdict
    POST /check    {"task": ...} -> {"usable": true, "why": ""}
    GET  /health   the device, the options, how much is under way

A reply with another status than 200 has {"error": text}: 400 malformed, 401 no token, 403 a browser, 404 and 405 no
such request, 411 and 413 no length or too long, 422 the task is unusable, 429 too many connections, 500 the judge
failed, 503 closing; others say that it is no HTTP. A client whose connection is lost may ask again: the Judge keeps the
verdict. Who closes the connection gives up, and what nobody waits for any more is not begun.

Who may send requests may have tasks run as the user of this process, since a judge trusts tasks. So without a token
only this machine is served, and never a browser, which any page could make send requests.
"""

from __future__ import annotations

import contextlib
import hmac
import io
import re
import socket
import threading
import time
from collections import Counter
from collections.abc import Callable
from concurrent.futures import FIRST_COMPLETED, CancelledError, Future, ThreadPoolExecutor, wait
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler
from typing import Any

import msgspec

from drkernel.judge.boundary.framing import ProtocolViolation
from drkernel.judge.feedback import estimated_tokens, feedback
from drkernel.judge.network import messages
from drkernel.judge.network.listener import POLL_S, BoundedReader, Listener, listen
from drkernel.judge.network.messages import (
    MAX_REQUEST,
    About,
    Checked,
    CheckRequest,
    Failed,
    Health,
    Judged,
    JudgeRequest,
)
from drkernel.judge.service import Judge
from drkernel.judge.trusted.processes.worker_process import NotPrepared
from drkernel.types import DrKernelError

MAX_HEAD = 2**16
"""Bytes of a request before its body, about."""
_HEAD_S, _BODY_S, _REPLY_S = 10.0, 60.0, 60.0
"""How long a client may take to send either part of a request, and to read the reply."""
_DISCARD_S = 5.0
"""How long what a refused client sends is read."""
_GONE_S = 2.0
"""How often a request that waits looks whether its client is gone."""
_CLOSE_S = 5.0
"""How long closing waits for the last replies to be written."""
_CHECK_THREADS = 16
_PATHS = {"/health": "GET", "/judge": "POST", "/check": "POST"}


class HttpServer:
    """Answers requests for a Judge, which stays its owner's to close, after this. Context manager.

    host, port: where to listen; port 0 takes a free one. token: what requests must know.

    Raises DrKernelError where it cannot listen there, or where others could reach it without a token.
    """

    def __init__(self, judge: Judge, host: str, port: int, token: str | None = None):
        self.judge, self.about = judge, About.of(judge.options)
        self.closed: Future[None] = Future()
        """Done once nothing is accepted any more."""
        self._checks = ThreadPoolExecutor(_CHECK_THREADS, thread_name_prefix="judge-check")
        self._authorization = f"Bearer {token}".encode() if token is not None else None
        self._waiting: Counter[Future] = Counter()
        """How many requests wait for each future."""
        self._lock = threading.Lock()
        self._listener = listen(self, _Handler, host, port, open_to_all=token is None)
        address, port = self._listener.server_address[:2]
        self.url = f"http://[{address!s}]:{port}" if ":" in str(address) else f"http://{address!s}:{port}"
        threading.Thread(target=self._listener.serve_forever, args=(POLL_S,), name="judge-http", daemon=True).start()

    def __enter__(self) -> HttpServer:
        return self

    def __exit__(self, *_: Any) -> None:
        self.close()

    def close(self) -> None:
        """Accepts nothing more. What is under way is answered with 503."""
        with self._lock:
            if self.closed.done():
                return
            self.closed.set_result(None)
        deadline = time.monotonic() + _CLOSE_S
        while self._listener.open and time.monotonic() < deadline:
            time.sleep(0.01)
        self._listener.shutdown()
        self._listener.server_close()
        self._checks.shutdown(wait=False, cancel_futures=True)

    def knows(self, authorization: str | None) -> bool:
        """Whether the header is the right one, in a time that says nothing about how much of it is."""
        if self._authorization is None:
            return True
        return hmac.compare_digest((authorization or "").encode("utf-8", "replace"), self._authorization)

    @property
    def pending(self) -> int:
        """Submissions and tasks under way."""
        with self._lock:
            return self._waiting.total()

    def reply(self, path: str, body: bytes, gone: Callable[[], bool]) -> msgspec.Struct:
        """What an admitted request is answered with. gone: whether its client no longer waits.

        Raises:
            Refused: with the status that says why.
            ConnectionError: it does not.
        """
        if path == "/health":
            return Health(self.about, self.about.identity, self.judge.options.workers or 1, self.pending)
        try:
            request = messages.decoded(body, JudgeRequest if path == "/judge" else CheckRequest)
        except ProtocolViolation as error:
            raise Refused(HTTPStatus.BAD_REQUEST, f"{path}: {error}") from error
        return self._judged(request, gone) if isinstance(request, JudgeRequest) else self._checked(request, gone)

    def _judged(self, request: JudgeRequest, gone: Callable[[], bool]) -> Judged:
        try:
            task = request.read_task()
            verdict = self._awaited(lambda: self.judge.submit(task, request.submission), gone)
        except DrKernelError as error:
            raise self._refusal(error) from error
        return Judged(verdict, feedback(verdict, request.feedback_tokens, estimated_tokens), self.about.identity)

    def _checked(self, request: CheckRequest, gone: Callable[[], bool]) -> Checked:
        try:
            task = request.read_task()
            why = self._awaited(lambda: self._checks.submit(self.judge.check_task, task), gone)
        except DrKernelError as error:
            refusal = self._refusal(error)
            if refusal.status != HTTPStatus.UNPROCESSABLE_ENTITY:
                raise refusal from error
            return Checked(False, str(error), self.about.identity)
        return Checked(True, why or "", self.about.identity)

    def _awaited(self, ask: Callable[[], Future], gone: Callable[[], bool]) -> Any:
        """What a future comes to. Equal requests share one; the last of them that leaves takes it back."""
        with self._lock:
            future = ask()
            self._waiting[future] += 1
        try:
            while not wait((future, self.closed), _GONE_S, FIRST_COMPLETED).done:
                if gone():
                    raise ConnectionError("the client is gone")
            if not future.done():
                raise _closing()
            return future.result()
        except CancelledError:
            raise _closing() from None
        finally:
            with self._lock:
                self._waiting[future] -= 1
                if not self._waiting[future]:
                    del self._waiting[future]
                    future.cancel()

    def _refusal(self, error: DrKernelError) -> Refused:
        """An unusable task, unless the judge failed, or refuses since it is closed."""
        if self.closed.done() or isinstance(error, NotPrepared):
            return self.failure(error)
        return Refused(HTTPStatus.UNPROCESSABLE_ENTITY, str(error))

    def failure(self, error: Exception) -> Refused:
        """The judge failed, unless it is closed."""
        if self.closed.done():
            return _closing()
        told = str(error) if isinstance(error, DrKernelError) else f"judge: {type(error).__name__}: {error}"
        return Refused(HTTPStatus.INTERNAL_SERVER_ERROR, told)


class Refused(Exception):
    """A request that gets another status than 200."""

    def __init__(self, status: HTTPStatus, why: str):
        super().__init__(why)
        self.status = status


def _closing() -> Refused:
    return Refused(HTTPStatus.SERVICE_UNAVAILABLE, "judge: this server is closing; ask another one, or again later")


class _Handler(BaseHTTPRequestHandler):
    """One connection, which has one request."""

    server: Listener
    server_version, sys_version, default_request_version = "drkernel-judge", "", "HTTP/1.0"

    def setup(self) -> None:
        super().setup()
        self.rfile.close()
        self._reader = BoundedReader(self.connection)
        self._reader.allow(MAX_HEAD, _HEAD_S)
        self.rfile = io.BufferedReader(self._reader)

    def do_GET(self) -> None:
        self._answer()

    def do_POST(self) -> None:
        self._answer()

    def _answer(self) -> None:
        try:
            status, answer = self._reply()
        except OSError:  # the client is gone, or sends nothing
            return
        self._send(status, answer)

    def send_error(self, code: int, message: str | None = None, explain: str | None = None) -> None:
        """Refuses what is no HTTP, or none of its methods that are known here."""
        self._send(HTTPStatus(code), Failed(message or HTTPStatus(code).phrase))

    def _send(self, status: HTTPStatus, answer: msgspec.Struct) -> None:
        with contextlib.suppress(OSError):  # the client is gone; it may ask again
            self.connection.settimeout(_REPLY_S)
            body = messages.encoded(answer)
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

    def _reply(self) -> tuple[HTTPStatus, msgspec.Struct]:
        try:
            length = self._length()
            self._expect_allowed(length)
        except Refused as error:
            self._discard()
            return error.status, Failed(str(error))
        self._reader.allow(length, _BODY_S)
        body = self.rfile.read(length)
        if len(body) < length:
            raise ConnectionError("the client sent less than it said")
        try:
            return HTTPStatus.OK, self.server.owner.reply(self.path, body, self._gone)
        except ConnectionError:
            raise
        except Exception as error:  # not Refused: a bug, or a judge that is closed
            refused = error if isinstance(error, Refused) else self.server.owner.failure(error)
            return refused.status, Failed(str(refused))

    def _length(self) -> int:
        """Bytes of the body, as the client says."""
        stated = self.headers.get_all("Content-Length", ["0"] if self.command == "GET" else [])
        if len(stated) != 1 or not re.fullmatch(r"[0-9]{1,18}", stated[0]) or "Transfer-Encoding" in self.headers:
            found = " and ".join([*stated, *self.headers.get_all("Transfer-Encoding", [])])[:80] or "none"
            raise Refused(HTTPStatus.LENGTH_REQUIRED, f"Content-Length: found {found}, expected the number of bytes")
        return int(stated[0])

    def _gone(self) -> bool:
        """Whether the client has closed the connection."""
        self.connection.settimeout(0)
        try:
            return not self.connection.recv(1, socket.MSG_PEEK)
        except BlockingIOError:
            return False
        except OSError:
            return True

    def _discard(self) -> None:
        """Reads what a refused client sends, within bounds: one that is still sending sees no reply."""
        self._reader.allow(2 * MAX_REQUEST, _DISCARD_S)
        with contextlib.suppress(Refused, OSError):
            left = min(self._length(), 2 * MAX_REQUEST)
            while left > 0 and (part := self.rfile.read1(min(left, 2**16))):
                left -= len(part)

    def _expect_allowed(self, length: int) -> None:
        server = self.server.owner
        if "Origin" in self.headers:
            raise Refused(HTTPStatus.FORBIDDEN, "Origin: a browser's request; expected a program's, without it")
        if not server.knows(self.headers.get("Authorization")):
            raise Refused(
                HTTPStatus.UNAUTHORIZED, "Authorization: expected `Bearer TOKEN` with the token of this server"
            )
        if self.path not in _PATHS:
            raise Refused(HTTPStatus.NOT_FOUND, f"found {self.path[:80]}, expected one of {', '.join(_PATHS)}")
        if self.command != (method := _PATHS[self.path]):
            raise Refused(HTTPStatus.METHOD_NOT_ALLOWED, f"{self.path}: found {self.command}, expected {method}")
        if length > MAX_REQUEST:
            found = f"Content-Length: found {length}, expected at most {MAX_REQUEST}"
            raise Refused(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, found)
        if server.closed.done():
            raise _closing()
        if not self.server.admit(self.connection):
            raise Refused(HTTPStatus.TOO_MANY_REQUESTS, "too many requests are under way; ask again")

    def log_message(self, *_: Any) -> None:
        """Nothing: what matters is in replies."""
