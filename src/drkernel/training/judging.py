"""Which judge a rank asks, and how a judge and an engine share a GPU."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator
from typing import Any

import torch

from drkernel.config import Judged
from drkernel.config.judge import expected_options, judge_options
from drkernel.hardware.visible import visible_gpus
from drkernel.judge import Judge, RemoteJudge, read_token
from drkernel.judge.devices.cuda.gpu_lock import gpu_lock
from drkernel.judge.network.client import asked
from drkernel.judge.options import choose_device, choose_workers, device_name
from drkernel.judge.remote import Client, serve
from drkernel.policy.engine import Completion, Engine
from drkernel.training.ranks import Ranks
from drkernel.types import DrKernelError

REMOTE = "remote"
"""The device of a judge on other machines."""


def reserved_gpus(config: Judged) -> list[str]:
    """The GPUs that only the judge uses, as CUDA_VISIBLE_DEVICES names them.

    Raises DrKernelError where that would leave none for training.
    """
    device, gpus = placed(config)
    if device != "cuda" or config.judge.share or not config.generates:
        return []
    taken = gpus or []
    if taken and set(visible_gpus()) <= set(taken):
        raise DrKernelError(
            f"judge.gpus: found {', '.join(taken)}, which leaves no GPU to train on; "
            "expected fewer, or judge.share=true to measure while the engine pauses"
        )
    return taken


def placed(config: Judged) -> tuple[str, list[str] | None]:
    """The device and the GPUs that the judge measures on, of those of this machine. Of several it takes the last where
    a policy needs others."""
    judge = config.judge
    if judge.servers is not None:
        return REMOTE, None
    device, chosen = choose_device(judge.device, judge.gpus, judge.share, config.occupies_gpus)
    gpus = None if chosen is None else [str(gpu) for gpu in chosen]
    alone = device == "cuda" and judge.gpus is None and not judge.share and config.generates
    return device, gpus[-1:] if alone and gpus and len(gpus) > 1 else gpus


def workers(config: Judged) -> int:
    """How many processes of this machine judge, or compile for the judge's GPUs."""
    if config.judge.servers is not None:
        return 0
    return choose_workers(config.judge.workers, *placed(config), beside=config.occupies_gpus)


def described(config: Judged) -> str:
    """What measures, in a line for the user, who may not expect a simulated device where there is a GPU."""
    device, gpus = placed(config)
    if device == REMOTE:
        return f"judge: {', '.join(config.judge.servers or ())}, on {measured_on(config)}"
    if device == "cuda":
        shared = ", which train, too" if config.judge.share else ""
        return f"judge: measures on GPU {', '.join(gpus or ())}{shared}; {workers(config)} processes compile"
    visible = visible_gpus() if config.judge.device == "auto" else []
    why = " though a GPU is visible, since it trains; judge.share=true measures on it" if visible else ""
    return f"judge: simulates an {config.judge.gpu}{why}; {workers(config)} processes"


def measured_on(config: Judged) -> str:
    """What the judge measures on, as its verdicts name it: `simulated:H200`, `cuda:NVIDIA H200`. Servers are asked.

    Raises DrKernelError where that is a GPU and none is visible, and for servers that do not answer or differ.
    """
    judge = config.judge
    if judge.servers is not None:
        return asked(**_servers(config)).device
    kind, gpus = choose_device(judge.device, judge.gpus, judge.share, config.occupies_gpus)
    return device_name(kind, judge.gpu, gpus)


def make_judge(config: Judged) -> Judge | RemoteJudge:
    """The judge that a config describes, for one process: its own, or a client of the servers."""
    if config.judge.servers is not None:
        return RemoteJudge(**_servers(config))
    device, gpus = placed(config)
    return Judge(**judge_options(config) | {"device": device, "gpus": gpus, "workers": workers(config)})


def _servers(config: Judged) -> dict[str, Any]:
    """The arguments of RemoteJudge."""
    path = config.judge.token_file
    token = None if path is None else read_token(path)
    return {"servers": config.judge.servers or (), "token": token, "expected": expected_options(config)}


@contextlib.contextmanager
def judge_of_node(config: Judged, ranks: Ranks) -> Iterator[Judge | RemoteJudge | Client]:
    """The node's only judge. Its first rank owns it; the others ask it over a socket. Where servers judge, each rank is
    a client of theirs. Collective."""
    with contextlib.ExitStack() as stack:
        own: list[Judge | RemoteJudge] = []

        def offer() -> tuple[str, bytes]:
            if ranks.local_rank and config.judge.servers is None:
                return "", b""
            own.append(make_judge(config))
            stack.callback(own[0].close)
            alone = ranks.local_size == 1 or config.judge.servers is not None
            server = None if alone else stack.enter_context(serve(own[0]))
            return (server.address, server.key) if server else ("", b"")

        offers = ranks.all_gather_object(offer)
        yield own[0] if own else stack.enter_context(contextlib.closing(Client(*offers[ranks.rank - ranks.local_rank])))


@contextlib.contextmanager
def cores_for_judge(workers: int) -> Iterator[None]:
    """Leaves cores to the judge's processes. A thread of torch that waits for a core would delay all the others."""
    threads = torch.get_num_threads()
    torch.set_num_threads(max(1, threads - workers))
    try:
        yield
    finally:
        torch.set_num_threads(threads)


class GpuSharingEngine:
    """An engine on a GPU that a judge measures on. Between two steps the judge's timing has the GPU to itself."""

    def __init__(self, engine: Engine, device: torch.device):
        self._engine, self._gpu_lock = engine, gpu_lock(torch.cuda.get_device_properties(device).uuid)
        self.paused_s = 0.0
        """Seconds that steps have waited while the judge had the GPU."""

    def __getattr__(self, name: str) -> Any:
        return getattr(self._engine, name)

    def step(self) -> list[Completion]:
        started = time.perf_counter()
        self._gpu_lock.acquire(exclusive=False)
        self.paused_s += time.perf_counter() - started
        try:
            completed = self._engine.step()
            torch.cuda.synchronize()
            return completed
        finally:
            self._gpu_lock.release()
