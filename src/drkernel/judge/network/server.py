"""A server around a Judge, for clients on other machines and in other languages: HTTP and JSON.

    with Judge(...) as judge, HttpServer(judge, "127.0.0.1", 8000) as server:
        ...                                # server.url; until closed, threads of this process answer

    POST /judge    {"task": ..., "submission": source} -> {"verdict": ..., "feedback": text}, once there is a verdict
    POST /check    {"task": ...} -> {"usable": true, "why": ""}
    GET  /health   the device, the options, how much is under way

A reply with another status than 200 has {"error": text}: 400 malformed, 401 no token, 403 a browser, 404 and 405 no
such request, 411 and 413 no length or too long, 422 the task is unusable, 429 too many connections, 500 the judge
failed, 503 closing. A client whose connection is lost may ask again: the Judge keeps the verdict.

Who may send requests may have tasks run as the user of this process, since a judge trusts tasks. So without a token
only this machine is served, and never a browser, which any page could make send requests.
"""

from __future__ import annotations

import contextlib
import hmac
import ipaddress
import socket
import socketserver
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import FIRST_COMPLETED, CancelledError, Future, ThreadPoolExecutor, wait
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import msgspec

from drkernel.judge.boundary.framing import ProtocolViolation
from drkernel.judge.feedback import estimated_tokens, feedback
from drkernel.judge.network import messages
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
from drkernel.judge.trusted.worker_process import NotPrepared
from drkernel.types import DrKernelError

MAX_CONNECTIONS = 4096
"""Requests under way; each has a thread, which nearly always waits."""
_READ_S = 60.0
"""How long a client may take to send what it has begun."""
_DISCARD_S = 1.0
"""How long a client that is refused may pause while it sends."""
_CLOSE_S = 5.0
"""How long closing waits for the last replies to be written."""
_POLL_S = 0.1
"""How often the thread that accepts connections looks whether it is to end."""
_CHECK_THREADS = 16
_PATHS = {"/health": "GET", "/judge": "POST", "/check": "POST"}


