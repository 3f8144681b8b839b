"""The seeds of what a run draws, each a pure function of the run's seed and of where the run stands."""

from __future__ import annotations

import torch


def generator(seed: int, number: int) -> torch.Generator:
    """For what is drawn once per epoch (the order of tasks) or once per step (the uniforms of filters).

    The hash of a tuple of integers is the same in every process and on every 64-bit CPython. Completions are seeded
    with SHA-256 instead (`drkernel.rollout.verdicts.completion_seed`). This one stays: recorded runs drew from it.
    """
    return torch.Generator().manual_seed(hash((seed, number)))
