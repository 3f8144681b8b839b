"""Which cases a submission is tried on: at which shape, with which values, in which mode."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from drkernel.judge.trusted.cases.regimes import DESCRIPTIONS, PURE

PUBLISHED, DEFAULT_WEIGHTS, FIRST_HIDDEN = 0, 1, 2
"""Numbers of the models on both sides: the published shape with perturbed weights, the same with the weights that
construction gives, and, counting up, the hidden shapes with perturbed weights."""
WIDE_WEIGHTS = -1
"""As PUBLISHED, with matrices whose numbers fp16 does not hold."""
TURNED_SINGLES, LARGER_SINGLES = -2, -3
"""As PUBLISHED, with other values of the parameters that are single numbers."""
SINGLES = {TURNED_SINGLES: -1.0, LARGER_SINGLES: 8.0}
"""What they are multiplied by: a slope of a quarter becomes negative, or more than one."""
LONG = -4
"""And down: the task with one long size each, with perturbed weights; see long_shapes."""
HIDDEN_SHAPES = 2
WAYS = 4
"""In so many at most a format's products are computed, see formats.FORMATS."""
FIRST_TIMED = FIRST_HIDDEN + HIDDEN_SHAPES
"""From here on: other shapes that are timed, with perturbed weights."""


@dataclass(frozen=True)
class Plan:
    """One case before it is drawn."""

    name: str
    """What is special, in words that feedback can use: `the given inputs`, `another shape`, `large values`, ..."""
    model: int = PUBLISHED
    """Which model answers: PUBLISHED, DEFAULT_WEIGHTS, WIDE_WEIGHTS, one of SINGLES, or FIRST_HIDDEN + k."""
    regime: str = "given"
    """The distribution of the inputs' values, see REGIMES."""
    train: bool = False
    way: int | None = None
    """Values are looked for on which outputs of whole numbers are wrong where products are computed in this way of the
    first format that the task forbids."""
    resized: int | None = None
    """The inputs are those of this one of the `resized` references."""

    @property
    def at_hidden_shape(self) -> bool:
        return self.model >= FIRST_HIDDEN

    @property
    def timed(self) -> bool:
        """Whether calls at its shape are timed: the published one, and others of comparable work."""
        return self.model == PUBLISHED or self.model >= FIRST_TIMED


def plans(train: tuple[bool, ...], shapes: int) -> Iterator[Plan]:
    """All cases, cheapest and most telling first.

    Args:
        train: the modes, to be used in turn.
        shapes: how many hidden shapes there are.
    """
    mode = lambda i: train[i % len(train)]
    yield Plan("the given inputs", PUBLISHED, "given", mode(0))
    yield Plan(DESCRIPTIONS["mirrored"], PUBLISHED, "mirrored", mode(1))
    yield Plan(DESCRIPTIONS["large"], PUBLISHED, "large", mode(0))
    for k in range(shapes):
        yield Plan("another shape", FIRST_HIDDEN + k, "given" if k == 0 else "mirrored", mode(k))
    for k, regime in enumerate(PURE[2:]):
        yield Plan(DESCRIPTIONS[regime], PUBLISHED, regime, mode(k + 1))
    yield Plan("the default weights", DEFAULT_WEIGHTS, "given", mode(1))


def special_plans(train: bool, lowered: bool, regimes: Iterable[str]) -> Iterator[Plan]:
    """Cases for some submissions and some tasks.

    Args:
        lowered: the submission's kernels multiply in a precision that the task forbids.
        regimes: what the task asks for, see PreparedTask.special.
    """
    for name in (*["near_one"] * lowered, *regimes):
        yield Plan(DESCRIPTIONS[name], PUBLISHED, name, train)
    for way in range(WAYS * lowered):
        yield Plan("values that lower precision confuses", PUBLISHED, "given", train, way=way)
    yield Plan("weights beyond the range of fp16", WIDE_WEIGHTS, "given", train)
    yield Plan("single weights of the other sign", TURNED_SINGLES, "given", train)
    yield Plan("larger single weights", LARGER_SINGLES, "given", train)


def resized_plans(train: tuple[bool, ...], number: int) -> Iterator[Plan]:
    """Inputs of other sizes for the model of the published shape, see resized."""
    for k in range(number):
        yield Plan("the same model at another size of its inputs", train=train[k % len(train)], resized=k)


def long_plans(train: tuple[bool, ...], shapes: int) -> Iterator[tuple[Plan, Plan]]:
    """What is asked where one size is long: rows that are sorted, whose maxima grow along them; and if these do not
    suit the task, the inputs as given."""
    for k in range(shapes):
        name, mode = "one size as long as in the published task", train[k % len(train)]
        yield Plan(f"{name}, sorted rows", LONG - k, "ordered", mode), Plan(name, LONG - k, "given", mode)


def mixed_plan(train: bool, model: int = PUBLISHED) -> Plan:
    """The case with the most kinds of values."""
    return Plan("shifted, large, heavy-tailed and integer values", model, "mixed", train)


def lean_plans(train: tuple[bool, ...], shapes: int) -> Iterator[Plan]:
    """As `plans`, where the published shape is expensive: each regime at a hidden shape, all at once at the published
    one."""
    mode = lambda i: train[i % len(train)]
    for k in range(shapes):
        yield Plan("another shape", FIRST_HIDDEN + k, "given", mode(k))
    for k, regime in enumerate(PURE):
        yield Plan(f"another shape, {DESCRIPTIONS[regime]}", FIRST_HIDDEN + k % shapes, regime, mode(k))
    yield mixed_plan(mode(1))
    yield Plan(DESCRIPTIONS["sparse"], PUBLISHED, "sparse", mode(0))
    yield Plan("the default weights", DEFAULT_WEIGHTS, "given", mode(1))


def timed_plans(train: tuple[bool, ...], shape: int) -> tuple[Plan, Plan]:
    """What is asked at another shape before calls there are timed: other values, then the inputs as given, on which
    launches are counted."""
    model = FIRST_TIMED + shape
    other = Plan("another shape of about this size, mixed values", model, "mixed", train[-1])
    return other, Plan("another shape of about this size", model, "given", train[0])
