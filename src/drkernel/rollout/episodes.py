"""Multi-turn episodes: answers stream to the judge while the engine goes on with others, feedback streams back.

One loop, one thread. A trajectory waits for its own verdict and for nothing else; since a completion depends on its own
sequence alone, the trajectories do not depend on how long any verdict takes.
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from queue import Empty, SimpleQueue

from drkernel.judge import JudgeProtocol, feedback
from drkernel.policy.engine import Completion, Engine, Request, Sampling
from drkernel.policy.prompts import Prompts
from drkernel.types import DrKernelError, Task, Trajectory, Turn, Verdict, WorkerLost

TRAINING = Sampling()
_GLANCE_S = 1.0
"""How often a wait for a verdict looks whether the rollout shall stop."""


class Stopped(Exception):
    """A rollout was given up half-way; what it had so far is lost."""


@dataclass(frozen=True)
class Progress:
    """Where a rollout stands, for a progress bar."""

    turns_done: int
    turns_total: int
    tokens: int
    """Sampled so far."""
    judging: int
    """Verdicts awaited now."""


@dataclass
class RolloutTimes:
    """Where the seconds of rollouts went; the rest is our own work between the engine's steps."""

    generating: float = 0.0
    """In the engine."""
    waiting: float = 0.0
    """For the judge, with nothing left to generate."""
    peers: float = 0.0
    """For other ranks, having played its own share."""


def rollout(
    engine: Engine,
    judge: JudgeProtocol,
    prompts: Prompts,
    tasks: Sequence[Task],
    samples_per_task: int,
    turns: int,
    max_tokens: int,
    seed: int,
    feedback_limit: int,
    on_progress: Callable[[Progress], None] | None = None,
    first_group: int = 0,
    sampling: Sampling = TRAINING,
    deadline_s: float = 600.0,
    share: tuple[int, int] = (0, 1),
    stop: Callable[[], bool] = lambda: False,
    told: Callable[[Verdict], Verdict] = lambda verdict: verdict,
    spent: RolloutTimes | None = None,
) -> list[Trajectory]:
    """samples_per_task trajectories for each task, ordered by (task, sample); task i is group `first_group + i`.

    share: (k, n) plays every n-th of them, beginning with number k: one rank's part.

    max_tokens: longest answer of one turn. A later turn is begun only where its longest answer still fits the engine's
    context, so a trajectory with fewer than `turns` turns reached that limit. seed: seeds each answer, together with
    group, sample and turn. feedback_limit: in the policy's tokens. deadline_s: how long to wait for a verdict when
    nothing else is left to do. stop: asked all the time; True ends the rollout with Stopped. told: what the feedback
    says of a verdict. spent: seconds are added to it.

    Raises DrKernelError where a task does not fit the context, WorkerLost where a verdict does not come, and what a
    judging raises.
    """
    limits = turns, max_tokens, seed, feedback_limit
    one = _Rollout(
        engine, judge, prompts, *limits, on_progress, sampling, deadline_s, stop, told, spent or RolloutTimes()
    )
    return one.run(tasks, samples_per_task, first_group, share)


def answer_seed(seed: int, group: int, sample: int, turn: int) -> int:
    """63 bits that name one answer of a run, the same on every machine."""
    digest = hashlib.sha256(f"{seed}/{group}/{sample}/{turn}".encode()).digest()
    return int.from_bytes(digest[:8], "big") >> 1


@dataclass
class _Episode:
    task: Task
    trajectory: Trajectory
    tokens: list[int]
    """The whole sequence so far."""
    prompt_ids: list[int]
    """What the turn now in progress added before its answer."""

    def request_id(self, turn: int) -> str:
        return f"{self.trajectory.group}.{self.trajectory.sample}.{turn}"


