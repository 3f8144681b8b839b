"""Multi-turn trajectories from graded solutions. Every verdict in them is the judge's own.

The judge tests all solutions of a task once. A trajectory is a random sequence of them: a completion, the feedback on
its verdict, the next completion. Fused solutions are rare on purpose. The supervised policy should know how they are
written and not prefer them, so that reinforcement learning has something to find.
"""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Iterator
from concurrent.futures import as_completed
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow

from drkernel.coldstart.answers.lines import by_lines
from drkernel.coldstart.solutions import Solution, solutions
from drkernel.judge import JudgeProtocol, feedback
from drkernel.policy.canonical import canonical
from drkernel.seeds import seed_of
from drkernel.training.sft_data import NOT_JUDGED
from drkernel.types import DrKernelError, Task, Verdict

KIND_WEIGHTS = {"lazy": 0.44, "partial": 0.27, "mistaken": 0.25, "hack": 0.04}
"""Probability of each kind among the solutions that are not fused; see `ColdstartConfig.fused_share`."""


IMPROVING = 0.85
"""How likely a turn is better than the one before. With 0.5 a policy of 8 million parameters was right on 57 % of first
turns and on 47 % of last ones: it had learnt to give up what it had."""
WHOLE_FEEDBACK = 8000
"""Most characters of feedback in a record; a training cuts it to `judge.feedback_tokens`."""
SCHEMA = pyarrow.schema(
    {
        "messages": pyarrow.list_(pyarrow.struct({"role": pyarrow.string(), "content": pyarrow.string()})),
        "uuid": pyarrow.int64(),  # a hash of task and number
        "entry_point": pyarrow.string(),
        "repo_name": pyarrow.string(),
        "module_name": pyarrow.string(),  # the task's id
        "final_speedup": pyarrow.float64(),  # of the best round; 0 where none is right
        "num_rounds": pyarrow.int64(),
        "original_python_code": pyarrow.string(),
        "best_round": pyarrow.int64(),  # from 1; 0 where none is right
        "timestamp": pyarrow.float64(),  # null, so that the same tasks give the same file
        "conversion_mode": pyarrow.string(),  # `plain`
        "enable_thinking": pyarrow.bool_(),
        "precision": pyarrow.string(),  # from here on columns of our own
        "grades": pyarrow.list_(pyarrow.string()),  # of each round: how it was made
        "reasons": pyarrow.list_(pyarrow.string()),  # of each round: the verdict's, or `not_judged`
        "speedups": pyarrow.list_(pyarrow.float64()),  # of each round; null where it is not right or not judged
    }
)
"""Trajectories as records: the columns of the paper's published cold-start set, and four more."""


@dataclass(frozen=True)
class JudgedSolution:
    """A solution and the judge's verdict on it."""

    kind: str
    source: str
    verdict: Verdict


def judge_solutions(
    tasks: list[Task],
    judge: JudgeProtocol,
    path: Path,
    mistakes: int,
    progress: Callable[[int], None],
    plain: bool = False,
) -> dict[str, list[JudgedSolution]]:
    """Judges the solutions of every task.

    Verdicts are appended to `path` as they come, so a second call goes on where the first was stopped.

    Args:
        tasks: from the generator.
        judge: judges them in any order.
        path: a file with one line of JSON per verdict.
        mistakes: mistaken solutions per task.
        progress: called with the number of solutions that have been judged since.
        plain: solutions in one style.

    Returns:
        The judged solutions by task id. Left out are tasks that the judge refuses because a trivial submission would
        pass, and solutions on which it failed; these are not in the file, either.
    """
    known = {(r["task"], r["source"]): Verdict.from_dict(r["verdict"]) for r in _lines(path)}
    wanted = {task.id: solutions(task, mistakes, plain) for task in tasks}
    missing = [(task, s.source) for task in tasks for s in wanted[task.id] if (task.id, s.source) not in known]
    progress(sum(map(len, wanted.values())) - len(missing))
    pending = {judge.submit(task, source): (task.id, source) for task, source in missing}
    with open(path, "a", encoding="utf-8") as file:
        for future in as_completed(pending):
            task_id, source = pending[future]
            progress(1)
            try:
                verdict = future.result()
            except DrKernelError:
                wanted.pop(task_id, None)
                continue
            if verdict.is_judge_failure:
                continue
            known[task_id, source] = verdict
            file.write(json.dumps({"task": task_id, "source": source, "verdict": verdict.to_dict()}) + "\n")
            file.flush()
    judged = {
        task: [JudgedSolution(s.kind, s.source, known[task, s.source]) for s in found if (task, s.source) in known]
        for task, found in wanted.items()
    }
    return {task: found for task, found in judged.items() if found}


