"""Which steps a free program has; the stream of tasks."""

from __future__ import annotations

import hashlib
import random
import re
from collections.abc import Callable, Iterator, Mapping, Sequence

import torch

from drkernel.tasks.generators.programs import sizes
from drkernel.tasks.generators.programs.program import Program, Unfit, Value
from drkernel.tasks.generators.programs.steps import (
    layers,
    losses,
    moves,
    others,
    pairs,
    pointwise,
    products,
    recurrent,
    rows,
    statistics,
    windows,
)
from drkernel.tasks.module import Reference
from drkernel.tasks.splits import split_of
from drkernel.types import DrKernelError, Task

Step = Callable[[Program], Value]
_TRIES = 12
_LARGEST = {"float32": 1e4, "float16": 300.0, "bfloat16": 300.0}
"""The largest output, by dtype."""
_NARROW = 0.1
"""The share of tasks of 16 bits."""
_MOST_STATEMENTS = 90

_POINTWISE: tuple[Step, ...] = (
    *[pointwise.call] * 5,
    *[pointwise.formula] * 2,
    *[pointwise.with_number] * 4,
    *[pointwise.with_parameter] * 3,
    *[pointwise.mixture] * 2,
    pointwise.snake,
)
_ROWS: tuple[Step, ...] = (
    *[rows.reduce] * 2,
    *[rows.along] * 3,
    *[rows.back] * 3,
    *[rows.several] * 2,
    *[rows.norm] * 3,
    rows.blend,
    *[rows.widened] * 3,
)
_LAYERS: tuple[Step, ...] = (
    *[layers.layer] * 3,
    *[layers.unit] * 4,
    *[layers.residual] * 3,
    *[layers.branches] * 2,
    *[layers.pool] * 2,
    *[layers.again] * 2,
    layers.raw,
    layers.transposed,
    layers.gate,
    layers.channel_gate,
    layers.film,
    layers.normed_first,
    layers.feed_forward,
)
_MOVES: tuple[Step, ...] = (
    *[moves.halves] * 3,
    *[moves.maxout] * 2,
    *[moves.joined] * 2,
    *(moves.axes, moves.there_and_back, moves.split, moves.copied, moves.cut, moves.shuffle, moves.unit_axis),
)
_PAIRS: tuple[Step, ...] = (
    *[pairs.with_input] * 2,
    *[pairs.with_earlier] * 3,
    *[pairs.masked] * 2,
    *(pairs.scores, pairs.distances),
)
_TOKENS: tuple[Step, ...] = (*[pairs.encoder] * 3, *[pairs.attention] * 2, layers.feed_forward, layers.residual)
_PLACES: tuple[Step, ...] = (*[layers.conv_block] * 4, *[layers.image_block] * 3, layers.channel_gate, moves.patches)
_KINDS: dict[str, Mapping[tuple[Step, ...], int]] = {
    "free_formulas": {_POINTWISE: 8, _ROWS: 8, _PAIRS: 6, _MOVES: 2, others.OTHERS: 1},
    "free_layers": {_POINTWISE: 10, _ROWS: 6, _PAIRS: 2, _MOVES: 2, _LAYERS: 2, others.OTHERS: 1},
    "free_networks": {
        _LAYERS: 4,
        _PLACES: 4,
        _TOKENS: 3,
        _POINTWISE: 1,
        _ROWS: 1,
        _MOVES: 1,
        _PAIRS: 1,
        others.OTHERS: 1,
    },
    "free_mixtures": {
        _POINTWISE: 3,
        _ROWS: 3,
        _LAYERS: 3,
        _MOVES: 2,
        _PAIRS: 2,
        _TOKENS: 1,
        _PLACES: 1,
        others.OTHERS: 2,
    },
}
"""Steps by family, and how often those of each sort are drawn."""
_CASES: tuple[Step, ...] = (*[statistics.cases] * 3, *[products.shared] * 3, recurrent.descent)
_STATISTICS: tuple[Step, ...] = (
    *[statistics.apart] * 4,
    *[statistics.moments] * 3,
    *(statistics.ranked, statistics.ranked, statistics.quantised, statistics.balanced),
)
_SEQUENCES: tuple[Step, ...] = (*[recurrent.states] * 3, *[recurrent.series] * 2, *[recurrent.cell] * 2)
_PRODUCTS: tuple[Step, ...] = (
    *[products.einsums] * 3,
    *[products.vector] * 3,
    *[products.squared_distances] * 2,
    *[products.gram] * 2,
)
_SCORES: tuple[Step, ...] = (*[products.masked_scores] * 4, *[products.rotary] * 2, products.grouped_queries)
_WINDOWS: tuple[Step, ...] = (
    *[windows.power_pool] * 3,
    *[windows.padded_pool] * 3,
    *[windows.glu] * 3,
    *(windows.row_pool, windows.row_pool, windows.stencil),
)
_WIDER: tuple[Step, ...] = (
    *[windows.upward] * 3,
    *(windows.framed, windows.standardised, windows.standardised, windows.dense),
)
_LOSSES: tuple[Step, ...] = (
    *[losses.binary] * 3,
    *[losses.of_classes] * 3,
    *[losses.of_pairs] * 3,
    *(losses.smoothed, losses.overlap),
)
_MORE: dict[str, Mapping[tuple[Step, ...], int]] = {
    "free_formulas": {_CASES: 4, _STATISTICS: 4, _LOSSES: 2, _SEQUENCES: 1, _WINDOWS: 2, _PRODUCTS: 2, _SCORES: 1},
    "free_layers": {_CASES: 4, _STATISTICS: 3, _WINDOWS: 3, _WIDER: 2},
    "free_networks": {_CASES: 1, _SEQUENCES: 2, _SCORES: 3, _WIDER: 3, _WINDOWS: 1, _STATISTICS: 1},
    "free_mixtures": {
        _CASES: 1,
        _STATISTICS: 2,
        _SEQUENCES: 2,
        _PRODUCTS: 3,
        _SCORES: 2,
        _WINDOWS: 2,
        _WIDER: 2,
    },
}
"""What the second edition adds to them."""
_ENDS: dict[int, tuple[Step, ...]] = {1: (pairs.loss,), 2: (*[pairs.loss] * 4, *_LOSSES)}
_ENDS[3] = _ENDS[2]
"""What a program may end with, by edition."""
_POOLS: tuple[Step, ...] = (*[layers.pool] * 3, windows.row_pool)
_CHAINS: Mapping[tuple[Step, ...], int] = {
    _POINTWISE: 10,
    _ROWS: 4,
    (rows.over_channels,): 3,
    _POOLS: 3,
    _PAIRS: 1,
    _MOVES: 1,
}
_FIRST: tuple[Step, ...] = (*[layers.layer] * 3, layers.raw, *[layers.convolution] * 2, *[windows.enlarged] * 6)
"""What a chain begins with."""
_SECOND = {name: {**kinds, **_MORE[name]} for name, kinds in _KINDS.items()}
EDITIONS: dict[int, dict[str, dict[tuple[Step, ...], int]]] = {
    1: {name: dict(kinds) for name, kinds in _KINDS.items()},
    2: _SECOND,
    3: {**_SECOND, "free_chains": dict(_CHAINS)},
}
"""All steps by edition and family. What is added to steps makes a new edition: an earlier one does not draw it."""
FAMILIES = tuple(_KINDS)
"""Of the first two editions."""
_STARTS = ("images", "images", "images", "vectors", "vectors", "tokens", "tokens", "heads", "signals", "volumes")
_STARTS_OF_CHAINS = ("images", "images", "images", "volumes", "volumes", "volumes", "vectors", "vectors", "signals")
_STARTS_OF_NETWORKS = (
    "images",
    "images",
    "images",
    "images",
    "vectors",
    "vectors",
    "tokens",
    "tokens",
    "tokens",
    "volumes",
)


