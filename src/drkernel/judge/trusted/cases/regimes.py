"""Other values for the random numbers that inputs are made of: what a kernel may not assume about values.

A regime fills a draw with numbers of another kind. Those that decide most: one element of each row carries the result,
at a random place (sampling misses it, and the rounding of lower precision has nothing to cancel with); all rows are
alike but one; rows are constant, or have a large offset, or sizes of their own; places in a row follow from values.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Sequence

import torch
from torch import Tensor

from drkernel.judge.trusted.cases.structure import Change, Source, Use

_CHUNK, _PARTS = 2**22, 64
"""Elements that are filled at once, more of a large draw: so many parts of it."""
_OUTLIERS = 64
"""Outliers of a whole draw, at least, where it has the room."""
_FEW, _FEW_SIZES = 128, (2.0**12, 16.0)
"""Elements of a whole draw that together carry the result, and how large they are."""

_FAR = 8.0
"""How much larger an outlier is whose exponential overflows."""
_LAST_MIXED = 3
"""The variant of mixed values that has the mildest of each regime."""

_SIDE_BY_SIDE, _LONGEST = 64, 2**16
"""The largest elements of a row that lie side by side; of longer rows, so many elements are ordered at a time."""

Fill = Callable[[Tensor, Tensor, torch.Generator], Tensor]
"""New values for rows of a draw: from the values [r, c], their standardised form, and a generator for places."""


def _plain(function: Callable[[Tensor, Tensor], Tensor]) -> Fill:
    return lambda x, z, places: function(x, z)


def _sparse(
    x: Tensor, z: Tensor, places: torch.Generator, size: float = 16.0, positive: bool = False, far: bool = False
) -> Tensor:
    """One element of each row carries the result, at a random place; all others together are less. With `far`, that of
    about half of the rows is so large that its exponential overflows, which only its own maximum prevents."""
    rows, columns = z.shape
    number = max(1, min(_OUTLIERS // rows, columns // 8))
    where = torch.randint(columns, (rows, number), generator=places, device=z.device)
    result = z * (size / max(2**12, 8 * columns))
    chosen = z.gather(1, where)
    result.scatter_(1, where, size * torch.sign(chosen + 1e-9) * (0.5 + chosen.abs().clamp_max(2.0)))
    if far:
        result *= 1 + (_FAR - 1) * torch.randint(2, (rows, 1), generator=places, device=z.device)
    return result.abs_() if positive else result


def _uneven(x: Tensor, z: Tensor, places: torch.Generator, positive: bool = False, constant: bool = True) -> Tensor:
    """Rows with an offset, rows that are constant but for one element or wholly, rows of other sizes."""
    rows, columns = z.shape
    kind = torch.randint(4, (rows, 1), generator=places, device=z.device)
    power = torch.randint(-6, 7, (rows, 1), generator=places, device=z.device)
    where = torch.randint(columns, (rows, 1), generator=places, device=z.device)
    level = (4 * z[:, :1]).round() / 4 + 0.25  # short mantissas: sums of equal values stay exact
    flat = level.expand_as(z).clone()
    flat.scatter_(1, where, level + 8 * z[:, -1:])
    if constant:
        flat = torch.where(kind == 1, level, flat)
    result = torch.where(kind == 0, 16 + z, torch.where(kind == 3, z * torch.exp2(power.to(z.dtype)), flat))
    return result.abs_() if positive else result


def _ordered(x: Tensor, z: Tensor, places: torch.Generator, given: bool = False, positive: bool = False) -> Tensor:
    """Rows sorted up or down in turn, and rows whose largest or smallest elements are neighbours at a random place, or
    have a power of two between them: whoever takes some of each group of elements loses those that decide."""
    values = x if given else z.abs() if positive else z
    rows, columns = values.shape
    if columns > _LONGEST:
        whole = values[:, : columns // _LONGEST * _LONGEST].reshape(-1, _LONGEST)
        parts = (whole, values[:, columns // _LONGEST * _LONGEST :])
        return torch.cat([_ordered(part, part, places, given=True).view(rows, -1) for part in parts], dim=1)
    return values.sort(dim=1).values.gather(1, _ranks(rows, columns, places)) if columns > 1 else values


def _ranks(rows: int, columns: int, places: torch.Generator) -> Tensor:
    """Where each element of ordered rows [rows, columns] is found in the sorted row."""
    draw = lambda high: torch.randint(high, (rows, 1), generator=places, device=places.device, dtype=torch.int32)
    place = torch.arange(columns, device=places.device, dtype=torch.int32)
    side = max(1, min(_SIDE_BY_SIDE, columns // 4))
    kind = torch.arange(rows, device=place.device)[:, None] % 4 if rows > 1 else draw(4)
    whole = kind < 2
    turned = place - torch.where(whole, 0, draw(columns) // side * side)
    turned += columns * (turned < 0)
    power = torch.where(whole | (draw(2) == 0), 0, draw((columns - 1).bit_length()))
    group, size = turned & ((1 << power) - 1), columns >> power
    rank = group * size + torch.minimum(group, columns - (size << power)) + (turned >> power)
    others = torch.randperm(columns - side, generator=places, device=places.device) + side
    rank = torch.where(whole, rank.long(), torch.cat([place[:side], others])[rank])
    return torch.where(kind % 2 == 0, rank, columns - 1 - rank)


_PURE: dict[str, tuple[Fill, ...]] = {
    "mirrored": (
        _plain(lambda x, z: -1.5 * z + 0.75), _plain(lambda x, z: -1.5 * x), _plain(lambda x, z: 0.3 + 0.5 * x)
    ),
    "large": (
        _plain(lambda x, z: 64 * z), _plain(lambda x, z: 64 * z.abs()), _plain(lambda x, z: 16 * z),
        _plain(lambda x, z: 8 * x),
    ),
    "heavy": (
        _plain(lambda x, z: -(z.abs() ** 3) - 0.1), _plain(lambda x, z: z**3), _plain(lambda x, z: z.abs() ** 3),
        _plain(lambda x, z: x**3),
    ),
    "integers": (_plain(lambda x, z: (2 * z).round()), _plain(lambda x, z: (2 * z).round().abs() + 1)),
    "sparse": (
        functools.partial(_sparse, far=True), _sparse, functools.partial(_sparse, positive=True),
        functools.partial(_sparse, size=2.0), functools.partial(_sparse, size=2.0, positive=True),
    ),
    "uneven": (
        _uneven, functools.partial(_uneven, constant=False), functools.partial(_uneven, positive=True),
        functools.partial(_uneven, positive=True, constant=False),
    ),
    "ordered": (
        _ordered, functools.partial(_ordered, positive=True), functools.partial(_ordered, given=True),
    ),
}  # fmt: skip
_NEAR_ONE = _plain(lambda x, z: 1 + z / 128)
PURE = (*_PURE, "alike")
"""The regimes that change all values in one way."""
SCALED = {f"scaled{power:+}": 2.0**power for power in (-4, -8, -12, 4, 8, 12)}
"""The regimes for references with thresholds that others do not get past: the given values times a number."""
CHOICES = ("crowded", "ends")
"""The regimes that change whole numbers alone: indices, labels, lengths."""
REGIMES: dict[str, int] = {
    "given": 1,
    **{name: len(fills) + 1 for name, fills in _PURE.items()},
    "alike": 2,
    "mixed": 5,
    "near_one": 2,
    "few": 3,
    "crowded": 1,
    "ends": 1,
    **dict.fromkeys(SCALED, 1),
}
"""Value distributions by name, with their number of variants. Later ones are milder, for references that leave their
domain on the first; in the last one, all numbers stay in the range of their draw."""

DESCRIPTIONS = {
    "mirrored": "shifted values, of which some columns are sorted",
    "large": "large values",
    "heavy": "negative, heavy-tailed values",
    "integers": "small integers",
    "sparse": "single large values at random places",
    "uneven": "rows with an offset, constant rows and rows of other sizes",
    "ordered": "sorted rows, and rows whose largest values are neighbours",
    "alike": "all rows alike but one",
    "near_one": "values near one",
    "few": "a few very large values at random places",
    "crowded": "half of the indices alike",
    "ends": "the first and the last index alone",
    **{name: f"the given values times {factor:g}" for name, factor in SCALED.items()},
}
"""Of regimes, in words that feedback can use."""


def change(regime: str, variant: int, seed: int) -> Change | None:
    """What a regime does to the draws of `get_inputs`; None for the given values."""
    if regime == "given":
        return None
    if regime in CHOICES:
        return functools.partial(_choose, regime, seed)
    if regime in SCALED:
        return functools.partial(_scale_values, SCALED[regime])

    def fill(numbers: Tensor, source: Source, index: int) -> None:
        if source.use == Use.CHOICE or not numbers.numel():
            return
        places = torch.Generator(numbers.device).manual_seed((seed + 7919 * index) % 2**63)
        values = numbers if numbers.is_contiguous() else numbers.contiguous()
        last = variant == REGIMES[regime] - 1
        if regime == "alike":
            _make_alike(values, places)
        elif regime == "near_one":
            _fill(values, source, _NEAR_ONE, places)
        elif regime == "few":
            _make_few(values, source, _FEW_SIZES[min(variant, 1)], places)
        elif regime == "mixed":
            _fill_mixed(values, source, min(variant, _LAST_MIXED), places)
        else:
            _fill(values, source, _PURE[regime][min(variant, len(_PURE[regime]) - 1)], places)
        if regime == "mirrored":
            _order_across(values, places)
        if last or source.use == Use.RANGE:
            _into_range(values, source)
        if values is not numbers:
            numbers.copy_(values)

    return fill


def _scale_values(factor: float, numbers: Tensor, source: Source, index: int) -> None:
    if source.use not in (Use.CHOICE, Use.RANGE):
        numbers.mul_(factor)


def has_choices(sources: Sequence[Source]) -> bool:
    """Whether there are draws that the regimes of CHOICES change."""
    return any(_is_choice(source) for source in sources)


def _is_choice(source: Source) -> bool:
    return source.use == Use.CHOICE and source.low < source.high and not source.read


def _choose(regime: str, seed: int, numbers: Tensor, source: Source, index: int) -> None:
    """Other whole numbers of a draw's range: half of them are one, or each is one of the two ends. Where all differ as
    they are drawn, a reference may need that, and they stay."""
    if not _is_choice(source) or numbers.numel() < 2 or len(numbers.unique()) == numbers.numel():
        return
    places = torch.Generator(numbers.device).manual_seed((seed + 7919 * index) % 2**63)
    draw = lambda high, shape: torch.randint(high, shape, generator=places, device=numbers.device)
    one = int(source.low) + int(draw(int(source.high - source.low) + 1, (1,)))
    chosen = draw(2, numbers.shape) == 0
    if regime == "crowded":
        numbers[chosen] = one
    else:
        numbers.copy_(torch.where(chosen, int(source.low), int(source.high)))


def touch(seed: int, in_range: bool = False) -> Change:
    """Changes single numbers of each draw: two are exchanged, and one becomes an outlier, or its mirror image in the
    range of the draw."""

    def touched(numbers: Tensor, source: Source, index: int) -> None:
        if numbers.numel() < 3:
            return
        places = torch.Generator("cpu").manual_seed((seed + 7919 * index) % 2**63)
        flat = numbers.reshape(-1)
        first, second, third = torch.randint(len(flat), (3,), generator=places, device="cpu").tolist()
        flat[[first, second]] = flat[[second, first]]
        if source.use == Use.RANGE or (in_range and source.use != Use.CHOICE):
            flat[third] = source.low + source.high - flat[third]
        elif source.use != Use.CHOICE:
            flat[third] = 3 * torch.maximum(*(end.abs() for end in flat.aminmax()))
        if not numbers.is_contiguous():
            numbers.copy_(flat.view(numbers.shape))

    return touched


def _fill(values: Tensor, source: Source, fill: Fill, places: torch.Generator) -> None:
    """Overwrites a draw, some rows at a time."""
    centre, spread = _scale(source)
    for part in _rows(values):
        x = part if part.dtype == torch.float64 else part.float()
        part.copy_(fill(x, (x - centre) / spread, places))


def _fill_mixed(values: Tensor, source: Source, variant: int, places: torch.Generator) -> None:
    """Every pure regime in a part of the rows."""
    fills = [fills[min(variant, len(fills) - 1) if variant < _LAST_MIXED else -1] for fills in _PURE.values()]
    by_rows = values.dim() > 1 and len(values) >= len(fills)
    parts = (values if by_rows else values.view(-1)).tensor_split(len(fills))
    for fill, part in zip(fills, parts, strict=True):
        if part.numel():
            _fill(part, source, fill, places)


def _order_across(values: Tensor, places: torch.Generator) -> None:
    """Orders half of the columns, at a random place, along another dimension than the last one."""
    others = [dimension for dimension in range(values.dim() - 1) if values.shape[dimension] > 1]
    if not others:
        return
    draw = lambda high: int(torch.randint(high, (1,), generator=places, device=values.device))
    columns, dimension = values.shape[-1], others[draw(len(others))]
    number = max(1, min(columns // 2, _CHUNK * columns // values.numel()))
    part = values.narrow(-1, draw(columns - number + 1), number).movedim(dimension, -1)
    rows = part.reshape(-1, part.shape[-1])
    part.copy_(_ordered(rows, rows, places, given=True).view(part.shape))


def _make_few(values: Tensor, source: Source, size: float, places: torch.Generator) -> None:
    """A few elements of the whole draw, of different sizes and at random places, carry the result of a sum: whoever
    leaves some elements out loses another share of it than of their number."""
    number = max(1, min(_FEW, values.numel() // 8))
    where = torch.randint(values.numel(), (number,), generator=places, device=values.device)
    small = size * number / (4 * values.numel())
    _fill(values, source, _plain(lambda x, z: small * z), places)
    scale = torch.rand(number, generator=places, device=values.device).mul_(2).add_(0.5).mul_(size)
    scale[3::4].neg_()  # some of both signs, without cancelling each other
    values.view(-1)[where] = scale.to(values.dtype)


def _make_alike(values: Tensor, places: torch.Generator) -> None:
    """All rows (of the first dimension) like the first, in short mantissas, but for one that is larger than it."""
    if values.dim() < 2 or len(values) < 3:
        return
    first = values[0].bfloat16().to(values.dtype).clone()
    other = int(torch.randint(len(values), (1,), generator=places, device=places.device))
    values.copy_(first.expand_as(values))
    values[other] = -3 * first.flip(-1)


def _into_range(values: Tensor, source: Source) -> None:
    """Scales a draw into the range that its numbers had; where that has one sign, so has the result."""
    low, high = source.low, source.high
    largest = max(float(torch.maximum(*(end.abs() for end in values.aminmax()))), 1e-30)
    if low < 0 < high:
        values.mul_(min(-low, high) * (1 - 2.0**-7) / largest)
    else:
        values.abs_().mul_((high - low) * (1 - 2.0**-7) / largest).add_(low)


def _scale(source: Source) -> tuple[float, float]:
    """Centre and standard deviation of a draw's numbers."""
    width = source.high - source.low
    return (source.low + source.high) / 2, max(width / (6.0 if source.normal else 12**0.5), 1e-6)


def _rows(values: Tensor) -> Iterator[Tensor]:
    """Views [r, c] that together are the tensor, of a bounded size each if rows are."""
    columns = values.shape[-1] if values.dim() else 1
    table = values.view(-1, columns)
    yield from table.split(max(1, max(_CHUNK, values.numel() // _PARTS) // columns))
