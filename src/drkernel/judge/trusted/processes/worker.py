"""What a worker process of the judge runs: it answers the requests of one Judge, as an examiner or a compile worker.

worker_process.py starts it from the process of the Judge.
"""

from __future__ import annotations

import faulthandler
import os
import signal
import socket
import sys
import warnings
from collections.abc import Callable
from typing import Any

import torch

from drkernel.judge.boundary import framing, sandbox
from drkernel.judge.boundary.framing import PeerClosed, Unsendable
from drkernel.judge.devices.simulated import examiner as simulated_examiner
from drkernel.judge.trusted.processes.zygote import ZygoteDied
from drkernel.judge.trusted.verdicts import without_evidence

Answer = Callable[[dict[str, Any]], dict[str, Any]]
"""From the body of a request to the body of the reply."""
Start = Callable[[bytes], Answer]
"""What a worker does once it has the secret."""


def main() -> None:
    """Serves one Judge over the socket whose number is the only argument, until it closes.

    The first request holds the settings, among them the `kind` of worker and how `nice` it is. The second holds the
    secret, which no zygote may know.
    """
    connection = socket.socket(fileno=int(sys.argv[1]))
    torch.set_num_threads(1)
    warnings.filterwarnings("ignore", module="torch")  # of references, at sizes that nobody asked for
    sandbox.die_with_parent()
    sandbox.hide_process()
    sequence, nonce, settings = framing.receive(connection)
    os.nice(settings.get("nice", 0))
    kinds = {"simulated": _simulated, "compiler": _compiler, "gpu": _gpu}
    try:
        missing, start = kinds[settings["kind"]](settings)
        framing.send(connection, sequence, nonce, {"missing": missing})
        sequence, nonce, body = framing.receive(connection)
        answer = start(bytes.fromhex(body["secret"]))
    except (PeerClosed, ZygoteDied):
        raise
    except Exception as error:  # the Judge says it in one line
        text = " ".join(f"{type(error).__name__}: {error}".split())
        framing.send(connection, sequence, nonce, {"broken": text[:500]})
        return
    faulthandler.register(signal.SIGUSR1)  # the zygote, which has started, has no such handler; see tell_where
    framing.send(connection, sequence, nonce, {})
    while True:
        sequence, nonce, body = framing.receive(connection)
        send_reply(connection, sequence, nonce, answer(body))


def send_reply(connection: socket.socket, sequence: int, nonce: bytes, reply: dict[str, Any]) -> None:
    """Sends a reply; of one that cannot be sent, what can be."""
    try:
        framing.send(connection, sequence, nonce, reply)
    except Unsendable as error:
        framing.send(connection, sequence, nonce, without_evidence(reply, str(error)))


def _simulated(settings: dict[str, Any]) -> tuple[list[str], Start]:
    """An examiner of the simulated device."""
    missing, make = simulated_examiner.set_up(settings)
    return missing, lambda secret: make(secret).answer


def _compiler(settings: dict[str, Any]) -> tuple[list[str], Start]:
    """A compile worker; sees neither GPU nor secret."""
    from drkernel.judge.devices.cuda.compile_worker import CompileWorker

    compiler = CompileWorker(settings)
    return compiler.missing, lambda _: compiler.answer


def _gpu(settings: dict[str, Any]) -> tuple[list[str], Start]:
    """An examiner of the one GPU that it sees."""
    from drkernel.judge.devices.cuda import examiner

    missing, make = examiner.set_up(settings)
    return missing, lambda secret: make(secret).answer


if __name__ == "__main__":
    try:
        main()
    except (PeerClosed, ZygoteDied):
        sys.exit(0)
