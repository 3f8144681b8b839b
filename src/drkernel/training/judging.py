"""Which judge a rank asks, and how a judge and an engine share a GPU."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator
from typing import Any

import torch

from drkernel.config import JudgeConfig, Judged
from drkernel.config.judge import judge_options
from drkernel.judge import Judge
from drkernel.judge.devices.cuda.gpu_lock import gpu_lock
from drkernel.judge.options import choose_device, choose_workers
from drkernel.judge.remote import Client, serve
from drkernel.judge.trusted.worker_process import visible_gpus
from drkernel.policy.engine import Completion, Engine
from drkernel.training.ranks import Ranks
from drkernel.types import DrKernelError


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
    """The device and the GPUs that the judge measures on. Of several it takes the last where a policy needs others."""
    judge = config.judge
    device, chosen = choose_device(judge.device, judge.gpus, judge.share, config.occupies_gpus)
    gpus = None if chosen is None else [str(gpu) for gpu in chosen]
    alone = device == "cuda" and judge.gpus is None and not judge.share and config.generates
    return device, gpus[-1:] if alone and gpus and len(gpus) > 1 else gpus


def workers(config: Judged) -> int:
    """How many processes judge, or compile for the judge's GPUs."""
    return choose_workers(config.judge.workers, *placed(config), beside=config.occupies_gpus)


def described(config: Judged) -> str:
    """What measures, in a line for the user, who may not expect a simulated device where there is a GPU."""
    device, gpus = placed(config)
    if device == "cuda":
        shared = ", which train, too" if config.judge.share else ""
        return f"judge: measures on GPU {', '.join(gpus or ())}{shared}; {workers(config)} processes compile"
    visible = visible_gpus() if config.judge.device == "auto" else []
    why = " though a GPU is visible, since it trains; judge.share=true measures on it" if visible else ""
    return f"judge: simulates an {config.judge.gpu}{why}; {workers(config)} processes"


def measured_on(judge: JudgeConfig, beside: bool = True) -> str:
    """What the judge measures on, as its verdicts name it: `simulated:H200`, `cuda:NVIDIA H200`. beside: see
    `choose_device`.

    Raises DrKernelError where that is a GPU and none is visible.
    """
    kind, gpus = choose_device(judge.device, judge.gpus, judge.share, beside)
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
            device, gpus = placed(config)
            options = judge_options(config) | {"device": device, "gpus": gpus}
            options["workers"] = workers(config)
            own.append(stack.enter_context(Judge(**options)))
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
