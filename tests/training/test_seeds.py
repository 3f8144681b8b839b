"""What a run draws is a function of its seed and of where it stands."""

import random

import numpy
import pytest
import torch

from drkernel.config import Config
from drkernel.training import seeds
from drkernel.training.ranks import Ranks
from drkernel.training.trainer import THREADS_BESIDE_GPU, set_up_torch


def draws() -> tuple:
    return torch.rand(2).tolist(), numpy.random.rand(2).tolist(), random.random()


def test_numbers_are_those_of_recorded_runs_and_of_a_formula_that_is_spelled_out():
    """In CPython of today the formula is the hash of a tuple; nothing depends on that."""
    assert [seeds.mixed(*pair) for pair in ((0, 0), (0, 1), (7, 250))] == [
        -8458139203682520985, -1950498447580522560, 4271478637364355158,
    ]  # fmt: skip
    assert all(seeds.mixed(seed, number) == hash((seed, number)) for seed in (0, 1, 2**40) for number in range(200))
    assert torch.rand(1, generator=seeds.generator(0, 0)).item() == pytest.approx(0.5837257)


def test_a_rank_beside_a_gpu_takes_few_threads(monkeypatch):
    taken: list[int] = []
    monkeypatch.setattr(torch, "get_num_threads", lambda: 64)
    monkeypatch.setattr(torch, "set_num_threads", taken.append)
    on_gpu, asked = Ranks(device=torch.device("cuda")), Config()
    asked.trainer.threads = 9
    for config, ranks in ((Config(), on_gpu), (asked, on_gpu), (Config(), Ranks())):
        set_up_torch(config, ranks)
    assert taken == [THREADS_BESIDE_GPU, 9, 64]


def test_ranks_draw_numbers_of_their_own_from_the_start_as_after_a_resumption():
    drawn = []
    for rank in (0, 1, 0):
        set_up_torch(Config(seed=5), Ranks(rank, 2))
        drawn.append(draws())
    assert drawn[0] == drawn[2] != drawn[1]
    seeds.seed_rng(5, 0, 1)
    assert draws() == drawn[1]
