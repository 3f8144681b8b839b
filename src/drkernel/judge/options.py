"""The options of a judge, and where what they may be is checked."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import torch

from drkernel.hardware.visible import visible_gpus
from drkernel.judge.devices.simulated.gpus import GPUS
from drkernel.judge.trusted.criterion import CRITERIA
from drkernel.judge.trusted.prepare import DEGENERATE
from drkernel.judge.trusted.shape_times import ACROSS
from drkernel.judge.trusted.timed_shapes import MOST
from drkernel.types import DrKernelError

SHAPES = ("reject", "penalise", "ignore")
DEVICES = ("auto", "simulated", "cuda")
TIMEOUT_S = {"simulated": 20.0, "cuda": 8.0}
"""Default of `timeout_s` by device. On a GPU it is short, since the GPU waits for a submission that hangs, and kernels
are compiled before. Triton's interpreter is slow."""
WORDS = {
    "device": DEVICES,
    "gpu": tuple(GPUS),
    "shapes": SHAPES,
    "across_shapes": tuple(ACROSS),
    "criterion": CRITERIA,
    "degenerate": DEGENERATE,
}
"""The options that take one of a few words."""
_OF_CUDA = ("gpus", "share", "memory_gib", "screen", "baselines")
"""Those that only real GPUs have."""


@dataclass(frozen=True)
class JudgeOptions:
    """What a Judge is made with.

    Raises DrKernelError for a value that an option cannot have, and for options that exclude each other, in one line
    with the option, what was found and what was expected.
    """

    device: str = "auto"
    """`simulated`, where times are modelled for `gpu`, or `cuda`, where they are measured; `auto`: `choose_device`."""
    gpu: str = "H200"
    """The GPU that the simulated device models."""
    gpus: Sequence[str | int] | None = None
    """The GPUs to measure on, as CUDA_VISIBLE_DEVICES names them; None: all that are visible. Nothing else may use them
    meanwhile, except for what `share` allows."""
    share: bool = False
    """The GPUs also serve processes that compute only while they hold `devices.cuda.gpu_lock.gpu_lock`, as the engine
    of a training run does. Verdicts say so in `evidence["shared_gpu"]`."""
    workers: int | None = None
    """Processes that judge at the same time; on `cuda`, that compile for the GPUs; None: `choose_workers`."""
    secret: bytes | None = None
    """Seeds derive from it; on the simulated device the same secret gives the same submission the same verdict, bit for
    bit (except for `seconds`). None draws a new one."""
    timeout_s: float | None = None
    """Longest wall time of one reply of a submission, and half of its CPU time in all; None: TIMEOUT_S."""
    host_memory_mib: int = 4096
    """MiB of host memory that a submission may allocate."""
    memory_gib: float | None = None
    """With `cuda`, GiB of each GPU's memory that examiners and submissions may take together; None: nearly all, half
    with `share`. Examinations that do not fit beside each other take turns. A task that does not fit alone is
    unusable."""
    cache: bool = True
    """Keep verdicts by source (without trailing white space) and task."""
    lazy_below: float = 1.05
    """Speed-ups under this count as no real gain."""
    shapes: str = "reject"
    """What a submission gets that fails on another legal shape: `reject` (wrong outputs refuse it, a clear error does
    not), `penalise` (either is ok, but not `general`, and its speed-up counts as at most 1, see `service.penalised`),
    or `ignore` (not tried)."""
    timed_shapes: int = 1
    """At how many shapes of its task a submission is timed, 1 to 4: the published one and others. More than one needs
    `shapes` `reject` or `penalise`."""
    across_shapes: str = "geometric"
    """How the speed-ups at several shapes become one: `geometric`, their mean, or `worst`."""
    gate: bool = True
    """False skips the static checks, for tests: nothing may depend on them."""
    criterion: str = "drkernel"
    """What decides: `drkernel`; `both`, where verdicts also have what KernelBench's criterion says in
    `evidence["kernelbench"]`; `kernelbench`, where that decides and `evidence["drkernel"]` has this judge's own
    verdict. See trusted/criterion.py."""
    degenerate: str = "refuse"
    """What becomes of a task that trivial outputs would pass: `refuse`, an error, or `mark`, where its verdicts say so
    in `evidence["degenerate"]`."""
    price_hacks: bool = False
    """Continue with a hack whose outputs are right, and time it, too. Its status stays `hack`, but it has a speed-up.
    For studies of what a trusting judge would reward."""
    screen: bool | None = None
    """With `cuda`, submissions whose outputs Triton's interpreter finds wrong on a CPU, or independent of their
    kernels, are refused without a GPU (`evidence["screened"]`). Everything else is decided on the GPU. It examines
    small shapes by this judge's rules, so it needs `shapes` `reject` and `criterion` `drkernel`. None: True where that
    holds."""
    baselines: str | Path | None = None
    """With `cuda`, a file of drkernel.judge.devices.cuda.baselines; verdicts on tasks in it then have the speed-up over
    eager with TF32 and over torch.compile in `evidence["speedup_over"]`."""

    def __post_init__(self) -> None:
        for key, words in WORDS.items():
            if (found := getattr(self, key)) not in words:
                raise DrKernelError(f"judge: {key} is {found!r}, expected one of {', '.join(words)}")
        for key in ("workers", "timeout_s", "host_memory_mib", "memory_gib"):
            if (number := getattr(self, key)) is not None and not number > 0:
                raise DrKernelError(f"judge: {key} is {number}, expected more than 0")
        if not 1 <= self.timed_shapes <= MOST:
            raise DrKernelError(f"judge: timed_shapes is {self.timed_shapes}, expected 1 to {MOST}")
        if self.timed_shapes > 1 and self.shapes == "ignore":
            found = f"timed_shapes ({self.timed_shapes}) needs shapes 'reject' or 'penalise', found 'ignore'"
            raise DrKernelError(f"judge: {found}")
        for key in _OF_CUDA:
            value = getattr(self, key)
            if self.device == "simulated" and value is not None and value is not False:
                raise DrKernelError(f"judge: {key} ({value}) needs device 'cuda', found 'simulated'")
        if self.screen and self.shapes != "reject":
            found = f"screen examines other shapes, so it needs shapes 'reject', found {self.shapes!r}"
            raise DrKernelError(f"judge: {found}")
        if self.screen and self.criterion != "drkernel":
            raise DrKernelError(f"judge: screen needs criterion 'drkernel', found {self.criterion!r}")

    @property
    def screens(self) -> bool:
        """Whether a judge on GPUs screens."""
        return (self.shapes, self.criterion) == ("reject", "drkernel") if self.screen is None else self.screen

    def placed(self, beside: bool = False) -> JudgeOptions:
        """The options with everything decided that depends on the machine: device, GPUs, workers, timeout.

        beside: see `choose_device`.
        """
        device, gpus = choose_device(self.device, self.gpus, self.share, beside)
        workers = choose_workers(self.workers, device, gpus, beside)
        timeout_s = TIMEOUT_S[device] if self.timeout_s is None else self.timeout_s
        return dataclasses.replace(self, device=device, gpus=gpus, workers=workers, timeout_s=timeout_s)


