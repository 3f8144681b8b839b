"""Ranks: one process per GPU, how they are started, and the collectives between them.

    python train.py trainer.gpus=8        starts its own ranks (`launch`)
    torchrun ... train.py                 RANK, WORLD_SIZE, ... are recognised
    srun, submitit                        one task per GPU; SLURM_PROCID, SLURM_STEP_NUM_TASKS, ... are recognised

Without any of these, or where they say one process, there is one rank and no process group; everything here works
without one. Python objects travel over gloo and need no GPU; gradients and weights go through NCCL where there are
GPUs.
"""

from __future__ import annotations

import atexit
import contextlib
import ctypes
import os
import pickle
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from itertools import chain
from typing import Any, NamedTuple, TypeVar

import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed.rendezvous import rendezvous

from drkernel.hardware.visible import visible_gpus
from drkernel.judge.remote import portable
from drkernel.types import DrKernelError

T = TypeVar("T")
CPU = torch.device("cpu")

START_TIMEOUT = timedelta(minutes=10)
"""How long ranks wait for each other to start."""
TIMEOUT = timedelta(hours=2)
"""How long a rank waits within one collective: longer than the slowest rank's share of a rollout."""
GRACE_S = 20.0
"""After one rank failed, the launcher gives the others this long between SIGTERM and SIGKILL."""
_GLOO_IDLE_S = 0.5
"""A device mesh keeps the process group alive, and with it gloo's threads. They need Python to free the tensors of the
last message: where Python ends first, the process aborts."""
LAUNCHER = "DRKERNEL_LAUNCHER"  # process id of the launcher, for its ranks
FORWARDED_SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGUSR1, signal.SIGUSR2)


@dataclass(frozen=True)
class Ranks:
    """This process among its peers. Every method is a collective: all ranks must call it, in the same order, or those
    that call it wait for the others until TIMEOUT."""

    rank: int = 0
    size: int = 1
    local_rank: int = 0
    local_size: int = 1
    """Ranks on this node."""
    device: torch.device = CPU
    group: dist.ProcessGroup | None = None
    """The process group of the collectives; None: the default one."""

    @property
    def is_main(self) -> bool:
        """Whether this is rank 0, which writes files and talks to the user. No collective."""
        return self.rank == 0

    def all_gather_object(self, make: Callable[[], T]) -> list[T]:
        """Collective, all ranks must call it. Every rank calls `make` and gets what all ranks made, in rank order.

        An error of any rank is raised on all.
        """
        if self.size == 1:
            return [make()]
        mine = _attempt(make)
        outcomes: list[Any] = [None] * self.size
        dist.all_gather_object(outcomes, mine.message, self.group)
        _raise_first([mine.error, *(error for value, error in outcomes if error)])
        return [pickle.loads(value) for value, _ in outcomes]

    def broadcast_object(self, make: Callable[[], T]) -> T:
        """Collective, all ranks must call it. Rank 0 alone calls `make`, and all ranks get what it made.

        An error of rank 0 is raised on all.
        """
        if self.size == 1:
            return make()
        mine = _attempt(make) if self.is_main else _Outcome(None, (None, None), None)
        box = [mine.message]
        dist.broadcast_object_list(box, group=self.group, group_src=0)
        value, error = box[0]
        _raise_first([mine.error, error])
        if self.is_main:
            return mine.value
        assert value is not None, "an error was raised"
        return pickle.loads(value)

    def all_gather_list(self, items: list[T]) -> list[T]:
        """Collective, all ranks must call it. The items of all ranks as one list, in rank order."""
        return list(chain.from_iterable(self.all_gather_object(lambda: items)))

    def all_reduce_sum(self, tensor: Tensor) -> Tensor:
        """Collective, all ranks must call it. Sums over ranks, in place, and returns the tensor."""
        if self.size > 1:
            dist.all_reduce(tensor, group=self.group)
        return tensor

    def all_reduce_any(self, flag: bool) -> bool:
        """Collective, all ranks must call it. True on all ranks where `flag` is true on any."""
        if self.size == 1:
            return flag
        votes = torch.tensor(int(flag))
        dist.all_reduce(votes, dist.ReduceOp.MAX, self.group)
        return bool(votes)

    def barrier(self) -> None:
        """Collective, all ranks must call it. Returns once all ranks have come here."""
        self.all_reduce_any(False)

    def close(self) -> None:
        """Collective, all ranks must call it. Ends the process group; after an error the process just ends."""
        self.barrier()
        _leave()


SINGLE = Ranks()
"""A process without peers, on the CPU."""


