"""Which judge a rank asks, and how a judge and an engine share a GPU."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator
from typing import Any

import torch

from drkernel import config as configuration
from drkernel.config import JudgeConfig, Judged
from drkernel.judge import Judge
from drkernel.judge.devices.cuda.gpu_lock import gpu_lock
from drkernel.judge.remote import Client, serve
from drkernel.judge.service import choose_device
from drkernel.judge.trusted.worker_process import visible_gpus
from drkernel.policy.engine import Completion, Engine
from drkernel.training.ranks import Ranks
from drkernel.types import DrKernelError


def reserved_gpus(config: Judged) -> list[str]:
    """The GPUs that only the judge uses, as CUDA_VISIBLE_DEVICES names them.

    Raises DrKernelError where that would leave none for training.
    """
    device, gpus = choose_device(config.judge.device, config.judge.gpus, config.judge.share)
    if device != "cuda" or config.judge.share:
        return []
    taken = [str(gpu) for gpu in gpus or ()]
    if taken and set(visible_gpus()) <= set(taken):
        raise DrKernelError(
            f"judge.gpus: found {', '.join(taken)}, which leaves no GPU to train on; "
            "expected fewer, or judge.share=true to measure while the engine pauses"
        )
    return taken


def measured_on(judge: JudgeConfig) -> str:
    """What the judge measures on, as its verdicts name it: `simulated:H200`, `cuda:NVIDIA H200`.

    Raises DrKernelError where that is a GPU and none is visible.
    """
    kind, gpus = choose_device(judge.device, judge.gpus, judge.share)
    if kind != "cuda":
        return f"{kind}:{judge.gpu}"
    visible = visible_gpus()
    if not gpus or not visible or not torch.cuda.is_available():
        raise DrKernelError("judge.device: found cuda, but no GPU is visible; expected one, or judge.device=simulated")
    name = lambda gpu: torch.cuda.get_device_name(visible.index(gpu)) if gpu in visible else f"GPU {gpu}"
    return "cuda:" + ", ".join(sorted({name(str(gpu)) for gpu in gpus}))


@contextlib.contextmanager
def judge_of_node(config: Judged, ranks: Ranks) -> Iterator[Judge | Client]:
    """The node's only judge. Its first rank owns it; the others ask it over a socket. Collective."""
    with contextlib.ExitStack() as stack:
        own: list[Judge] = []

        def offer() -> tuple[str, bytes]:
            if ranks.local_rank:
                return "", b""
            own.append(stack.enter_context(Judge(**configuration.judge_options(config))))
            server = stack.enter_context(serve(own[0])) if ranks.local_size > 1 else None
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


def paused_s(engine: Engine) -> float:
    """Seconds that an engine's steps have waited for a judge on the same GPU."""
    return engine.paused_s if isinstance(engine, GpuSharingEngine) else 0.0
