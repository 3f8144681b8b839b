"""Where the trajectories of `stage=sft` come from: one source or several, each with a weight (`config.sft.weights`)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from drkernel.config.sft import weights
from drkernel.types import DrKernelError

HUB, TRAIN = "hub:", "train"
"""How a hub data set begins, and the split of it that trains where none is named."""
SUFFIXES = (".parquet", ".jsonl")


@dataclass(frozen=True)
class Source:
    """One of those that `sft.data` names."""

    place: str
    """A file, a folder or a hub data set, as given."""
    name: str
    """What metrics call it."""
    weight: float
    """How many times an epoch takes each of its rows, on average."""


def sources(data: Any) -> list[Source]:
    """Those of `sft.data`, in their order. Raises DrKernelError where one is not here, or a file is in two of them."""
    given = weights(data)
    owners: dict[str, str] = {}
    for place in given:
        for part in [str(file.resolve()) for file in files(place)] or ["/".join(hub_parts(place))]:
            if (other := owners.setdefault(part, place)) != place:
                expected = "expected each row in one source; a weight of 2 takes it twice"
                raise DrKernelError(f"sft.data: {part} is in {other} and in {place}; {expected}")
    labels = names([*given])
    return [Source(place, name, weight) for (place, weight), name in zip(given.items(), labels, strict=True)]


def names(places: Sequence[str]) -> list[str]:
    """Short names of sources: the end of each path, without suffix, that no other one has.

    >>> names(["data/a.parquet", "b/", "hub:owner/set/test"]), names(["x/train.parquet", "y/train.parquet"])
    (['a', 'b', 'set/test'], ['x/train', 'y/train'])
    >>> names(["a.parquet", "a.jsonl"])
    ['a.parquet', 'a.jsonl']
    """
    paths = [place.removeprefix(HUB).rstrip("/") for place in places]
    bare = [path.removesuffix(Path(path).suffix if Path(path).suffix in SUFFIXES else "") for path in paths]
    found = []
    for place, path, own in zip(places, paths, bare, strict=True):
        parts, at_least = own.split("/"), 2 if place.startswith(HUB) and own.count("/") > 1 else 1
        ends = ["/".join(parts[-length:]) for length in range(at_least, len(parts) + 1)]
        alone = [end for end in ends if sum(f"/{other}".endswith(f"/{end}") for other in bare) == 1]
        found.append(alone[0] if alone else path)
    return found


def files(place: str) -> list[Path]:
    """The parquet or .jsonl files of a source that is here; none of one on the hub.

    Raises DrKernelError where it is not here."""
    if place.startswith(HUB):
        return []
    path = Path(place)
    found = [path]
    if path.is_dir():
        found = sorted(path.rglob("*.parquet")) or sorted(path.rglob("*.jsonl"))
    if not found or not all(file.is_file() for file in found):
        raise DrKernelError(f"sft.data={place}: found no such file, or no .parquet or .jsonl file in the folder")
    return found


def hub_parts(place: str) -> tuple[str, str, str]:
    """Owner, name and split of a hub data set."""
    owner, _, rest = place.removeprefix(HUB).partition("/")
    name, _, split = rest.partition("/")
    return owner, name, split or TRAIN
