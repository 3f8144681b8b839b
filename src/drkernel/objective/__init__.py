"""From verdicts to gradients: the paper's mathematics as pure functions on tensors.

"Dr. Kernel" (arXiv 2602.05885), and where to find what it says; read in this order:

    rollouts.py     trajectories as a table [trajectory, turn]
    rewards.py      eq. 1, 8    C (1 + min(s, 3) + PR), and what an ablation leaves of it
    returns.py      4.3         reward-to-go over turns
    filters.py      eq. 9       PRS; groups without spread; which turns train, which count in the baseline
    advantages.py   4, app. A   GRPO, RLOO, TRLOO
    mismatch.py     eq. 6       MRS; truncated importance weights
    loss.py         6.1         the clipped surrogate and its token weights
    metrics.py      6           Fast@p, with the intervals of `intervals.py`

Two helpers carry them: `segments.py` (sums within groups) and `metric_sums.py` (metrics that add up). One
optimizer step is

    rollouts -> rewards -> decide -> reward_to_go -> ADVANTAGES -> (packing) -> rollout_correction -> policy_loss

The capitals are the registries: REWARDS, GROUP_FILTERS, TURN_FILTERS, TOKEN_FILTERS, ADVANTAGES, AGGREGATIONS, LEVELS,
RATIO_LEVELS.
A configuration may name what they hold and set its keyword-only parameters (`config.registry`), and nothing else.
Nothing here reads a configuration, a file, a clock or a random number, and nothing talks to another process.
"""
