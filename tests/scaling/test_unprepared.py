"""A judge that fails over one task of a study."""

import time

import pytest

from drkernel.config import ScalingConfig
from drkernel.judge import NotPrepared
from drkernel.scaling import records
from tests.scaling.playing import TASKS, Judge, play

ALL = {task.id for task in TASKS}


def test_where_the_judge_fails_over_a_task_the_others_are_judged_all_the_same(tmp_path):
    class Failing(Judge):
        def check_task(self, task):
            if task.id != "set/1":
                time.sleep(0.2)
                return ""
            raise NotPrepared("judge: a task could not be prepared")

    with pytest.raises(NotPrepared):
        play(tmp_path, ScalingConfig("parallel", budget=2), judge=Failing())
    kept = {record.task for record in records.read(tmp_path / records.RESULTS)}
    assert kept == ALL - {"set/1"}
    assert {record.task for record in play(tmp_path, ScalingConfig("parallel", budget=2)).values()} == ALL