def choose_device(
    device: str, gpus: Sequence[str | int] | None, share: bool, beside: bool = False
) -> tuple[str, Sequence[str | int] | None]:
    """The device and the GPUs that a judge measures on.

    `auto` measures on every visible GPU that nothing else computes on, and simulates where there is none.

    beside: whether a policy trains or generates in this process or beside it. It takes the first GPUs and leaves the
    last of several; with `share` it leaves all.
    """
    visible = visible_gpus()
    if device == "auto":
        free = visible if share or not beside else visible[1:][-1:]
        return ("cuda", gpus or free) if visible and (gpus or free) else ("simulated", gpus)
    return device, visible if device == "cuda" and gpus is None else gpus


def device_name(device: str, gpu: str, gpus: Sequence[str | int] | None) -> str:
    """What a judge measures on, as its verdicts name it: `simulated:H200`, `cuda:NVIDIA H200`.

    gpu, gpus: as those of JudgeOptions; device: what `choose_device` chose.

    Raises DrKernelError where that is a GPU and none is visible.
    """
    if device != "cuda":
        return f"{device}:{gpu}"
    visible = visible_gpus()
    if not gpus or not visible or not torch.cuda.is_available():
        raise DrKernelError("judge.device: found cuda, but no GPU is visible; expected one, or judge.device=simulated")
    name = lambda gpu: torch.cuda.get_device_name(visible.index(gpu)) if gpu in visible else f"GPU {gpu}"
    return "cuda:" + ", ".join(sorted({name(str(gpu)) for gpu in gpus}))


def choose_workers(workers: int | None, device: str, gpus: Sequence[str | int] | None, beside: bool = False) -> int:
    """How many processes judge, or compile for `gpus`: what is given, else on `cuda` ten for each GPU, which keep it
    busy, but at most three quarters of the cores; on the simulated device one for each core, `beside` a policy two."""
    if workers is not None:
        return workers
    cores = len(os.sched_getaffinity(0))
    if device == "cuda":
        return max(2, min(10 * len(gpus or (0,)), 3 * cores // 4))
    return 2 if beside else cores


def longest_s(timeout_s: float | None) -> float:
    """Seconds that a worker may take for one submission, of which one reply may take `timeout_s`. It is tried twice.

    All answers of a large task may take 9 times that, as long again waiting for a processor, and as long again what
    the examiner computes in between; with criterion=both that comes twice. The rest is for the preparation of the task.
    """
    return 60 + 65 * (max(TIMEOUT_S.values()) if timeout_s is None else timeout_s)
