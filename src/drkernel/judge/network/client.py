"""A Judge on other machines: a client of one or several servers (server.py), used as if it were a Judge.

    with RemoteJudge(["http://node1:8000", "http://node2:8000"], token=read_token(FILE)) as judge:
        verdict = judge.judge(task, source)

A task always goes to the same server: its preparation is used again, and one machine judges all submissions of a group.
Which one follows from the addresses and the task alone (rendezvous hashing), so all clients choose alike. Where a
server is lost, its tasks go to the others, and all other tasks stay where they are. Once it answers again, it gets its
tasks back. Where all are lost, tasks wait for one.
"""

from __future__ import annotations

import hashlib
import threading
import time
import warnings
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from queue import SimpleQueue
from typing import Any

import msgspec

from drkernel.judge.boundary.framing import MAX_SOURCE
from drkernel.judge.network import messages
from drkernel.judge.network.connection import Connection, Lost
from drkernel.judge.network.messages import About, Checked, CheckRequest, Health, Judged, JudgeRequest, task_fields
from drkernel.judge.trusted.processes.worker_process import NotPrepared
from drkernel.types import DrKernelError, Task, Verdict, WorkerLost

LEAST, MOST = 16, 512
"""Requests of one client that a server has at the same time; in between twice as many as it has workers."""
AGAIN_S = 10.0
"""How often each server is asked for its health: one that hangs, or is there again, does not say so by itself."""
PATIENCE_S = 300.0
"""How long tasks wait for a server where all are lost."""
MOST_LOST = 4
"""Servers that may be lost with a request before it fails, since it may be what they are lost by."""
_END_S = 0.5
"""How long closing waits for threads: one that an interpreter meets while it ends may abort the process."""
_OTHER = "it was started anew with other options"


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
        self._waiting: list[_Job] = []
        """For a server, while all are lost."""
        self._until = 0.0
        """When they fail."""
        self._servers = [
            _Server(connection, min(max(LEAST, 2 * found.workers), MOST))
            for connection, found in zip(connections, health, strict=True)
        ]
        for server in self._servers:
            server.start(self._watch, server)

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
        """Gives up what is open, which fails. Waits for its threads alone, and not for long."""
        self._closing.set()
        with self._lock:
            failed, self._open = self._open, set()
        for future in failed:
            future.set_exception(_closed())
        for server in self._servers:
            server.close()
        deadline = time.monotonic() + _END_S
        for thread in (each for server in self._servers for each in server.threads):
            if thread is not threading.current_thread():  # a callback of a future may close
                thread.join(max(0.0, deadline - time.monotonic()))

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
        with self._lock:
            left = [server for server in self._servers if not server.connection.lost]
            if not left and time.monotonic() < self._until:
                return self._waiting.append(job)
        if left:
            server = max(left, key=lambda each: _weight(each.connection.address, job.digest))
            return server.put(lambda: self._do(server, job))
        lost = ", ".join(f"{each.connection.address} ({each.connection.lost})" for each in self._servers)
        self._settle(job.future, error=WorkerLost(f"judge: no server is left: {lost}"))

    def _do(self, server: _Server, job: _Job) -> None:
        """In a thread of the server's."""
        if server.connection.lost:
            return self._route(job)
        try:
            reply: Judged | Checked = server.connection.ask(job.path, job.request, job.reply)
            if reply.identity != self.about.identity:
                raise Lost(_OTHER)
        except Lost as error:
            self._lose(server, str(error))
            job.lost += 1
            if job.lost < MOST_LOST:
                return self._route(job)
            told = f"judge: a server was lost {MOST_LOST} times while it had this request: {error}"
            self._settle(job.future, error=NotPrepared(told))
        except Exception as error:
            self._settle(job.future, error=error)
        else:
            self._settle(job.future, job.told(reply))

    def _lose(self, server: _Server, why: str) -> None:
        with self._lock:
            first, server.connection.lost = not server.connection.lost, why
            alone = all(each.connection.lost for each in self._servers)
            if first and alone:
                self._until = time.monotonic() + PATIENCE_S
        if first and not self._closing.is_set():
            then = f"tasks wait {PATIENCE_S:g} s for it" if alone else "others get its tasks until it answers again"
            warnings.warn(f"judge: {server.connection.address} is lost ({why}); {then}", stacklevel=2)

    def _watch(self, server: _Server) -> None:
        """In a thread of its own: finds out that a server is lost, and that it is there again."""
        connection = server.connection
        while not self._closing.wait(AGAIN_S):
            try:
                if connection.health().identity != self.about.identity:
                    raise Lost(_OTHER)
            except (Lost, DrKernelError) as error:
                self._lose(server, str(error))
                connection.close()
            else:
                connection.lost = ""
            with self._lock:
                waiting, self._waiting = self._waiting, []
            for job in waiting:
                self._route(job)

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


@dataclass
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
    lost: int = 0
    """How often a server was lost with it."""


class _Server:
    """A server, and threads that wait for its replies: at most `most`, started as they are needed. They end with their
    process."""

    def __init__(self, connection: Connection, most: int):
        self.connection, self._most = connection, most
        self._jobs: SimpleQueue[Callable[[], None] | None] = SimpleQueue()
        self._lock = threading.Lock()
        self._workers = 0
        self.threads: list[threading.Thread] = []

    def start(self, what: Callable[..., None], *arguments: Any) -> None:
        thread = threading.Thread(target=what, args=arguments, name="judge-client", daemon=True)
        self.threads.append(thread)
        thread.start()

    def put(self, job: Callable[[], None]) -> None:
        """Does a job once a thread is free."""
        self._jobs.put(job)
        with self._lock:
            if self._workers == self._most:
                return
            self._workers += 1
        self.start(self._work)

    def close(self) -> None:
        with self._lock:
            for _ in range(self._workers):
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
    facts, own = about.facts(), messages.installed("drkernel")
    if messages.NOT_INSTALLED not in (own, about.drkernel):
        expected = {"drkernel": own, **expected}
    wrong = [key for key, value in expected.items() if facts.get(key) != value]
    if wrong:
        found = ", ".join(f"{key}={facts.get(key)}" for key in wrong)
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
