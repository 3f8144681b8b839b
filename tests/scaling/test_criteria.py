"""Fast@p as it is published, and reports of studies whose verdicts carry both criteria."""

from __future__ import annotations

import csv
import dataclasses
from pathlib import Path

import pytest
from rich.console import Console

from drkernel.scaling import criteria, fast_tables, measures, report
from drkernel.scaling.measures import PUBLISHED_THRESHOLDS, fast
from drkernel.scaling.records import RESULTS, Record, write
from drkernel.scaling.trials import Trials
from drkernel.types import Verdict
from tests.scaling.test_measures import WRONG, ok, trial


def kernelbench(verdict: Verdict, correct: bool, speedup: float | None = None, why: str = "") -> Verdict:
    """A verdict of this judge that also carries the other criterion."""
    found = {"correct": correct, "why": why, "speedup": speedup, "tolerance": 1e-4}
    return dataclasses.replace(verdict, evidence=verdict.evidence | {"kernelbench": found})


RIGHT = kernelbench(ok(2.0), True, 2.2)
HACK = kernelbench(Verdict("hack", "launch_without_effect", "on no Triton launch"), True, 1.3)
NEAR = kernelbench(WRONG, True, None, "forged_time: it claims less than it takes")
FAR = kernelbench(WRONG, False, None, "wrong_values: output[0] is 1, expected 2")


def records() -> list[Record]:
    rows = trial("a", 0, FAR, RIGHT) + trial("b", 0, HACK, FAR) + trial("c", 0, NEAR, NEAR)
    levels = {"a": 1, "b": 2, "c": 2}
    return [dataclasses.replace(row, level=levels[row.task]) for row in rows]


def test_thresholds_are_those_of_published_figures():
    assert PUBLISHED_THRESHOLDS == (0.0, 1.0, 1.2, 1.5, 2.0)


def test_single_tries_last_turn_and_best_of_history():
    run = Trials.of(trial("a", 0, ok(1.1), ok(2.0), WRONG) + trial("b", 0, WRONG, ok(1.3), ok(1.3)))
    found = {view: fast_tables.shares(run, view) for view in fast_tables.VIEWS}
    row = lambda view: [found[view][fast(p)].value for p in PUBLISHED_THRESHOLDS]
    assert row("single") == [0.5, 0.5, 0, 0, 0]
    assert row("last") == [0.5, 0.5, 0.5, 0, 0]
    assert row("best") == [1, 1, 1, 0.5, 0.5]
    assert all(found[view]["fast@1"].low < found[view]["fast@1"].high for view in found)


def test_single_tries_are_all_completions_of_a_bare_prompt():
    run = Trials.of(trial("a", 0, ok(1.1), ok(2.0), WRONG, WRONG, chains=4))
    assert fast_tables.shares(run, "single")["fast@0"].value == 0.5


def test_an_early_stop_does_not_choose_which_single_tries_count():
    stopped = trial("easy", 0, ok(2.0)) + trial("hard", 0, WRONG, WRONG, WRONG, ok(2.0), chains=4)
    run = Trials.of(stopped)
    assert fast_tables.shares(run, "single")["fast@0"].value == 0.5, "as if every trial had ended with its first call"
    assert measures.of_k_samples(run)[1]["pass"].value == 0.5


def test_figures_have_every_level_and_every_measured_baseline():
    rows = trial("a", 0, ok(2.0, compile=1.0)) + trial("b", 0, ok(1.3, compile=0.9))
    rows = [dataclasses.replace(row, level=1 if row.task == "a" else 2) for row in rows]
    found = dict(fast_tables.figures(Trials.of(rows)))
    assert found["all levels · eager · best of history"]["fast@1.5"].value == 0.5
    assert found["level 1 · eager · single tries"]["fast@2"].value == 1
    assert found["level 2 · torch.compile · last turn"]["fast@1"].value == 0
    assert len(found) == 3 * 2 * 3


