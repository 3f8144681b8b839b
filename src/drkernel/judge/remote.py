"""One Judge for all ranks of a node: the first rank serves its own Judge, the others are clients of it.

Other machines are served by network/.

    with Judge(...) as judge, serve(judge) as server:      # first rank; tells the others address and key
    with closing(Client(address, key)) as judge:           # the others; used as if it were a Judge

Messages are pickled over a Unix socket in a folder that only this user can open, between processes that know the key.
All of them belong to the training run and execute no submission; a submission is sent as text.
"""

from __future__ import annotations

import contextlib
import functools
import itertools
import os
import pickle
import shutil
import socket
import tempfile
import threading
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from multiprocessing import AuthenticationError
from multiprocessing.connection import Client as connect
from multiprocessing.connection import Connection, Listener
from queue import SimpleQueue
from typing import Any

from drkernel.judge.interface import JudgeProtocol
from drkernel.types import DrKernelError, Task, Verdict, WorkerLost

MAX_FOLDER = 60
"""Characters of a folder for the socket; where the temporary folder has more, /tmp is used. A Unix socket's path has at
most 108 bytes."""
CHECK_THREADS = 16
"""Tasks that the server checks at the same time."""


def serve(judge: JudgeProtocol) -> Server:
    """Answers `Client`s for this Judge from threads of this process, until closed."""
    return Server(judge)


class Server:
    """Context manager; `address` and `key` are what a Client needs. Closing it does not close the judge."""

    def __init__(self, judge: JudgeProtocol):
        self.judge = judge
        self.key = os.urandom(32)
        root = tempfile.gettempdir()
        self._folder = tempfile.mkdtemp(prefix="drkernel-", dir=root if len(root) <= MAX_FOLDER else "/tmp")
        self.address = os.path.join(self._folder, "judge")
        self._listener = Listener(self.address, "AF_UNIX", backlog=128, authkey=self.key)
        self._checks = ThreadPoolExecutor(CHECK_THREADS, thread_name_prefix="judge-check")
        self._outboxes: set[SimpleQueue] = set()
        self._lock = threading.Lock()
        self._closed = False
        _thread("judge-server", self._accept)

    def __enter__(self) -> Server:
        return self

    def __exit__(self, *_: Any) -> None:
        self.close()

    def close(self) -> None:
        """Closes the connections; what clients have submitted and what is still open fails."""
        with self._lock:
            if self._closed:
                return
            self._closed = True
            for outbox in self._outboxes:
                outbox.put(None)
        with contextlib.suppress(OSError), socket.socket(socket.AF_UNIX) as waker:
            waker.connect(self.address)  # wakes `_accept`, and does not wait for it, since it may have ended
        self._listener.close()
        self._checks.shutdown(wait=False, cancel_futures=True)
        shutil.rmtree(self._folder, ignore_errors=True)

    def _accept(self) -> None:
        while not self._closed:
            try:
                connection = self._listener.accept()
            except (OSError, EOFError, AuthenticationError):
                continue  # a client that does not know the key, or dies while it is asked, is not served
            outbox: SimpleQueue = SimpleQueue()
            with self._lock:
                if self._closed:
                    with contextlib.suppress(OSError):
                        connection.send(None)
                    connection.close()
                    return
                self._outboxes.add(outbox)
            writer = _thread("judge-write", self._write, connection, outbox)
            _thread("judge-read", self._read, connection, outbox, writer)

    def _read(self, connection: Connection, outbox: SimpleQueue, writer: threading.Thread) -> None:
        """Starts what a client requests, until it disconnects or dies.

        Only the reader closes a connection. Closing it during a blocked read would leave both ends waiting, and during
        a write it could send a reply to the next client.
        """
        with contextlib.suppress(OSError, EOFError):
            while True:
                message = connection.recv()
                if message is None:
                    outbox.put(None)
                    continue
                number, what, *arguments = message
                try:
                    future = self._start(what, *arguments)
                except Exception as error:  # a judge that is closed, above all
                    outbox.put((number, None, portable(error)))
                    continue
                future.add_done_callback(functools.partial(_put_reply, outbox, number))
        outbox.put(None)
        writer.join()
        connection.close()

    def _start(self, what: str, task: Task, source: str = "") -> Future:
        if what == "submit":
            return self.judge.submit(task, source)
        return self._checks.submit(self.judge.check_task, task)

    def _write(self, connection: Connection, outbox: SimpleQueue) -> None:
        """Sends replies from a thread of its own, so that a client that does not read blocks nobody else."""
        with contextlib.suppress(OSError, EOFError):
            while (message := outbox.get()) is not None:
                connection.send(message)
            connection.send(None)
        with self._lock:
            self._outboxes.discard(outbox)


