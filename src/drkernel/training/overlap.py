"""One step ahead (`trainer.overlap`): first turns of the next step are generated while verdicts of this one are due.

A rollout ends with a wait: nothing is left to generate, and the judge still has submissions. With overlap the engine
then generates the first turns of the next step's trajectories, and hands them to the judge, which examines them while
the policy is updated. The next step takes them up: its later turns are of the new weights.

So first turns are of the weights before the last update, all of them and always: what is generated with which weights
does not depend on how long verdicts take, and a run repeats. `algo.importance_cap` corrects for it with the
log-probabilities that the engine gave. Next tasks are drawn before the refills of this step, whose number is not known
yet. A checkpoint has the completions and the ids of their tasks, so a resumed run goes on with the same ones; their
verdicts are asked for again.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch

from drkernel.policy.engine import Completion
from drkernel.rollout import Ahead, RolloutTimes
from drkernel.training.sharded_rollout import StepRollouts, draw
from drkernel.training.trainer import Trainer
from drkernel.types import Task


@dataclass
class Attempt:
    """What one attempt of a step plays."""

    tasks: list[Task]
    waited: RolloutTimes
    options: dict[str, Any]
    """Further arguments of `play`: the first group, what was begun, and what is to be begun."""


def draw_attempt(trainer: Trainer, played: StepRollouts, number: int, refills: bool) -> Attempt:
    """The next tasks and their groups, which `played` then counts. With `trainer.overlap` the first attempt of a step
    plays the tasks that the step before has begun, and begins those of the next one. Collective."""
    if refills or not trainer.config.trainer.overlap:
        return _drawn(trainer, played, number)
    begun = trainer.state.ahead
    if begun:
        tasks, _, waited = draw(trainer, begun["cursor"], number)
        now = Attempt(tasks, waited, {"first_group": begun["group"], "begun": taken_up(begun, tasks)})
    else:
        now = _drawn(trainer, played, number)
    cursor, group = played.cursor, played.groups
    following = _drawn(trainer, played, number)
    now.waited += following.waited
    now.options["ahead"] = Ahead(following.tasks, group)
    played.ahead = {"cursor": cursor, "group": group, "tasks": [task.id for task in following.tasks]}
    return now


def taken_up(begun: dict[str, Any], tasks: list[Task]) -> dict[tuple[int, int], Completion]:
    """The completions of `State.ahead` that answer the task which their group has now. A task that is refused when the
    tasks are drawn again moves later ones into other groups, whose first turns are then generated anew."""
    pairs = zip(begun.get("tasks", ()), tasks, strict=False)
    same = {group for group, (id, task) in enumerate(pairs, begun["group"]) if id == task.id}
    return {place: each for place, each in restored(begun["completions"]).items() if place[0] in same}


def keep(played: StepRollouts, attempt: Attempt) -> None:
    """Puts what an attempt has begun of the next step where the state will have it."""
    if ahead := attempt.options.get("ahead"):
        played.ahead["completions"] = plain(ahead.completions)


def _drawn(trainer: Trainer, played: StepRollouts, number: int) -> Attempt:
    tasks, played.cursor, waited = draw(trainer, played.cursor, number)
    played.groups += number
    return Attempt(tasks, waited, {"first_group": played.groups - number})


def plain(completions: dict[tuple[int, int], Completion]) -> dict[str, dict[str, Any]]:
    """Completions by (group, sample) as what a checkpoint may hold.

    >>> completions = {(3, 1): Completion("3.1.0", [5, 6], [-0.5, -0.25], True)}
    >>> restored(plain(completions)) == completions
    True
    """
    return {
        completion.id: {
            "place": place,
            "tokens": torch.tensor(completion.token_ids, dtype=torch.int32),
            "logprobs": torch.tensor(completion.logprobs, dtype=torch.float64),
            "finished": completion.finished,
        }
        for place, completion in sorted(completions.items())
    }


def restored(saved: dict[str, dict[str, Any]]) -> dict[tuple[int, int], Completion]:
    """What `plain` was given."""
    make = lambda id, of: Completion(id, of["tokens"].tolist(), of["logprobs"].tolist(), of["finished"])
    return {tuple(of["place"]): make(id, of) for id, of in saved.items()}
