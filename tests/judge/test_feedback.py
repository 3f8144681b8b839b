"""What the policy reads: short, complete, within its limit."""

from __future__ import annotations

import dataclasses

import pytest

from drkernel.judge import feedback
from drkernel.types import KernelTime, Verdict

WORDS = lambda text: len(text.split())
OK = Verdict(
    "ok",
    "faster",
    speedup=1.5,
    coverage=0.75,
    profile=(KernelTime("kernel:7", 1, 10.0, True),),
    reference_profile=(KernelTime("add", 2, 9.0, False), KernelTime("relu", 1, 6.0, False)),
)
WRONG = Verdict("incorrect", "wrong_values", "output[3, 7] is 0.5, expected 0.25; 100% of 64 elements are wrong")


def test_status_and_reason_come_first_and_numbers_follow():
    text = feedback(OK, 100, WORDS)
    assert text.splitlines()[0] == "correct, faster: speedup 1.50 coverage 0.75"
    assert "kernel (triton) 10.0us" in text and "2 x add 9.0us, relu 6.0us" in text


def test_a_failure_is_never_bare():
    text = feedback(WRONG, 100, WORDS)
    assert text.startswith("wrong: wrong_values: output[3, 7] is 0.5, expected 0.25")


@pytest.mark.parametrize("verdict", [OK, WRONG], ids=["ok", "wrong"])
@pytest.mark.parametrize("limit", [1, 2, 5, 8, 20])
def test_the_limit_holds_and_the_beginning_stays(verdict, limit):
    text = feedback(verdict, limit, WORDS)
    assert 0 < WORDS(text) <= limit and feedback(verdict, 100, WORDS).startswith(text)


def test_a_submission_that_refuses_other_shapes_is_told_so():
    verdict = Verdict("ok", "faster", speedup=2.0, coverage=1.0, general=False)
    assert "other shapes" in feedback(verdict, 100, WORDS)


@pytest.mark.parametrize(
    ("share", "words"), [(0.412, "runs at 41 % of"), (0.002, "runs at less than 1 % of"), (1.18, "runs at 118 % of")]
)
def test_the_distance_from_the_gpus_limit_is_one_plain_phrase(share, words):
    verdict = dataclasses.replace(OK, evidence={"roofline": {"share": share}})
    phrase = f"{words} this GPU's limit for these bytes and operations"
    assert feedback(verdict, 200, WORDS).splitlines()[1] == phrase
    assert feedback(verdict, 199, WORDS) == feedback(OK, 199, WORDS), "a small policy has no room for it"


@pytest.mark.parametrize("evidence", [{}, {"roofline": {"share": None}}])
def test_an_unknown_limit_is_not_mentioned(evidence):
    assert "limit" not in feedback(dataclasses.replace(OK, evidence=evidence), 1000, WORDS)
