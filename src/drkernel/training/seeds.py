"""The seeds of what a run draws, each a pure function of the run's seed and of where the run stands; and the random
states of a process, for what libraries draw."""

from __future__ import annotations

import random
from typing import Any

import numpy
import torch

_BITS_64 = 2**64 - 1
_PRIMES = (11400714785074694791, 14029467366897019727, 2870177450012600261)
"""The first, second and fifth prime of xxHash64."""
_ADDED = 3527539


def generator(seed: int, number: int) -> torch.Generator:
    """For what is drawn once per epoch (the order of tasks) or once per step (the uniforms of filters).

    Completions have seeds of their own (`drkernel.seeds.seed_of`).
    """
    return torch.Generator().manual_seed(mixed(seed, number))


def mixed(seed: int, number: int) -> int:
    """One number from two, each 0 or more and below 2^61 - 1: int64, from the mixing steps of xxHash64.

    >>> mixed(0, 1) == mixed(0, 1) != mixed(1, 0)
    True
    """
    total = _PRIMES[2]
    for part in (seed, number):
        total = total + part * _PRIMES[1] & _BITS_64
        total = (total << 31 | total >> 33) * _PRIMES[0] & _BITS_64
    total = total + (2 ^ _PRIMES[2] ^ _ADDED) & _BITS_64
    return total - 2**64 if total >= 2**63 else total


def rng_state() -> dict[str, Any]:
    """Every random state of this process and its GPU. Rollouts draw from (seed, step) alone, but libraries may not."""
    generator: Any = numpy.random.get_state()
    kind, keys, position, has_gauss, gauss = generator
    version, internal, gauss_next = random.getstate()
    return {
        "torch": torch.get_rng_state(),
        "cuda": torch.cuda.get_rng_state() if torch.cuda.is_available() else None,
        "numpy": [kind, torch.from_numpy(keys.astype("int64")), position, has_gauss, gauss],
        "python": [version, list(internal), gauss_next],
    }


def restore_rng(state: dict[str, Any]) -> None:
    torch.set_rng_state(state["torch"])
    if state["cuda"] is not None and torch.cuda.is_available():
        torch.cuda.set_rng_state(state["cuda"])
    kind, keys, *rest = state["numpy"]
    numpy.random.set_state((kind, keys.numpy().astype("uint32"), *rest))
    version, internal, gauss_next = state["python"]
    random.setstate((version, tuple(internal), gauss_next))


def seed_rng(seed: int, step: int, rank: int) -> None:
    """Every random state of this process as a function of these three."""
    drawn = numpy.random.SeedSequence((seed % 2**32, step, rank)).generate_state(3)
    torch.manual_seed(int(drawn[0]))
    numpy.random.seed(int(drawn[1]))
    random.seed(int(drawn[2]))
