"""Requests to one server: a connection each, asked again where it is lost."""

from __future__ import annotations

import contextlib
import http.client
import socket
import threading
import time
from http import HTTPStatus
from pathlib import Path
from typing import NoReturn
from urllib.parse import urlsplit

import msgspec

from drkernel.judge.boundary.framing import ProtocolViolation
from drkernel.judge.boundary.parsing import T
from drkernel.judge.network.messages import MAX_REQUEST, Failed, Health, decoded, encoded
from drkernel.judge.trusted.processes.worker_process import NotPrepared
from drkernel.types import DrKernelError

LEAST_TOKEN = 16
"""Characters of a token."""
PAUSES_S = (0.1, 0.4, 1.0)
"""Before a request that failed is sent again; after the last one the server is lost."""
_BUSY_S = 1.0
"""Before a request that a server has no room for is sent again."""
_CONNECT_S = 10.0
_LONG_S = 30.0
"""A connection that was lost after so long was a good one: what was tried before it does not count."""
_KEEPALIVE = {socket.TCP_KEEPIDLE: 20, socket.TCP_KEEPINTVL: 10, socket.TCP_KEEPCNT: 3}
"""Seconds, seconds and probes after which a silent host is lost, however long a verdict may take."""
_MAX_REPLY = 2**26
"""Bytes of a reply."""
_GATEWAY = (HTTPStatus.BAD_GATEWAY, HTTPStatus.GATEWAY_TIMEOUT)
"""What a proxy says in place of a server."""


class Lost(Exception):
    """A server does not answer, or is no longer what it was."""


class Connection:
    """One server, by its address: `http://HOST:PORT`, or `https` where something in front of it has TLS.

    closing: once it is set, nothing is asked any more.
    lost: why the server is; then nothing but its health is asked a second time.

    Raises:
        DrKernelError: the address is none.
    """

    def __init__(self, address: str, token: str | None = None, closing: threading.Event | None = None):
        parts = urlsplit(address)
        try:
            host, port = parts.hostname, parts.port
        except ValueError:
            host, port = None, None
        if not host or parts.scheme not in ("http", "https") or parts.path.strip("/") or parts.query or parts.username:
            raise DrKernelError(f"judge.servers: found {address!r}, expected http://HOST:PORT")
        self.address = f"{parts.scheme}://{parts.netloc}"
        self._host, self._port = host, port
        self._kind = http.client.HTTPSConnection if parts.scheme == "https" else http.client.HTTPConnection
        self._headers = {"Authorization": f"Bearer {token}"} if token is not None else {}
        self._closing, self.lost = closing or threading.Event(), ""
        self._lock = threading.Lock()
        self._sockets: set[socket.socket] = set()

    def health(self) -> Health:
        """What the server is.

        Raises:
            Lost: it does not answer, or not as a judge does.
        """
        return self._ask("GET", "/health", b"", Health, _CONNECT_S)

    def ask(self, path: str, request: msgspec.Struct, reply: type[T]) -> T:
        """The reply to a POST, however long it takes.

        Raises:
            Lost: the server has ended, is closing, or does not know the token.
            DrKernelError: the task is unusable, or the request is; NotPrepared, which is one, where the judge failed.
        """
        body = encoded(request)
        if len(body) > MAX_REQUEST:
            raise DrKernelError(f"judge: the task makes a request of {len(body)} bytes, expected at most {MAX_REQUEST}")
        return self._ask("POST", path, body, reply, None)

    def close(self) -> None:
        """Ends what is under way; `closing` or `lost` must be set, or it is asked again."""
        with self._lock:
            for each in self._sockets:
                with contextlib.suppress(OSError):
                    each.shutdown(socket.SHUT_RDWR)

    def _ask(self, method: str, path: str, body: bytes, reply: type[T], timeout_s: float | None) -> T:
        failures = 0
        while not self._closing.is_set():
            started = time.monotonic()
            try:
                status, text = self._request(method, path, body, timeout_s)
                if status == HTTPStatus.TOO_MANY_REQUESTS:
                    self._closing.wait(_BUSY_S)
                    continue
                if status in _GATEWAY:
                    raise ConnectionError(f"a gateway said {status}")
                return decoded(text, reply) if status == HTTPStatus.OK else self._fail(status, text)
            except (OSError, http.client.HTTPException, ProtocolViolation, UnicodeError) as error:
                failures = 0 if time.monotonic() - started > _LONG_S else failures
                if failures == len(PAUSES_S) or self.lost:
                    raise Lost(_why(error)) from error
                self._closing.wait(PAUSES_S[failures])
                failures += 1
        raise Lost("this client was closed")

    def _request(self, method: str, path: str, body: bytes, timeout_s: float | None) -> tuple[int, bytes]:
        connection = self._kind(self._host, self._port, timeout=_CONNECT_S)
        try:
            connection.connect()
            used = connection.sock
            used.settimeout(timeout_s)
            used.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
            for option, value in _KEEPALIVE.items():
                used.setsockopt(socket.IPPROTO_TCP, option, value)
            with self._lock:
                self._sockets.add(used)
            try:
                if self._closing.is_set():
                    raise ConnectionError("this client was closed")
                connection.request(method, path, body or None, {"Content-Type": "application/json", **self._headers})
                response = connection.getresponse()
                return response.status, response.read(_MAX_REPLY)
            finally:
                with self._lock:
                    self._sockets.discard(used)
        finally:
            connection.close()

    def _fail(self, status: int, text: bytes) -> NoReturn:
        why = decoded(text, Failed).error
        if status == HTTPStatus.UNPROCESSABLE_ENTITY:
            raise DrKernelError(why)
        if status == HTTPStatus.INTERNAL_SERVER_ERROR:
            raise NotPrepared(why)
        if status in (HTTPStatus.SERVICE_UNAVAILABLE, HTTPStatus.UNAUTHORIZED):
            raise Lost(why)
        raise DrKernelError(f"{self.address}: {status} {why}")


def read_token(path: str | Path) -> str:
    """The token in a file: one line.

    Raises:
        DrKernelError: it cannot be read, or has no line of printable ASCII with 16 characters or more.
    """
    try:
        token = Path(path).read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError) as error:
        raise DrKernelError(f"token file {path}: {getattr(error, 'strerror', None) or error}") from error
    if len(token) < LEAST_TOKEN or not (token.isascii() and token.isprintable()) or " " in token:
        found = f"{len(token)} characters" if token.isascii() and token.isprintable() else "others than printable ASCII"
        expected = f"one line of {LEAST_TOKEN} or more, without blanks, e.g. of `openssl rand -hex 32`"
        raise DrKernelError(f"token file {path}: found {found}, expected {expected}")
    return token


def _why(error: Exception) -> str:
    return " ".join(f"{type(error).__name__}: {error}".split())
