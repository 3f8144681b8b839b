"""The submissions that the judge's tests try it on."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

HERE = Path(__file__).parent


@dataclass(frozen=True)
class Example:
    """A file under submissions/; its first line is `# what it is | task: name | expect: status[/status] [reason]`."""

    name: str
    source: str
    task: str
    statuses: tuple[str, ...]
    reason: str


def examples(folder: str) -> list[Example]:
    return [_example(path) for path in sorted((HERE / "submissions" / folder).glob("*.py"))]


def _example(path: Path) -> Example:
    source = path.read_text()
    _, task, expect = source.partition("\n")[0].split(" | ")
    statuses, _, reason = expect.removeprefix("expect: ").partition(" ")
    return Example(path.stem, source, task.removeprefix("task: "), tuple(statuses.split("/")), reason)
