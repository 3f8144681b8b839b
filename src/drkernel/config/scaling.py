"""The config group `scaling`: how a study spends a budget of judge calls on a task."""

from __future__ import annotations

from dataclasses import dataclass

STRATEGIES = ("single", "parallel", "sequential", "mixture", "managed")
"""What `scaling.name` may be: the functions are in scaling/strategies.py."""
KEEP = ("top", "window", "last")
"""What `scaling.keep` may be."""
VALUES = ("reward", "speedup", "coverage")
"""What `scaling.by` may be."""


@dataclass
class ScalingConfig:
    """How a budget is spent on a task (conf/scaling/)."""

    name: str = "managed"
    """single | parallel | sequential | managed | mixture."""
    label: str | None = None
    """What reports call it; None: the name, with what differs from its defaults."""
    budget: int = 8
    """Judge calls per (task, trial)."""
    trials: int = 1
    """Independent repetitions on each task. More may be asked for later: those that were played stay."""
    chains: int = 4
    """mixture: parallel chains; each gets its part of the budget."""
    window: int = 4
    """managed: most turns in a prompt (the paper's w)."""
    keep: str = "top"
    """managed: which turns the prompt holds. top: the best; window: the best consecutive ones; last: the last."""
    by: str = "reward"
    """managed: what `best` means. reward | speedup | coverage (then reward)."""
    tokens: int | None = None
    """No further call once a trial has sampled so many tokens."""
    seconds: float | None = None
    """No further call once a trial has cost the engine and the judge so many seconds."""
    stop_at: float | None = None
    """No further call once a correct completion has this speed-up: 1.5 is 1.5 times as fast as the reference."""
    patience: int | None = None
    """No further call after so many without a better reward."""
