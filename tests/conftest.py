"""Every test draws the same numbers in every run, alone or among others."""

import random

import pytest
import torch


@pytest.fixture(autouse=True)
def _seeded():
    random.seed(0)
    torch.manual_seed(0)
