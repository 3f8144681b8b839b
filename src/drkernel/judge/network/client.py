"""A Judge on other machines: a client of one or several servers (server.py), used as if it were a Judge.

    with RemoteJudge(["http://node1:8000", "http://node2:8000"], token=read_token(FILE)) as judge:
        verdict = judge.judge(task, source)

A task always goes to the same server: its preparation is used again, and one machine judges all answers of a group.
Which one follows from the addresses and the task alone (rendezvous hashing), so all clients choose alike. Where a
server is lost, its tasks go to the others, and all other tasks stay where they are. It stays lost for this client.
"""

from __future__ import annotations

import hashlib
import threading
import warnings
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from queue import SimpleQueue
from typing import Any

import msgspec

from drkernel.judge.boundary.framing import MAX_SOURCE
from drkernel.judge.network.connection import Connection, Lost
from drkernel.judge.network.messages import About, Checked, CheckRequest, Health, Judged, JudgeRequest, task_fields
from drkernel.types import DrKernelError, Task, Verdict, WorkerLost

LEAST, MOST = 16, 512
"""Requests of one client that a server has at the same time; in between twice as many as it has workers."""


class RemoteJudge:
    """The Judge's methods, answered by servers. For the threads of one process; use `close` when done.

    servers: their addresses. token: that of all of them. expected: options that they must have, by name.

    Raises:
        DrKernelError: an address is none, a server does not answer, or `agreed` finds that they differ.
    """

    def __init__(self, servers: Sequence[str], token: str | None = None, expected: Mapping[str, Any] | None = None):
        self._closing = threading.Event()
        connections = [Connection(address, token, self._closing) for address in servers]
        health = [_health(connection) for connection in connections]
        self.about = agreed({each.address: found.about for each, found in zip(connections, health, strict=True)})
        """What all servers are."""
        _expect_options(self.about, expected or {})
        self._lock = threading.Lock()
        self._open: set[Future] = set()
        self._servers = [
            _Server(connection, min(max(LEAST, 2 * found.workers), MOST))
            for connection, found in zip(connections, health, strict=True)
        ]

    def __enter__(self) -> RemoteJudge:
        return self

    def __exit__(self, *_: Any) -> None:
        self.close()

    def submit(self, task: Task, source: str) -> Future[Verdict]:
        """Judges in the background. The future raises DrKernelError for an unusable task, and WorkerLost where no
        server is left."""
        shortened = source[: MAX_SOURCE + 1]  # enough to see that it is too large
        return self._ask(task, "/judge", JudgeRequest(task_fields(task), shortened), Judged, lambda told: told.verdict)

    def judge(self, task: Task, source: str) -> Verdict:
        return self.submit(task, source).result()

    def check_task(self, task: Task) -> str:
        """As Judge.check_task."""
        checked = self._ask(task, "/check", CheckRequest(task_fields(task)), Checked, lambda told: told).result()
        if not checked.usable:
            raise DrKernelError(checked.why)
        return checked.why

    def close(self) -> None:
        """Gives up what is open, which fails. Waits for nothing."""
        self._closing.set()
        with self._lock:
            failed, self._open = self._open, set()
        for future in failed:
            future.set_exception(_closed())
        for server in self._servers:
            server.close()

    def _ask(self, task: Task, path: str, request: msgspec.Struct, reply: type, told: Callable[[Any], Any]) -> Future:
        future: Future = Future()
        future.set_running_or_notify_cancel()
        with self._lock:
            if self._closing.is_set():
                raise _closed()
            self._open.add(future)
        self._route(_Job(task.digest, path, request, reply, told, future))
        return future

    def _route(self, job: _Job) -> None:
        """Hands a job to its server: the first of those that are left, in an order of the task's own."""
        left = [server for server in self._servers if server.lost is None]
        if left:
            server = max(left, key=lambda each: _weight(each.connection.address, job.digest))
            return server.put(lambda: self._do(server, job))
        lost = ", ".join(f"{each.connection.address} ({each.lost})" for each in self._servers)
        self._settle(job.future, error=WorkerLost(f"judge: no server is left: {lost}"))

    def _do(self, server: _Server, job: _Job) -> None:
        """In a thread of the server's."""
        if server.lost is not None:
            return self._route(job)
        try:
            reply: Judged | Checked = server.connection.ask(job.path, job.request, job.reply)
            if reply.identity != self.about.identity:
                raise Lost("it was started anew with other options")
        except Lost as error:
            self._lose(server, str(error))
            self._route(job)
        except Exception as error:
            self._settle(job.future, error=error)
        else:
            self._settle(job.future, job.told(reply))

    def _lose(self, server: _Server, why: str) -> None:
        with self._lock:
            first, server.lost = server.lost is None, server.lost or why
        if first and not self._closing.is_set():
            warnings.warn(f"judge: {server.connection.address} is lost ({why}); others get its tasks", stacklevel=2)

    def _settle(self, future: Future, result: Any = None, error: Exception | None = None) -> None:
        """Ends a future, unless `close` has."""
        with self._lock:
            if future not in self._open:
                return
            self._open.discard(future)
        if error is None:
            future.set_result(result)
        else:
            future.set_exception(error)


