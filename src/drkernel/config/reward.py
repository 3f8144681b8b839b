"""The config group `reward`: what a verdict is worth."""

from __future__ import annotations

from dataclasses import dataclass

from drkernel.config.registry import with_options_of
from drkernel.objective.rewards import REWARDS


@dataclass
@with_options_of(REWARDS.values())
class RewardConfig:
    """What a verdict is worth (conf/reward/). The rewards in objective/rewards.py add their own options:

    cap: largest speed-up that pays. scale: factor on the whole reward; the paper's published code uses 0.5.
    coverage_from: PR pays from this speed-up on: a full rewrite at half speed must not beat a faster hybrid; paper: 0.
    """

    name: str = "profiling"
    """binary: C | speedup: C (1 + min(s, cap)) | profiling: C (1 + min(s, cap) + PR)."""
    hack_check: bool = True
    """If False, hacks with correct outputs are rewarded and the policy's feedback does not mention them, as in the
    paper's ablation. Metrics and the table at the end still call them hacks."""
    overlong_penalty: float = 0.0
    """Largest penalty for a long completion, taken off its turn's reward in training; 0, as in the paper: none."""
    overlong_window: int = 0
    """Over so many tokens before `overlong_limit` the penalty grows linearly; DAPO: a fifth of the limit."""
    overlong_limit: int | None = None
    """The tokens of a completion at which the penalty is whole; None: engine.max_answer_tokens."""