def stream(
    split: str, seed: int, names: Sequence[str] = FAMILIES, dtype: str | None = None, edition: int = 1
) -> Iterator[Task]:
    """Tasks of a split, of these families in turn; `dtype` None: some of them have 16 bits.

    edition: which steps there are (EDITIONS).

    Raises:
        DrKernelError: an unknown family.
    """
    if unknown := [name for name in names if name not in EDITIONS[edition]]:
        known = ", ".join(EDITIONS[edition])
        raise DrKernelError(f"free programs: unknown family {unknown[0]!r}; expected one of {known}")
    rng = random.Random(f"free/{split}/{seed}/{dtype}" + f"/{edition}" * (edition > 1))
    while True:
        for name in rng.sample(list(names), len(names)):
            task = None
            while task is None or split_of(task.info["key"]) != split:
                narrow = rng.choice(("float16", "bfloat16")) if rng.random() < _NARROW else "float32"
                task = _task(rng, split, name, dtype or narrow, edition)
            yield task


def _task(rng: random.Random, split: str, family: str, dtype: str, edition: int) -> Task | None:
    """A task that runs and has an output that tells something; None where what was drawn is none."""
    program = Program(rng, dtype)
    try:
        _begin(program, family)
        _grow(program, EDITIONS[edition][family], family, _ENDS[edition])
        outputs = _outputs(program)
    except (Unfit, AssertionError):
        return None
    source = program.source(outputs)
    key, small = "+".join(program.steps), program.small(source)
    digest = hashlib.sha256(f"{source}{sorted(small.items())}".encode()).hexdigest()[:8]
    task = Task(
        id=f"generated/{family}/{digest}",
        source=source,
        split=split,
        family=family,
        small=small,
        precision="ieee" if dtype == "float32" else "low",
        info={"key": key, "family": family, "composition": list(program.steps), "dtype": dtype, "small": small},
    )
    return task if program.steps and _is_sound(task, dtype) else None