def test_what_a_criterion_says_of_the_same_records():
    theirs = [record.verdict for record in criteria.by("kernelbench", records())]
    assert [verdict.ok for verdict in theirs] == [False, True, True, False, True, True]
    assert [verdict.speedup for verdict in theirs] == [None, 2.2, 1.3, None, None, None]
    assert [r.verdict.ok for r in criteria.by("drkernel", records())] == [False, True, False, False, False, False]


def test_a_study_that_kernelbench_decides_has_this_judges_column_too():
    own = {"status": "not_general", "reason": "wrong_on_other_shape", "detail": "", "speedup": None}
    found = {"correct": True, "why": "", "speedup": 1.4}
    evidence = {"criterion": "kernelbench", "kernelbench": found, "drkernel": own}
    rows = trial("a", 0, Verdict("ok", "faster", speedup=1.4, evidence=evidence))
    assert [r.verdict.status for r in criteria.by("drkernel", rows)] == ["not_general"]
    assert [r.verdict.ok for r in criteria.by("kernelbench", rows)] == [True]
    assert len(criteria.between(rows)) == 1


def test_what_lies_between_comes_once_with_the_reasons():
    found = criteria.between(records())
    assert [(row.task, row.times) for row in found] == [("b", 1), ("c", 2)]
    assert "hack launch_without_effect" in found[0].text and "KernelBench: right" in found[0].text
    assert "forged_time" in found[1].text


@pytest.fixture
def study(tmp_path) -> Path:
    write(tmp_path / RESULTS, records())
    return tmp_path


@pytest.mark.slow
def test_a_report_shows_both_columns_and_what_lies_between(study):
    report.write([study], study / "report", "both")
    text = (study / "report" / "table.md").read_text()
    assert "## Fast@p" in text and "## Two criteria" in text and "## Between the criteria" in text
    with open(study / "report" / "table.csv", newline="") as file:
        rows = {(r["section"], r["key"], r["measure"]): float(r["value"]) for r in csv.DictReader(file)}
    assert rows["Two criteria", "this judge · best of history", "fast@0"] == pytest.approx(1 / 3)
    assert rows["Two criteria", "KernelBench · best of history", "fast@0"] == 1
    assert rows["Two criteria", "KernelBench · best of history", "fast@2"] == pytest.approx(1 / 3)
    console = Console(width=200)
    with console.capture() as shown:
        report.show([study], console)
    assert "KernelBench" in shown.get()


@pytest.mark.usefixtures("no_plots")
def test_a_report_without_the_other_criterion_has_no_such_section(tmp_path):
    write(tmp_path / RESULTS, trial("a", 0, ok(2.0)))
    report.write([tmp_path], tmp_path / "report", "one")
    text = (tmp_path / "report" / "table.md").read_text()
    assert "## Fast@p" in text and "criteri" not in text


@pytest.mark.usefixtures("no_plots")
def test_degenerate_tasks_count_in_no_figure_and_have_a_line_of_their_own(tmp_path):
    trivial = Verdict("ok", "faster", speedup=9.0, evidence={"degenerate": "a constant would pass for a right answer"})
    write(tmp_path / RESULTS, trial("a", 0, ok(2.0)) + trial("b", 0, trivial, trivial) + trial("c", 0, WRONG))
    report.write([tmp_path], tmp_path / "report", "one")
    text = (tmp_path / "report" / "table.md").read_text()
    assert "## Degenerate tasks" in text and "b: a constant would pass" in text
    assert "1 of 3 tasks is degenerate" in text
    with open(tmp_path / "report" / "table.csv", newline="") as file:
        rows = list(csv.DictReader(file))
    assert {float(r["value"]) for r in rows if r["section"] == "Runs" and r["measure"] == "correct"} == {0.5}
    assert not any(r["key"] == "b" for r in rows)
    console = Console(width=200)
    with console.capture() as shown:
        report.show([tmp_path], console)
    assert "degenerate" in shown.get() and "has no completion" not in shown.get()
