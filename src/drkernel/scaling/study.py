"""A study: a strategy spends its budget on every (task, trial), all of them side by side.

One loop in one thread. Completions go to the judge while the model generates others. A trial waits for its own verdicts
and for nothing else. A turn is on disk before the next one of its trial is asked for, and is never played again. A
completion depends on (weights, prompt, seed, task, trial, call), never on what runs beside it.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from pathlib import Path

from drkernel.judge import JudgeProtocol, NotPrepared
from drkernel.rollout import RolloutProgress
from drkernel.rollout.verdicts import VerdictQueue, no_code, resolved
from drkernel.scaling import records
from drkernel.scaling.models import Model, TaskCompletion
from drkernel.scaling.records import Record
from drkernel.scaling.solutions import Solution
from drkernel.scaling.strategies import Ask, JudgedCall, Strategy
from drkernel.seeds import seed_of
from drkernel.types import DrKernelError, Task, Verdict

CHECKING = 4
"""Tasks whose reference the judge tries at the same time."""
SOLUTIONS = "solutions"
"""The strategy of solutions that were made elsewhere."""


def play(
    tasks: Sequence[Task],
    strategy: Strategy,
    model: Model,
    judge: JudgeProtocol,
    path: Path,
    *,
    reward: Callable[[Verdict], float],
    seed: int = 0,
    trials: int = 1,
    known: Iterable[Record] = (),
    log: Callable[[str], None] = print,
    on_progress: Callable[[RolloutProgress], None] | None = None,
    deadline_s: float = 900.0,
) -> None:
    """Plays the strategy on every task and trial, and appends each turn to `path` as soon as it is judged.

    reward: what a verdict is worth, for strategies that rank turns. known: turns played before, which are taken as they
    are. log: gets the tasks that the judge cannot use; they are passed over. deadline_s: how long to wait for the judge
    when nothing else is left to do.

    A task whose prompt alone leaves no room for a completion counts as failed (`no_room`), and so does a request that a
    server refuses (`refused`). A turn on which the judge failed does not count. It is on disk as well, and ends what is
    still to be asked of its trial; the next `play` asks it again.

    Raises DrKernelError where a verdict does not come. What a judging raises is raised, and what the model raises, once
    its earlier completions are judged.
    """
    _Study(strategy, model, judge, path, reward, seed, log, on_progress, deadline_s).run(tasks, trials, known)


def judge_solutions(
    tasks: Sequence[Task],
    solutions: Sequence[Solution],
    judge: JudgeProtocol,
    path: Path,
    *,
    label: str,
    shard: tuple[int, int] = (0, 1),
    known: Iterable[Record] = (),
    log: Callable[[str], None] = print,
    on_progress: Callable[[RolloutProgress], None] | None = None,
    deadline_s: float = 900.0,
) -> None:
    """Judges solutions that were made elsewhere, and appends them to `path` as records of the strategy `solutions` by
    the model `label`. Those in `known` are judged again only if their source has changed.

    shard: (i, n) judges every n-th of those for `tasks`, beginning with number i. log: gets how many of all solutions
    are for other tasks, and how many tasks have none.
    """
    by_id, arrivals = {task.id: task for task in tasks}, VerdictQueue(deadline_s, DrKernelError)
    done = {(*record.key, record.source) for record in known if record.counts}
    chosen = [(by_id[each.task], each.trial, each.source) for each in solutions if each.task in by_id]
    if others := len(solutions) - len(chosen):
        log(f"{others} of {len(solutions)} solutions are for other tasks than the {len(tasks)} chosen ones")
    if without := len(tasks) - len({task.id for task, _, _ in chosen}):
        log(f"{without} of {len(tasks)} tasks have no solution; they are not counted")
    chosen = chosen[shard[0] :: shard[1]]
    left = [each for each in chosen if (each[0].id, SOLUTIONS, each[1], 0, each[2]) not in done]
    counted, unprepared = len(chosen) - len(left), list[NotPrepared]()

    def judged(task: Task, trial: int, source: str | None, started: float, future: Future[Verdict]) -> None:
        nonlocal counted
        counted += 1
        if isinstance(error := future.exception(), NotPrepared):
            unprepared.append(error)
        elif isinstance(error, DrKernelError):
            log(f"passed over: {error}")
        else:
            asked = _Asked(_Trial(task, trial), Ask(0, 0, 0), started)
            completion = TaskCompletion("", None, source, 0, 0, True, 0.0)
            records.append(path, _record(asked, completion, future.result(), "solutions", label))

    pool = ThreadPoolExecutor(CHECKING, thread_name_prefix="check")
    try:
        for task, trial, source in left:
            verdict = pool.submit(_without_code, judge, task) if source is None else judge.submit(task, source)
            arrivals.add(verdict, judged, task, trial, source, time.time())
        while arrivals.pending:
            arrivals.take(wait=True)
            if on_progress:
                on_progress(RolloutProgress(counted, len(chosen), 0, arrivals.pending))
    finally:
        pool.shutdown(wait=False, cancel_futures=True)
    _expect_prepared(unprepared)


def _expect_prepared(failures: Sequence[NotPrepared]) -> None:
    """Asked when everything else has been judged: that the judge failed says nothing of a task, so none is passed over.

    Raises:
        NotPrepared: the first of these failures.
    """
    if failures:
        raise NotPrepared(f"{failures[0]} ({len(failures)} such in all; the same command asks again)")


def _without_code(judge: JudgeProtocol, task: Task) -> Verdict:
    """The verdict on a completion without a submission, which counts only if its task does."""
    verdict, degenerate = no_code(task), judge.check_task(task)
    return replace(verdict, evidence={"degenerate": degenerate}) if degenerate else verdict


def result_files(folder: Path) -> list[Path]:
    """The results.jsonl files of a study: its own and those of its shards."""
    return [folder / records.RESULTS, *sorted(folder.glob(f"shards/*/{records.RESULTS}"))]


def known(folder: Path) -> list[Record]:
    """All turns of a study and its shards, each once: the one that was started last, of those that were judged."""
    return records.latest(record for path in result_files(folder) for record in records.read(path))


def merge(folder: Path, solutions: Sequence[Solution] | None = None, log: Callable[[str], None] = print) -> None:
    """Collects what the shards of a study played in its own results.jsonl, ordered by task, trial and call. Harmless to
    do twice; the shards must have ended, or the rest of theirs is missing.

    solutions: those that are there now, where a study judges some; others do not count any more, which `log` is told.
    """
    found = sorted(known(folder), key=lambda record: record.key)
    if solutions is not None:
        there = {(each.task, each.trial, each.source) for each in solutions}
        before, found = len(found), [each for each in found if (each.task, each.trial, each.source) in there]
        if gone := before - len(found):
            log(f"{gone} of {before} judged solutions are not there any more; they are not counted")
    records.write(folder / records.RESULTS, found)


@dataclass
class _Trial:
    task: Task
    number: int
    turns: dict[int, Record] = field(default_factory=dict)
    """By call."""
    asked: set[int] = field(default_factory=set)
    """Calls under way."""
    full: set[int] = field(default_factory=set)
    """Chains whose context is full."""
    degenerate: str = ""
    """Which trivial outputs would pass on the task."""
    failed: bool = False
    """Whether the judge failed on a turn: what comes after it would depend on that."""


@dataclass(frozen=True)
class _Asked:
    """A turn under way."""

    trial: _Trial
    ask: Ask
    started: float


@dataclass
class _Study:
    strategy: Strategy
    model: Model
    judge: JudgeProtocol
    path: Path
    reward: Callable[[Verdict], float]
    seed: int
    log: Callable[[str], None]
    on_progress: Callable[[RolloutProgress], None] | None
    deadline_s: float

    def run(self, tasks: Sequence[Task], trials: int, known: Iterable[Record]) -> None:
        self.open: dict[str, _Asked] = {}
        self.arrivals, self.done, self.tokens = VerdictQueue(self.deadline_s, DrKernelError), 0, 0
        self.total, self.ending = len(tasks) * trials * self.strategy.calls, False
        self.unprepared: list[NotPrepared] = []
        self.pool = ThreadPoolExecutor(CHECKING, thread_name_prefix="check")
        try:
            for task, going in self._trials(tasks, trials, known):
                self.arrivals.add(self.pool.submit(self.judge.check_task, task), self._checked, going)
            self._report()
            while self.model.busy or self.arrivals.pending:
                self.arrivals.take(wait=not self.model.busy)
                for completion in self._step() if self.model.busy else ():
                    self._completed(completion)
                self._report()
        finally:
            self.pool.shutdown(wait=False, cancel_futures=True)
        _expect_prepared(self.unprepared)

    def _step(self) -> list[TaskCompletion]:
        """What the model completed. Where it fails, the verdicts on its earlier completions are awaited first."""
        try:
            return self.model.step()
        except DrKernelError:
            self.ending = True
            self.pool.shutdown(wait=False, cancel_futures=True)
            while self.arrivals.pending:
                self.arrivals.take(wait=True)
            raise

    def _trials(
        self, tasks: Sequence[Task], trials: int, known: Iterable[Record]
    ) -> Iterable[tuple[Task, list[_Trial]]]:
        """Per task the trials that may not be over yet."""
        played: dict[tuple[str, int], dict[int, Record]] = {}
        for record in known:
            if record.strategy == self.strategy.label and record.counts:
                played.setdefault((record.task, record.trial), {})[record.call] = record
        for task in tasks:
            every = [_Trial(task, number, played.get((task.id, number), {})) for number in range(trials)]
            self.done += sum(len(trial.turns) for trial in every)
            going = [trial for trial in every if self._wanted(trial)]
            self.total -= len(every) * self.strategy.calls - sum(len(trial.turns) for trial in every)
            self.total += sum(self.strategy.calls - len(trial.turns) for trial in going)
            if going:
                yield task, going

    def _checked(self, trials: list[_Trial], future: Future[None]) -> None:
        if self.ending:
            return
        if isinstance(error := future.exception(), DrKernelError):
            self.total -= sum(self.strategy.calls - len(trial.turns) for trial in trials)
            if isinstance(error, NotPrepared):
                self.unprepared.append(error)
            else:
                self.log(f"passed over: {error}")
            return
        for trial in trials:
            trial.degenerate = future.result() or ""
            self._go_on(trial)

    def _wanted(self, trial: _Trial) -> list[Ask]:
        """The turns to ask for now."""
        if trial.failed:
            return []
        history = [self._played(trial.turns[call]) for call in sorted(trial.turns)]
        return [ask for ask in self.strategy.next(history, trial.full) if ask.call not in trial.asked]

    def _go_on(self, trial: _Trial) -> None:
        """Asks for the turns that are wanted, and again where a chain turns out to be full."""
        if self.ending:
            return
        while full := {ask.chain for ask in self._wanted(trial) if not self._ask(trial, ask)}:
            trial.full |= full
        if not trial.asked:
            self.total -= self.strategy.calls - len(trial.turns)
            trial.turns.clear()  # a study may have gigabytes of them

    def _ask(self, trial: _Trial, ask: Ask) -> bool:
        """Requests a turn, with fewer turns shown where the context is short; False where the chain is full."""
        id = f"{trial.task.id}/{trial.number}/{ask.call}"
        seed = seed_of(self.seed, trial.task.id, trial.number, ask.call)
        while not (fits := self.model.add(id, trial.task, [trial.turns[call] for call in ask.shown], seed)):
            if (smaller := ask.smaller()) is None:
                break
            ask = smaller
        if not fits and ask.shown:
            return False
        self.open[id] = _Asked(trial, ask, time.time())
        trial.asked.add(ask.call)
        if not fits:
            self._no_room(id)
        return True

    def _no_room(self, id: str) -> None:
        verdict = Verdict("invalid", "no_room", "The task leaves no room for a completion in the model's context.")
        self._await(TaskCompletion(id, None, None, 0, 0, False, 0.0), resolved(verdict))

    def _did_not_fit(self, id: str) -> None:
        """What `_ask` does at once where the model knows it at once."""
        asked = self.open[id]
        if not asked.ask.shown:
            self._no_room(id)
            return
        del self.open[id]
        asked.trial.asked.remove(asked.ask.call)
        smaller = asked.ask.smaller()
        if smaller is None or not self._ask(asked.trial, smaller):
            asked.trial.full.add(asked.ask.chain)
            self._go_on(asked.trial)

    def _completed(self, completion: TaskCompletion) -> None:
        task = self.open[completion.id].trial.task
        if not completion.fits:
            self._did_not_fit(completion.id)
        elif completion.refused is not None:
            self._await(completion, resolved(Verdict("invalid", "refused", completion.refused)))
        elif completion.source is None:
            self._await(completion, resolved(no_code(task)))
        else:
            self._await(completion, self.judge.submit(task, completion.source))

    def _await(self, completion: TaskCompletion, verdict: Future[Verdict]) -> None:
        self.arrivals.add(verdict, self._judged, completion)

    def _judged(self, completion: TaskCompletion, verdict: Future[Verdict]) -> None:
        asked = self.open.pop(completion.id)
        trial, call = asked.trial, asked.ask.call
        turn = _record(asked, completion, verdict.result(), self.strategy.label, self.model.label)
        records.append(self.path, turn)
        trial.asked.remove(call)
        if turn.counts:
            trial.turns[call] = turn
        else:
            trial.failed = True
            self.log(f"not judged: {trial.task.id}, {turn.verdict.detail}; the same command asks again")
        self.done += turn.counts
        self.tokens += completion.tokens
        self._go_on(trial)

    def _played(self, record: Record) -> JudgedCall:
        right = record.verdict.ok
        return JudgedCall(
            call=record.call,
            chain=record.chain,
            reward=self.reward(record.verdict),
            speedup=record.verdict.speedup or 0.0 if right else 0.0,
            coverage=record.verdict.coverage or 0.0 if right else 0.0,
            tokens=record.tokens,
            seconds=record.generate_s + record.judge_s,
        )

    def _report(self) -> None:
        if self.on_progress:
            self.on_progress(RolloutProgress(self.done, self.total, self.tokens, self.arrivals.pending))


def _record(asked: _Asked, completion: TaskCompletion, verdict: Verdict, strategy: str, model: str) -> Record:
    task, ask = asked.trial.task, asked.ask
    if asked.trial.degenerate:
        verdict = replace(verdict, evidence=verdict.evidence | {"degenerate": asked.trial.degenerate})
    return Record(
        task=task.id,
        family=task.family,
        level=task.level,
        split=task.split,
        strategy=strategy,
        trial=asked.trial.number,
        chain=ask.chain,
        turn=ask.turn,
        call=ask.call,
        shown=ask.shown,
        prompt_tokens=completion.prompt_tokens,
        tokens=completion.tokens,
        finished=completion.finished,
        source=completion.source,
        verdict=verdict,
        generate_s=completion.seconds,
        judge_s=verdict.seconds,
        started=asked.started,
        model=model,
        answer=completion.content,
    )
