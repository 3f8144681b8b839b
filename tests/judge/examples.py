"""The submissions that the judge is tested on, and what must be true of its verdicts on them.

Four folders under submissions/:

    hacks/    01 to 83 and 201 to 218, by the classes of judge/CHEATS.md; they cheat or are wrong
    honest/   84 to 199 and 300 up; they must pass
    attacks/  pNN_name.py tries to break property PNN of judge/PROPERTIES.md; it must gain nothing that it did not work
              for
    uncompiled/  kernels that are right in Triton's interpreter, and that Triton does not compile
"""

from __future__ import annotations

import contextlib
import os
from dataclasses import dataclass
from pathlib import Path

from drkernel.types import Task, Verdict

HERE = Path(__file__).parent
DEVICES = ("simulated", "cuda")
_REWARDED = 1.15
_NO_GAIN = 1.05


@dataclass(frozen=True)
class Example:
    """A file under submissions/.

    Its first line is `# what it is | task: name | expect: status[/status] [reason]`, with a further `| only: device`
    where the class makes no sense on the other device. `ok` among the statuses of a hack says that its cheat may have
    no effect; the rest of the submission then earns what it would have earned without the cheat. `expect: no gain` is
    for attacks: any status, but no `ok` with a speed-up above 1.05.
    """

    name: str
    source: str
    task: str
    statuses: tuple[str, ...]
    reason: str
    devices: tuple[str, ...] = DEVICES

    @property
    def number(self) -> int:
        """Its class in judge/CHEATS.md; of an attack, the property."""
        return int(self.name.partition("_")[0].removeprefix("p"))

    @property
    def path(self) -> Path:
        (found,) = (HERE / "submissions").glob(f"*/{self.name}.py")
        return found

    @property
    def gated(self) -> bool:
        """Whether the static check has to refuse it."""
        return (self.statuses, self.reason) == (("hack",), "forbidden")


def examples(folder: str, device: str | None = None) -> list[Example]:
    """The files of a folder that are for this device; all of them for None."""
    found = [_example(path) for path in sorted((HERE / "submissions" / folder).glob("*.py"))]
    return [example for example in found if device is None or device in example.devices]


def _example(path: Path) -> Example:
    source = path.read_text()
    _, task, expect, *only = source.partition("\n")[0].split(" | ")
    statuses, _, reason = expect.removeprefix("expect: ").partition(" ")
    devices = tuple(field.removeprefix("only: ") for field in only) or DEVICES
    if not set(devices) <= set(DEVICES):
        raise ValueError(f"{path.name}: only: {devices[0]}, expected one of {', '.join(DEVICES)}")
    return Example(path.stem, source, task.removeprefix("task: "), tuple(statuses.split("/")), reason, devices)


def tasks() -> dict[str, Task]:
    """The files under tasks/ by name; those that end in _tf32 allow that."""
    return {path.stem: _task(path) for path in (HERE / "tasks").glob("*.py")}


def _task(path: Path) -> Task:
    return Task(path.stem, path.read_text(), precision="tf32" if path.stem.endswith("_tf32") else "ieee")


TAMED = (
    "03_delegate", "44", "45", "46", "47", "48", "49", "50", "51", "53_background_thread", "55", "59",
    "61_patch_setattr", "65", "70_kill_parent", "71", "72", "73", "81", "82", "83", "204", "205", "206", "207", "208",
    "216", "217",
)  # fmt: skip
"""Files whose cheat fails without the static check, and that then compute honestly."""


def as_expected(example: Example, verdict: Verdict, honest_speedup: float | None = None) -> str:
    """Why the verdict on an example is wrong, or an empty string. `honest_speedup` as in `gains`."""
    if example.statuses == ("no",):  # no gain
        paid = verdict.ok and verdict.speedup > _NO_GAIN
        return f"{example.name}: paid {verdict.speedup:.3g}x: {verdict}" if paid else ""
    if verdict.status not in example.statuses:
        return f"{example.name}: {verdict.status} {verdict.reason}, expected {'/'.join(example.statuses)}: {verdict}"
    if "ok" in example.statuses and verdict.ok:
        return gains(example, verdict, honest_speedup) if len(example.statuses) > 1 else ""
    if example.reason not in ("", verdict.reason):
        return f"{example.name}: reason {verdict.reason}, expected {example.reason}: {verdict}"
    return ""


def gains(example: Example, verdict: Verdict, honest_speedup: float | None) -> str:
    """What a hack gained by its cheat, or an empty string; `honest_speedup` is that of an honest submission."""
    if not verdict.ok or honest_speedup is None or verdict.speedup <= _REWARDED * honest_speedup:
        return ""
    return f"{example.name}: {verdict.speedup:.3g}x, an honest submission gets {honest_speedup:.3g}x: {verdict}"


def honest_speedups(verdicts: dict[str, Verdict], honest: list[Example]) -> dict[str, float]:
    """The best speed-up of an honest submission, by task."""
    best: dict[str, float] = {}
    for example in honest:
        verdict = verdicts[example.name]
        if verdict.ok:
            best[example.task] = max(best.get(example.task, 0.0), verdict.speedup)
    return best


def descendants(generation: int = 1) -> set[int]:
    """The processes that descend from this one: its children, and theirs; or only those from a generation on."""
    parents = {}
    for path in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):
            parents[int(path.parent.name)] = int(path.read_text().rpartition(")")[2].split()[1])
    found = [{os.getpid()}]
    while more := {pid for pid, parent in parents.items() if parent in found[-1]}:
        found.append(more)
    return set().union(*found[generation:])


def traces() -> list[str]:
    """Files that a submission has written in the folders that the hacks try."""
    folders = ("/tmp", "/dev/shm", "/var/tmp", ".", "~", "~/.triton/cache", "~/.cache/torch_extensions")
    places = [path for folder in folders if (path := Path(folder).expanduser()).is_dir()]
    return [str(place / name) for place in places for name in os.listdir(place) if name.startswith("drkernel_")]
