"""Multi-turn episodes: completions stream to the judge while the engine generates others, and feedback streams back.

There is one loop and one thread. A trajectory waits for its own verdict only. A completion depends on its own sequence
only, so no trajectory depends on how long verdicts take.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from drkernel.judge import JudgeProtocol, feedback
from drkernel.policy.engine import Completion, Engine, Request, Sampling
from drkernel.rollout.verdicts import VerdictQueue, judged, no_code, resolved
from drkernel.seeds import seed_of
from drkernel.types import DrKernelError, Task, Trajectory, Turn, Verdict

if TYPE_CHECKING:
    from drkernel.policy.prompts import Prompts  # imports transformers, which an environment does without

TRAINING = Sampling()


class Stopped(Exception):
    """A rollout was given up half-way; what it had so far is lost."""


@dataclass(frozen=True)
class EpisodeConfig:
    """What an episode is like."""

    turns: int
    """Most turns of a trajectory."""
    max_tokens: int
    """Most tokens of one completion."""
    feedback_limit: int
    """Most tokens of the feedback after a turn, in the policy's tokens."""
    sampling: Sampling = TRAINING
    feedback_view: Callable[[Verdict], Verdict] = lambda verdict: verdict
    """The verdict that the feedback describes; the trajectory keeps the judge's own."""
    deadline_s: float = 600.0
    """How long to wait for a verdict when nothing is left to generate."""


@dataclass
class Ahead:
    """First turns of a later rollout, which a rollout generates once it has nothing of its own left to generate. They
    are submitted to the judge, whose verdicts the later rollout asks for again."""

    tasks: Sequence[Task]
    first_group: int
    completions: dict[tuple[int, int], Completion] = field(default_factory=dict)
    """By (group, sample); the rollout fills it."""


@dataclass(frozen=True)
class RolloutProgress:
    """Where a rollout stands, for a progress bar."""

    turns_done: int
    turns_total: int
    tokens: int
    """Sampled so far."""
    judging: int
    """Verdicts awaited now."""


@dataclass(frozen=True)
class RolloutTimes:
    """Where the seconds of rollouts went; the rest is this module's own work between the engine's steps."""

    generating: float = 0.0
    """In the engine."""
    waiting: float = 0.0
    """For the judge, with nothing left to generate."""
    peers: float = 0.0
    """For other ranks, after this rank's shard was done."""

    def __add__(self, other: RolloutTimes) -> RolloutTimes:
        return RolloutTimes(self.generating + other.generating, self.waiting + other.waiting, self.peers + other.peers)

    @property
    def total(self) -> float:
        return self.generating + self.waiting + self.peers


def rollout(
    engine: Engine,
    judge: JudgeProtocol,
    prompts: Prompts,
    tasks: Sequence[Task],
    samples: int,
    config: EpisodeConfig,
    *,
    seed: int,
    first_group: int = 0,
    shard: tuple[int, int] = (0, 1),
    on_progress: Callable[[RolloutProgress], None] | None = None,
    should_stop: Callable[[], bool] = lambda: False,
    begun: Mapping[tuple[int, int], Completion] | None = None,
    ahead: Ahead | None = None,
) -> tuple[list[Trajectory], RolloutTimes]:
    """`samples` trajectories for each task, ordered by (task, sample); task i is group `first_group + i`.

    A later turn is begun only where its longest completion still fits the engine's context, and where the judge did not
    fail on the turn before. So a trajectory with fewer than `config.turns` turns has reached that limit, or
    `ends_in_judge_failure`.

    seed: with group, sample and turn it seeds each completion.
    shard: (k, n) plays every n-th trajectory, beginning with number k: one rank's part.
    should_stop: asked all the time; True ends the rollout with Stopped.
    begun: first completions that there are already, by (group, sample), perhaps of other weights.
    ahead: what to generate of a later rollout, with as many samples and the same shard.

    A task that was usable before and that the judge now refuses is a failure of the judge.

    Raises DrKernelError where a task does not fit the context, WorkerLost where a verdict does not come or the judge
    has ended.
    """
    return _Rollout(engine, judge, prompts, config, seed, on_progress, should_stop, begun or {}, ahead).run(
        tasks, samples, first_group, shard
    )


