"""Multi-turn episodes: generations stream to the judge, its feedback streams back."""

from drkernel.rollout.episodes import Judge, Progress, rollout

__all__ = ["Judge", "Progress", "rollout"]
