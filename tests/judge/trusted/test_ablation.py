"""P9 of judge/PROPERTIES.md: which kernels a submission's outputs depend on, and whose the time of the others is."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace

import pytest

from drkernel.judge.boundary.op_trace import OpTrace, Row
from drkernel.judge.trusted import ablation
from drkernel.judge.trusted.attribution import ReferenceCost, attribute
from drkernel.types import KernelTime

PUBLISHED, HIDDEN = ["published"], ["hidden"]


def pair_that_is_right(without: Callable[[set[str], str], bool]) -> SimpleNamespace:
    """A submission whose outputs are right without these kernels in this case."""
    depend_on = lambda sites, among: any(not without(set(sites), case) for case in among)
    return SimpleNamespace(depend_on=depend_on)


def test_each_of_two_kernels_that_do_the_same_work_may_go_and_not_both():
    pair = pair_that_is_right(lambda left_out, case: left_out != {"a", "b"})
    assert ablation.without_effect(pair, ("a", "b"), PUBLISHED) == ("a",)


def test_a_kernel_alone_is_not_asked_again():
    pair = pair_that_is_right(lambda left_out, case: pytest.fail("it was asked"))
    assert ablation.without_effect(pair, ("a",), PUBLISHED) == ()


def test_a_tail_kernel_is_useful_and_a_decoy_is_not():
    needed = {"published": {"main"}, "hidden": {"main", "tail"}}
    pair = pair_that_is_right(lambda left_out, case: not left_out & needed[case])
    sites = ("main", "tail", "decoy")
    found = ablation.without_effect(pair, sites, PUBLISHED)
    evidence = ablation.evidence(pair, sites, found, HIDDEN)
    assert evidence == {"kernels_that_matter": 0.3333, "without_effect": ["tail", "decoy"], "useless": ["decoy"]}
    assert "decoy" in ablation.about(evidence) and "tail" not in ablation.about(evidence)
    assert ablation.about({}) == ""
    assert ablation.evidence(pair, sites, found, [])["useless"] == [], "no other shape was asked"


def test_time_without_effect_is_nobodys_work():
    model = SimpleNamespace(work_us=lambda row: 10.0)
    cost = ReferenceCost(OpTrace([Row("relu", "relu", False, 1)]), model, 0.0)
    trace = OpTrace([Row("main", "main:1", True, 1, 64), Row("decoy", "decoy:9", True, 1, 64)])
    profile = [KernelTime("main:1", 1, 2.0, True), KernelTime("decoy:9", 1, 6.0, True)]
    assert attribute(cost, trace, profile).coverage == 1.0
    assert attribute(cost, trace, profile, {"decoy:9"}).coverage == 0.25
