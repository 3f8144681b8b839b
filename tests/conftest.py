"""Every test draws the same numbers in every run, alone or among others. Those on a GPU run one after the other."""

import gc
import random

import pytest
import torch

from tests import judge_workers


@pytest.fixture(autouse=True)
def _seeded():
    random.seed(0)
    torch.manual_seed(0)


@pytest.fixture(autouse=True, scope="session")
def _judge_workers():
    """Judges fork their workers, but for tests that ask for `workers_by_command`."""
    judge_workers.use()
    yield
    judge_workers.by_command()


@pytest.fixture
def workers_by_command():
    """Judges start their workers by the real command, as for users."""
    judge_workers.by_command()
    yield
    judge_workers.use()


def pytest_collection_modifyitems(items):
    for item in items:
        if item.get_closest_marker("gpu"):
            item.add_marker(pytest.mark.xdist_group("gpu"))


def pytest_collection_finish():
    """Modules and collected tests stay to the end: the garbage collector need not look at them again and again."""
    gc.collect()
    gc.freeze()
