"""The classes of judge/CHEATS.md: what cheats or is wrong is refused, what is honest passes."""

from __future__ import annotations

from concurrent.futures import Future
from pathlib import Path

import pytest

from drkernel.judge import Judge
from drkernel.judge.trusted.source import static_check
from drkernel.types import Task, Verdict
from tests.judge.examples import TAMED, Example, as_expected, descendants, examples, gains, honest_speedups, traces
from tests.judge.examples import tasks as tasks_by_name

HACKS, HONEST = examples("hacks", "simulated"), examples("honest", "simulated")
ALL_HACKS, ALL_HONEST = examples("hacks"), examples("honest")


ABOVE_THE_LIMIT = {"diagonal_product"}
"""Its product need not happen."""

_TASKS = tasks_by_name()
REFUSED = [e for e in HACKS if static_check.inspect(e.source, _TASKS[e.task].submission_name)]
"""What the static check refuses. It decides nothing else: all others are examined with it as they are without."""

with_gate, without_gate = pytest.mark.xdist_group("with gate"), pytest.mark.xdist_group("without gate")
"""Two groups, so that two workers of pytest share the judgings."""


ENDLESS = {"74_host_loop", "74_import_loop", "74_regular_expression", "80_output_flood"}
"""Hacks that nothing but the limit of an answer ends: they are judged with a lower one, by a judge of their own."""


class Verdicts:
    """Judges each example once, all that are asked for at the same time."""

    def __init__(self, judge: Judge, tasks: dict[str, Task], gate: bool):
        self._judge, self._tasks, self._gate, self._known = judge, tasks, gate, {}

    def of(self, chosen: list[Example]) -> dict[str, Verdict]:
        missing = [e for e in chosen if e.name not in self._known]
        pending = self._submit(self._judge, [e for e in missing if e.name not in ENDLESS])
        if endless := [e for e in missing if e.name in ENDLESS]:
            with Judge(
                device="simulated", workers=1, secret=b"s", timeout_s=1, host_memory_mib=1024, gate=self._gate
            ) as hasty:
                self._known |= {name: future.result() for name, future in self._submit(hasty, endless).items()}
        self._known |= {name: future.result() for name, future in pending.items()}
        return {e.name: self._known[e.name] for e in chosen}

    def _submit(self, judge: Judge, chosen: list[Example]) -> dict[str, Future[Verdict]]:
        return {e.name: judge.submit(self._tasks[e.task], e.source) for e in chosen}


@pytest.fixture(scope="module")
def gated(judge, tasks):
    return Verdicts(judge, tasks, gate=True)


@pytest.fixture(scope="module")
def verdicts(gated):
    return gated.of([*HACKS, *HONEST])


@pytest.fixture(scope="module")
def ungated_verdicts(ungated, tasks):
    """Of the hacks that it refuses, and of honest submissions to the tasks in which one of them is called ok."""
    verdicts = Verdicts(ungated, tasks, gate=False)
    hacks = verdicts.of(REFUSED)
    tasks_of_interest = {example.task for example in REFUSED if hacks[example.name].ok}
    return hacks | verdicts.of([example for example in HONEST if example.task in tasks_of_interest])


def test_every_class_has_an_example():
    assert {*range(1, 84)} <= {e.number for e in ALL_HACKS}
    assert {*range(84, 113)} <= {e.number for e in ALL_HONEST}


@pytest.mark.slow
@with_gate
@pytest.mark.parametrize("example", HACKS, ids=lambda e: e.name)
def test_a_hack_is_refused(example, verdicts):
    verdict = verdicts[example.name]
    assert not as_expected(example, verdict, honest_speedups(verdicts, HONEST).get(example.task))
    assert verdict.ok or (verdict.detail and verdict.speedup is None)


@pytest.mark.slow
@with_gate
@pytest.mark.parametrize("example", HONEST, ids=lambda e: e.name)
def test_an_honest_submission_passes(example, verdicts):
    verdict = verdicts[example.name]
    assert verdict.status == "ok", verdict
    assert verdict.reason in ("faster", "lazy", "slower")
    assert verdict.speedup > 0 and 0 < verdict.coverage <= 1
    assert verdict.profile and verdict.reference_profile
    assert 0 < verdict.evidence["roofline"]["share"] < 1 or example.task in ABOVE_THE_LIMIT


@pytest.mark.parametrize("example", [e for e in ALL_HACKS if e.gated], ids=lambda e: e.name)
def test_the_gate_refuses_what_it_must(example, tasks):
    refusal = static_check.inspect(example.source, tasks[example.task].submission_name)
    assert (refusal.status, refusal.reason) == ("hack", "forbidden")


@pytest.mark.parametrize("example", ALL_HONEST, ids=lambda e: e.name)
def test_the_gate_lets_the_honest_pass(example, tasks):
    assert static_check.inspect(example.source, tasks[example.task].submission_name) is None


@pytest.mark.slow
@without_gate
@pytest.mark.parametrize("example", REFUSED, ids=lambda e: e.name)
def test_without_the_gate_no_hack_gains_anything(example, ungated_verdicts):
    verdict = ungated_verdicts[example.name]
    if not example.name.startswith(TAMED) and "ok" not in example.statuses:
        assert verdict.status != "ok", verdict
    honest = [e for e in HONEST if e.name in ungated_verdicts]
    assert not gains(example, verdict, honest_speedups(ungated_verdicts, honest).get(example.task))
    assert not verdict.is_judge_failure


@pytest.mark.slow
@with_gate
@pytest.mark.parametrize("example", HONEST[::24], ids=lambda e: e.name)
def test_the_gate_changes_nothing_for_the_honest(example, verdicts, ungated, tasks):
    without = ungated.judge(tasks[example.task], example.source)
    assert verdicts[example.name].to_dict() | {"seconds": 0} == without.to_dict() | {"seconds": 0}


@pytest.mark.slow
@with_gate
def test_a_submission_that_raises_on_other_shapes_is_not_general(verdicts):
    """Three have heads of powers of two, as people write them."""
    raise_there = {"113_raises_elsewhere", "364_paged_attention", "366_linear_attention", "367_attention_in_half"}
    assert {e.name for e in HONEST if not verdicts[e.name].general} == raise_there


@pytest.mark.slow
@without_gate
def test_harmful_submissions_leave_no_process_and_no_file_behind(ungated_verdicts, ungated, tasks):
    assert ungated.judge(tasks["relu"], next(e.source for e in HONEST if e.name.startswith("90"))).ok
    assert not traces() and not Path("verdict.json").exists()
    below_a_zygote = 5  # see judge_workers: a server, what it forked, the examiner, its zygote
    assert (
        len(descendants(below_a_zygote)) <= 4
    )  # two judges of one worker, each with a runner and a tracer being reaped
