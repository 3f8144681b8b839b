"""The nouns of drkernel: read this file first.

    Task -> Turn (prompt, completion, Verdict) -> Trajectory -> Batch -> update

A `Task` is what is to be made fast. A completion is what the model wrote; a submission is the source text in it that
defines `ModelNew`. A `Verdict` is what the judge says of a submission. A `Turn` is one prompt, one completion and one
verdict; a `Trajectory` is the turns of one episode; a `Batch` is trajectories laid out as packed rows of tokens.
Nothing here does any work: no I/O, no device, no configuration.
"""

from __future__ import annotations

import dataclasses
import hashlib
from dataclasses import dataclass, field
from typing import Any, Literal, get_args

import torch
from torch import Tensor

Status = Literal["ok", "incorrect", "hack", "invalid", "not_general", "suspicious", "judge_failure"]
Precision = Literal["ieee", "tf32", "low"]
PRECISIONS = ("auto", *get_args(Precision))
"""What may be asked for; see `tasks.precision`."""


class DrKernelError(Exception):
    """Bad input at the border (config, file, task, checkpoint). Entry points print it as one line and exit with 2."""

    on_every_rank = False
    """Whether all ranks raise an error together; then the first one alone prints it."""


class WorkerLost(RuntimeError):
    """A process that others wait for has died or does not reply. No input is wrong: another start may succeed."""


@dataclass(frozen=True)
class Task:
    """A reference module in KernelBench's format, and what the judge needs to test submissions against it."""

    id: str
    """Stable across runs and machines, e.g. `generated/row_softmax+scale/3f9c1a2b` or `kernelbench/level1/19`."""
    source: str
    """Python that defines `entry_point` (an nn.Module), `get_inputs()` and `get_init_inputs()`."""
    entry_point: str = "Model"
    split: str = "train"
    """train | validation | test."""
    level: int | None = None
    """KernelBench's level, where there is one."""
    family: str = ""
    """The operator family or composition, e.g. `row_softmax+scale`; metrics are reported by it."""
    small: dict[str, int] | None = None
    """Module constants and their values on the simulated device; None lets the judge shrink them itself."""
    precision: Precision = "ieee"
    """What arithmetic a correct submission may use: `ieee` fp32 throughout, `tf32` products of TF32, `low` products of
    16-bit numbers. See `tasks.precision`."""
    info: dict[str, Any] = field(default_factory=dict)
    """Whatever else the loader knew (problem id, composition, operators); JSON values only."""

    @property
    def submission_name(self) -> str:
        """The class that a submission must define."""
        return f"{self.entry_point}New"

    @property
    def digest(self) -> str:
        """Hash of everything that the judge's verdict depends on."""
        parts = (self.source, self.entry_point, self.precision, sorted((self.small or {}).items()))
        return hashlib.sha256(repr(parts).encode()).hexdigest()[:16]


@dataclass(frozen=True)
class KernelTime:
    """One row of a profile: a device kernel, how often it ran in one call, and its share of time."""

    name: str
    calls: int
    microseconds: float
    """Total over the calls of one forward."""
    triton: bool
    """True for the submission's own Triton kernels."""


