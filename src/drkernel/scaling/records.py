"""results.jsonl: one line per turn of a study, written as soon as its verdict is there.

The file is all that a study remembers: whoever reads it can go on to the single turn.
"""

from __future__ import annotations

import base64
import dataclasses
import json
import os
import zlib
from array import array
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

from drkernel.types import DrKernelError, Verdict

RESULTS = "results.jsonl"
"""The file's name in a study's folder."""


@dataclass(frozen=True)
class Record:
    """One judged turn."""

    task: str
    """Id of the task."""
    family: str
    level: int | None
    split: str
    strategy: str
    """Label of the strategy; `solutions` where the solutions came from elsewhere."""
    trial: int
    """Which independent repetition of the strategy on the task."""
    chain: int
    """Which of the parallel chains of the trial."""
    turn: int
    """Which turn of the chain."""
    call: int
    """Which judge call of the trial; with (task, strategy, trial) it names the turn."""
    shown: tuple[int, ...]
    """The calls whose turns the prompt held, in its order."""
    prompt_tokens: int
    tokens: int
    """Sampled, the end mark included."""
    finished: bool
    """False where the completion was cut at its limit."""
    source: str | None
    """The submission, or None where the completion had none."""
    verdict: Verdict
    generate_s: float
    """What the completion cost the engine: its share of every moment that it was worked on together with others. The
    sum over records is the engine's busy time (GPU seconds, with one GPU per engine). For an endpoint: wall time."""
    judge_s: float
    """What the verdict cost the judge."""
    started: float
    """When the turn was asked for, unix time."""
    model: str
    """Label of the model."""
    answer: str | None = None
    """What later prompts repeat: `packed` token ids, or the text of a chat completion."""

    @property
    def key(self) -> tuple[str, str, int, int]:
        """What no two records of a study share."""
        return self.task, self.strategy, self.trial, self.call

    @property
    def counts(self) -> bool:
        """Whether the turn was judged. One on which the judge failed is neither right nor wrong."""
        return not self.verdict.is_judge_failure

    @property
    def degenerate(self) -> str:
        """Which trivial outputs would pass on its task, if any. Such a task is played, and counts in no figure."""
        return self.verdict.evidence.get("degenerate", "")

    def to_dict(self) -> dict[str, Any]:
        """As results.jsonl has it."""
        plain = {field.name: getattr(self, field.name) for field in dataclasses.fields(self)}
        return plain | {"shown": list(self.shown), "verdict": self.verdict.to_dict()}

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> Record:
        return cls(**data | {"shown": tuple(data["shown"]), "verdict": Verdict.from_dict(data["verdict"])})


def read(path: str | Path) -> list[Record]:
    """All records of a results.jsonl, in order; none where there is no such file.

    A last line without its end is what a killed process leaves, and is dropped. Raises DrKernelError with file and line
    for anything else that is no record.
    """
    path = Path(path)
    *lines, _torn = path.read_bytes().split(b"\n") if path.exists() else [b""]
    return [_record(line, f"{path}: line {number}") for number, line in enumerate(lines, 1) if line.strip()]


def latest(records: Iterable[Record]) -> list[Record]:
    """Each turn once: of those that were judged the one that was started last. A study that was stopped may have a turn
    twice, on which the judge failed at first, or whose solution has changed."""
    found: dict[tuple, Record] = {}
    for record in records:
        other = found.get(record.key)
        if not other or (record.counts, record.started) > (other.counts, other.started):
            found[record.key] = record
    return list(found.values())


def append(path: str | Path, record: Record) -> None:
    """Adds a record, in the place of a torn last line if there is one."""
    line = json.dumps(record.to_dict()) + "\n"
    with open(path, "ab+") as file:
        _drop_torn_line(file)
        file.write(line.encode())


def write(path: str | Path, records: Iterable[Record]) -> None:
    """Writes a whole file, so that a crash leaves the old one or the new one."""
    path = Path(path)
    temporary = path.with_name(path.name + ".tmp")
    temporary.write_text("".join(json.dumps(record.to_dict()) + "\n" for record in records), encoding="utf-8")
    os.replace(temporary, path)


def pack(ids: Sequence[int]) -> str:
    """Token ids as short text.

    >>> unpack(pack([1, 151645, 7]))
    [1, 151645, 7]
    """
    return base64.b64encode(zlib.compress(array("i", ids).tobytes())).decode()


def unpack(text: str) -> list[int]:
    return array("i", zlib.decompress(base64.b64decode(text))).tolist()


def _record(line: bytes, place: str) -> Record:
    try:
        return Record.from_dict(json.loads(line))
    except (ValueError, TypeError, KeyError) as error:
        reason = f"{type(error).__name__}: {error}".replace("Record.__init__() ", "")
        raise DrKernelError(f"{place}: not a record of a study ({reason})") from None


def _drop_torn_line(file: BinaryIO) -> None:
    size = file.seek(0, os.SEEK_END)
    kept, block = size, 1
    while kept:
        start = max(0, kept - block)
        file.seek(start)
        found = file.read(kept - start).rfind(b"\n")
        if found >= 0:
            kept = start + found + 1
            break
        kept, block = start, 1 << 16
    if kept < size:
        file.truncate(kept)
