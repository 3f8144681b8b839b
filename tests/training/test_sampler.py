"""Which tasks a step is about: a function of the seed and of how many were drawn; refused ones are passed over."""

import threading

import pytest

from drkernel.judge import NotPrepared
from drkernel.training.ranks import Ranks
from drkernel.training.sampler import Sampler
from drkernel.types import DrKernelError, Task, WorkerLost

TASKS = [Task(f"t{i}", "") for i in range(5)]


class Judge:
    def __init__(self, *refused: str):
        self.refused = refused

    def check_task(self, task: Task) -> None:
        if task.id in self.refused:
            raise DrKernelError(f"task {task.id}: degenerate")


def ids(tasks):
    return [task.id for task in tasks]


def test_every_epoch_has_every_task_once_in_an_order_of_its_own():
    tasks, cursor = Sampler(TASKS, 0, Judge(), print).draw(0, 15)
    epochs = [ids(tasks)[i : i + 5] for i in (0, 5, 10)]
    assert cursor == 15 and all(sorted(epoch) == ids(TASKS) for epoch in epochs) and len({*map(tuple, epochs)}) > 1


def test_drawing_goes_on_where_a_resumed_run_left_off():
    whole = ids(Sampler(TASKS, 3, Judge("t1"), print).draw(0, 12)[0])
    first, cursor = Sampler(TASKS, 3, Judge("t1"), print).draw(0, 7)
    assert ids(first) + ids(Sampler(TASKS, 3, Judge("t1"), print).draw(cursor, 5)[0]) == whole


def test_a_refused_task_is_named_once_and_replaced_by_the_next():
    said = []
    sampler = Sampler(TASKS, 0, Judge("t2"), said.append)
    tasks, cursor = sampler.draw(0, 12)
    assert len(tasks) == 12 and "t2" not in ids(tasks) and cursor == 15
    assert said == ["passed over: task t2: degenerate"]


class Dying(Judge):
    """A judge whose process ends while it prepares some tasks."""

    def check_task(self, task: Task) -> None:
        if task.id in self.refused:
            raise NotPrepared("judge: a task could not be prepared: worker process: PeerClosed")


def test_a_task_that_ends_the_judge_s_process_is_passed_over_when_it_is_drawn():
    said = []
    assert "t2" not in ids(Sampler(TASKS, 0, Dying("t2"), said.append).draw(0, 12)[0])
    assert said == ["passed over: task t2: judge: a task could not be prepared: worker process: PeerClosed"]


def test_a_judge_that_fails_at_task_after_task_ends_the_run():
    said = []
    sampler = Sampler(TASKS, 0, Dying(*ids(TASKS)), said.append)
    with pytest.raises(WorkerLost, match=r"task t\d: judge: a task could not be prepared"):
        [sampler.draw(cursor, 1) for cursor in range(3)]  # one at a time
    with pytest.raises(WorkerLost, match="could not be prepared"):
        Sampler(TASKS, 0, Dying(*ids(TASKS)), said.append).draw(0, 4)
    assert len({*said}) < 3


def test_the_tasks_of_a_validation_are_never_fewer_for_a_failure_of_the_judge():
    with pytest.raises(WorkerLost, match="task t2: judge: a task could not be prepared"):
        Sampler(TASKS, 0, Dying("t2"), print).usable(TASKS)


def test_a_task_that_the_judge_marks_as_degenerate_is_never_drawn():
    class Marking(Judge):
        def check_task(self, task: Task) -> str:
            return "zeros would pass" if task.id == "t2" else ""

    said = []
    assert "t2" not in ids(Sampler(TASKS, 0, Marking(), said.append).draw(0, 12)[0])
    assert said == ["passed over: task t2: degenerate: zeros would pass"]


def test_without_any_usable_task_the_judge_s_reason_is_raised():
    with pytest.raises(DrKernelError, match="degenerate"):
        Sampler(TASKS, 0, Judge(*ids(TASKS)), print).draw(0, 2)


def test_a_task_whose_prompt_is_too_long_is_passed_over_and_never_reaches_the_judge():
    asked, said = [], []

    class Asked(Judge):
        def check_task(self, task: Task) -> None:
            asked.append(task.id)

    too_long = lambda task: "task t2: found a prompt of 9 tokens" if task.id == "t2" else ""
    tasks, _ = Sampler(TASKS, 0, Asked(), said.append, too_long=too_long).draw(0, 8)
    assert len(tasks) == 8 and "t2" not in ids(tasks) and "t2" not in asked
    assert said == ["passed over: task t2: found a prompt of 9 tokens"]


def test_prompts_are_made_one_after_the_other():
    """Some run their task, and those of several threads would get in each other's way."""
    threads = set()
    Sampler(TASKS, 0, Judge(), print, too_long=lambda task: threads.add(threading.get_ident()) or "").draw(0, 8)
    assert threads == {threading.get_ident()}


class OtherNode(Ranks):
    """Two nodes of one rank each: this one, and one whose judge refuses t3."""

    def all_gather_object(self, make):
        mine = make()
        return [mine, ["task t3: out of memory" if task.id == "t3" else "" for task in self.asked]]


def test_a_task_that_another_node_cannot_use_is_passed_over_by_all_nodes(monkeypatch):
    said, ranks = [], OtherNode(rank=0, size=2, local_rank=0, local_size=1)
    sampler, usable = Sampler(TASKS, 0, Judge(), said.append, ranks=ranks), Sampler.usable

    def told(self, tasks, **options):
        object.__setattr__(ranks, "asked", tasks)
        return usable(self, tasks, **options)

    monkeypatch.setattr(Sampler, "usable", told)
    assert "t3" not in ids(sampler.draw(0, 12)[0]) and said == ["passed over: task t3: out of memory"]


def test_the_prompt_that_engine_and_trainer_are_compared_on_fits_the_engine():
    assert (
        Sampler(TASKS, 0, Judge(), print, too_long=lambda task: "long" * (task.id in ("t0", "t1"))).fitting().id == "t2"
    )
    with pytest.raises(DrKernelError, match="too long for this engine"):
        Sampler(TASKS, 0, Judge(), print, too_long=lambda task: "too long for this engine").fitting()
