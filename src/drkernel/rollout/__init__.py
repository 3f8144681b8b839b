"""Multi-turn episodes: generations stream to the judge, its feedback streams back."""

from drkernel.rollout.episodes import EpisodeConfig, RolloutProgress, RolloutTimes, Stopped, rollout
from drkernel.rollout.verdicts import Judge

__all__ = ["EpisodeConfig", "Judge", "RolloutProgress", "RolloutTimes", "Stopped", "rollout"]