class Client:
    """The Judge's methods, answered by a `Server`. For the threads of one process; use `close` when done.

    Raises:
        DrKernelError: no server answers at `address`, or not to this key.
    """

    def __init__(self, address: str, key: bytes):
        try:
            self._connection = connect(address, authkey=key)
        except (OSError, EOFError, AuthenticationError) as error:
            raise DrKernelError(f"judge: no server answers at {address} ({type(error).__name__}: {error})") from error
        self._numbers = itertools.count()
        self._open: dict[int, Future] = {}
        self._lock = threading.Lock()
        self._closed_because: str | None = None
        _thread("judge-client", self._receive)

    def submit(self, task: Task, source: str) -> Future[Verdict]:
        """Judges in the background. The future raises what the judge's own would: DrKernelError for an unusable task
        alone. It raises WorkerLost if the server ends."""
        return self._request("submit", task, source)

    def judge(self, task: Task, source: str) -> Verdict:
        return self.submit(task, source).result()

    def check_task(self, task: Task) -> str:
        """As Judge.check_task."""
        return self._request("check", task).result()

    def close(self) -> None:
        """Disconnects; what is still open fails."""
        self._fail("judge: this client was closed")
        with contextlib.suppress(OSError), self._lock:
            self._connection.send(None)  # the server does the same, which ends `_receive`

    def _request(self, *request: Any) -> Future:
        future: Future = Future()
        future.set_running_or_notify_cancel()
        with self._lock:
            if self._closed_because:
                raise WorkerLost(self._closed_because)
            number = next(self._numbers)
            self._open[number] = future
            with contextlib.suppress(OSError):  # the server has ended: `_receive` sees it, too, and fails what is open
                self._connection.send((number, *request))
        return future

    def _receive(self) -> None:
        try:
            while (message := self._connection.recv()) is not None:
                number, result, error = message
                with self._lock:
                    future = self._open.pop(number, None)
                if future is not None and error is None:
                    future.set_result(result)
                elif future is not None:
                    future.set_exception(error)
            self._fail("judge: the first rank of this node closed its judge")
        except (OSError, EOFError):
            self._fail("judge: the first rank of this node, which owns the judge, has died")
        self._connection.close()

    def _fail(self, why: str) -> None:
        with self._lock:
            self._closed_because = self._closed_because or why
            failed, self._open = list(self._open.values()), {}
        for future in failed:
            future.set_exception(WorkerLost(self._closed_because))


def _put_reply(outbox: SimpleQueue, number: int, done: Future) -> None:
    outbox.put(_reply(number, done))


def _reply(number: int, done: Future) -> tuple[int, Any, Exception | None]:
    if done.cancelled():
        return number, None, WorkerLost("judge: closed before this was judged")
    error = done.exception()
    return (number, None, portable(error)) if error else (number, done.result(), None)


def portable(error: BaseException) -> Exception:
    """The error as another process gets it: of the same class, or a RuntimeError that names a class that cannot be
    pickled."""
    with contextlib.suppress(Exception):
        if isinstance(copy := pickle.loads(pickle.dumps(error)), Exception):
            return copy
    return RuntimeError(f"{type(error).__name__}: {error}")


def _thread(name: str, target: Callable, *arguments: Any) -> threading.Thread:
    thread = threading.Thread(target=target, args=arguments, name=name, daemon=True)
    thread.start()
    return thread
