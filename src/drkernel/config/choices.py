"""Fields that take one of a few words, and those words."""

from __future__ import annotations

from collections.abc import Collection

from drkernel.config.engine import ENGINES
from drkernel.config.policy import PROMPTS, THINKING
from drkernel.config.scaling import KEEP, STRATEGIES, VALUES
from drkernel.config.sft import LOSS_ON, MESSAGES, OPTIMIZERS, TOO_LONG
from drkernel.judge.options import WORDS
from drkernel.objective.advantages import ADVANTAGES
from drkernel.objective.filters import COMPARED_TURNS, PRS_MODES
from drkernel.objective.loss import AGGREGATIONS, RATIO_LEVELS
from drkernel.objective.metrics import THRESHOLDS
from drkernel.objective.mismatch import LEVELS
from drkernel.objective.rewards import REWARDS
from drkernel.types import PRECISIONS

SCHEDULES = ("constant", "linear", "cosine")
"""How the learning rate goes on after its warm-up."""
BEST_BY = ("reward", "correct", *(f"fast@{threshold:g}" for threshold in THRESHOLDS))
"""The measures of a validation, each of the last turn, by which a checkpoint may be the best."""
CHOICES: dict[str, Collection[str]] = {
    "stage": ("rl", "sft", "coldstart"),
    "algo.advantage": tuple(ADVANTAGES),
    "algo.aggregation": tuple(AGGREGATIONS),
    "algo.importance_level": tuple(LEVELS),
    "algo.ratio_level": RATIO_LEVELS,
    "reward.name": tuple(REWARDS),
    "tasks.precision": PRECISIONS,
    "policy.prompts": PROMPTS,
    "policy.thinking": THINKING,
    "engine.name": ENGINES,
    **{f"judge.{key}": words for key, words in WORDS.items()},
    "logger.wandb": ("disabled", "offline", "online"),
    "filters.mrs.level": tuple(LEVELS),
    "filters.prs.mode": PRS_MODES,
    "filters.zero_variance.turns": COMPARED_TURNS,
    "trainer.offload": ("none", "optimizer"),
    "trainer.layout": ("trajectory", "turn"),
    "trainer.lr_schedule": SCHEDULES,
    "trainer.best_by": BEST_BY,
    "sft.messages": MESSAGES,
    "sft.loss_on": LOSS_ON,
    "sft.optimizer": OPTIMIZERS,
    "sft.too_long": TOO_LONG,
}
"""Those of a run."""
OF_STUDIES: dict[str, Collection[str]] = {
    "split": ("train", "validation", "test", "all"),
    "scaling.name": STRATEGIES,
    "scaling.keep": KEEP,
    "scaling.by": VALUES,
}
"""Those that a study has besides."""
