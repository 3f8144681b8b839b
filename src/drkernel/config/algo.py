"""The config group `algo`: how returns become gradients."""

from __future__ import annotations

from dataclasses import dataclass

from drkernel.config.registry import with_options_of
from drkernel.objective.advantages import ADVANTAGES


@dataclass
@with_options_of(ADVANTAGES.values())
class AlgoConfig:
    """How returns become gradients (conf/algo/). The estimators in objective/advantages.py add their own options: `std`
    (GRPO only: divide by the standard deviation of the group) and `zero_alone` (advantage 0, and not the whole return,
    for a turn that no other one of its group is compared with)."""

    advantage: str = "trloo"
    """Which estimator: a name of objective/advantages.py."""
    gamma: float = 1.0
    """Discount over turns."""
    updates: int = 1
    """Optimizer steps per rollout. With one, as in the paper, the probability ratio is 1 and clipping cannot act."""
    ratio_level: str = "token"
    """What the clipped ratio is of: a `token`, or the geometric mean over a turn (`turn_geometric`, GSPO) or over a
    trajectory (`geometric`). Means vary far less than tokens, and want narrower clips (conf/algo/gspo.yaml)."""
    clip_low: float = 0.2
    """Lower clip of the probability ratio: 1 - clip_low."""
    clip_high: float = 0.28
    """Upper clip of the probability ratio: 1 + clip_high."""
    dual_clip: float = 3.0
    """Bound of the ratio for negative advantages."""
    kl_coef: float = 0.0
    """Factor of the KL to the policy that the run began with, in the loss (k3). 0, as in the paper: no such term, no
    second policy in memory; with LoRA there is none, for the base is there."""
    entropy_coef: float = 0.0
    """Factor of the entropy in nats, which the loss is lowered by, each token weighing as in the loss. 0, as in the
    paper: no bonus."""
    aggregation: str = "token_mean"
    """How token losses are averaged (objective/loss.py). The paper's is `sequence_mean_token_sum`."""
    loss_scale: float = 1000.0
    """Divisor of `sequence_mean_token_sum` and length of `token_sum_over_constant`."""
    importance_cap: float | None = None
    """Cap of the truncated importance weights (train / rollout); None: no weights, as in the paper."""
    importance_level: str = "token"
    """What a weight is the ratio of: a name of objective/mismatch.py."""
    drop_regressions: bool = False
    """Drop a failed turn that follows a rewarded one, as the paper's code does without saying."""