@dataclass
class _Rollout:
    engine: Engine
    judge: JudgeProtocol
    prompts: Prompts
    turns: int
    max_tokens: int
    seed: int
    feedback_limit: int
    on_progress: Callable[[Progress], None] | None
    sampling: Sampling
    deadline_s: float
    stop: Callable[[], bool]
    told: Callable[[Verdict], Verdict]
    spent: RolloutTimes

    def run(self, tasks: Sequence[Task], samples: int, first_group: int, share: tuple[int, int]) -> list[Trajectory]:
        self.generating: dict[str, _Episode] = {}
        self.verdicts: SimpleQueue[tuple[_Episode, Future[Verdict]]] = SimpleQueue()
        self.judging = self.turns_done = self.tokens = 0
        numbers = range(share[0], len(tasks) * samples, share[1])
        self.turns_total = len(numbers) * self.turns
        trajectories = []
        for group, task in enumerate(tasks, first_group):
            first = self.prompts.first(task)
            if len(first) + self.max_tokens > self.engine.context:
                raise DrKernelError(
                    f"task {task.id}: found a prompt of {len(first)} tokens, expected at most "
                    f"{self.engine.context - self.max_tokens} (engine.max_tokens - engine.max_answer_tokens)"
                )
            first_number = (group - first_group) * samples
            for sample in (sample for sample in range(samples) if first_number + sample in numbers):
                trajectories.append(Trajectory(task.id, group, sample))
                self._ask(_Episode(task, trajectories[-1], [], []), first)
        while self.generating or self.judging:
            if self.stop():
                raise Stopped
            self._collect_verdicts()
            started = time.perf_counter()
            completions = self.engine.step() if self.engine.busy else ()
            self.spent.generating += time.perf_counter() - started
            for completion in completions:
                self._answered(self.generating.pop(completion.id), completion)
            if self.on_progress:
                self.on_progress(Progress(self.turns_done, self.turns_total, self.tokens, self.judging))
        return trajectories

    def _ask(self, episode: _Episode, prompt_ids: list[int]) -> None:
        turn = len(episode.trajectory.turns)
        episode.prompt_ids = prompt_ids
        episode.tokens += prompt_ids
        request = Request(
            id=episode.request_id(turn),
            prompt_ids=list(episode.tokens),
            max_tokens=self.max_tokens,
            seed=answer_seed(self.seed, episode.trajectory.group, episode.trajectory.sample, turn),
            parent=episode.request_id(turn - 1) if turn else None,
            sampling=self.sampling,
        )
        self.generating[request.id] = episode
        self.engine.add(request)

    def _answered(self, episode: _Episode, completion: Completion) -> None:
        source = self.prompts.extract(self.prompts.text(completion.token_ids), episode.task.answer_name)
        turn = Turn(episode.prompt_ids, completion.token_ids, completion.logprobs, source, None, completion.finished)
        episode.trajectory.turns.append(turn)
        episode.tokens += completion.token_ids
        self.tokens += len(completion.token_ids)
        self.judging += 1
        future = self.judge.submit(episode.task, source) if source is not None else _no_code(episode.task)
        future.add_done_callback(lambda done: self.verdicts.put((episode, done)))

    def _collect_verdicts(self) -> None:
        """Takes the verdicts that are there; waits for the first one where nothing is left to generate."""
        idle, deadline = not self.generating, time.monotonic() + self.deadline_s
        while self.judging:
            started = time.perf_counter()
            try:
                episode, future = self.verdicts.get(block=idle, timeout=min(_GLANCE_S, self.deadline_s))
            except Empty:
                if not idle or self.stop():
                    return
                if time.monotonic() > deadline:
                    waited = f"no verdict within {self.deadline_s:g} s, {self.judging} are awaited"
                    raise WorkerLost(f"judge: {waited}") from None
                continue
            finally:
                self.spent.waiting += time.perf_counter() - started
            idle = False
            self.judging -= 1
            self._judged(episode, future.result())

    def _judged(self, episode: _Episode, verdict: Verdict) -> None:
        turn = episode.trajectory.turns[-1]
        turn.verdict = verdict
        self.turns_done += 1
        following: list[int] = []
        if len(episode.trajectory.turns) < self.turns:
            text = feedback(self.told(verdict), self.feedback_limit, self.prompts.count)
            following = self.prompts.next(text, turn.finished)
        if following and len(episode.tokens) + len(following) + self.max_tokens <= self.engine.context:
            self._ask(episode, following)
        else:
            self.turns_total -= self.turns - len(episode.trajectory.turns)
            self.engine.release(episode.request_id(len(episode.trajectory.turns) - 1))


def _no_code(task: Task) -> Future[Verdict]:
    future: Future[Verdict] = Future()
    future.set_result(Verdict("invalid", "no_code", f"The answer has no code that defines class {task.answer_name}."))
    return future
