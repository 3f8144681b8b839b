"""Frames on a socket: a fixed header, then length-limited JSON. Nothing is ever unpickled. Both ends run this module.

    header: magic (4) · body length (u32) · sequence number (u64) · nonce (16)      body: UTF-8 JSON object

A reply has its request's sequence number and nonce. A reply that is malformed, too long, out of order or not requested
ends the run as a protocol violation. The nonce does not prove who replies. It makes a reply useless for any other
request.
"""

from __future__ import annotations

import json
import secrets
import socket
import struct
import time
from typing import Any, NoReturn

_HEADER = struct.Struct("<4sIQ16s")
_MAGIC = b"DRK1"
MAX_SOURCE = 100_000
"""Characters of a submission's source."""
_ESCAPED, _BESIDES = 12, 2**20
"""Bytes of one character as JSON at most (two surrogates, each escaped), and of everything else in a body."""
MAX_BODY = _ESCAPED * (MAX_SOURCE + 1) + _BESIDES
"""Bytes of a body. A source fits whatever its characters are; one that is too large is sent with one character too
many."""


class ProtocolViolation(Exception):
    """The other side sent something that the protocol does not allow."""


class Unsendable(ProtocolViolation):
    """A body of this side is too long, or is not JSON; nothing was sent."""


class PeerClosed(Exception):
    """The other side closed the connection."""


class DeadlineExceeded(Exception):
    """The deadline passed before the reply came."""


class Requester:
    """The trusted end: one request at a time, one reply to each."""

    def __init__(self, connection: socket.socket):
        self._connection, self._frames = connection, _Frames(connection)
        self._sequence, self._nonce = 0, b""

    def request(self, body: dict[str, Any], deadline: float) -> dict[str, Any]:
        """Sends a request and returns the reply.

        Args:
            deadline: on `time.monotonic()`'s clock.

        Raises:
            ProtocolViolation, PeerClosed, DeadlineExceeded; Unsendable, after which another request may follow.
        """
        self.send_request(body, deadline)
        return self.receive_reply(deadline)

    def send_request(self, body: dict[str, Any], deadline: float) -> None:
        """Sends a request; `receive_reply` must follow before the next one."""
        self._sequence += 1
        self._nonce = secrets.token_bytes(16)
        self._expect_silence()
        _send(self._connection, self._sequence, self._nonce, body, deadline)

    def receive_reply(self, deadline: float) -> dict[str, Any]:
        """The reply to the request that was sent. After DeadlineExceeded it may be asked for again."""
        sequence, nonce, reply = self._frames.next(deadline)
        if (sequence, nonce) != (self._sequence, self._nonce):
            raise ProtocolViolation("a reply to another request")
        return reply

    def _expect_silence(self) -> None:
        self._connection.setblocking(False)
        try:
            waiting = self._connection.recv(1, socket.MSG_PEEK)
        except BlockingIOError:
            return
        except ConnectionError as error:
            raise PeerClosed from error
        if not waiting:
            raise PeerClosed
        raise ProtocolViolation("a reply that was not requested")


def receive(connection: socket.socket) -> tuple[int, bytes, dict[str, Any]]:
    """The next request: its sequence number, nonce and body. Blocks."""
    return _Frames(connection).next(None)


def send(connection: socket.socket, sequence: int, nonce: bytes, body: dict[str, Any]) -> None:
    """Replies to the request with this sequence number and nonce.

    Raises:
        Unsendable, PeerClosed.
    """
    _send(connection, sequence, nonce, body, None)


def _send(connection: socket.socket, sequence: int, nonce: bytes, body: dict[str, Any], deadline: float | None) -> None:
    try:
        data = json.dumps(body, allow_nan=False).encode()
    except ValueError as error:  # a number that is not finite
        raise Unsendable(f"a body that is not JSON: {error}") from error
    if len(data) > MAX_BODY:
        raise Unsendable(f"a body of {len(data)} bytes, the limit is {MAX_BODY}")
    _set_deadline(connection, deadline)
    try:
        connection.sendall(_HEADER.pack(_MAGIC, len(data), sequence, nonce) + data)
    except TimeoutError as error:
        raise DeadlineExceeded from error
    except OSError as error:
        raise PeerClosed from error


class _Frames:
    """Reads frames. What has come of one when a deadline passes is kept, and the next attempt goes on from there."""

    def __init__(self, connection: socket.socket):
        self._connection, self._begun = connection, bytearray()

    def next(self, deadline: float | None) -> tuple[int, bytes, dict[str, Any]]:
        """Sequence number, nonce and body of the next frame."""
        self._read(_HEADER.size, deadline)
        magic, length, sequence, nonce = _HEADER.unpack_from(self._begun)
        if magic != _MAGIC or length > MAX_BODY:
            raise ProtocolViolation("a malformed header")
        self._read(_HEADER.size + length, deadline)
        data = self._begun[_HEADER.size :]
        self._begun.clear()
        try:
            body = json.loads(data.decode(), parse_constant=_no_constant)
        except (ValueError, RecursionError) as error:
            raise ProtocolViolation("a body that is not JSON") from error
        if not isinstance(body, dict):
            raise ProtocolViolation("a body that is not an object")
        return sequence, nonce, body

    def _read(self, size: int, deadline: float | None) -> None:
        """Reads until so many bytes of the frame are there."""
        while (missing := size - len(self._begun)) > 0:
            _set_deadline(self._connection, deadline)
            try:
                part = self._connection.recv(min(missing, 2**16))
            except TimeoutError as error:
                raise DeadlineExceeded from error
            except OSError as error:
                raise PeerClosed from error
            if not part:
                raise PeerClosed
            self._begun += part


def _set_deadline(connection: socket.socket, deadline: float | None) -> None:
    if deadline is None:
        connection.settimeout(None)
    elif (left := deadline - time.monotonic()) > 0:
        connection.settimeout(left)
    else:
        raise DeadlineExceeded


def _no_constant(name: str) -> NoReturn:
    raise ValueError(name)
