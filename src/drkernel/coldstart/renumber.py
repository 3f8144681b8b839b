"""Sets in canonical form with other numbers for their values, so that a policy learns to copy a number that it reads.

    python -m drkernel.coldstart.renumber SETS OUT [--copies 3] [--share 0.8] [--seed 0]

In canonical form values are counted, `t0`, `t1`, ... A policy that reads `t31` at the same place in every row learns
the place. A copy of a row has `t7` there and `t31` elsewhere: in half of the copies numbers stay in their order, in
half they do not, and some of them are larger than any that the row had. SETS is a parquet file or a folder of them;
OUT/N_NAME is the Nth copy of NAME. A file that is there stays. What it gained: results/coldstart/policies.md.
"""

from __future__ import annotations

import argparse
import os
import random
import re
import sys
from collections.abc import Callable, Iterable, Sequence
from multiprocessing import get_context
from pathlib import Path
from typing import Any

from pyarrow import parquet

from drkernel.coldstart.dataset import write
from drkernel.types import DrKernelError

_NAMES = {
    "values": re.compile(r"(?<![\w.])([tuvws])(\d+)(?=_ptr\b|\b)"),  # in kernels `u3`, `v3`, ... are parts of `t3`
    "inputs": re.compile(r"(?<![\w.])(in)(\d+)(?=_ptr\b|\b)"),
    "modules": re.compile(r"(?<=self\.)(m)(\d+)\b"),
    "scalars": re.compile(r"(?<=self\.)(n)(\d+)\b"),
}
"""What is counted. Kernels (`kernel1`, `f1`) and their parameters (`p0`) are counted within an answer, and stay."""
_MORE = {"values": (0, 4, 16, 32, 64), "inputs": (0, 0, 2), "modules": (0, 4, 16), "scalars": (0, 4)}
"""By how much the largest number may grow: one of these is drawn."""


def renumbered(texts: Sequence[str], draw: random.Random) -> list[str]:
    """The messages of one record with other numbers, the same in all of them; nothing else changes.

    >>> renumbered(["t1 = self.m0(in0)", "t1_ptr, p0_ptr, u1"], random.Random(1))
    ['t4 = self.m3(in0)', 't4_ptr, p0_ptr, u4']
    """
    changed = list(texts)
    for kind, pattern in _NAMES.items():
        numbers = sorted({int(found[2]) for text in texts for found in pattern.finditer(text)})
        limit = max(numbers, default=0) + 1 + draw.choice(_MORE[kind])
        drawn = draw.sample(range(limit), len(numbers))
        others = dict(zip(numbers, sorted(drawn) if draw.random() < 0.5 else drawn, strict=True))
        changed = [pattern.sub(_with(others), text) for text in changed]
    return changed


def _with(others: dict[int, int]) -> Callable[[re.Match[str]], str]:
    return lambda found: f"{found[1]}{others[int(found[2])]}"


def copied(record: dict[str, Any], draw: random.Random) -> dict[str, Any]:
    """A record in canonical form with other numbers."""
    messages = record["messages"]
    texts = renumbered([message["content"] for message in messages], draw)
    said = [message | {"content": text} for message, text in zip(messages, texts, strict=True)]
    return record | {"messages": said, "original_python_code": texts[0]}


def write_copy(job: tuple[Path, Path, str, float]) -> tuple[int, int]:
    """Writes a copy of a file. Returns how many records it has, and how many of them have other numbers."""
    source, target, seed, share = job
    draw, table = random.Random(seed), parquet.read_table(source)
    records, changed = table.to_pylist(), 0
    for place, record in enumerate(records):
        if not record["original_python_code"].startswith("def forward"):
            raise DrKernelError(f"{source}: row {place}: expected a task in canonical form, which starts `def forward`")
        if draw.random() < share:
            records[place], changed = copied(record, draw), changed + 1
    write(target, records, table.schema)
    return len(records), changed


def files(sets: Path) -> list[Path]:
    """The parquet files of a set. Raises DrKernelError where there are none."""
    found = sorted(sets.rglob("*.parquet")) if sets.is_dir() else [sets]
    if not found or not all(path.is_file() for path in found):
        raise DrKernelError(f"{sets}: found no .parquet file")
    return found


def jobs(sets: Path, out: Path, copies: int, share: float, seed: int) -> Iterable[tuple[Path, Path, str, float]]:
    """What is still to be written."""
    for number in range(copies):
        for path in files(sets):
            name = "_".join([str(number), *(path.relative_to(sets).parts if sets.is_dir() else [path.name])])
            if not (out / name).exists():
                yield path, out / name, f"{seed}/{name}", share


def main(words: Sequence[str] | None = None) -> None:
    """The command line."""
    parser = argparse.ArgumentParser(prog="python -m drkernel.coldstart.renumber", description=__doc__)
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("sets", type=Path)
    parser.add_argument("out", type=Path)
    parser.add_argument("--copies", type=int, default=3, help="of each row; 3")
    parser.add_argument("--share", type=float, default=0.8, help="of the rows that have other numbers; 0.8")
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args(words)
    if given.copies < 1:
        raise DrKernelError(f"--copies {given.copies}: expected at least one")
    if not 0 < given.share <= 1:
        raise DrKernelError(f"--share {given.share:g}: expected a share of the rows, above 0 and at most 1")
    given.out.mkdir(parents=True, exist_ok=True)
    todo = [*jobs(given.sets, given.out, given.copies, given.share, given.seed)]
    with get_context("spawn").Pool(len(os.sched_getaffinity(0))) as pool:
        made = [*pool.imap_unordered(write_copy, todo, chunksize=4)]
    print(f"{given.out}: {sum(rows for rows, _ in made)} rows, {sum(other for _, other in made)} with other numbers")


if __name__ == "__main__":
    try:
        main()
    except DrKernelError as error:
        print(f"error: {error}", file=sys.stderr)
        sys.exit(2)
