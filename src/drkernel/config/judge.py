"""The config group `judge`: what tests, times and profiles submissions. judge/options.py checks what they may be."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import Any, Protocol

from drkernel.config.engine import EngineConfig
from drkernel.config.policy import PolicyConfig
from drkernel.config.reward import RewardConfig
from drkernel.judge.network.connection import Connection
from drkernel.judge.options import JudgeOptions, choose_device, choose_workers
from drkernel.types import DrKernelError

OF_SERVERS = ("device", "gpu", "gpus", "share", "screen", "workers", "timeout_s", "memory_gib", "baselines", "secret")
"""Keys that the servers decide where there are `servers`."""
_OF_RUN = ("feedback_tokens", "servers", "token_file")
"""Keys that a Judge has not."""


@dataclass
class JudgeConfig:
    """What tests, times and profiles submissions (conf/judge/)."""

    device: str = "auto"
    """`cuda` measures on real GPUs, `simulated` runs Triton's interpreter and models time; `auto`: `cuda` on every
    visible GPU that nothing else computes on, else `simulated`. A policy takes the first GPUs and leaves the last of
    several."""
    gpu: str = "H200"
    """The GPU that the simulated device models."""
    gpus: list[str] | None = None
    """With `cuda`: the GPUs to measure on, as CUDA_VISIBLE_DEVICES names them; None: all. Training takes the others."""
    share: bool = False
    """Measure on the GPUs that train, too: alone, between two steps of the engine. Verdicts say so."""
    screen: bool | None = None
    """With `cuda`: run submissions in Triton's interpreter on a CPU first. Screening can reject but never accept. It
    uses small shapes, so it needs `shapes=reject` and `criterion=drkernel`. None: screen wherever that holds."""
    workers: int | None = None
    """Processes that judge; with `cuda`, that compile for the GPUs. None: 2 beside a policy, else one per core; with
    `cuda` ten per GPU if there are cores."""
    timeout_s: float | None = None
    """Wall time for one call of a submission. All its calls together may take as long on a GPU, else three times that.
    A last resort: work is bounded deterministically. None: 20 on the simulated device, 8 on a GPU."""
    memory_gib: float | None = None
    """With `cuda`: GiB that judges take of each GPU; larger tasks are refused. None: nearly all, with `share` half."""
    lazy_below: float = 1.05
    """A correct submission with a smaller speed-up than this is called lazy."""
    shapes: str = "reject"
    """A submission that fails on another legal shape: `reject` (status not_general where outputs are wrong, an error is
    allowed), `penalise` (ok, but its speed-up counts as at most 1) or `ignore` (not tried)."""
    timed_shapes: int = 1
    """At how many shapes of its task a submission is timed, 1 to 4: the published one and others of about as much work,
    which nobody knows. Needs `shapes=reject` or `penalise`."""
    across_shapes: str = "geometric"
    """The speed-up over several shapes: their `geometric` mean, or the `worst`."""
    servers: list[str] | None = None
    """Addresses of `drkernel-judge --serve`, which judge on other machines; None: a judge of its own on each node. They
    must have this run's `lazy_below`, `shapes`, `timed_shapes`, `across_shapes`, `criterion`, `degenerate`, and time
    hacks (`--price-hacks`) where `reward.hack_check=false`. The device and all else are theirs to decide."""
    token_file: str | None = None
    """With `servers`: a file with the token that they ask for."""
    criterion: str = "drkernel"
    """What decides: `drkernel` or `kernelbench` (judge/README.md); `both`: the first, and verdicts state the second."""
    degenerate: str = "refuse"
    """A task that trivial outputs would pass: `refuse`, or `mark` (studies: played and reported apart)."""
    feedback_tokens: int = 96
    """Longest feedback after a turn, in tokens of the policy; from 200 on with the share of the GPU's limit."""
    baselines: str | None = None
    """With `cuda`: a file of judge/devices/cuda/baselines.py; verdicts then state speed-ups over these, too."""
    secret: str | None = None
    """Key of the hidden inputs and shapes. None derives it from `seed`, so that a run can be repeated bit for bit: this
    key is public, and hidden shapes are the same in all runs with that seed. A long random text hides them from whoever
    knows this repository: `judge.secret='${oc.env:NAME}'` takes it from the environment. Only its digest is kept."""


class Judged(Protocol):
    """What a training's config and a study's both say about the judge and the engine."""

    seed: int
    policy: PolicyConfig
    engine: EngineConfig
    judge: JudgeConfig
    reward: RewardConfig

    @property
    def generates(self) -> bool: ...

    @property
    def occupies_gpus(self) -> bool: ...


def judge_options(config: Judged) -> dict[str, Any]:
    """The arguments of `drkernel.judge.Judge` on this machine; without a secret of its own its key is the seed, so that
    runs repeat."""
    judge, beside = config.judge, config.occupies_gpus
    device, gpus = choose_device(judge.device, judge.gpus, judge.share, beside)
    placed = {"device": device, "gpus": gpus, "workers": choose_workers(judge.workers, device, gpus, beside)}
    return _judge_options(config) | placed


def _judge_options(config: Judged) -> dict[str, Any]:
    """`judge_options` as they are given, for any machine."""
    options = {name: value for name, value in dataclasses.asdict(config.judge).items() if name not in _OF_RUN}
    options["price_hacks"] = not config.reward.hack_check
    return options | {"secret": (options["secret"] or f"drkernel run {config.seed}").encode()}


def expected_options(config: Judged) -> dict[str, Any]:
    """Those options that servers must have for a run or a study."""
    return {name: value for name, value in _judge_options(config).items() if name not in OF_SERVERS}


def expect_judge(config: Judged) -> None:
    """Raises DrKernelError where no judge can have the options that a config gives it, or servers no such address."""
    JudgeOptions(**_judge_options(config))
    servers = config.judge.servers
    if servers is None:
        return
    if not servers:
        raise DrKernelError("config: judge.servers=[]; expected addresses: judge.servers=[http://HOST:PORT]")
    if config.judge.share:
        raise DrKernelError("config: judge.share=true with judge.servers; expected one of them")
    for address in servers:
        Connection(address)