@dataclass(frozen=True)
class Verdict:
    """What the judge says of one submission. Only `ok` earns a reward; `judge_failure` is no verdict, and leaves the
    batch."""

    status: Status
    reason: str
    """A short stable word, e.g. `faster`, `lazy`, `wrong_values`, `syntax_error`, `no_triton_launch`, `timeout`."""
    detail: str = ""
    """For people and the policy: the error with its line, or where and how far outputs differ."""
    speedup: float | None = None
    """Reference time / submission time, None unless timed. A noisy device reports the lower bound of its interval. Over
    several shapes (`judge.timed_shapes`) the geometric mean or the worst; times are those of the published shape."""
    coverage: float | None = None
    """Share in [0, 1] of device time in the submission's own Triton kernels, at most the share that they replaced."""
    reference_ms: float | None = None
    submission_ms: float | None = None
    device: str = ""
    """Where the times come from, e.g. `simulated:H200` or `cuda:NVIDIA H200`."""
    seconds: float = 0.0
    """Wall time of judging, without the time in the queue. The only field that differs when a submission is judged
    twice."""
    general: bool = True
    """False where the submission fails on another legal shape: with a clear error, or, where `judge.shapes=penalise`,
    with wrong outputs. Then that setting counts its speed-up as at most 1."""
    lazy: bool = False
    """Correct and honest, but with no real gain."""
    evidence: dict[str, Any] = field(default_factory=dict)
    """What convinced the judge: case, largest error and its index, forbidden line, operators left; JSON values only."""
    profile: tuple[KernelTime, ...] = ()
    """The submission's kernels, most expensive first."""
    reference_profile: tuple[KernelTime, ...] = ()

    @property
    def ok(self) -> bool:
        return self.status == "ok"

    @property
    def is_judge_failure(self) -> bool:
        """Whether the judge itself failed. Then nothing is known of the submission: it must be left out, and is not
        wrong."""
        return self.status == "judge_failure"

    def to_dict(self) -> dict[str, Any]:
        return dataclasses.asdict(self)

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> Verdict:
        rows = {key: tuple(KernelTime(**row) for row in data.get(key, ())) for key in ("profile", "reference_profile")}
        return cls(**{**data, **rows})


@dataclass
class Turn:
    """One prompt, one completion, one verdict."""

    prompt_ids: list[int]
    """What this turn adds before the completion: the task in turn 0, the feedback in later turns."""
    response_ids: list[int]
    """The tokens that the engine sampled, the end mark included; never re-tokenised."""
    logprobs: list[float]
    """log pi(token) of each response token under the engine that sampled it, at the sampling temperature, of what
    top_p, top_k and min_p leave."""
    source: str | None = None
    """The submission found in the completion, or None."""
    verdict: Verdict | None = None
    finished: bool = True
    """False where the completion was cut at its token limit."""
    history: list[int] | None = None
    """What stands before `prompt_ids`, where that is not the turns before, token by token: their thoughts were
    stripped."""


@dataclass
class Trajectory:
    """The turns of one episode on one task. Turn k's full prompt is everything before it, token by token, back to the
    last turn with a `history`, which comes first."""

    task_id: str
    group: int
    """Trajectories with the same group answer the same prompt and share a baseline."""
    sample: int
    """Index within the group."""
    turns: list[Turn] = field(default_factory=list)

    @property
    def ends_in_judge_failure(self) -> bool:
        """Whether the judge failed on its last turn. Then no return of it is known, and it leaves the batch."""
        verdict = self.turns[-1].verdict if self.turns else None
        return verdict is not None and verdict.is_judge_failure


@dataclass
class Batch:
    """Trajectories packed end to end. T tokens, R rows (one per trajectory, or one per turn or `Turn.history`).

    Position t predicts the token at t: `loss_mask[t]` says that token t was sampled by the policy, and its
    log-probability comes from the hidden state at t - 1 of the same row.
    """

    tokens: Tensor  # int64 [T]
    positions: Tensor  # int64 [T], from 0 within each row
    cu_seqlens: Tensor  # int32 [R + 1], row r is tokens[cu_seqlens[r]:cu_seqlens[r + 1]]
    loss_mask: Tensor  # bool [T]
    advantages: Tensor  # float32 [T], the turn's advantage on each of its response tokens, else 0
    rollout_logprobs: Tensor  # float32 [T], 0 outside loss_mask
    turn_ids: Tensor  # int64 [T], trajectory * most turns + turn; -1 outside completions
    trajectory_ids: Tensor  # int64 [T], dense over the batch's trajectories

    def to(self, device: torch.device | str) -> Batch:
        return Batch(**{f.name: getattr(self, f.name).to(device) for f in dataclasses.fields(self)})
