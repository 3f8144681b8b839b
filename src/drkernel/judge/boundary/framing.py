"""Frames between the examiner and a runner: a fixed header, then length-limited JSON. Nothing is ever unpickled.

    header: magic (4) · body length (u32) · sequence number (u64) · nonce (16)      body: UTF-8 JSON object

A runner answers each question with the question's own sequence number and nonce. An answer that is malformed, too
long, out of turn or unasked for ends the run as a protocol violation. (A nonce proves nothing about who answers; it
makes an answer useless for any other question.)
"""

from __future__ import annotations

import json
import secrets
import socket
import struct
import time
from typing import Any

_HEADER = struct.Struct("<4sIQ16s")
_MAGIC = b"DRK1"
MAX_BODY = 2**20


class ProtocolViolation(Exception):
    """The other side sent something that the protocol does not allow."""


class PeerClosed(Exception):
    """The other side closed the connection."""


class DeadlineExceeded(Exception):
    """The deadline passed before the answer came."""


class Asker:
    """The trusted end: one question at a time, one answer to each."""

    def __init__(self, connection: socket.socket):
        self._connection = connection
        self._sequence, self._nonce = 0, b""

    def ask(self, question: dict[str, Any], deadline: float) -> dict[str, Any]:
        """Sends a question and returns the answer.

        Args:
            deadline: on `time.monotonic()`'s clock.

        Raises:
            ProtocolViolation, PeerClosed, DeadlineExceeded.
        """
        self.post(question, deadline)
        return self.collect(deadline)

    def post(self, question: dict[str, Any], deadline: float) -> None:
        """Sends a question; `collect` must follow before the next one."""
        self._sequence += 1
        self._nonce = secrets.token_bytes(16)
        self._refuse_unasked()
        _send(self._connection, self._sequence, self._nonce, question, deadline)

    def collect(self, deadline: float) -> dict[str, Any]:
        """The answer to the question that was posted. After DeadlineExceeded it may be asked for again."""
        sequence, echoed, answer = _receive(self._connection, deadline)
        if (sequence, echoed) != (self._sequence, self._nonce):
            raise ProtocolViolation("an answer to another question")
        return answer

    def _refuse_unasked(self) -> None:
        self._connection.setblocking(False)
        try:
            waiting = self._connection.recv(1, socket.MSG_PEEK)
        except BlockingIOError:
            return
        except ConnectionError as error:
            raise PeerClosed from error
        if not waiting:
            raise PeerClosed
        raise ProtocolViolation("an answer that nobody asked for")


def receive(connection: socket.socket) -> tuple[int, bytes, dict[str, Any]]:
    """The next question: its sequence number, nonce and body. Blocks."""
    return _receive(connection, None)


def send(connection: socket.socket, sequence: int, nonce: bytes, body: dict[str, Any]) -> None:
    """Answers a question with its own sequence number and nonce."""
    _send(connection, sequence, nonce, body, None)


def _send(connection: socket.socket, sequence: int, nonce: bytes, body: dict[str, Any], deadline: float | None) -> None:
    data = json.dumps(body, allow_nan=False).encode()
    if len(data) > MAX_BODY:
        raise ProtocolViolation(f"a body of {len(data)} bytes, the limit is {MAX_BODY}")
    _set_deadline(connection, deadline)
    try:
        connection.sendall(_HEADER.pack(_MAGIC, len(data), sequence, nonce) + data)
    except TimeoutError as error:
        raise DeadlineExceeded from error
    except OSError as error:
        raise PeerClosed from error


def _receive(connection: socket.socket, deadline: float | None) -> tuple[int, bytes, dict[str, Any]]:
    magic, length, sequence, nonce = _HEADER.unpack(_read(connection, _HEADER.size, deadline))
    if magic != _MAGIC or length > MAX_BODY:
        raise ProtocolViolation("a malformed header")
    data = _read(connection, length, deadline)
    try:
        body = json.loads(data.decode(), parse_constant=_no_constant)
    except (ValueError, RecursionError) as error:
        raise ProtocolViolation("a body that is not JSON") from error
    if not isinstance(body, dict):
        raise ProtocolViolation("a body that is not an object")
    return sequence, nonce, body


def _read(connection: socket.socket, size: int, deadline: float | None) -> bytes:
    parts = []
    while size:
        _set_deadline(connection, deadline)
        try:
            part = connection.recv(min(size, 2**16))
        except TimeoutError as error:
            raise DeadlineExceeded from error
        except OSError as error:
            raise PeerClosed from error
        if not part:
            raise PeerClosed
        parts.append(part)
        size -= len(part)
    return b"".join(parts)


def _set_deadline(connection: socket.socket, deadline: float | None) -> None:
    if deadline is None:
        connection.settimeout(None)
    elif (left := deadline - time.monotonic()) > 0:
        connection.settimeout(left)
    else:
        raise DeadlineExceeded


def _no_constant(name: str) -> None:
    raise ValueError(name)
