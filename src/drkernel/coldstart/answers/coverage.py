"""What the answers to tasks of the generator `graphs` are worth: drawn, written, judged (simulated device), counted.

    python -m drkernel.coldstart.answers.coverage --tasks 400 [--dtype bfloat16] [--families conv_chain,losses]

Verdicts are kept by content in a file, so that a second call judges only what is new.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import re
from collections import defaultdict
from collections.abc import Iterable, Iterator
from concurrent.futures import as_completed
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from statistics import median

from drkernel.coldstart.answers.grades import answers
from drkernel.coldstart.answers.solution import Solution
from drkernel.judge import Judge
from drkernel.tasks.generators.graphs.draw import FAMILIES
from drkernel.tasks.generators.graphs.ops import OPS
from drkernel.tasks.generators.graphs.stream import families_of, stream
from drkernel.types import DrKernelError, Task

RIGHT = ("lazy", "partial", "fused", "best")
_TOKEN = re.compile(r"[A-Za-z_]\w*|\d+|\s+|[^\w\s]")


@dataclass(frozen=True)
class Judged:
    """An answer and what came of it."""

    task: Task
    answer: Solution
    status: str
    reason: str
    detail: str
    speedup: float | None


def main() -> None:
    options = _options()
    families = families_of(options.dtype, options.families.split(",") if options.families else list(FAMILIES))
    tasks = list(islice(stream(options.split, options.seed, families, options.dtype), options.tasks))
    answered = {task.id: answers(task, options.wrong, options.seed, options.plan) for task in tasks}
    rows = list(_judged(tasks, answered, Path(options.verdicts), options.workers))
    report(tasks, answered, rows)
    for row in rows:
        if row.status != "ok" and row.answer.kind in RIGHT:
            print(f"{row.answer.kind} {row.answer.note} {row.task.id}: {row.status} {row.reason} {row.detail[:160]}")


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tasks", type=int, default=200)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--split", default="train")
    parser.add_argument("--dtype", default="float32")
    parser.add_argument("--families", default="", help="names with commas between them; all")
    parser.add_argument("--wrong", type=int, default=2, help="mistaken answers per task")
    parser.add_argument("--plan", action="store_true", help="texts begin with the plan")
    parser.add_argument("--verdicts", default="outputs/answers_verdicts.jsonl", help="where verdicts are kept")
    parser.add_argument("--workers", type=int, default=1)
    return parser.parse_args()


def _judged(tasks: list[Task], answered: dict[str, list[Solution]], path: Path, workers: int) -> Iterator[Judged]:
    """Verdicts on all answers; those that the file has are not asked for again."""
    path.parent.mkdir(parents=True, exist_ok=True)
    known = {}
    if path.exists():
        known = {row["key"]: row for row in map(json.loads, path.read_text(encoding="utf-8").splitlines())}
    with Judge(device="simulated", workers=workers) as judge, open(path, "a", encoding="utf-8") as file:
        pending = {}
        for task in tasks:
            for answer in answered[task.id]:
                key = hashlib.sha256(f"{task.digest}{answer.source}".encode()).hexdigest()[:24]
                if key in known:
                    row = known[key]
                    yield Judged(task, answer, *(row[name] for name in ("status", "reason", "detail", "speedup")))
                else:
                    pending[judge.submit(task, answer.source)] = (task, answer, key)
        for future in as_completed(pending):
            task, answer, key = pending[future]
            try:
                verdict = future.result()
                found = Judged(task, answer, verdict.status, verdict.reason, verdict.detail, verdict.speedup)
            except DrKernelError as error:
                found = Judged(task, answer, "refused", "task", str(error), None)
            row = {name: getattr(found, name) for name in ("status", "reason", "detail", "speedup")}
            file.write(json.dumps({"key": key, **row}) + "\n")
            file.flush()
            yield found


def report(tasks: list[Task], answered: dict[str, list[Solution]], rows: list[Judged]) -> None:
    """Prints shares by kind of operator and by grade."""
    of_kind: dict[str, list[Task]] = defaultdict(list)
    for task in tasks:
        for kind in {OPS[name].kind for name in task.info["composition"]}:
            of_kind[kind].append(task)
    judged = [row for row in rows if row.status != "refused"]
    refused = {row.task.id for row in rows if row.status == "refused"}
    print(f"{len(tasks)} tasks, {len(refused)} refused by the judge; {len(judged)} answers judged")
    print(f"{'kind':14} {'tasks':>6} {'answered':>9} {'ok':>7} {'speed-up of fused':>18}")
    for label, members in [*sorted(of_kind.items()), ("all", tasks)]:
        ids = {task.id for task in members}
        own = [row for row in judged if row.task.id in ids and row.answer.kind in RIGHT]
        answered_share = sum(bool(answered[name]) for name in ids) / len(ids)
        print(
            f"{label:14} {len(ids):6} {answered_share:9.1%} {_share_ok(own):>7} "
            f"{_median(row.speedup for row in own if row.answer.kind == 'fused'):>18}"
        )
    print(f"\n{'grade':14} {'answers':>7} {'ok':>7} {'speed-up':>9} {'tokens':>7} {'longest':>8}")
    for grade in (*RIGHT, "mistaken"):
        own = [row for row in judged if row.answer.kind == grade]
        if own:
            lengths = [tokens(row.answer.source) for row in own]
            speed = _median(row.speedup for row in own)
            print(f"{grade:14} {len(own):7} {_share_ok(own):>7} {speed:>9} {median(lengths):7.0f} {max(lengths):8}")


def _share_ok(rows: list[Judged]) -> str:
    return f"{sum(row.status == 'ok' for row in rows) / len(rows):.1%}" if rows else "-"


def _median(values: Iterable[float | None]) -> str:
    found = [value for value in values if value is not None]
    return f"{median(found):.2f}" if found else "-"


def tokens(source: str) -> int:
    """Words, numbers, signs and indentation: about the tokens of a small tokenizer.

    >>> tokens("v = tl.load(x)")
    8
    """
    return len([token for token in _TOKEN.findall(source) if token != " "])


if __name__ == "__main__":
    main()
