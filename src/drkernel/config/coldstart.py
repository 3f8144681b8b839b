"""The config group `coldstart`: a policy from nothing."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass
class ColdstartConfig:
    """`stage=coldstart` (conf/coldstart/): a set of trajectories from graded solutions, if `sft.data` names none, a
    tokenizer and a policy with random weights; then supervised training, for which `sft` has the options."""

    tasks: int = 3000
    """Generated training tasks whose solutions are judged."""
    unjudged: int = 0
    """Further training tasks whose solutions are not judged, since that is expensive: each gives trajectories of one
    turn, with a solution that is right by construction."""
    unjudged_trajectories: int = 1
    """Trajectories of each of them."""
    mistakes: int = 2
    """Mistaken solutions judged per task, of the sixteen kinds there are."""
    trajectories: int = 8
    """Trajectories built per task."""
    vocabulary: int = 1024
    """Size of the byte-level BPE."""
    longest_token: int = 16
    """Most bytes in one token: long ones make templated code short, short ones make it easier to recombine."""
    hidden: int = 192
    """Width of the policy."""
    layers: int = 6
    """Depth of the policy."""
    kv_heads: int = 2
    """Its key-value heads of 64; few make generation fast."""
    positions: int = 4096
    """Most tokens that the policy reads, and of a trajectory (`sft.too_long`)."""
    fused_share: float = 0.15
    """Share of the best solutions among the completions. A low one leaves reinforcement learning something to find; the
    presets for PyTorch at large have 0.75, since their policies are used without it."""
    plain: bool = False
    """Solutions in one style: a small policy need not guess which names come next."""