class HttpServer:
    """Answers requests for a Judge, which stays its owner's to close, after this. Context manager.

    host, port: where to listen; port 0 takes a free one. token: what requests must know.

    Raises DrKernelError where it cannot listen there, or where others could reach it without a token.
    """

    def __init__(self, judge: Judge, host: str, port: int, token: str | None = None):
        self.judge, self.about = judge, About.of(judge.options)
        self.pending = 0
        """Submissions and tasks under way."""
        self.closed: Future[None] = Future()
        """Done once nothing is accepted any more."""
        self._checks = ThreadPoolExecutor(_CHECK_THREADS, thread_name_prefix="judge-check")
        self._authorization = f"Bearer {token}".encode() if token is not None else None
        self._lock = threading.Lock()
        self._listener = _listen(self, host, port, open_to_all=token is None)
        address, port = self._listener.server_address[:2]
        self.url = f"http://[{address!s}]:{port}" if ":" in str(address) else f"http://{address!s}:{port}"
        threading.Thread(target=self._listener.serve_forever, args=(_POLL_S,), name="judge-http", daemon=True).start()

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

    def reply(self, path: str, body: bytes) -> msgspec.Struct:
        """What a request that is let in is answered with.

        Raises:
            Refused: with the status that says why.
        """
        if path == "/health":
            return Health(self.about, self.about.identity, self.judge.options.workers or 1, self.pending)
        try:
            request = messages.decoded(body, JudgeRequest if path == "/judge" else CheckRequest)
        except ProtocolViolation as error:
            raise Refused(HTTPStatus.BAD_REQUEST, f"{path}: {error}") from error
        return self._judged(request) if isinstance(request, JudgeRequest) else self._checked(request)

    def _judged(self, request: JudgeRequest) -> Judged:
        try:
            verdict = self._awaited(self.judge.submit(request.read_task(), request.submission))
        except DrKernelError as error:
            raise self._refusal(error) from error
        return Judged(verdict, feedback(verdict, request.feedback_tokens, estimated_tokens), self.about.identity)

    def _checked(self, request: CheckRequest) -> Checked:
        try:
            why = self._awaited(self._checks.submit(self.judge.check_task, request.read_task()))
        except DrKernelError as error:
            refusal = self._refusal(error)
            if refusal.status != HTTPStatus.UNPROCESSABLE_ENTITY:
                raise refusal from error
            return Checked(False, str(error), self.about.identity)
        return Checked(True, why or "", self.about.identity)

    def _awaited(self, future: Future) -> Any:
        with self._counted():
            wait((future, self.closed), return_when=FIRST_COMPLETED)
        if not future.done() or future.cancelled():
            raise _closing()
        try:
            return future.result()
        except CancelledError:
            raise _closing() from None

    @contextlib.contextmanager
    def _counted(self) -> Iterator[None]:
        with self._lock:
            self.pending += 1
        try:
            yield
        finally:
            with self._lock:
                self.pending -= 1

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

    server: _Listener
    timeout = _READ_S
    server_version, sys_version = "drkernel-judge", ""

    def do_GET(self) -> None:
        self._answer()

    def do_POST(self) -> None:
        self._answer()

    def _answer(self) -> None:
        try:
            status, answer = self._reply()
        except OSError:  # the client is gone, or sends nothing
            return
        with contextlib.suppress(OSError):  # the client is gone; it may ask again
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
        body = self.rfile.read(length)
        if len(body) < length:
            raise ConnectionError("the client sent less than it said")
        try:
            return HTTPStatus.OK, self.server.owner.reply(self.path, body)
        except Exception as error:  # not Refused: a bug, or a judge that is closed
            refused = error if isinstance(error, Refused) else self.server.owner.failure(error)
            return refused.status, Failed(str(refused))

    def _length(self) -> int:
        """Bytes of the body, as the client says."""
        stated = self.headers.get("Content-Length", "0" if self.command == "GET" else "")
        if not (stated.isascii() and stated.isdigit()):
            found = f"Content-Length: found {stated or 'none'}, expected the number of bytes"
            raise Refused(HTTPStatus.LENGTH_REQUIRED, found)
        return int(stated[:18])

    def _discard(self) -> None:
        """Reads what a refused client sends, within bounds: one that is still sending sees no reply."""
        self.connection.settimeout(_DISCARD_S)
        with contextlib.suppress(Refused, TimeoutError):
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

    def log_message(self, *_: Any) -> None:
        """Nothing: what matters is in replies."""


class _Listener(ThreadingHTTPServer):
    """Listens, with a bounded number of connections."""

    daemon_threads, block_on_close, request_queue_size = True, False, 128

    def __init__(self, owner: HttpServer, family: int, address: tuple):
        self.owner, self.address_family = owner, family
        self.open = 0
        """Connections."""
        self._lock = threading.Lock()
        super().__init__(address, _Handler)

    def server_bind(self) -> None:
        socketserver.TCPServer.server_bind(self)  # HTTPServer's also asks for the name of the host, which may take long

    def process_request(self, request: Any, client_address: Any) -> None:
        with self._lock:
            full = self.open >= MAX_CONNECTIONS
            self.open += not full
        if full:
            with contextlib.suppress(OSError):
                request.sendall(b"HTTP/1.0 429 Too Many Requests\r\nContent-Length: 0\r\n\r\n")
            return self.shutdown_request(request)
        try:
            super().process_request(request, client_address)
        except RuntimeError:  # no thread can be started
            self._ended()
            raise

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        try:
            super().process_request_thread(request, client_address)
        finally:
            self._ended()

    def _ended(self) -> None:
        with self._lock:
            self.open -= 1

    def handle_error(self, request: Any, client_address: Any) -> None:
        error = sys.exc_info()[1]
        if not isinstance(error, OSError):
            print(f"judge: {client_address[0]}: {type(error).__name__}: {error}", file=sys.stderr, flush=True)


def _listen(owner: HttpServer, host: str, port: int, open_to_all: bool) -> _Listener:
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
        if open_to_all and not all(ipaddress.ip_address(str(each[4][0])).is_loopback for each in found):
            raise DrKernelError(
                f"judge: --serve {host} can be reached from other machines; expected a token (--token-file FILE), or "
                "127.0.0.1"
            )
        return _Listener(owner, found[0][0], found[0][4][:2])
    except OSError as error:
        raise DrKernelError(f"judge: cannot listen at {host}:{port}: {error.strerror or error}") from error
