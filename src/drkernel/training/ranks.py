"""Ranks: one process per GPU, how they are started, and what they tell each other.

    python train.py trainer.gpus=8        starts its own ranks (`launch`)
    torchrun ... train.py                 RANK, WORLD_SIZE, ... are recognised
    srun, submitit                        one task per GPU; SLURM_PROCID, SLURM_STEP_NUM_TASKS, ... are recognised

Without any of these there is one rank and no process group; everything here works without one. Messages are Python
objects over gloo and need no GPU; gradients and weights go through NCCL where there are GPUs.
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

from drkernel.judge.trusted.worker_process import visible_gpus
from drkernel.types import DrKernelError

T = TypeVar("T")
CPU = torch.device("cpu")

START_TIMEOUT = timedelta(minutes=10)
"""How long ranks wait for each other to start."""
TIMEOUT = timedelta(hours=2)
"""How long a rank waits within one collective: longer than the slowest rank's share of a rollout."""
GRACE_S = 20.0
"""After one rank failed, the launcher gives the others this long between SIGTERM and SIGKILL."""
_LAST_S = 0.5
"""gloo's threads outlive the group, which a mesh keeps, and need Python to let go of the last message's tensors: if it
ends first, the process aborts."""
LAUNCHER = "DRKERNEL_LAUNCHER"  # process id of the launcher, for its ranks
PASSED_ON = (signal.SIGTERM, signal.SIGINT, signal.SIGUSR1, signal.SIGUSR2)


@dataclass(frozen=True)
class Ranks:
    """This process among its peers. Every method but `first` must be called by all ranks in the same order."""

    rank: int = 0
    size: int = 1
    local_rank: int = 0
    local_size: int = 1
    """Ranks on this node."""
    device: torch.device = CPU

    @property
    def first(self) -> bool:
        return self.rank == 0

    def each(self, make: Callable[[], T]) -> list[T]:
        """Every rank makes its own and gets all of them, in rank order. An error of any rank is raised on all."""
        if self.size == 1:
            return [make()]
        mine = _attempt(make)
        outcomes: list[Any] = [None] * self.size
        dist.all_gather_object(outcomes, mine.message)
        _raise_first([mine.error, *(error for value, error in outcomes if error)])
        return [pickle.loads(value) for value, _ in outcomes]

    def share(self, make: Callable[[], T]) -> T:
        """Rank 0 makes it and all get it. An error of rank 0 is raised on all."""
        if self.size == 1:
            return make()
        mine = _attempt(make) if self.first else _Outcome(None, (None, None), None)
        box = [mine.message]
        dist.broadcast_object_list(box, src=0)
        value, error = box[0]
        _raise_first([mine.error, error])
        return mine.value if self.first else pickle.loads(value)

    def gather(self, items: list[T]) -> list[T]:
        """The items of all ranks as one list, in rank order."""
        return list(chain.from_iterable(self.each(lambda: items)))

    def sum(self, tensor: Tensor) -> Tensor:
        """Sums over ranks, in place, and returns the tensor."""
        if self.size > 1:
            dist.all_reduce(tensor)
        return tensor

    def any(self, flag: bool) -> bool:
        """True where any rank says so. Also a barrier."""
        if self.size == 1:
            return flag
        votes = torch.tensor(int(flag))
        dist.all_reduce(votes, dist.ReduceOp.MAX)
        return bool(votes)

    def close(self) -> None:
        """Ends the process group after a run that went well; after an error the process just ends."""
        self.any(False)
        _leave()


def init_distributed(reserved: Sequence[str] = ()) -> Ranks:
    """Find this process's place among the ranks and join them; harmless to call twice.

    reserved: GPUs that the judge has for itself, as CUDA_VISIBLE_DEVICES names them; ranks take the others in order.
    """
    if launcher := os.environ.pop(LAUNCHER, None):
        _die_with(int(launcher))
    place = _place(os.environ)
    if place is None or place.size == 1:
        return Ranks(device=_device(0, 1, reserved))
    device = _device(place.local_rank, place.local_size, reserved)
    os.environ.update(place.environment())  # vLLM's external launcher reads them, too
    if not dist.is_initialized():
        store, *_ = next(rendezvous("env://", place.rank, place.size, timeout=START_TIMEOUT))
        store.set_timeout(TIMEOUT)
        join(device, dist.PrefixStore("drkernel", store), place.rank, place.size)
    return Ranks(place.rank, place.size, place.local_rank, place.local_size, device)


