"""Sets for the small policies: tasks with one answer each that is right by construction, in canonical form.

    python benchmarks/coldstart_sets.py OUT [--parts 60] [--tasks 5000] [--seed 0] [--workers N] [--programs]

Part N is of seed SEED + N; a part that is there stays. More than half of its rows are of variants of the training split
of written tasks, a tenth of free programs, a tenth of free chains behind convolutions and products, a tenth of single
operators, the rest of all families of the generator and of its networks that nobody planned; some of 16 bits.
--programs draws free programs alone, for a policy that has learnt the others. Train on OUT with policy.prompts=compact;
policies read policy.prompts=canonical.
"""

import argparse
import os
import random
import signal
from collections.abc import Iterator
from multiprocessing import get_context
from pathlib import Path
from typing import Any

from drkernel.coldstart.dataset import write
from drkernel.coldstart.trajectories import draw_unjudged, in_canonical_form, unjudged_record
from drkernel.tasks import load_tasks
from drkernel.tasks.generators import programs
from drkernel.tasks.generators.graphs.draw import FAMILIES
from drkernel.tasks.generators.graphs.stream import families_of, stream
from drkernel.tasks.written.variants import variants
from drkernel.types import Task

SINGLE = [
    *("pointwise", "broadcast", "reductions", "softmaxes", "scans", "norms", "pools", "losses"),
    *("convolutions", "products") * 2,
]
"""Families of one operator; people write convolutions and products most."""
FUSED_SHARE = 0.75
MOST_SECONDS = 2
"""For a task: a variant may have a loop that does not end."""
LONGEST = 6500
"""Characters of a task and of an answer; longer ones are left out."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=Path)
    parser.add_argument("--parts", type=int, default=60)
    parser.add_argument("--tasks", type=int, default=5000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--workers", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--programs", action="store_true")
    given = parser.parse_args()
    given.out.mkdir(parents=True, exist_ok=True)
    os.environ["OMP_NUM_THREADS"] = "1"
    seeds = range(given.seed, given.seed + given.parts)
    jobs = [(given.out / f"part{seed}.parquet", seed, given.tasks, given.programs) for seed in seeds]
    with get_context("spawn").Pool(given.workers) as pool:
        for path in pool.imap_unordered(part, [job for job in jobs if not job[0].exists()]):
            print(path, flush=True)


def part(job: tuple[Path, int, int, bool]) -> Path:
    path, seed, number, programs_only = job
    try:
        write(path, rows(seed, number, programs_only))
    except Exception as error:  # the other parts are not lost for one
        print(f"{path}: left out, {type(error).__name__}: {error}", flush=True)
    return path


def rows(seed: int, number: int, programs_only: bool) -> Iterator[dict[str, Any]]:
    drawn = streams(seed, programs_only)
    signal.signal(signal.SIGALRM, _too_long)
    for place in range(number):
        task = next(drawn[place % len(drawn)])
        signal.alarm(MOST_SECONDS)
        try:
            solution = draw_unjudged(task, FUSED_SHARE, random.Random(f"{seed}/{task.id}"), plain=True)
        except Exception as error:  # hours of other tasks are not lost for one
            print(f"{task.id}: left out, {type(error).__name__}: {error}", flush=True)
            continue
        finally:
            signal.alarm(0)
        if solution is not None:
            row = in_canonical_form(unjudged_record(task, solution, 0))
            is_short = all(len(message["content"]) <= LONGEST for message in row["messages"])
            is_told = solution.note == "by_lines" or "\n    ...\n" not in row["original_python_code"]
            if row["original_python_code"].startswith("def forward") and is_short and is_told:
                yield row


def _too_long(*_: object) -> None:
    raise TimeoutError(f"more than {MOST_SECONDS} s")


def streams(seed: int, programs_only: bool) -> list[Iterator[Task]]:
    """What tasks come from in turn."""
    unplanned = [name for name in FAMILIES if name.startswith("wild")]
    free = programs.stream("train", seed, edition=2)
    chains = programs.stream("train", seed, ["free_chains"], edition=3)
    if programs_only:
        return [free]
    every, wild, single = (stream("train", seed, names, "float32") for names in (list(FAMILIES), unplanned, SINGLE))
    narrow = [stream("train", seed, families_of(dtype, list(FAMILIES)), dtype) for dtype in ("float16", "bfloat16")]
    drawn = [*[free, chains, single, every, free, chains, single, wild] * 3, free, chains, every, *narrow]
    written = variants(load_tasks("written", split="train"), seed)
    return [each for other in drawn for each in (other, written, written)]  # half of the variants do not run


if __name__ == "__main__":
    main()
