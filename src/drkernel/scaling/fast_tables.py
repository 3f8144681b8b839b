"""Fast@p in the form in which it is published: by level, over each baseline, for single tries, last turns and the best.

KernelBench's fast_p is the share of tasks whose kernel is correct and more than p times as fast; fast_0 is the share of
correct ones.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import torch
from torch import Tensor

from drkernel.objective.intervals import Estimate, bootstrap
from drkernel.objective.metrics import fast_at
from drkernel.scaling.measures import BASELINES, PUBLISHED_THRESHOLDS, fast
from drkernel.scaling.trials import Trials

VIEWS = {"single": "single tries", "last": "last turn", "best": "best of history"}
"""What counts: completions whose prompts held no earlier turn (`Trials.alone`), each for itself; the last turn of each
trial; the fastest correct turn of each trial."""


def figures(run: Trials) -> Iterator[tuple[str, dict[str, Estimate]]]:
    """What each row is of, and its Fast@p: levels, baselines and views in their order.

    Figures over another baseline than eager are over the tasks that were compared with it; see `Trials.comparable`.
    """
    for level, tasks in _levels(run):
        part = run.only(tasks)
        for baseline in ("eager", *part.over):
            if not part.comparable(baseline).tasks:
                continue
            for view, name in VIEWS.items():
                yield f"{level} · {BASELINES.get(baseline, baseline)} · {name}", shares(part, view, baseline)


def shares(
    run: Trials, view: str, baseline: str = "eager", thresholds: Sequence[float] = PUBLISHED_THRESHOLDS
) -> dict[str, Estimate]:
    """Fast@p of one view over one baseline, with 95 % intervals over tasks.

    Args:
        view: a key of VIEWS.
    """
    run = run.comparable(baseline)
    counted, correct, speedup = _single(run, baseline) if view == "single" else _standing(run, view, baseline)
    hits = torch.stack([(fast_at(correct, speedup, p) & counted).sum(1) for p in thresholds], 1)
    numbers = run.per_task(counted.sum(1))[:, None].expand(-1, len(thresholds))
    return dict(zip(map(fast, thresholds), bootstrap(run.per_task(hits), numbers), strict=True))


def _single(run: Trials, baseline: str) -> tuple[Tensor, Tensor, Tensor]:
    """(counted, correct, speed-up) of every call, [B, C]."""
    return run.alone & run.exists, run.correct, run.speedup if baseline == "eager" else run.over[baseline]


def _standing(run: Trials, view: str, baseline: str) -> tuple[Tensor, Tensor, Tensor]:
    """(counted, correct, speed-up) of every trial at its end, [B, 1]."""
    correct, speedup = (values[:, -1:] for values in run.standing(view, baseline))
    return torch.ones_like(correct), correct, speedup


def _levels(run: Trials) -> Iterator[tuple[str, set[str]]]:
    """All tasks, and those of each level where tasks have levels."""
    yield "all levels", set(run.tasks)
    for level in sorted({level for level in run.levels if level is not None}):
        yield f"level {level}", {task for task, own in zip(run.tasks, run.levels, strict=True) if own == level}
