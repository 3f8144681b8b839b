"""What numbers the keys of a configuration may be. Others would run, and train nothing or backwards."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from drkernel.types import DrKernelError


@dataclass(frozen=True)
class Range:
    """The numbers between two bounds, which belong to it or, where they are open, do not. Never nan.

    >>> print(Range(1), "|", Range(0, open_low=True), "|", Range(0, 1), "|", Range(0, 1, open_high=True))
    1 or more | more than 0 | 0 to 1 | 0 or more and below 1
    >>> 0.0 in Range(0), 0.0 in Range(0, open_low=True), math.nan in Range(0), math.inf in Range(0)
    (True, False, False, False)
    """

    low: float
    high: float = math.inf
    open_low: bool = False
    open_high: bool = False
    hint: str = ""
    """What else may be set."""
    infinite: bool = False
    """Whether infinity is a number that somebody may mean."""

    def __contains__(self, value: float) -> bool:
        above = self.low < value if self.open_low else self.low <= value
        below = value < self.high if self.open_high else value <= self.high
        return above and below and (self.infinite or math.isfinite(value))

    def __str__(self) -> str:
        if self.high < math.inf and not (self.open_low or self.open_high):
            return f"{self.low:g} to {self.high:g}{self.hint}"
        lower = f"more than {self.low:g}" if self.open_low else f"{self.low:g} or more"
        upper = f" and {'below' if self.open_high else 'at most'} {self.high:g}" if self.high < math.inf else ""
        return f"{lower}{upper}{self.hint}"


COUNT, AMOUNT, ABOVE_0, SHARE = Range(1), Range(0), Range(0, open_low=True), Range(0, 1)
BELOW_1, SHARE_ABOVE_0 = Range(0, 1, open_high=True), Range(0, 1, open_low=True)
NO_CLIPPING = replace(ABOVE_0, infinite=True, hint="; inf clips nothing")
OR_NULL = replace(ABOVE_0, infinite=True, hint=", or null")
RANGES: dict[str, Range] = {
    "seed": AMOUNT,  # below 0 is training/validation.py's EVALUATION_SEED
    **dict.fromkeys(("tasks.count", "tasks.eval_count"), COUNT),
    "policy.lr": SHARE_ABOVE_0,
    **dict.fromkeys(("engine.slots", "engine.tensor_parallel", "engine.max_answer_tokens", "engine.max_tokens"), COUNT),
    **{"engine.temperature": Range(0, 10), "judge.lazy_below": AMOUNT},
    **{"engine.top_p": SHARE_ABOVE_0, "engine.top_k": AMOUNT, "engine.min_p": BELOW_1},
    **dict.fromkeys(("engine.kv_cache_gib", "judge.timeout_s", "judge.memory_gib"), ABOVE_0),
    "engine.agreement": Range(0, infinite=True),
    **dict.fromkeys(("judge.workers", "judge.timed_shapes", "judge.feedback_tokens"), COUNT),
    **dict.fromkeys(("algo.clip_low", "algo.clip_high"), Range(0, infinite=True)),
    **dict.fromkeys(("algo.kl_coef", "algo.entropy_coef"), AMOUNT),
    **{"algo.gamma": SHARE, "algo.updates": COUNT, "algo.dual_clip": Range(1, infinite=True)},
    **{"algo.loss_scale": ABOVE_0, "algo.importance_cap": OR_NULL},
    **{"reward.cap": replace(ABOVE_0, infinite=True), "reward.scale": ABOVE_0},
    "reward.coverage_from": Range(0, infinite=True),
    **dict.fromkeys(("reward.overlong_penalty", "reward.overlong_window"), AMOUNT),
    **dict.fromkeys(("filters.zero_variance.max_refills", "filters.zero_variance.min_std"), AMOUNT),
    **dict.fromkeys(("filters.zero_variance.min_size", "filters.zero_variance.oversample"), COUNT),
    **{"filters.prs.tau": SHARE, "filters.prs.width": AMOUNT, "filters.prs.speedup_from": AMOUNT},
    **{"filters.mrs.veto": BELOW_1, "filters.mrs.lower": SHARE_ABOVE_0, "filters.mrs.upper": Range(1, infinite=True)},
    **dict.fromkeys(("trainer.steps", "trainer.prompts", "trainer.samples", "trainer.turns"), COUNT),
    "trainer.gpus": Range(1, 4096),
    **dict.fromkeys(("trainer.eval_samples", "trainer.eval_turns", "trainer.threads"), COUNT),
    **dict.fromkeys(("trainer.keep", "trainer.keep_every", "trainer.save_every", "trainer.micro_batch_tokens"), COUNT),
    **{"trainer.weight_decay": AMOUNT, "trainer.max_grad_norm": NO_CLIPPING, "trainer.recompute": SHARE},
    **{"trainer.lr_warmup": AMOUNT, "trainer.lr_end": SHARE, "trainer.validate_every": AMOUNT},
    **dict.fromkeys(("sft.batch_size", "sft.batch_tokens", "sft.max_length", "sft.loss_every"), COUNT),
    **dict.fromkeys(("sft.save_every", "sft.max_steps"), COUNT),
    **{"sft.epochs": ABOVE_0, "sft.lr": SHARE_ABOVE_0},
    **{"sft.lr_warmup_share": SHARE, "sft.lr_end": SHARE, "sft.held_out": BELOW_1},
    **dict.fromkeys(("coldstart.tasks", "coldstart.trajectories", "coldstart.unjudged_trajectories"), COUNT),
    **dict.fromkeys(("coldstart.hidden", "coldstart.layers", "coldstart.positions", "coldstart.kv_heads"), COUNT),
    **dict.fromkeys(("coldstart.vocabulary", "coldstart.longest_token"), COUNT),
    **{"coldstart.unjudged": AMOUNT, "coldstart.mistakes": AMOUNT, "coldstart.fused_share": SHARE},
    "logger.samples": AMOUNT,
}
"""Keys of a run. A value of null is no number, and may be set where the key allows it."""
OF_STUDIES: dict[str, Range] = {
    **dict.fromkeys(("scaling.budget", "scaling.trials", "scaling.chains", "scaling.window"), COUNT),
    **dict.fromkeys(("scaling.tokens", "scaling.patience"), COUNT),
    **dict.fromkeys(("scaling.seconds", "scaling.stop_at"), ABOVE_0),
    **dict.fromkeys(("endpoint.concurrency", "endpoint.max_answer_tokens", "endpoint.feedback_tokens"), COUNT),
    **dict.fromkeys(("endpoint.requests_per_minute", "endpoint.timeout_s"), ABOVE_0),
    **dict.fromkeys(("endpoint.retries", "endpoint.patience_s"), AMOUNT),
    **dict.fromkeys(("endpoint.prompt_price", "endpoint.answer_price"), AMOUNT),
}
"""Those that a study has besides."""


def expect_within(config: Any, ranges: Mapping[str, Range]) -> None:
    """Raises DrKernelError for the first key whose number is outside its range. Keys that the config lacks pass."""
    for key, allowed in ranges.items():
        value = config
        for part in key.split("."):
            value = getattr(value, part, None)
        if value is not None and value not in allowed:
            shown = f"{value:g}" if isinstance(value, float) else value
            raise DrKernelError(f"config: {key}={shown}; expected {allowed}")
