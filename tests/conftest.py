"""Every test draws the same numbers in every run, alone or among others. Those on a GPU run one after the other."""

import gc
import random
from pathlib import Path

import pytest
import torch

from tests import judge_workers

OF_THE_JUDGE = Path(__file__).parent / "judge"
FORKED_THERE = {"test_cli.py", "test_criterion.py", "test_timed_shapes.py"}
"""Tests of what a judge says that make many judges."""


@pytest.fixture(autouse=True)
def _seeded():
    random.seed(0)
    torch.manual_seed(0)


@pytest.fixture(autouse=True, scope="module")
def _judge_workers(request):
    """Judges fork their workers, but for tests of the judge's own processes."""
    if OF_THE_JUDGE not in request.path.parents or request.path.name in FORKED_THERE:
        judge_workers.use()
    yield
    judge_workers.by_command()


def pytest_collection_modifyitems(items):
    for item in items:
        if item.get_closest_marker("gpu"):
            item.add_marker(pytest.mark.xdist_group("gpu"))


def pytest_collection_finish():
    """Modules and collected tests stay to the end: the garbage collector need not look at them again and again."""
    gc.collect()
    gc.freeze()