def _begin(program: Program, family: str) -> None:
    """The first input, and a layer where the family has one."""
    rng = program.rng
    kind = rng.choice({"free_networks": _STARTS_OF_NETWORKS, "free_chains": _STARTS_OF_CHAINS}.get(family, _STARTS))
    if kind == "tokens" and family == "free_networks" and rng.random() < 0.25:
        vocab, width = program.size("vocab"), program.size("features")
        ids = program.input((program.size("batch"), program.size("seq")), vocab.text)
        table = program.hold(f"nn.Embedding({vocab.text}, {width.text})", "embedding")
        program.let(f"{table}({ids.name})", (*ids.shape, width))
        return
    shape = [program.size(role, (full, small)) for role, full, small in sizes.shape_of(rng, kind)]
    program.input(shape, "rand" if rng.random() < 0.1 else "randn")
    if family == "free_networks" and rng.random() < 0.08:
        _step(program, (layers.twins,))
    if family == "free_chains":
        _step(program, _FIRST)
    if family == "free_layers":
        _step(program, (layers.layer, layers.layer, layers.layer, layers.transposed, layers.raw, pairs.scores))


def _grow(program: Program, kinds: Mapping[tuple[Step, ...], int], family: str, ends: Sequence[Step]) -> None:
    """Steps, and blocks of steps that repeat; classes or a loss at the end."""
    rng, deep = program.rng, family == "free_networks"
    sorts, weights = list(kinds), list(kinds.values())
    draw = lambda: _step(program, program.rng.choices(sorts, weights)[0])
    for _ in range(rng.choice((1, 2, 3, 4, 5, 6) if deep else (1, 1, 1, 2, 2, 2, 3, 3, 4, 6))):
        if rng.random() < (0.3 if deep else 0.06):
            _repeat(program, rng.choice((1, 1, 2, 3)), draw)
        else:
            draw()
    if deep and rng.random() < 0.3:
        _step(program, (layers.head,))
    elif family in ("free_formulas", "free_mixtures") and rng.random() < 0.15:
        _step(program, ends)


def _repeat(program: Program, steps: int, draw: Callable[[], bool]) -> None:
    """The same steps several times, each with parameters of its own."""
    outer, seed = program.rng, program.rng.random()
    for _ in range(outer.choice((2, 2, 3, 3, 4, 4, 5, 6, 8))):
        if len(program.body) > _MOST_STATEMENTS // 2:
            break
        program.rng = random.Random(seed)
        for _ in range(steps):
            draw()
    program.rng = outer


def _step(program: Program, steps: Sequence[Step]) -> bool:
    """One of the steps; none where several do not fit."""
    for _ in range(_TRIES):
        saved, step = program.saved(), program.rng.choice(steps)
        try:
            step(program)
            if program.value.dtype == "float" and len(program.body) <= _MOST_STATEMENTS:
                program.steps.append(step.__name__)
                return True
        except (Unfit, AssertionError):
            pass
        program.restore(saved)
    return False


def _outputs(program: Program) -> list[Value]:
    """The last value, and others now and then."""
    made = [value for value in program.values if value.name not in program.inputs and value.dtype == "float"]
    if not made:
        raise Unfit
    others = made[:-1]
    if others and program.rng.random() < 0.06:
        made[:-1] = program.rng.sample(others, min(len(others), program.rng.choice((1, 1, 2))))
        return made
    return made[-1:]


def _is_sound(task: Task, dtype: str) -> bool:
    """Whether it runs with small sizes, reads its inputs, and makes numbers that are finite and not all the same."""
    forward = task.source[task.source.index("def forward") :]
    head, _, body = forward.partition("):\n")
    names = head.partition("self, ")[2].split(", ")
    if not all(f"{name}" in _words(body.partition("def get_inputs")[0]) for name in names):
        return False
    try:
        made, moved, exact = _outputs_of(task, dtype)
    except DrKernelError:
        return False
    largest = _LARGEST[dtype]
    parts = zip(made, moved, exact, strict=True)
    return all(_tells(a.double(), b.double(), c.double(), largest) for a, b, c in parts)


def _outputs_of(task: Task, dtype: str) -> Iterator[list[torch.Tensor]]:
    """Of inputs, of others, and of the first in 64 bits where the task has 32."""
    reference = Reference(task, task.small)
    model = reference.model(seed=0).eval()
    several = lambda made: list(made) if isinstance(made, tuple) else [made]
    inputs = reference.inputs(seed=1)
    first = several(reference.forward(model, inputs))
    yield first
    yield several(reference.forward(model, reference.inputs(seed=2)))
    exact = [part.double() if part.dtype == torch.float32 else part for part in inputs]
    yield several(reference.forward(model.double(), exact)) if dtype == "float32" else first


def _words(text: str) -> set[str]:
    return set(re.findall(r"(?<![\w.])[a-z]\b", text))


def _tells(made: torch.Tensor, moved: torch.Tensor, exact: torch.Tensor, largest: float) -> bool:
    """Whether an output is finite, not too large, another for other inputs, and no matter of rounding."""
    if not made.isfinite().all() or made.abs().max() > largest:
        return False
    scale = made.abs().max()
    spread = made.std() if made.numel() > 1 else scale
    differs = (made - moved).abs().max() > 0.01 * scale and spread > 0.003 * scale
    return bool(scale > 1e-3 and differs and (made - exact).abs().max() < 1e-4 * scale)
