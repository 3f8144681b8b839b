"""Families: which operators may be composed, in which order and on which shapes.

A family is one kind of task, e.g. a softmax with stages before and after it. `draw` makes a random composition (the
names of its operators, first to last), and `is_sound` refuses those that a trivial kernel would solve.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, replace
from itertools import pairwise

from drkernel.tasks.generators.operators import (
    COLUMN_STAGES,
    INPUT_STAGES,
    OPERATORS,
    UNARY_STAGES,
    Operator,
    State,
    pairs,
    rows,
    shaped,
)
from drkernel.tasks.generators.operators.layouts import LAYOUTS

_ANY = UNARY_STAGES + INPUT_STAGES
_COLUMNWISE = _ANY + COLUMN_STAGES
_MONOTONE = ("scale", "shift", "leaky_relu", "softsign", *INPUT_STAGES)
"""Stages whose extrema over thousands of random values differ; the minimum of `silu` over a row is a constant."""


def _without(stages: tuple[str, ...], *names: str) -> tuple[str, ...]:
    return tuple(name for name in stages if name not in names)


def _names(operators: tuple[Operator, ...]) -> tuple[str, ...]:
    return tuple(operator.name for operator in operators)


@dataclass(frozen=True)
class Family:
    """The choices that its compositions are drawn from."""

    cores: tuple[str, ...] = ()
    """One of these operators is in each composition; none: stages alone."""
    layouts: tuple[str, ...] = ("matrix", "tokens")
    """The shapes of its inputs, by name in `layouts.py`."""
    pre: tuple[str, ...] = ()
    """Stages that may come before the core."""
    post: tuple[str, ...] = ()
    """Stages that may come after the core."""
    lengths: tuple[int, ...] = (0, 1, 1, 2, 2, 2, 2, 3, 3, 3)
    """Numbers of stages, drawn uniformly: a number that is repeated is more likely."""
    lead: str = ""
    """An operator in front of everything, which a good submission leaves to the library: a linear layer."""
    first: tuple[str, ...] = ()
    """One of these stages opens the composition."""
    since: int = 1
    """The edition of the generator `operators` that it came with."""

    def of(self, edition: int) -> Family:
        """The family without the operators and layouts that came later."""
        there = lambda names: tuple(name for name in names if OPERATORS[name].since <= edition)
        pre, post = there(self.pre), there(self.post)
        layouts = tuple(name for name in self.layouts if LAYOUTS[name].since <= edition)
        return replace(self, cores=there(self.cores), layouts=layouts, pre=pre, post=post, first=there(self.first))


_NORM_PRE = _without(_COLUMNWISE, "scale", "shift")
_SOFTMAX_PRE = _without(_COLUMNWISE, "shift")

FAMILIES: dict[str, Family] = {
    "elementwise": Family((), ("flat", "flat3d"), post=_ANY, lengths=(1, 2, 2, 2, 3, 3, 3, 3, 4, 4, 4, 5)),
    "bias_activation": Family((), ("flat", "flat3d"), post=_COLUMNWISE, lengths=(1, 2, 2, 3, 3), first=COLUMN_STAGES),
    "softmax": Family(("softmax",), pre=_SOFTMAX_PRE, post=_COLUMNWISE),
    "log_softmax": Family(("log_softmax",), pre=_SOFTMAX_PRE, post=_COLUMNWISE),
    "layer_norm": Family(("layer_norm",), pre=_NORM_PRE, post=_ANY),
    "rms_norm": Family(("rms_norm",), pre=_NORM_PRE, post=_ANY),
    "group_norm": Family(("group_norm",), ("groups",), pre=_without(_ANY, "scale", "shift"), post=_ANY),
    "residual_norm": Family(
        ("layer_norm", "rms_norm"), pre=_NORM_PRE, post=UNARY_STAGES, lengths=(0, 1, 1, 2, 2), first=("add_input",)
    ),
    "normalize": Family(("normalize",), pre=_NORM_PRE, post=_COLUMNWISE, lengths=(1, 1, 2, 2, 3)),
    "row_reduction": Family(_names(rows.ROW_REDUCTIONS), ("rows_reduced",), _without(_ANY, "shift"), UNARY_STAGES),
    "row_extremum": Family(_names(rows.ROW_EXTREMA), ("rows_reduced",), _MONOTONE, UNARY_STAGES),
    "column_reduction": Family(_names(shaped.COLUMN_REDUCTIONS), ("dim0", "dim1"), _ANY, UNARY_STAGES),
    "column_extremum": Family(_names(shaped.COLUMN_EXTREMA), ("dim0", "dim1"), _MONOTONE, UNARY_STAGES),
    "linear": Family((), ("linear",), post=_without(_COLUMNWISE, "bias"), lengths=(2, 2, 3, 3, 4), lead="linear"),
    "matmul": Family(("matmul",), ("matmul",), post=UNARY_STAGES + COLUMN_STAGES, lengths=(1, 2, 2, 3, 3, 4)),
    "linear_norm": Family(
        ("softmax", "layer_norm", "rms_norm", "log_softmax"),
        ("linear_rows",),
        _without(_NORM_PRE, "bias"),
        UNARY_STAGES,
        lead="linear",
    ),
    "loss": Family(
        _names(pairs.LOSSES), ("rows_reduced",), _without(UNARY_STAGES, "shift"), lengths=(0, 1, 1, 2, 2, 3)
    ),
    "similarity": Family(_names(pairs.SIMILARITIES), ("rows_reduced",), _without(UNARY_STAGES, "scale"), UNARY_STAGES),
    "scan": Family(_names(rows.SCANS), ("matrix",), _COLUMNWISE, _COLUMNWISE),
    "pool": Family(_names(shaped.POOLS), ("pool1d", "pool2d"), UNARY_STAGES, UNARY_STAGES),
    "transpose": Family(("transpose",), ("transpose",), UNARY_STAGES, _ANY, lengths=(1, 1, 2, 2, 3)),
    "gather": Family(("gather",), ("gather",), post=UNARY_STAGES + COLUMN_STAGES, lengths=(0, 1, 1, 2, 2, 3)),
    "embedding": Family(("embedding",), ("embedding",), post=_COLUMNWISE, lengths=(0, 1, 1, 2, 2, 3)),
    "glu": Family(_names(shaped.GATED_UNITS), ("glu",), post=_COLUMNWISE, lengths=(0, 1, 1, 2, 2, 3)),
}


DTYPES = ("float32", "float16", "bfloat16")
"""What inputs and weights may be. Sums and products are added up in fp32 whatever they are."""
FAMILIES_OF_16_BITS = _without(
    tuple(FAMILIES), "row_reduction", "column_reduction", "loss", "similarity", "scan", "pool"
)
"""Families whose outputs 16 bits can hold. Sums of thousands of values leave the range of float16 and differ by less
than bfloat16 resolves. Means of a few values cancel, so that they show how often others were rounded before."""


def has_range(dtype: str, composition: tuple[str, ...]) -> bool:
    """Whether values stay in the range of a dtype: squares of products exceed float16, those of a softmax vanish."""
    return dtype != "float16" or "square" not in composition


def families_of(edition: int) -> dict[str, Family]:
    """The families of an edition of the generator `operators`, by name."""
    return {name: family.of(edition) for name, family in FAMILIES.items() if family.since <= edition}


def layout_of(family: Family, composition: tuple[str, ...], rng: random.Random) -> str:
    """A layout of the family; the one that an operator of the composition needs, where one does."""
    needed = [OPERATORS[name].layout for name in composition if OPERATORS[name].layout]
    return rng.choice(needed or family.layouts)


def draw(chosen: Family, rng: random.Random) -> tuple[str, ...]:
    """A random sound composition of the family: the names of its operators, first to last.

    The number of stages is drawn once and stages until they fit, so that long compositions are as frequent as
    `Family.lengths` says.
    """
    while True:
        count = rng.choice(chosen.lengths)
        before = rng.randint(0, count) if chosen.pre and chosen.post else count if chosen.pre else 0
        core = [rng.choice(chosen.cores)] if chosen.cores else []
        for _ in range(100):
            opening = [chosen.lead] if chosen.lead else [rng.choice(chosen.first)] if chosen.first else []
            pre = [rng.choice(chosen.pre) for _ in range(before)]
            post = [rng.choice(chosen.post) for _ in range(count - before)]
            composition = (*opening, *pre, *core, *post)
            if is_sound(composition):
                return composition


def is_sound(composition: tuple[str, ...]) -> bool:
    """No operator twice, at most one second input, and no operator that is an identity, a constant or saturated."""
    operators = [OPERATORS[name] for name in composition]
    if len(set(composition)) < len(composition) or sum(bool(op.second) for op in operators) > 1:
        return False
    if any(first.name in second.makes_superfluous for first, second in pairwise(operators)):
        return False
    state = State()
    for place, op in enumerate(operators):
        if not op.accepts(state):
            return False
        state = op.after(state, opens=place == 0)
    return True
