"""Multi-turn trajectories from graded solutions, every verdict real.

Each task has solutions of several kinds (coldstart/solutions.py). The judge tests all of them once; a trajectory then
walks through them: an answer, the feedback that the judge gave it, another answer. Good answers stay rare on purpose:
the supervised policy should know how they are written without preferring them, which is what reinforcement learning is
there to find out.
"""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Iterator
from concurrent.futures import as_completed
from dataclasses import dataclass
from pathlib import Path

from drkernel.coldstart.solutions import solutions
from drkernel.judge import Judge
from drkernel.policy.prompts import Prompts
from drkernel.types import DrKernelError, Task, Trajectory, Turn, Verdict

SHARES = {"lazy": 0.44, "partial": 0.27, "mistaken": 0.25, "hack": 0.04}
"""How often an answer is of each kind, among those that are not `fused` (`ColdstartConfig.fused_share`)."""


@dataclass(frozen=True)
class Graded:
    """A solution and what the judge said of it."""

    kind: str
    source: str
    verdict: Verdict


def grade(
    tasks: list[Task], judge: Judge, path: Path, mistakes: int, progress: Callable[[int], None]
) -> dict[str, list[Graded]]:
    """Judge the solutions of every task, `mistakes` wrong ones among them; task id -> graded solutions.

    Verdicts are appended to `path` as they come, so a second call goes on where the first was stopped. A task that the
    judge refuses, because a trivial answer would pass, is left out.
    """
    known = {(r["task"], r["source"]): Verdict.from_dict(r["verdict"]) for r in _lines(path)}
    wanted = {task.id: solutions(task, wrong=mistakes) for task in tasks}
    missing = [(task, s.source) for task in tasks for s in wanted[task.id] if (task.id, s.source) not in known]
    progress(sum(map(len, wanted.values())) - len(missing))
    pending = {judge.submit(task, source): (task.id, source) for task, source in missing}
    with open(path, "a", encoding="utf-8") as file:
        for future in as_completed(pending):
            task_id, source = pending[future]
            progress(1)
            try:
                verdict = known[task_id, source] = future.result()
            except DrKernelError:
                wanted.pop(task_id, None)
                continue
            file.write(json.dumps({"task": task_id, "source": source, "verdict": verdict.to_dict()}) + "\n")
    return {task: [Graded(s.kind, s.source, known[task, s.source]) for s in found] for task, found in wanted.items()}


def walk(task: Task, graded: list[Graded], turns: int, fused_share: float, draw: random.Random) -> list[Graded]:
    """The answers of one trajectory, drawn by kind; with probability one half each has to beat the one before."""
    answers: list[Graded] = []
    for _ in range(turns):
        better = [g for g in graded if answers and _worth(g) > _worth(answers[-1])]
        pool = better if better and draw.random() < 0.5 else graded
        weights = [_share(g.kind, fused_share) / sum(other.kind == g.kind for other in pool) for g in pool]
        answers.append(draw.choices(pool, weights)[0])
    return answers


def episode(task: Task, answers: list[Graded], prompts: Prompts, feedback: Callable[[Verdict], str]) -> Trajectory:
    """Answers as tokens, laid out exactly as a rollout would have produced them."""
    trajectory = Trajectory(task.id, 0, 0)
    for k, answer in enumerate(answers):
        prompt = prompts.next(feedback(answers[k - 1].verdict)) if k else prompts.first(task)
        response = prompts.completion(answer.source)
        trajectory.turns.append(Turn(prompt, response, [0.0] * len(response), answer.source, answer.verdict))
    return trajectory


def _share(kind: str, fused_share: float) -> float:
    rest = (1 - fused_share) / sum(SHARES.values())
    return SHARES[kind] * rest if kind in SHARES else fused_share


def _worth(graded: Graded) -> float:
    return graded.verdict.speedup or 0.0 if graded.verdict.ok else -1.0


def _lines(path: Path) -> Iterator[dict]:
    """Whole lines only: a killed run may have left half of the last one."""
    if path.exists():
        text = path.read_text(encoding="utf-8")
        path.write_text(text[: text.rfind("\n") + 1], encoding="utf-8")
        yield from (json.loads(line) for line in text[: text.rfind("\n") + 1].splitlines())
