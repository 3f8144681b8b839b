"""What a report says of studies that are not whole, or not alike."""

import dataclasses
import json
from pathlib import Path

import pytest

from drkernel.config.conversion import to_yaml
from drkernel.scaling import notes, report, study_folder
from drkernel.scaling.records import RESULTS, write
from drkernel.types import Task, Verdict
from tests.configs import evaluate_config
from tests.scaling import synthetic
from tests.scaling.test_measures import WRONG, trial

LONG, SHORT = [WRONG] * 3, [WRONG]


def study(folder: Path, *overrides: str, tasks: tuple[Task, ...] = ()) -> Path:
    folder.mkdir()
    (folder / study_folder.CONFIG).write_text(to_yaml(evaluate_config(*overrides)))
    lines = (json.dumps(dataclasses.asdict(task)) + "\n" for task in tasks)
    (folder / study_folder.TASKS).write_text("".join(lines))
    return folder


def test_trials_that_an_interruption_cut_are_counted(tmp_path):
    folder = study(tmp_path / "a", "scaling=parallel", "scaling.budget=3", "scaling.trials=2")
    rows = trial("t", 0, *LONG) + trial("t", 1, *SHORT) + trial("u", 0, *LONG)
    (note,) = notes.short_trials({"run": (folder, rows)})
    assert note.startswith("run: 2 of 4 trials have fewer than 3 judge calls; an interruption, ")
    whole = [row for task in "tu" for number in range(2) for row in trial(task, number, *LONG)]
    assert not notes.short_trials({"run": (folder, whole)})


@pytest.mark.parametrize("overrides", [("scaling.stop_at=2",), ("solutions=there",)])
def test_trials_may_end_early_where_a_stop_rule_does_it_and_solutions_have_one_call(tmp_path, overrides):
    folder = study(tmp_path / "a", *overrides)
    assert not notes.short_trials({"run": (folder, trial("t", 0, *SHORT))})


def test_a_folder_without_a_configuration_has_no_such_note(tmp_path):
    assert not notes.short_trials({"run": (tmp_path, trial("t", 0, *SHORT))})


def test_tasks_of_one_id_that_are_not_the_same_task_are_told(tmp_path):
    one, same, other = Task("x", "a"), Task("x", "a", level=3), Task("x", "a", precision="low")
    first, like, unlike, apart = (
        study(tmp_path / name, tasks=(task,))
        for name, task in (("first", one), ("like", same), ("unlike", other), ("apart", Task("y", "a")))
    )
    assert not notes.unlike_tasks([first]) and not notes.unlike_tasks([first, like])
    differ = "unlike and first: 1 of 1 tasks of the same id differ in source, precision or sizes; they are paired all"
    assert notes.unlike_tasks([first, unlike])[0].startswith(differ)
    nothing = "apart and first: they have no task in common, so nothing is paired"
    assert notes.unlike_tasks([first, like, apart]) == [nothing]


def test_tasks_of_a_study_of_another_version_are_compared_by_what_both_know(tmp_path):
    first, other = study(tmp_path / "first", tasks=(Task("x", "a"),)), study(tmp_path / "other")
    (other / study_folder.TASKS).write_text(json.dumps({"id": "x", "source": "b", "weight": 2}) + "\n")
    assert notes.unlike_tasks([first, other])[0].startswith("other and first: 1 of 1 tasks of the same id differ")


@pytest.mark.slow
@pytest.mark.usefixtures("no_plots")
def test_studies_whose_folders_have_one_name_are_told_apart(tmp_path):
    folders = [tmp_path / "a" / "default", tmp_path / "b" / "default"]
    for folder in folders:
        rows = synthetic.records(tasks=3)
        folder.mkdir(parents=True)
        failed = dataclasses.replace(rows[-1], verdict=Verdict("judge_failure", "worker_lost"))
        marked = dataclasses.replace(rows[0].verdict, evidence={"degenerate": "zeros would pass"})
        write(folder / RESULTS, [dataclasses.replace(rows[0], verdict=marked, task="x"), *rows[:-1], failed])
    report.write(folders, tmp_path / "out", "title")
    text = (tmp_path / "out" / "table.md").read_text()
    for name in ("a/default", "b/default"):
        assert f"{name}: the judge failed on 1 of" in text and f"{name}: 1 of 4 tasks is degenerate" in text
        assert f"| {name} | x: zeros would pass |" in text


@pytest.mark.slow
@pytest.mark.usefixtures("no_plots")
def test_a_report_has_these_notes(tmp_path):
    folders = [study(tmp_path / name, tasks=(Task(name, "a"),)) for name in "ab"]
    for folder in folders:
        synthetic.study(folder, tasks=2)
    report.write(folders, tmp_path / "out", "title")
    text = (tmp_path / "out" / "table.md").read_text()
    assert "b and a: they have no task in common" in text and "trials have fewer than 8 judge calls" in text