def init_distributed(reserved: Sequence[str] = ()) -> Ranks:
    """Find out which rank this process is and join the others; harmless to call twice.

    reserved: the judge's GPUs, as CUDA_VISIBLE_DEVICES names them; ranks take the others in order.
    """
    if launcher := os.environ.pop(LAUNCHER, None):
        _die_with(int(launcher))
    info = rank_info(os.environ)
    if info is None:
        return Ranks(device=_device(0, 1, reserved))
    device = _device(info.local_rank, info.local_size, reserved)
    os.environ.update(info.environment())  # vLLM's external launcher reads them, too
    if not dist.is_initialized():
        store, *_ = next(rendezvous("env://", info.rank, info.size, timeout=START_TIMEOUT))
        store.set_timeout(TIMEOUT)
        init_process_group(device, dist.PrefixStore("drkernel", store), info.rank, info.size)
    return Ranks(info.rank, info.size, info.local_rank, info.local_size, device)


def init_process_group(device: torch.device, store: dist.Store, rank: int, size: int) -> None:
    """Start the process group: gloo for what is on the CPU, NCCL for what is on GPUs."""
    backend = "cpu:gloo,cuda:nccl" if device.type == "cuda" else "gloo"
    dist.init_process_group(backend, store=store, rank=rank, world_size=size, timeout=TIMEOUT)
    # Python must not end before gloo's threads are idle. NCCL would wait for peers that have failed.
    if device.type != "cuda" or size == 1:
        atexit.register(_leave)


def _leave() -> None:
    if dist.is_initialized():
        dist.destroy_process_group()
        time.sleep(_GLOO_IDLE_S)


def launch(gpus: int, reserved: Sequence[str] = ()) -> int | None:
    """Start this very command as `gpus` ranks on this machine, wait, and return the exit code for this process.

    None where there is nothing to start: for one rank, and where this process already is a rank. Without GPUs the ranks
    are CPU processes. Signals are forwarded. When a rank fails the others are ended, and its exit code is the result
    (128 + number for a signal). Raises DrKernelError where there are fewer GPUs than asked for.
    """
    if gpus <= 1 or rank_info(os.environ) is not None:
        return None
    if "SUBMITIT_EXECUTOR" in os.environ:
        # A copy of the command would be a second submitit task with the same number and result file.
        raise DrKernelError(
            f"trainer.gpus is {gpus}, but submitit started 1 task; expected hydra.launcher.tasks_per_node={gpus}"
        )
    free = free_gpus(reserved)
    if free and len(free) < gpus:
        raise DrKernelError(f"trainer.gpus is {gpus}, expected at most {len(free)}: {_described(reserved)}")
    signals: list[int] = []
    port = _free_port()
    with _recorded(signals):
        return _wait([_start(rank, gpus, port) for rank in range(gpus)], signals)


def free_gpus(reserved: Sequence[str] = ()) -> list[int]:
    """Indices of the visible GPUs that are not reserved; all of them where all are (the judge shares them)."""
    if not torch.cuda.is_available():
        return []
    names = visible_gpus()
    return [index for index, name in enumerate(names) if name not in set(reserved)] or list(range(len(names)))


class RankInfo(NamedTuple):
    """Which rank this process is, according to whoever started it."""

    rank: int
    size: int
    local_rank: int
    local_size: int
    address: str
    port: int

    def environment(self) -> dict[str, str]:
        """The variables that torchrun would set."""
        names = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")
        return {name: str(value) for name, value in zip(names, self, strict=True)}


def rank_info(env: Mapping[str, str]) -> RankInfo | None:
    """Which rank the environment says this process is; None for a single process, which nobody has launched: pods often
    have RANK=0 and WORLD_SIZE=1."""
    if "RANK" in env and int(env.get("WORLD_SIZE", 1)) > 1:
        rank, size = int(env["RANK"]), int(env["WORLD_SIZE"])
        local = int(env.get("LOCAL_RANK", rank)), int(env.get("LOCAL_WORLD_SIZE", size))
        return RankInfo(rank, size, *local, env.get("MASTER_ADDR", "127.0.0.1"), int(env.get("MASTER_PORT", 29500)))
    # Only srun sets SLURM_STEP_NUM_TASKS: a plain `python train.py` in a batch script of 8 tasks is one process.
    size = int(env.get("SLURM_STEP_NUM_TASKS", 1))
    if size <= 1:
        return None
    nodes = _expanded(env.get("SLURM_STEP_TASKS_PER_NODE") or env.get("SLURM_NTASKS_PER_NODE") or str(size))
    node = min(int(env.get("SLURM_NODEID", 0)), len(nodes) - 1)
    job = int(env.get("SLURM_JOB_ID", 0)) + int(env.get("SLURM_STEP_ID", 0))
    hosts = env.get("SLURM_STEP_NODELIST") or env.get("SLURM_NODELIST", "127.0.0.1")
    address, port = env.get("MASTER_ADDR", _first_host(hosts)), int(env.get("MASTER_PORT", 15000 + job % 15000))
    return RankInfo(int(env["SLURM_PROCID"]), size, int(env["SLURM_LOCALID"]), nodes[node], address, port)


