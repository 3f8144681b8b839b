"""Second turns after a policy's own mistakes: what it wrote, what the judge said of it, and the answer by lines.

    python evaluate.py split=train tasks.generator=graphs tasks.eval_count=4000 judge=simulated \\
        policy.path=RUN/policy policy.prompts=canonical hydra.run.dir=STUDY
    python -m drkernel.coldstart.repairs STUDY --out repairs.parquet

The messages are in canonical form, as the policy read and wrote them, for training with `policy.prompts=compact`.
The last answer of a trajectory is right by construction (answers/lines.py); nobody has judged it.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import yaml

from drkernel.coldstart.answers.lines import by_lines
from drkernel.coldstart.dataset import write
from drkernel.coldstart.trajectories import WHOLE_FEEDBACK, row_of
from drkernel.judge import feedback
from drkernel.policy.canonical import canonical
from drkernel.policy.model import load_tokenizer
from drkernel.policy.tokenizer import END, decode
from drkernel.scaling.records import RESULTS, Record, read, unpack
from drkernel.scaling.study_folder import TASKS
from drkernel.training.sft_data import NOT_JUDGED
from drkernel.types import DrKernelError, Task


def repairs(study: Path) -> Iterator[dict[str, Any]]:
    """A row of `trajectories.SCHEMA` for each wrong answer of a study to whose task the program has an answer.

    Raises DrKernelError where the folder is no study of a policy with canonical prompts.
    """
    for name in ("config.yaml", TASKS, RESULTS):
        if not (study / name).is_file():
            raise DrKernelError(f"{study}: found no {name}; expected the folder of a study of evaluate.py")
    policy = yaml.safe_load((study / "config.yaml").read_text(encoding="utf-8"))["policy"]
    if policy["prompts"] != "canonical":
        raise DrKernelError(f"{study}: found policy.prompts={policy['prompts']}, expected canonical")
    tokenizer = load_tokenizer(policy["path"])
    known = [Task(**json.loads(line)) for line in (study / TASKS).read_text(encoding="utf-8").splitlines()]
    tasks = {task.id: task for task in known}
    for number, record in enumerate(read(study / RESULTS)):
        is_wrong = record.turn == 0 and record.finished and record.counts and not record.verdict.ok
        if is_wrong and record.answer and (source := by_lines(tasks[record.task])):
            written = decode(tokenizer, unpack(record.answer)).removesuffix(END)
            yield _row(tasks[record.task], written, record, source, number)


def _row(task: Task, written: str, record: Record, source: str, number: int) -> dict[str, Any]:
    form = canonical(task.source, task.entry_point)
    texts = [
        form.text,
        written,
        feedback(record.verdict, WHOLE_FEEDBACK, len),
        form.completion(source, task.entry_point),
    ]
    messages = [{"role": ("user", "assistant")[k % 2], "content": text} for k, text in enumerate(texts)]
    return {
        **row_of(task, number),
        "original_python_code": form.text,
        "messages": messages,
        "final_speedup": 0.0,
        "num_rounds": 2,
        "best_round": 2,
        "grades": ["policy", "partial"],
        "reasons": [record.verdict.reason, NOT_JUDGED],
        "speedups": [None, None],
    }


def main(words: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m drkernel.coldstart.repairs", description=(__doc__ or "").partition("\n")[0]
    )
    parser.add_argument("study", type=Path)
    parser.add_argument("--out", type=Path, required=True, help="the parquet file")
    given = parser.parse_args(words)
    try:
        rows = list(repairs(given.study))
    except DrKernelError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    write(given.out, rows)
    print(f"{given.out}: {len(rows)} trajectories")
    return 0


if __name__ == "__main__":
    sys.exit(main())
