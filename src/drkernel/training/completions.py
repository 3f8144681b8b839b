"""Every completion of a run, to be read later: one compressed parquet file per step, and one per validation.

    completions/step_000001.parquet          the rollouts of a step, those of dropped groups included
    completions/validation_000010.parquet    the trajectories of a validation

One row per turn. Steps that a resumed run repeats are written anew (`Run.rewind` removes their files).
"""

from __future__ import annotations

import json
import os
from dataclasses import dataclass, field
from typing import Any

import pyarrow
import torch
from pyarrow import parquet
from torch import Tensor

from drkernel.objective.filters import TOKEN_FILTERS
from drkernel.objective.metric_sums import MetricSums
from drkernel.objective.rollouts import Rollouts, without_judge_failures
from drkernel.policy.prompts import Prompts
from drkernel.training.page import plain
from drkernel.training.rollout_metrics import tabulate_rollouts
from drkernel.training.run import Run
from drkernel.training.sharded_rollout import StepRollouts
from drkernel.training.trainer import Trainer
from drkernel.types import Batch, Trajectory, Turn

JUDGE_FAILURE = "judge_failure"
SCHEMA = pyarrow.schema(
    {
        "task": pyarrow.string(),
        "group": pyarrow.int64(),
        "sample": pyarrow.int32(),
        "turn": pyarrow.int32(),
        "prompt": pyarrow.string(),  # what this turn adds before the completion: the task, or feedback
        "completion": pyarrow.string(),
        "source": pyarrow.string(),  # the submission in it, or null
        "finished": pyarrow.bool_(),  # false where it was cut at its token limit
        "prompt_tokens": pyarrow.int32(),
        "tokens": pyarrow.int32(),
        "status": pyarrow.string(),
        "reason": pyarrow.string(),
        "detail": pyarrow.string(),
        "speedup": pyarrow.float64(),
        "coverage": pyarrow.float64(),
        "verdict": pyarrow.string(),  # the whole verdict as JSON
        "reward": pyarrow.float64(),  # null where the judge failed
        "advantage": pyarrow.float64(),  # null where none was computed
        "trained": pyarrow.float64(),  # the share of the completion's tokens that train
        "why_not": pyarrow.string(),  # the filter that rejected it, `judge_failure`, or nothing
    }
)


@dataclass(frozen=True)
class Prepared:
    """What a step made of the trajectories that it kept: B of at most T turns."""

    rollouts: Rollouts
    batch: Batch
    sums: MetricSums
    advantages: Tensor  # float32 [B, T]
    rejected: dict[str, Tensor] = field(default_factory=dict)  # bool [B, T] by filter
    trainer_logprobs: Tensor | None = None
    """float32 [tokens of the batch], of all that was sampled; None where nothing asked for them (MRS, TIS)."""

    def trained_shares(self) -> Tensor:
        """The share of the tokens of each turn that train, float64 [B, T]."""
        ids, size = self.batch.turn_ids, self.rollouts.turn_mask.numel()
        count = lambda mask: torch.bincount(ids[mask & (ids >= 0)], minlength=size)
        shares = count(self.batch.loss_mask) / count(ids >= 0).clamp(min=1)
        return shares.double().view_as(self.rollouts.turn_mask)


