"""The config group `logger`: where metrics go."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass
class LoggerConfig:
    """Where metrics go besides metrics.jsonl (conf/logger/)."""

    wandb: str = "offline"
    """disabled | offline | online."""
    project: str = "drkernel"
    """wandb project."""
    plots: bool = True
    """Write PNG plots at the end of the run."""
    completions: bool = True
    """Keep every completion with its verdict, reward and advantage: completions/ of the run folder, a file per step."""
    samples: int = 0
    """wandb: trajectories in a table of each validation, with their texts, verdicts and rewards; 0: no table."""
    page: bool = False
    """Write the page of the run (view.html, training/view.py) at its end; with wandb also as an artifact."""
