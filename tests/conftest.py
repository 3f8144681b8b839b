"""Every test draws the same numbers in every run, alone or among others. Those on a GPU run one after the other."""

import gc
import random

import pytest
import torch


@pytest.fixture(autouse=True)
def _seeded():
    random.seed(0)
    torch.manual_seed(0)


def pytest_collection_modifyitems(items):
    for item in items:
        if item.get_closest_marker("gpu"):
            item.add_marker(pytest.mark.xdist_group("gpu"))


def pytest_collection_finish():
    """Modules and collected tests stay to the end: the garbage collector need not look at them again and again."""
    gc.collect()
    gc.freeze()
