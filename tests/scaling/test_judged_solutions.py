"""Solutions made elsewhere that stop counting, or never did."""

from drkernel.scaling import records, study
from drkernel.scaling.solutions import Solution
from tests.scaling.playing import TASKS, Judge


def judge_all(folder, solutions, judge=None, log=lambda line: None):
    path, known = folder / records.RESULTS, study.known(folder)
    study.judge_solutions(TASKS, solutions, judge or Judge(), path, label="theirs", known=known, log=log)


def test_a_solution_without_code_says_whether_its_task_is_degenerate(tmp_path):
    class Marking(Judge):
        def check_task(self, task):
            return "zeros would pass" if task.id == "set/0" else ""

    judge_all(tmp_path, [Solution("set/0", 0, None, "a"), Solution("set/1", 0, None, "b")], Marking())
    found = {record.task: record for record in records.read(tmp_path / records.RESULTS)}
    assert {task: record.degenerate for task, record in found.items()} == {"set/0": "zeros would pass", "set/1": ""}
    assert {record.verdict.reason for record in found.values()} == {"no_code"}


def test_a_solution_without_code_to_a_task_that_the_judge_refuses_is_passed_over(tmp_path):
    told = []
    judge_all(tmp_path, [Solution("set/1", 0, None, "b")], Judge(unusable=["set/1"]), told.append)
    assert not records.read(tmp_path / records.RESULTS)
    assert told[-1] == "passed over: task set/1: its reference fails"


def test_a_solution_that_was_taken_away_does_not_count_any_more(tmp_path):
    told, solutions = (
        [],
        [Solution("set/0", 0, "2", "a"), Solution("set/0", 1, "3", "b"), Solution("set/1", 0, "5", "c")],
    )
    for given in (solutions, solutions[:1]):
        judge_all(tmp_path, given)
        study.merge(tmp_path, given, told.append)
    found = records.read(tmp_path / records.RESULTS)
    assert [(record.task, record.trial, record.source) for record in found] == [("set/0", 0, "2")]
    assert told == ["2 of 3 judged solutions are not there any more; they are not counted"]
