"""The table at the end says what was played, and whether training saw it."""

import dataclasses

import pytest

from drkernel.config import Config
from drkernel.training import report
from drkernel.types import Task

GENERATED = [Task(f"generated/relu/{i}", f"x = {i}") for i in range(4)]
OWN = [Task(f"file/{i}", f"y = {i}") for i in range(4)]


@pytest.mark.parametrize(
    ("trained", "tested", "words"),
    [
        (GENERATED[:2], GENERATED[2:], "2 tasks x 4 samples x 3 turns, compositions that training never saw"),
        (OWN[:2], OWN[2:], "2 tasks x 4 samples x 3 turns, tasks that training never saw"),
        (GENERATED, OWN, "4 tasks x 4 samples x 3 turns, tasks that training never saw"),
        (OWN[:1], OWN[:1], "1 tasks x 4 samples x 3 turns, 1 of them training tasks"),
        (OWN[:3], OWN, "4 tasks x 4 samples x 3 turns, 3 of them training tasks"),
    ],
)
def test_the_title_claims_no_more_than_is_so(trained, tested, words):
    assert report.title(trained, tested, 4, 3, failures=0) == words


def test_the_title_counts_failures_of_the_judge():
    assert report.title(OWN[:1], OWN[1:], 4, 3, failures=2).endswith("; 2 left out since the judge failed on them")


def test_a_complete_run_makes_its_table_again_where_another_one_is_asked_for():
    config = Config()
    made = {"step": 16, "evaluation": report.evaluation(config)}
    more = dataclasses.replace(config, trainer=dataclasses.replace(config.trainer, eval_samples=16))
    assert report.is_current(made, 16, config) and not report.is_current(made, 16, more)
    assert not report.is_current(made, 15, config) and not report.is_current(None, 16, config)
    assert report.is_current({"step": 16}, 16, more), "one made before tables said how they were made"
