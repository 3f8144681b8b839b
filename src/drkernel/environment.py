"""Tasks, prompts, judge and rewards as an environment, for other trainers: TRL, verl, prime-rl, verifiers.

    with Judge(workers=2) as judge:                  # or RemoteJudge([...]): servers on other machines
        environment = Environment(judge, load_tasks("handwritten", split="test"), reward="profiling", turns=3)
        messages, done = environment.reset(environment.tasks[0]), False
        while not done:
            messages, reward, done, info = environment.step(model(messages))

Prompts, feedback, verdicts and rewards are those of train.py: the texts of policy/templates.py, the judge, and
objective/rewards.py. Returns over turns are the trainer's: `objective.returns.reward_to_go` computes those of train.py.
Neither a tokenizer nor vLLM is needed. docs/environment.md has examples.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, cast

from torch import Tensor

from drkernel.judge import JudgeProtocol
from drkernel.judge.feedback import estimated_tokens
from drkernel.objective.rewards import REWARDS
from drkernel.objective.rollouts import ignoring_hack_check, reward_of
from drkernel.policy.templates import TEMPLATE, Template
from drkernel.policy.thinking import submission_in
from drkernel.rollout.conversation import Message, opening, revision
from drkernel.rollout.verdicts import judged, no_code, refusal, resolved
from drkernel.types import DrKernelError, Task, Verdict

_CHECKING = 16
"""Tasks that the judge checks at the same time."""


@dataclass(frozen=True)
class StepInfo:
    """What an environment says of a completion besides its reward."""

    turn: int
    """From 0 on."""
    source: str | None
    """The submission in the completion."""
    verdict: Verdict
    rewards: tuple[float | None, ...]
    """Of all turns so far."""


class Environment:
    """One episode at a time: `reset`, then `step` until it is done. Episodes that run at the same time have an
    environment each; the judge may be one. `first`, `rows` and `rewards` keep no state, so threads may share them.

    judge: a Judge or a RemoteJudge, which stays the caller's to close.
    tasks: what is to be solved, e.g. of `tasks.load_tasks`.
    reward: a name of objective/rewards.py; `options` are those of that reward (conf/reward/).
    turns: most completions of an episode.
    hack_check: False rewards hacks with right outputs; the judge must have `price_hacks`.
    feedback_tokens: most tokens of the feedback after a completion, as `count` counts them; without a tokenizer that is
        estimated.
    template: the texts of the prompts (`policy.templates.load_template` reads a file of them).

    A reward is None where the judge failed, which says nothing of the completion: the episode ends, and must not train.

    Raises:
        DrKernelError: an unknown reward or option, or two tasks of one id.
    """

    def __init__(
        self,
        judge: JudgeProtocol,
        tasks: Iterable[Task],
        *,
        reward: str = "profiling",
        turns: int = 3,
        hack_check: bool = True,
        feedback_tokens: int = 1024,
        count: Callable[[str], int] = estimated_tokens,
        template: Template = TEMPLATE,
        **options: float,
    ):
        self.judge, self.tasks, self.turns = judge, list(tasks), turns
        self.template, self.hack_check = template, hack_check
        self._feedback_tokens, self._count = feedback_tokens, count
        self._reward = _chosen_reward(reward, options)
        self._by_id = {task.id: task for task in self.tasks}
        if turns < 1:
            raise DrKernelError(f"environment: turns is {turns}, expected 1 or more")
        if len(self._by_id) < len(self.tasks):
            raise DrKernelError("environment: found two tasks of one id, expected each id once")
        self._task: Task | None = None
        self._messages: list[Message] = []
        self._rewards: list[float | None] = []

    def reset(self, task: Task | str) -> list[Message]:
        """Begins an episode on a task, or on that with this id. Returns the messages before the first completion.

        Raises:
            DrKernelError: there is no such task, or the judge refuses it; NotPrepared, which is one, where it failed.
        """
        self._task = None
        chosen = self._find(task)
        if why := refusal(self.judge, chosen):
            raise DrKernelError(why)
        self._task, self._messages, self._rewards = chosen, self.first(chosen), []
        return list(self._messages)

    def step(self, completion: str, finished: bool = True) -> tuple[list[Message], float | None, bool, StepInfo]:
        """Judges a completion.

        finished: False where it was cut at its limit of tokens, which the next message then says.

        Returns:
            The messages before the next completion, all earlier ones included; once the episode is done they end with
            this completion. The reward of this turn. Whether the episode is done. What was found.

        Raises:
            DrKernelError: no episode is under way. WorkerLost: the judge has ended.
        """
        if self._task is None:
            raise DrKernelError("environment: no episode is under way, expected reset before step")
        task, turn = self._task, len(self._rewards)
        source, coming = self._submitted(task, completion)
        verdict = judged(coming)
        self._rewards.append(self.reward(verdict))
        self._messages.append({"role": "assistant", "content": completion})
        done = len(self._rewards) == self.turns or verdict.is_judge_failure
        if done:
            self._task = None
        else:
            shown = verdict if self.hack_check else ignoring_hack_check(verdict)
            limit, count = self._feedback_tokens, self._count
            self._messages.append(revision(shown, finished, limit, self.template, count))
        return list(self._messages), self._rewards[-1], done, StepInfo(turn, source, verdict, tuple(self._rewards))

    def reward(self, verdict: Verdict) -> float | None:
        """What a verdict is worth; None where the judge failed."""
        return None if verdict.is_judge_failure else reward_of(verdict, self._reward, self.hack_check)

    def first(self, task: Task | str) -> list[Message]:
        """The messages before the first completion to a task."""
        return opening(self._find(task), self.template)

    def rows(self, on_skip: Callable[[str], None] | None = None) -> list[dict[str, Any]]:
        """The tasks as a data set: `prompt` (the messages before the first completion) and `task` (the id).

        on_skip: called with one line about each task that the judge refuses; without it that is an error.
        """
        with ThreadPoolExecutor(_CHECKING) as pool:
            refusals = list(pool.map(functools.partial(refusal, self.judge), self.tasks))
        for why in filter(None, refusals):
            if on_skip is None:
                raise DrKernelError(why)
            on_skip(why)
        usable = [task for task, why in zip(self.tasks, refusals, strict=True) if not why]
        return [{"prompt": self.first(task), "task": task.id} for task in usable]

    def rewards(self, completions: Sequence[Any], task: Sequence[str], **_: Any) -> list[float | None]:
        """The rewards of first completions, judged at the same time: a reward function as TRL calls it.

        completions: texts, or lists of messages, of which the last one is the completion. task: for each the id of its
        task, a column of the data set. Other columns are not used.
        """
        texts = [each if isinstance(each, str) else each[-1]["content"] for each in completions]
        coming = [self._submitted(self._find(id), text)[1] for id, text in zip(task, texts, strict=True)]
        return [self.reward(judged(future)) for future in coming]

    def _submitted(self, task: Task, completion: str) -> tuple[str | None, Future[Verdict]]:
        source = submission_in(completion, task.submission_name)
        return source, resolved(no_code(task)) if source is None else self.judge.submit(task, source)

    def _find(self, task: Task | str) -> Task:
        if isinstance(task, Task):
            return task
        if task not in self._by_id:
            raise DrKernelError(f"environment: found the task {task!r}, expected one of its {len(self.tasks)} ids")
        return self._by_id[task]


def _chosen_reward(name: str, options: dict[str, float]) -> Callable[[Tensor, Tensor, Tensor], Tensor]:
    if name not in REWARDS:
        raise DrKernelError(f"environment: reward is {name!r}, expected one of {', '.join(REWARDS)}")
    parameters = inspect.signature(REWARDS[name]).parameters.values()
    known = [each.name for each in parameters if each.kind is each.KEYWORD_ONLY]
    if unknown := [option for option in options if option not in known]:
        raise DrKernelError(f"environment: found {', '.join(unknown)}; the reward {name} has {', '.join(known)}")
    return functools.partial(cast(Callable[..., Tensor], REWARDS[name]), **options)