def too_long(task: Task, prompts: Prompts, room: int) -> str:
    """Why a task cannot be played where its prompt may have `room` tokens, or nothing."""
    found = len(prompts.first(task))
    where = f"{room} (engine.max_tokens - engine.max_answer_tokens)"
    return f"task {task.id}: found a prompt of {found} tokens, expected at most {where}" if found > room else ""


@dataclass
class _Episode:
    task: Task
    trajectory: Trajectory
    tokens: list[int]
    """The whole sequence so far."""
    prompt_ids: list[int]
    """What the present turn added before its completion."""
    history: list[int] | None = None
    """What stands before that, where it is not the turns before (`Turn.history`)."""
    begun: bool = False
    """The engine has not generated the first turn in this rollout, so nothing can extend it."""

    def request_id(self, turn: int) -> str:
        return f"{self.trajectory.group}.{self.trajectory.sample}.{turn}"


@dataclass
class _Rollout:
    engine: Engine
    judge: JudgeProtocol
    prompts: Prompts
    config: EpisodeConfig
    seed: int
    on_progress: Callable[[RolloutProgress], None] | None
    should_stop: Callable[[], bool]
    begun: Mapping[tuple[int, int], Completion]
    ahead: Ahead | None

    def run(
        self, tasks: Sequence[Task], samples: int, first_group: int, shard: tuple[int, int]
    ) -> tuple[list[Trajectory], RolloutTimes]:
        self.generating: dict[str, _Episode] = {}
        self.early: dict[str, tuple[Task, tuple[int, int]]] = {}  # first turns of a later rollout
        self.verdicts = VerdictQueue(self.config.deadline_s)
        self.turns_done = self.tokens = 0
        self.turns_total = self.config.turns * len(range(shard[0], len(tasks) * samples, shard[1]))
        trajectories, engine_s = [], 0.0
        for episode in self._episodes(tasks, samples, first_group, shard):
            trajectories.append(episode.trajectory)
            self._begin(episode)
        later, self.ahead = self.ahead, None
        while self.generating or self.verdicts.pending or self.early or later:
            if self.should_stop():
                raise Stopped
            idle = not (self.generating or self.early or later)
            self.verdicts.take(wait=idle, should_stop=self.should_stop)
            if later and not self.generating:
                self.ahead, later = later, None
                for episode in self._episodes(self.ahead.tasks, samples, self.ahead.first_group, shard):
                    self._request_early(episode)
            started = time.perf_counter()
            completions = self.engine.step() if self.engine.busy else ()
            engine_s += time.perf_counter() - started
            for completion in completions:
                if completion.id in self.early:
                    self._completed_early(completion)
                else:
                    self._completed(self.generating.pop(completion.id), completion)
            if self.on_progress:
                pending = self.verdicts.pending
                self.on_progress(RolloutProgress(self.turns_done, self.turns_total, self.tokens, pending))
        return trajectories, RolloutTimes(engine_s, self.verdicts.waited_s)

    def _episodes(
        self, tasks: Sequence[Task], samples: int, first_group: int, shard: tuple[int, int]
    ) -> Iterator[_Episode]:
        """Those of a shard, with their first prompts, in their order."""
        numbers = range(shard[0], len(tasks) * samples, shard[1])
        for group, task in enumerate(tasks, first_group):
            first = self._first_prompt(task)
            first_number = (group - first_group) * samples
            for sample in (sample for sample in range(samples) if first_number + sample in numbers):
                yield _Episode(task, Trajectory(task.id, group, sample), [], first)

    def _begin(self, episode: _Episode) -> None:
        """Asks the engine for the first turn, or takes up the one that there is."""
        place, first = (episode.trajectory.group, episode.trajectory.sample), episode.prompt_ids
        if place not in self.begun:
            return self._request(episode, first)
        episode.begun = True
        episode.tokens += first
        self._completed(episode, self.begun[place])

    def _request_early(self, episode: _Episode) -> None:
        """Asks the engine for the first turn of a later rollout's episode."""
        request = self._asked(episode, episode.prompt_ids, turn=0)
        self.early[request.id] = episode.task, (episode.trajectory.group, episode.trajectory.sample)
        self.engine.add(request)

    def _completed_early(self, completion: Completion) -> None:
        """Keeps it, and lets the judge begin with it: the verdict is in its cache when the later rollout asks."""
        assert self.ahead is not None
        task, place = self.early.pop(completion.id)
        self.engine.release(completion.id)
        self.ahead.completions[place] = completion
        source = self.prompts.extract(self.prompts.text(completion.token_ids), task)
        if source is not None:
            self.judge.submit(task, source)

    def _first_prompt(self, task: Task) -> list[int]:
        if reason := too_long(task, self.prompts, self.engine.context - self.config.max_tokens):
            raise DrKernelError(reason)
        return self.prompts.first(task)

    def _request(self, episode: _Episode, prompt_ids: list[int]) -> None:
        """Asks the engine for the next turn of an episode."""
        turn = len(episode.trajectory.turns)
        episode.prompt_ids = prompt_ids
        episode.tokens += prompt_ids
        extends = turn > 0 and episode.history is None and not (turn == 1 and episode.begun)
        request = self._asked(episode, episode.tokens, turn, parent=episode.request_id(turn - 1) if extends else None)
        self.generating[request.id] = episode
        self.engine.add(request)

    def _asked(self, episode: _Episode, tokens: list[int], turn: int, parent: str | None = None) -> Request:
        return Request(
            id=episode.request_id(turn),
            prompt_ids=list(tokens),
            max_tokens=self.config.max_tokens,
            seed=seed_of(self.seed, episode.trajectory.group, episode.trajectory.sample, turn),
            parent=parent,
            sampling=self.config.sampling,
        )

    def _completed(self, episode: _Episode, completion: Completion) -> None:
        """Hands a completion to the judge."""
        source = self.prompts.extract(self.prompts.text(completion.token_ids), episode.task)
        whole = episode.prompt_ids + completion.token_ids
        turn = Turn(episode.prompt_ids, completion.token_ids, completion.logprobs, source, None, completion.finished)
        turn.history = episode.history
        episode.trajectory.turns.append(turn)
        kept = self.prompts.history(episode.prompt_ids, completion.token_ids, completion.finished)
        episode.tokens[len(episode.tokens) - len(episode.prompt_ids) :] = kept
        episode.history = None if kept == whole else list(episode.tokens)
        self.tokens += len(completion.token_ids)
        verdict = resolved(no_code(episode.task)) if source is None else self.judge.submit(episode.task, source)
        self.verdicts.add(verdict, self._judged, episode)

    def _judged(self, episode: _Episode, verdict: Future[Verdict]) -> None:
        """Goes on with the next turn, where there is one and the context has room for it."""
        turns, turn = len(episode.trajectory.turns), episode.trajectory.turns[-1]
        turn.verdict = judged(verdict)
        self.turns_done += 1
        following: list[int] = []
        if turns < self.config.turns and not turn.verdict.is_judge_failure:
            shown = self.config.feedback_view(turn.verdict)
            text = feedback(shown, self.config.feedback_limit, self.prompts.count)
            following = self.prompts.next(text, turn.finished, turn.response_ids[-1])
        if following and len(episode.tokens) + len(following) + self.config.max_tokens <= self.engine.context:
            if episode.history is not None:
                self.engine.release(episode.request_id(turns - 1))  # the next turn extends it no more
            self._request(episode, following)
        else:
            self.turns_total -= self.config.turns - turns
            self.engine.release(episode.request_id(turns - 1))
