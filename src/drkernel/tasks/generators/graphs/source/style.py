"""How one reference is written: what its author always does. Drawn once per task."""

from __future__ import annotations

import random
from dataclasses import dataclass

from drkernel.tasks.generators.graphs.source.names import FRESH

_IMPORTS = (("import torch", "import torch.nn as nn"), ("import torch", "from torch import nn"))
_SUPERS = ("super().__init__()", "super(Model, self).__init__()")
INVENTED = (0.0, 0.0, 0.15, 0.5, 1.0)
"""The shares of invented names."""
_UNUSED = ("import math", "import torch.nn.functional as F", "from typing import Optional", "import numpy as np")


@dataclass(frozen=True)
class Style:
    """See the fields."""

    flow: str
    """nested (calls in calls) | reassign (one variable) | fresh (a variable for each value)"""
    fresh: tuple[str, ...]
    """Names of further variables."""
    returns: bool
    """Whether the last expression is returned as it is."""
    negative: bool
    """Whether dimensions are counted from the end."""
    lists: bool
    """Whether several dimensions are a list, not a tuple."""
    sequential: bool
    """Whether modules in a row become one nn.Sequential."""
    blocks: bool
    """Whether parts of networks are classes of their own."""
    spelled_out: bool
    """Whether options of layers are arguments with defaults, though nobody gives them."""
    weights: dict[str, float]
    """How often each style of spelling is taken."""
    lifted: float
    """The share of constants that are arguments of the constructor."""
    stored: float
    """The share of sizes that the constructor keeps as attributes, though nobody reads them."""
    comments: float
    """The share of statements with a comment above."""
    documented: tuple[bool, bool, bool]
    """Whether class, constructor and forward have docstrings."""
    hints: bool
    """Whether arguments have types."""
    imports: tuple[str, ...]
    super_call: str
    unused: tuple[str, ...]
    """Imports that nobody needs."""
    constants: str
    """plain (one line each) | tuple (`M, K, N = 64, 32, 16`) | typed (`rows: int = 64`) | noted (with comments)"""
    inputs: str
    """direct (in the list) | named (a variable each, then a list)"""
    keywords: bool
    """Whether the constructor's arguments are given by name."""
    invented: float
    """The share of names that are invented."""
    upper: bool
    """Whether module constants are in upper case."""
    library: str
    """What stands for `torch.nn.functional`."""
    own: float
    """The share of numbers in `forward` that are attributes of the module, though no argument gives them."""
    defaults: float
    """The share of arguments with a default in the signature, which get_init_inputs may leave out."""
    noise: float
    """How often there is a sentence, a blank line, a constant or a statement that says nothing."""
    order: str
    """usual | class_first (then constants) | init_first (get_init_inputs before get_inputs) | split (constants around
    the class) | mixed (numbers among sizes)"""


def draw_style(rng: random.Random) -> Style:
    """A random style; plain ones are more frequent."""
    flow = rng.choice(("nested", "reassign", "reassign", "reassign", "fresh"))
    weights = {style: rng.choice((0.2, 1.0, 2.0)) for style in ("functional", "method", "manual", "module")}
    weights["manual"] *= 0.4
    documented = rng.choice(((False,) * 3, (False,) * 3, (True, False, False), (True, False, True), (True,) * 3))
    return Style(
        flow=flow,
        fresh=rng.choice(FRESH),
        returns=rng.random() < (0.9 if flow == "nested" else 0.4),
        negative=rng.random() < 0.5,
        lists=rng.random() < 0.4,
        sequential=rng.random() < 0.25,
        blocks=rng.random() < 0.3,
        spelled_out=rng.random() < 0.12,
        weights=weights,
        lifted=rng.choice((0.0, 0.6, 0.9, 1.0, 1.0)),
        stored=rng.choice((0.0, 0.0, 0.0, 0.5)),
        comments=rng.choice((0.0, 0.0, 0.0, 0.3, 0.8)),
        documented=documented,
        hints=rng.random() < 0.3,
        imports=rng.choice((*_IMPORTS[:1] * 3, _IMPORTS[1])),
        super_call=rng.choice(_SUPERS),
        unused=tuple(rng.sample(_UNUSED, rng.choice((0, 0, 0, 0, 1)))),
        constants=rng.choice(("plain", "plain", "plain", "tuple", "typed", "noted")),
        inputs=rng.choice(("direct", "direct", "named")),
        keywords=rng.random() < 0.1,
        invented=rng.choice(INVENTED),
        upper=rng.random() < 0.25,
        library=rng.choice(("F.", "F.", "F.", "nn.functional.", "torch.nn.functional.")),
        own=rng.choice((0.0, 0.0, 0.3, 0.8)),
        defaults=rng.choice((0.0, 0.0, 0.2, 0.5)),
        noise=rng.choice((0.0, 0.0, 0.1, 0.3)),
        order=rng.choice(("usual", "usual", "usual", "class_first", "class_first", "init_first", "split", "mixed")),
    )