def draw_solutions(
    solutions: list[JudgedSolution], turns: int, fused_share: float, draw: random.Random
) -> list[JudgedSolution]:
    """The solutions of one trajectory, drawn by kind.

    With probability IMPROVING a solution is better than the one before, where there is a better one: a mistake is
    repaired in place, into the solution that it was made from.
    """
    drawn: list[JudgedSolution] = []
    for _ in range(turns):
        pool = solutions
        if drawn and draw.random() < IMPROVING:
            better = [s for s in solutions if _value(s) > _value(drawn[-1])]
            repaired = [s for s in better if drawn[-1].kind == "mistaken" and s.kind == "fused"]
            pool = repaired or better or [s for s in solutions if _value(s) == _value(drawn[-1])]
        weights = [_weight(s.kind, fused_share) / sum(other.kind == s.kind for other in pool) for s in pool]
        drawn.append(draw.choices(pool, weights)[0])
    return drawn


def draw_unjudged(task: Task, fused_share: float, draw: random.Random, plain: bool = False) -> Solution | None:
    """A solution that is right by construction; None where no kernel is written for the task. Nobody has judged it.

    It is written from the task's lines where they have one: a policy that had seen two kinds of answers to one norm
    wrote a third, and for networks left operators out. Others are drawn by kind.
    """
    if source := by_lines(task):
        return Solution("partial", source, "by_lines")
    if "graph" not in task.info:
        return None
    right = [s for s in solutions(task, 0, plain) if s.kind not in ("mistaken", "hack")]
    if not right:
        return None
    weights = [_weight(s.kind, fused_share) / sum(other.kind == s.kind for other in right) for s in right]
    return draw.choices(right, weights)[0]


def record(task: Task, drawn: list[JudgedSolution], number: int) -> dict[str, Any]:
    """A row of SCHEMA: the `number`-th trajectory of a task.

    Its messages are plain: the reference, a source, the feedback on it, the next source, ... What a policy reads is
    rendered from them when it trains (training/sft_data.py).
    """
    messages = []
    for k, solution in enumerate(drawn):
        asked = feedback(drawn[k - 1].verdict, WHOLE_FEEDBACK, len) if k else task.source
        messages += [{"role": "user", "content": asked}, {"role": "assistant", "content": solution.source}]
    speedups = [s.verdict.speedup or 0.0 if s.verdict.ok else None for s in drawn]
    best = max(speedup or 0.0 for speedup in speedups)
    return {
        **row_of(task, number),
        "messages": messages,
        "final_speedup": best,
        "num_rounds": len(drawn),
        "best_round": speedups.index(best) + 1 if best else 0,
        "grades": [solution.kind for solution in drawn],
        "reasons": [solution.verdict.reason for solution in drawn],
        "speedups": speedups,
    }


def unjudged_record(task: Task, solution: Solution, number: int) -> dict[str, Any]:
    """A row of SCHEMA with one round, which is right by construction and has no speed-up, since nobody judged it."""
    return {
        **row_of(task, number),
        "messages": [
            {"role": "user", "content": task.source},
            {"role": "assistant", "content": solution.source},
        ],
        "final_speedup": 0.0,
        "num_rounds": 1,
        "best_round": 1,
        "grades": [solution.kind],
        "reasons": [NOT_JUDGED],
        "speedups": [None],
    }


def in_canonical_form(row: dict[str, Any]) -> dict[str, Any]:
    """The row with the task, and what answers it, as policies with canonical prompts read and write them."""
    form = canonical(row["original_python_code"], row["entry_point"])
    contents = [message["content"] for message in row["messages"]]
    contents[0], contents[1::2] = form.text, [form.completion(text, row["entry_point"]) for text in contents[1::2]]
    said = [{**message, "content": text} for message, text in zip(row["messages"], contents, strict=True)]
    return {**row, "original_python_code": form.text, "messages": said}


def row_of(task: Task, number: int) -> dict[str, Any]:
    """What a row says of its task."""
    return {
        "uuid": seed_of(task.id, task.digest, number),
        "entry_point": task.entry_point,
        "repo_name": "drkernel",
        "module_name": task.id,
        "original_python_code": task.source,
        "timestamp": None,
        "conversion_mode": "plain",
        "enable_thinking": False,
        "precision": task.precision,
    }


def _weight(kind: str, fused_share: float) -> float:
    rest = (1 - fused_share) / sum(KIND_WEIGHTS.values())
    return KIND_WEIGHTS[kind] * rest if kind in KIND_WEIGHTS else fused_share


def _value(solution: JudgedSolution) -> float:
    """The speed-up; less than any where the judge refused."""
    return solution.verdict.speedup or 0.0 if solution.verdict.ok else -1.0


def _lines(path: Path) -> Iterator[dict]:
    """The records of the file. An incomplete last line, as a killed run may leave it, is removed."""
    if path.exists():
        text = path.read_text(encoding="utf-8")
        path.write_text(text[: text.rfind("\n") + 1], encoding="utf-8")
        yield from (json.loads(line) for line in text[: text.rfind("\n") + 1].splitlines())