def _expanded(tasks_per_node: str) -> list[int]:
    """
    >>> _expanded("8(x2),4")
    [8, 8, 4]
    """
    parts = re.findall(r"(\d+)(?:\(x(\d+)\))?", tasks_per_node)
    return [int(tasks) for tasks, times in parts for _ in range(int(times or 1))]


def _first_host(nodes: str) -> str:
    """
    >>> _first_host("gpu[07-09,12],login1"), _first_host("a1,b[2-3]"), _first_host("rack[1-2]n[03,05]")
    ('gpu07', 'a1', 'rack1n03')
    """
    return re.sub(r"\[([^],-]+)[^]]*\]", r"\1", nodes).split(",")[0]


def _device(local_rank: int, local_size: int, reserved: Sequence[str]) -> torch.device:
    gpus = free_gpus(reserved)
    if not gpus:
        return torch.device("cpu")
    if len(gpus) == 1 and len(visible_gpus()) == 1:
        local_rank = 0  # the scheduler shows each task its own GPU only
    if local_rank >= len(gpus):
        raise DrKernelError(f"{local_size} ranks on this node, expected at most {len(gpus)}: {_described(reserved)}")
    device = torch.device("cuda", gpus[local_rank])
    torch.cuda.set_device(device)
    return device


def _described(reserved: Sequence[str]) -> str:
    kept = f", of which the judge keeps {', '.join(reserved)}" if reserved else ""
    return f"{len(visible_gpus())} GPUs are visible{kept}"


class _Outcome(NamedTuple):
    value: Any
    message: tuple[bytes | None, Exception | None]  # what travels: pickled here, so that a failure to is an error, too
    error: Exception | None


def _attempt(make: Callable[[], Any]) -> _Outcome:
    try:
        value = make()
        return _Outcome(value, (pickle.dumps(value), None), None)
    except Exception as error:
        return _Outcome(None, (None, portable(error)), error)


def _raise_first(errors: list[Exception | None]) -> None:
    for error in errors:
        if error is not None:
            if isinstance(error, DrKernelError):
                error.on_every_rank = True
            raise error


def _start(rank: int, size: int, port: int) -> subprocess.Popen:
    info = RankInfo(rank, size, rank, size, "127.0.0.1", port)
    environment = {**os.environ, **info.environment(), LAUNCHER: str(os.getpid())}
    environment.setdefault("OMP_NUM_THREADS", str(max(1, (os.cpu_count() or 1) // size)))
    # A session of its own: Ctrl-C reaches a rank once, through the launcher.
    return subprocess.Popen([sys.executable, *sys.orig_argv[1:]], env=environment, start_new_session=True)


def _wait(ranks: list[subprocess.Popen], signals: list[int]) -> int:
    code, deadline = 0, float("inf")
    while True:
        codes = [rank.poll() for rank in ranks]
        while signals:
            _signal_all(ranks, signals.pop(0))
        if code == 0 and (failed := [c for c in codes if c]):
            code, deadline = failed[0] if failed[0] > 0 else 128 - failed[0], time.monotonic() + GRACE_S
            _signal_all(ranks, signal.SIGTERM)
        if None not in codes:
            return code
        if time.monotonic() > deadline:
            _signal_all(ranks, signal.SIGKILL)
        time.sleep(0.05)


def _signal_all(ranks: list[subprocess.Popen], number: int) -> None:
    for rank in ranks:
        rank.send_signal(number)  # does nothing where it has ended


@contextlib.contextmanager
def _recorded(signals: list[int]) -> Iterator[None]:
    """Signals are appended to `signals` and do nothing else."""
    before = {number: signal.signal(number, lambda number, _: signals.append(number)) for number in FORWARDED_SIGNALS}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _die_with(parent: int) -> None:
    """End this process when the launcher is killed: otherwise it waits in a collective for TIMEOUT, holding its GPU."""
    PR_SET_PDEATHSIG = 1
    ctypes.CDLL(None, use_errno=True).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        os._exit(1)


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]