def write_step(trainer: Trainer, played: StepRollouts, prepared: Prepared) -> None:
    """The rollouts of the step that is being taken; ranks without a run folder write nothing."""
    config = trainer.config
    if not trainer.run or not config.logger.completions:
        return
    places = {id(trajectory): b for b, trajectory in enumerate(played.trajectories)}
    others = [trajectory for trajectory in played.every if id(trajectory) not in places]
    rewards = _rewards(tabulate_rollouts(config.reward, judged := without_judge_failures(others)), judged)
    shares, by_token = prepared.trained_shares(), "+".join(config.filters.chosen(TOKEN_FILTERS))
    rows = []
    for trajectory in played.every:
        b = places.get(id(trajectory), -1)
        dropped = [name for name, groups in played.with_signal.items() if trajectory.group not in groups]
        dropped += ["surplus"] if trajectory.group in played.surplus else []
        for t, turn in enumerate(trajectory.turns):
            found: dict[str, Any] = {"trained": 0.0}
            if b >= 0:
                share, why = float(shares[b, t]), [name for name, mask in prepared.rejected.items() if mask[b, t]]
                found = {"trained": share, "advantage": float(prepared.advantages[b, t])}
                found["reward"] = float(prepared.rollouts.rewards[b, t])
                found["why_not"] = "+".join(why) or (by_token if share == 0 else "")
            elif id(trajectory) in rewards:
                found |= {"reward": rewards[id(trajectory)][t], "why_not": "+".join(dropped)}
            else:
                found["why_not"] = JUDGE_FAILURE
            rows.append(_row(trainer.prompts, trajectory, t, turn) | found)
    _write(trainer.run, f"step_{trainer.state.step + 1:06d}", rows)


def write_validation(trainer: Trainer, table: Rollouts, judged: list[Trajectory], every: list[Trajectory]) -> None:
    """The trajectories of a validation; `judged` are the rows of `table`. Some of them also as a table of wandb."""
    logger = trainer.config.logger
    if not trainer.run or not (logger.completions or logger.samples):
        return
    rewards, rows = _rewards(table, judged), []
    for trajectory in every:
        known = rewards.get(id(trajectory))
        for t, turn in enumerate(trajectory.turns):
            found = {"trained": 0.0, "reward": known and known[t], "why_not": "" if known else JUDGE_FAILURE}
            rows.append(_row(trainer.prompts, trajectory, t, turn) | found)
    if logger.completions:
        _write(trainer.run, f"validation_{trainer.state.step:06d}", rows)
    trainer.run.log_table(trainer.state.step, "validation/samples", samples(rows, logger.samples))


def samples(rows: list[dict[str, Any]], number: int) -> list[dict[str, Any]]:
    """The turns of `number` trajectories at equal distances, with what a reader asks of them first."""
    places = sorted({(row["group"], row["sample"]) for row in rows})
    chosen = {places[k * len(places) // number] for k in range(number)} if places else set()
    return [
        {
            **{name: row[name] for name in ("task", "sample", "turn")},
            "text": row["completion"],
            "verdict": ": ".join(filter(None, (row["status"], row["reason"], row["detail"]))),
            **{name: row[name] for name in ("speedup", "coverage", "reward")},
        }
        for row in rows
        if (row["group"], row["sample"]) in chosen
    ]


def _rewards(table: Rollouts, rows: list[Trajectory]) -> dict[int, list[float]]:
    return {id(trajectory): rewards for trajectory, rewards in zip(rows, table.rewards.tolist(), strict=True)}


def _row(prompts: Prompts, trajectory: Trajectory, t: int, turn: Turn) -> dict[str, Any]:
    verdict = turn.verdict
    said = ("status", "reason", "detail", "speedup", "coverage")
    return {
        **dict.fromkeys(SCHEMA.names),
        "task": trajectory.task_id,
        "group": trajectory.group,
        "sample": trajectory.sample,
        "turn": t,
        "prompt": prompts.tokenizer.decode(turn.prompt_ids),
        "completion": prompts.tokenizer.decode(turn.response_ids),
        "source": turn.source,
        "finished": turn.finished,
        "prompt_tokens": len(turn.prompt_ids),
        "tokens": len(turn.response_ids),
        **({name: getattr(verdict, name) for name in said} if verdict else {}),
        "verdict": json.dumps(plain(verdict.to_dict())) if verdict else None,
    }


def _write(run: Run, name: str, rows: list[dict[str, Any]]) -> None:
    path = run.completions_path(name)
    temporary = path.with_name(path.name + ".tmp")
    parquet.write_table(pyarrow.Table.from_pylist(rows, SCHEMA), temporary, compression="zstd")
    os.replace(temporary, path)
