"""The order of the questions about one submission, which is the same on every device."""

from __future__ import annotations

import pytest

from drkernel.judge.boundary.framing import PeerClosed
from drkernel.judge.trusted.criterion import Finding
from drkernel.judge.trusted.exam_config import ExamConfig
from drkernel.judge.trusted.judging import Judging
from drkernel.types import Task, Verdict
from tests.judge.examples import examples

HONEST = next(example.source for example in examples("honest", "simulated"))
FORBIDDEN = HONEST + "\n\ndef unused():\n    return globals()\n"
OK, RIGHT = Verdict("ok", "faster", speedup=2.0), Finding(True, Verdict("ok", "faster", speedup=3.0))


def asked(source: str, **options) -> tuple[list[str], Verdict | None, Finding | None]:
    """What was run, and what `ask` returned."""
    config = ExamConfig(gate=options.pop("gate", True), criterion=options.pop("criterion", "drkernel"))
    ran: list[str] = []
    examine = lambda: ran.append("examination") or options.get("own", OK)
    trials = lambda: ran.append("trials") or RIGHT
    keys = {key: options[key] for key in ("statically_checked", "kernelbench_first") if key in options}
    return ran, *Judging(config, b"", Task("any", ""), source).ask(examine, trials, **keys)


def test_kernelbench_is_asked_only_where_somebody_asks_for_it():
    assert asked(HONEST) == (["examination"], OK, None)
    assert asked(HONEST, criterion="both") == (["examination", "trials"], OK, RIGHT)
    assert asked(HONEST, criterion="kernelbench", kernelbench_first=True) == (["trials", "examination"], OK, RIGHT)


@pytest.mark.parametrize("first", [False, True])
def test_what_the_static_check_refuses_is_not_examined_but_may_be_right_by_kernelbenchs_criterion(first):
    ran, own, found = asked(FORBIDDEN, criterion="both", kernelbench_first=first)
    assert (ran, own.reason, found) == (["trials"], "forbidden", RIGHT)


@pytest.mark.parametrize("options", [{"gate": False}, {"statically_checked": True}])
def test_the_static_check_is_made_once_at_most(options):
    assert asked(FORBIDDEN, **options) == (["examination"], OK, None)


def test_a_source_without_a_model_is_never_run_for_kernelbenchs_criterion():
    ran, own, found = asked("x = 1", criterion="both")
    assert (ran, own.reason, found.correct) == ([], found.verdict.reason, False)


def test_what_was_found_before_a_runner_ended_is_kept():
    def ends() -> Verdict:
        raise PeerClosed

    judging = Judging(ExamConfig(criterion="both"), b"", Task("any", ""), HONEST)
    assert judging.ask(ends, lambda: RIGHT, kernelbench_first=True) == (None, RIGHT)
    assert judging.ask(ends, lambda: RIGHT) == (None, None)


def test_the_verdict_that_counts_says_where_it_was_found_and_what_else_is_known():
    judging = Judging(ExamConfig(device="simulated:H200", criterion="kernelbench"), b"", Task("any", ""), HONEST)
    verdict = judging.decided(OK, RIGHT, {"precision": "ieee"})
    assert (verdict.speedup, verdict.device, verdict.evidence["precision"]) == (3.0, "simulated:H200", "ieee")
    assert verdict.evidence["drkernel"]["speedup"] == 2.0
