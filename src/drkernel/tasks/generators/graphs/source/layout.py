"""In which order a file says things, and what it says besides."""

from __future__ import annotations

import random
import re
from collections.abc import Sequence

from drkernel.tasks.generators.graphs.source.lexicon import aside
from drkernel.tasks.generators.graphs.source.names import Names
from drkernel.tasks.generators.graphs.source.style import Style

_NAMES = re.compile(r"(?<![\w.])(?!True|False)[A-Za-z_]")
_UNUSED = ("seed", "device_id", "num_iters", "warmup", "epochs", "lr", "dropout_rate", "debug", "version")
_VALUES = ("3", "42", "7", "1e-4", "0.9", "128", "True", '"none"', "(3, 3)", "[1, 2, 4]", "2 * 16", "None")


def arranged(
    imports: Sequence[str],
    sizes: Sequence[str],
    numbers: Sequence[str],
    model: Sequence[str],
    inputs: Sequence[str],
    initial: Sequence[str],
    style: Style,
    names: Names,
    rng: random.Random,
) -> str:
    """The text of a file from its parts.

    Args:
        numbers: constants that are no sizes; they may name sizes.
        names: of the module; unused constants take further ones.
    """
    free = [line for line in numbers if not _NAMES.search(line.partition(" = ")[2])]
    behind = [line for line in numbers if line not in free]
    free += unused(style, names, rng)
    before, after = [*sizes, *free, *behind], []
    if style.order == "mixed":
        before = [*rng.sample([*sizes, *free], len(sizes) + len(free)), *behind]
    elif style.order == "class_first":
        before, after = [], before
    elif style.order == "split":
        before, after = [*sizes, *behind], free
    ends = [initial, inputs] if style.order == "init_first" else [inputs, initial]
    found = [*imports, *_commented(before, style, rng), "", *model]
    found += ["", *_commented(after, style, rng)[:-1]] if after else []
    for lines in ends:
        found += ["", "", *lines] if style.noise < 0.3 else ["", *lines]
    return "\n".join([*found, ""])


def _commented(lines: Sequence[str], style: Style, rng: random.Random) -> list[str]:
    """Constants with an empty line around, and a remark where there are remarks."""
    if not lines:
        return [""]
    found = list(lines)
    if rng.random() < style.noise:
        found.insert(rng.randrange(len(found) + 1), f"# {aside(rng)}")
    return ["", *found, ""]


def unused(style: Style, names: Names, rng: random.Random) -> list[str]:
    """Constants that nobody reads."""
    number = sum(rng.random() < style.noise for _ in range(3))
    return [f"{names.of(_UNUSED)} = {rng.choice(_VALUES)}" for _ in range(number)]


def noisy(lines: Sequence[str], share: float, rng: random.Random) -> list[str]:
    """Statements with remarks and empty lines between them."""
    found: list[str] = []
    for line in lines:
        if share and not line.startswith((" ", ")")) and rng.random() < share / 2:
            found.append(f"# {aside(rng)}" if rng.random() < 0.6 else "")
        plain = share and line[-1:] not in "(,\\"
        found.append(f"{line}  # {aside(rng)}" if plain and rng.random() < share / 6 else line)
    return found[1:] if found and not found[0] else found