@dataclass(frozen=True)
class _Job:
    """A request whose reply is awaited."""

    digest: str
    """Of the task."""
    path: str
    request: msgspec.Struct
    reply: type
    told: Callable[[Any], Any]
    """What the future has of the reply."""
    future: Future


class _Server:
    """A server, and threads that wait for its replies: at most `most`, started as they are needed. They end with their
    process."""

    def __init__(self, connection: Connection, most: int):
        self.connection, self._most = connection, most
        self.lost: str | None = None
        """Why it gets no tasks any more."""
        self._jobs: SimpleQueue[Callable[[], None] | None] = SimpleQueue()
        self._lock = threading.Lock()
        self._threads = 0

    def put(self, job: Callable[[], None]) -> None:
        """Does a job once a thread is free."""
        self._jobs.put(job)
        with self._lock:
            if self._threads == self._most:
                return
            self._threads += 1
        threading.Thread(target=self._work, name="judge-client", daemon=True).start()

    def close(self) -> None:
        with self._lock:
            for _ in range(self._threads):
                self._jobs.put(None)
        self.connection.close()

    def _work(self) -> None:
        while job := self._jobs.get():
            job()


def asked(servers: Sequence[str], token: str | None = None, expected: Mapping[str, Any] | None = None) -> About:
    """What servers are, without a client that stays. Arguments and errors are those of RemoteJudge."""
    with RemoteJudge(servers, token, expected) as judge:
        return judge.about


def agreed(found: Mapping[str, About]) -> About:
    """What all servers are.

    Raises:
        DrKernelError: there is none, or two differ; names both and what differs.
    """
    if not found:
        raise DrKernelError("judge.servers: found none, expected addresses: judge.servers=[http://HOST:PORT]")
    (first, about), *others = found.items()
    for address, other in others:
        if differing := [key for key, value in about.facts().items() if other.facts().get(key) != value]:
            said = lambda facts: ", ".join(f"{key}={facts.get(key)}" for key in differing)
            raise DrKernelError(
                f"judge.servers: {first} has {said(about.facts())}, and {address} has {said(other.facts())}; expected "
                "the same, or verdicts would depend on which one judges"
            )
    return about


def _expect_options(about: About, expected: Mapping[str, Any]) -> None:
    wrong = [key for key, value in expected.items() if about.options.get(key) != value]
    if wrong:
        found = ", ".join(f"{key}={about.options.get(key)}" for key in wrong)
        wanted = ", ".join(f"{key}={expected[key]}" for key in wrong)
        raise DrKernelError(f"judge.servers: they judge with {found}; this run expects {wanted}")


def _health(connection: Connection) -> Health:
    try:
        return connection.health()
    except Lost as error:
        expected = "expected a running `drkernel-judge --serve`, and its token"
        raise DrKernelError(f"judge.servers: {connection.address}: {error}; {expected}") from error


def _weight(address: str, digest: str) -> bytes:
    return hashlib.sha256(f"{address} {digest}".encode()).digest()


def _closed() -> WorkerLost:
    return WorkerLost("judge: this client was closed")
