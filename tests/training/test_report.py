"""The table at the end says what was played, and whether training saw it."""

import pytest

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
