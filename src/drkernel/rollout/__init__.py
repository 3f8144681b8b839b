"""Multi-turn episodes: generations stream to the judge, its feedback streams back."""

from drkernel.rollout.episodes import Ahead, EpisodeConfig, RolloutProgress, RolloutTimes, Stopped, rollout, too_long

__all__ = ["Ahead", "EpisodeConfig", "RolloutProgress", "RolloutTimes", "Stopped", "rollout", "too_long"]
