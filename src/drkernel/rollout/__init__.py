"""Multi-turn episodes: generations stream to the judge, its feedback streams back."""

from drkernel.rollout.episodes import Progress, rollout

__all__ = ["Progress", "rollout"]
