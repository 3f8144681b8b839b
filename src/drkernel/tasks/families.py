"""The operator families of the generator, and the compositions that make sense within each."""

from __future__ import annotations

import random
from dataclasses import dataclass
from itertools import pairwise

from drkernel.tasks.cores import CORES
from drkernel.tasks.stages import COLUMN_STAGES, INPUT_STAGES, STAGES, UNARY_STAGES, Operator, State

OPERATORS: dict[str, Operator] = {**STAGES, **CORES}

_ANY = UNARY_STAGES + INPUT_STAGES
_COLUMNWISE = _ANY + COLUMN_STAGES
_MONOTONE = ("scale", "shift", "leaky_relu", "softsign", *INPUT_STAGES)
"""Stages whose extrema over thousands of random values stay spread; the minimum of `silu` over a row is a constant."""


def _without(stages: tuple[str, ...], *names: str) -> tuple[str, ...]:
    return tuple(name for name in stages if name not in names)


@dataclass(frozen=True)
class Family:
    """A core operator, the stages that may surround it and the layouts that it comes in.

    Chains of stages alone have no cores.
    """

    cores: tuple[str, ...] = ()
    layouts: tuple[str, ...] = ("matrix", "tokens")
    pre: tuple[str, ...] = ()
    post: tuple[str, ...] = ()
    lengths: tuple[int, ...] = (0, 1, 1, 2, 2, 2, 2, 3, 3, 3)
    """Numbers of stages, drawn uniformly: repeat one to weigh it."""
    lead: str = ""
    """An operator in front of everything, which a good answer leaves to the library: a linear layer."""
    first: tuple[str, ...] = ()
    """One of these opens the composition."""


_NORM_PRE = _without(_COLUMNWISE, "scale", "shift")
_SOFTMAX_PRE = _without(_COLUMNWISE, "shift")
_LOSSES = ("mse_loss", "l1_loss", "smooth_l1_loss", "huber_loss", "bce_loss", "kl_loss", "cross_entropy")

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
    "row_reduction": Family(
        ("sum", "mean", "logsumexp", "var", "norm"), ("rows_reduced",), _without(_ANY, "shift"), UNARY_STAGES
    ),
    "row_extremum": Family(("max", "min"), ("rows_reduced",), _MONOTONE, UNARY_STAGES),
    "column_reduction": Family(
        ("sum_dim0", "mean_dim0", "sum_dim1", "mean_dim1"), ("dim0", "dim1"), _ANY, UNARY_STAGES
    ),
    "column_extremum": Family(
        ("max_dim0", "min_dim0", "max_dim1", "min_dim1"), ("dim0", "dim1"), _MONOTONE, UNARY_STAGES
    ),
    "linear": Family((), ("linear",), post=_without(_COLUMNWISE, "bias"), lengths=(2, 2, 3, 3, 4), lead="linear"),
    "matmul": Family(("matmul",), ("matmul",), post=UNARY_STAGES + COLUMN_STAGES, lengths=(1, 2, 2, 3, 3, 4)),
    "linear_norm": Family(
        ("softmax", "layer_norm", "rms_norm", "log_softmax"),
        ("linear_rows",),
        _without(_NORM_PRE, "bias"),
        UNARY_STAGES,
        lead="linear",
    ),
    "loss": Family(_LOSSES, ("rows_reduced",), _without(UNARY_STAGES, "shift"), lengths=(0, 1, 1, 2, 2, 3)),
    "similarity": Family(
        ("dot", "cosine", "squared_distance", "l1_distance"),
        ("rows_reduced",),
        _without(UNARY_STAGES, "scale"),
        UNARY_STAGES,
    ),
    "scan": Family(("cumsum", "reverse_cumsum", "exclusive_cumsum"), ("matrix",), _COLUMNWISE, _COLUMNWISE),
    "pool": Family(
        ("avg_pool1d", "max_pool1d", "avg_pool2d", "max_pool2d"), ("pool1d", "pool2d"), UNARY_STAGES, UNARY_STAGES
    ),
    "transpose": Family(("transpose",), ("transpose",), UNARY_STAGES, _ANY, lengths=(1, 1, 2, 2, 3)),
    "gather": Family(("gather",), ("gather",), post=UNARY_STAGES + COLUMN_STAGES, lengths=(0, 1, 1, 2, 2, 3)),
    "embedding": Family(("embedding",), ("embedding",), post=_COLUMNWISE, lengths=(0, 1, 1, 2, 2, 3)),
    "glu": Family(
        ("glu", "swiglu", "geglu", "reglu", "tanh_glu"), ("glu",), post=_COLUMNWISE, lengths=(0, 1, 1, 2, 2, 3)
    ),
}


def layout_of(family: str, composition: tuple[str, ...], rng: random.Random) -> str:
    """A layout that suits the composition; where a core fixes the rank or the dimension, the one that it names."""
    names = FAMILIES[family].layouts
    core = next((name for name in composition if name in CORES), "")
    named = [name for name in names if core.endswith(name)]
    return rng.choice(named or names)


def draw(family: str, rng: random.Random) -> tuple[str, ...]:
    """A random sound composition of the family: the names of its operators, first to last.

    The number of stages is drawn once and stages until they fit, so that long chains are not rarer than meant.
    """
    chosen = FAMILIES[family]
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


_REDUNDANT = {
    *((first, second) for first in ("leaky_relu", "elu") for second in ("relu", "relu6")),
    *(("abs", even) for even in ("square", "cos", "norm")),
}
"""Pairs in which the second operator makes the first one superfluous."""


def is_sound(composition: tuple[str, ...]) -> bool:
    """No operator twice, one second input at most, and none that is an identity, a constant or saturated."""
    operators = [OPERATORS[name] for name in composition]
    if len(set(composition)) < len(composition) or sum(bool(op.second) for op in operators) > 1:
        return False
    if _REDUNDANT & set(pairwise(composition)):
        return False
    state = State()
    for place, op in enumerate(operators):
        if op.name in STAGES and not op.accepts(state):
            return False
        if op.name.startswith(("max", "min")) and "pool" not in op.name and (state.bounded or not state.signed):
            return False
        state = op.after(state)
        if op.name.startswith(("sum", "cumsum", "reverse_cumsum", "exclusive_cumsum")) and place > 0:
            state = State(signed=False, size="large")
    return True
