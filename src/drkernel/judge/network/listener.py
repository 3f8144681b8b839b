"""The limits of connections: how many are admitted, how many may show no token yet, how much each may send."""

from __future__ import annotations

import contextlib
import io
import ipaddress
import resource
import socket
import socketserver
import sys
import threading
import time
from http.server import ThreadingHTTPServer
from typing import Any

from drkernel.types import DrKernelError

MAX_CONNECTIONS = 4096
"""Requests under way, and at most half of the files that the process may open. Each has a thread, which waits."""
MAX_UNAUTHORIZED = 256
"""Connections that are not admitted yet, at most a quarter of these files. One more ends the oldest, so that who has
no token cannot keep others out."""
_FILES = resource.RLIMIT_NOFILE
POLL_S = 0.1
"""How often the thread that accepts connections looks whether it is to end."""


class Listener(ThreadingHTTPServer):
    """A connection is unauthorized until its handler calls `admit`."""

    daemon_threads, block_on_close, request_queue_size = True, False, 128

    def __init__(self, owner: Any, handler: type, family: int, address: tuple):
        self.owner, self.address_family = owner, family
        self._admitted: set[socket.socket] = set()
        self._unauthorized: dict[socket.socket, None] = {}
        """In the order of arrival."""
        self._lock = threading.Lock()
        files = _files()
        self._most_admitted = min(MAX_CONNECTIONS, files // 2)
        self._most_unauthorized = min(MAX_UNAUTHORIZED, files // 4)
        super().__init__(address, handler)

    def server_bind(self) -> None:
        socketserver.TCPServer.server_bind(self)  # HTTPServer's also asks for the name of the host, which may take long

    @property
    def open(self) -> int:
        """Connections that are admitted."""
        return len(self._admitted)

    def admit(self, connection: socket.socket) -> bool:
        """Whether there is room for one more. Raises ConnectionError where this one has been ended."""
        with self._lock:
            if connection not in self._unauthorized:
                raise ConnectionError("ended for another one")
            if room := self.open < self._most_admitted:
                del self._unauthorized[connection]
                self._admitted.add(connection)
        return room

    def get_request(self) -> tuple[Any, Any]:
        try:
            return super().get_request()
        except OSError:  # the machine has no file to spare; what waits would be tried again at once
            time.sleep(POLL_S)
            raise

    def process_request(self, request: Any, client_address: Any) -> None:
        with self._lock:
            self._unauthorized[request] = None
            if len(self._unauthorized) > self._most_unauthorized:
                oldest = next(iter(self._unauthorized))
                del self._unauthorized[oldest]
                with contextlib.suppress(OSError):
                    oldest.shutdown(socket.SHUT_RDWR)  # its thread does the rest
        super().process_request(request, client_address)

    def shutdown_request(self, request: Any) -> None:
        with self._lock:
            self._admitted.discard(request)
            self._unauthorized.pop(request, None)
        super().shutdown_request(request)

    def handle_error(self, request: Any, client_address: Any) -> None:
        error = sys.exc_info()[1]
        if not isinstance(error, OSError):
            print(f"judge: {client_address[0]}: {type(error).__name__}: {error}", file=sys.stderr, flush=True)


class BoundedReader(io.RawIOBase):
    """Reads from a connection what `allow` allows. What exceeds it raises OSError, and a slow client TimeoutError."""

    def __init__(self, connection: socket.socket):
        self._connection, self._left, self._deadline = connection, 0, 0.0

    def allow(self, size: int, seconds: float) -> None:
        """From now on `size` bytes may be read, all of them within so many seconds."""
        self._left, self._deadline = size, time.monotonic() + seconds

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        seconds = self._deadline - time.monotonic()
        if seconds <= 0 or not self._left:
            raise TimeoutError("too slow") if self._left else ConnectionError("too long")
        self._connection.settimeout(seconds)
        size = self._connection.recv_into(memoryview(buffer)[: self._left])
        self._left -= size
        return size


def listen(owner: Any, handler: type, host: str, port: int, open_to_all: bool) -> Listener:
    """Listens for an owner, whose requests handlers answer.

    Raises DrKernelError where it cannot, or where it would be open to all and others could reach it.
    """
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
        if open_to_all and not all(ipaddress.ip_address(str(each[4][0])).is_loopback for each in found):
            raise DrKernelError(
                f"judge: --serve {host} can be reached from other machines; expected a token (--token-file FILE), or "
                "127.0.0.1"
            )
        return Listener(owner, handler, found[0][0], found[0][4][:2])
    except OSError as error:
        raise DrKernelError(f"judge: cannot listen at {host}:{port}: {error.strerror or error}") from error


def _files() -> int:
    """How many files this process may open, once it has asked for what it needs."""
    soft, hard = (2**30 if limit == resource.RLIM_INFINITY else limit for limit in resource.getrlimit(_FILES))
    if soft < (wanted := min(2 * MAX_CONNECTIONS, hard)):
        resource.setrlimit(_FILES, (wanted, resource.getrlimit(_FILES)[1]))
    return max(soft, wanted)