def join(device: torch.device, store: dist.Store, rank: int, size: int) -> None:
    """Start the process group: gloo for what is on the CPU, NCCL for what is on GPUs."""
    backend = "cpu:gloo,cuda:nccl" if device.type == "cuda" else "gloo"
    dist.init_process_group(backend, store=store, rank=rank, world_size=size, timeout=TIMEOUT)
    # Python must not end before gloo's threads are idle. NCCL would wait for peers that have failed.
    if device.type != "cuda" or size == 1:
        atexit.register(_leave)


def _leave() -> None:
    if dist.is_initialized():
        dist.destroy_process_group()
        time.sleep(_LAST_S)


def launch(gpus: int, reserved: Sequence[str] = ()) -> int | None:
    """Start this very command as `gpus` ranks on this machine, wait, and return the exit code for this process.

    None where there is nothing to start: for one rank, and where this process already is a rank. Without GPUs the ranks
    are CPU processes. Signals are passed on; when a rank fails the others are ended, and its code is the result
    (128 + number for a signal). Raises DrKernelError where there are fewer GPUs than asked for.
    """
    if gpus <= 1 or _place(os.environ) is not None:
        return None
    if "SUBMITIT_EXECUTOR" in os.environ:
        # A copy of the command would be a second submitit task with the same number and result file.
        raise DrKernelError(
            f"trainer.gpus is {gpus}, but submitit started 1 task; expected hydra.launcher.tasks_per_node={gpus}"
        )
    free = free_gpus(reserved)
    if free and len(free) < gpus:
        raise DrKernelError(f"trainer.gpus is {gpus}, expected at most {len(free)}: {_described(reserved)}")
    asked, port = [], _free_port()
    with _noted(asked):
        return _wait([_start(rank, gpus, port) for rank in range(gpus)], asked)


def free_gpus(reserved: Sequence[str] = ()) -> list[int]:
    """Indices of the visible GPUs that the judge has not for itself; all of them where it has them all (shared)."""
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


def _place(env: Mapping[str, str]) -> RankInfo | None:
    if "RANK" in env and "WORLD_SIZE" in env:
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
        return _Outcome(None, (None, _portable(error)), error)


def _portable(error: Exception) -> Exception:
    try:
        return pickle.loads(pickle.dumps(error))
    except Exception:
        return RuntimeError(f"{type(error).__name__}: {error}")


def _raise_first(errors: list[Exception | None]) -> None:
    for error in errors:
        if error is not None:
            raise error


def _start(rank: int, size: int, port: int) -> subprocess.Popen:
    place = RankInfo(rank, size, rank, size, "127.0.0.1", port)
    environment = {**os.environ, **place.environment(), LAUNCHER: str(os.getpid())}
    environment.setdefault("OMP_NUM_THREADS", str(max(1, (os.cpu_count() or 1) // size)))
    # A session of its own: Ctrl-C reaches a rank once, through the launcher.
    return subprocess.Popen([sys.executable, *sys.orig_argv[1:]], env=environment, start_new_session=True)


def _wait(ranks: list[subprocess.Popen], asked: list[int]) -> int:
    code, deadline = 0, float("inf")
    while True:
        codes = [rank.poll() for rank in ranks]
        while asked:
            _signal_all(ranks, asked.pop(0))
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
def _noted(asked: list[int]) -> Iterator[None]:
    """Signals are only noted in `asked`."""
    before = {number: signal.signal(number, lambda number, _: asked.append(number)) for number in PASSED_ON}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _die_with(parent: int) -> None:
    """End when the launcher is killed: a rank alone would wait in a collective, holding its GPU, for two hours."""
    PR_SET_PDEATHSIG = 1
    ctypes.CDLL(None, use_errno=True).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        os._exit(1)


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]
