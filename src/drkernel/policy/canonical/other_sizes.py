"""Lines that are right at other sizes: what `sizes.general` guesses is tried there, and mended where it is wrong.

    t0 = torch.narrow(in0, dim=1, start=0, length=48)   ->   length=in0.shape[1] // 2
    t2 = t1.unflatten(2, (30, -1))                      ->   t1.unflatten(2, (in0.shape[2] + 2, -1))

A task is run again with some of its numbers doubled. A number of a line that changes with them becomes the first
expression of sizes that has its value each time.
"""

from __future__ import annotations

import ast
import dataclasses
import functools
import math
import operator
import re
from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise, permutations
from typing import Any

from drkernel.policy.canonical.arguments import Ref
from drkernel.policy.canonical.calls import Call
from drkernel.policy.canonical.sizes import POWERS, Size

MOST_RUNS, LEAST_RUNS, MOST_CALLS, _CALLS_OF_A_LAYER = 10, 2, 2000, 100
"""How often a task is run again; about how many calls all these runs make, and what is told as a layer."""
_LEAST, _LEAST_ALONE = 2, 4
"""The least number that is taken for a size: of a constant with a name; of one that stands in a call."""
_MOST_VALUES = 12
"""Values made before whose sizes are tried."""
_MOST_PAIRED = 16
"""Sizes of which pairs are tried."""
_JOINS = {"-": operator.sub, "+": operator.add, "*": operator.mul, "//": operator.floordiv}
_PLAIN = re.compile(r"\(?[\w.]+(\.shape\[-?\d+\])( \*\* -?[\d.]+)?\)?|self\.n\d+( \*\* -?[\d.]+)?")
"""A size, or a power of one."""
_ENDS = ("start", "stop", "step")
_LEAST_FACTOR, _MOST_DIGITS = 8, 4
"""Factors that may follow from sizes are larger, or have more digits."""
_NO_SIZES = ("dim", "dims", "kernel_size", "stride", "padding", "dilation", "dim0", "dim1", "eps", "step")
"""Arguments that are never sizes."""
_OWN = ("chunk", "conv1d", "conv2d", "conv3d", "conv_transpose1d", "conv_transpose2d", "conv_transpose3d", "linear")
"""Calls whose numbers are never sizes."""


@dataclasses.dataclass(frozen=True)
class Run:
    """The calls of one run, and the sizes that were there."""

    calls: Sequence[Call]
    """By line."""
    made: Sequence[int]
    """How many values are there before each line: `t0` to `t4` are five."""
    shapes: Mapping[str, tuple[int, ...]]
    """Of values, inputs and tensors of the module, by name."""
    numbers: Mapping[str, int | float]
    """Numbers that the module holds, by name."""

    def value(self, text: str) -> Any:
        """The value of an expression of sizes; None where it has none."""
        text = re.sub(r"([A-Za-z_][\w.]*)\.shape\b", r"shapes['\1']", text)
        text = re.sub(r"\bself\.([nru]\d+)\b", r"numbers['\1']", text)
        try:
            return eval(text, {"__builtins__": {}}, {"shapes": self.shapes, "numbers": self.numbers})
        except (KeyError, IndexError, NameError, SyntaxError, AttributeError, TypeError, ZeroDivisionError):
            return None


def resized(source: str, calls: Sequence[Call]) -> Iterator[str]:
    """The source with one number after another doubled, of the module's constants and of the calls that make inputs.
    Then with all that are equal in these, in the arguments and in their defaults. It may not run.

    calls: that it makes; a task of many, or with recurrent layers, is run again less often.
    """
    length = sum(_CALLS_OF_A_LAYER if call.module.startswith("nn.") else 1 for call in calls)
    tree = ast.parse(source)
    alone: list[ast.Constant] = []
    equal: list[ast.Constant] = []
    for node in tree.body:
        if isinstance(node, ast.Assign):
            alone += _numbers(node.value, _LEAST)
        elif isinstance(node, ast.FunctionDef) and node.name in ("get_inputs", "get_init_inputs"):
            numbers = _numbers(node, _LEAST_ALONE)
            alone += numbers if node.name == "get_inputs" else []
            equal += numbers
        elif isinstance(node, ast.ClassDef):
            equal += [number for part in _defaults(node) for number in _numbers(part, _LEAST_ALONE)]
    together = [[other for other in equal if _value(other) == value] for value in dict.fromkeys(map(_value, equal))]
    groups = [[number] for number in alone] + [group for group in together if len(group) > 1 or group[0] not in alone]
    for group in groups[: min(MOST_RUNS, max(LEAST_RUNS, MOST_CALLS // max(length, 1)))]:
        before = _value(group[0])
        for number in group:
            number.value = 2 * before
        yield ast.unparse(tree)
        for number in group:
            number.value = before


def _defaults(entry: ast.ClassDef) -> list[ast.expr]:
    """Of what the constructor takes."""
    made = [part for part in entry.body if isinstance(part, ast.FunctionDef) and part.name == "__init__"]
    return [default for part in made for default in (*part.args.defaults, *part.args.kw_defaults) if default]


def _numbers(node: ast.AST, least: int) -> list[ast.Constant]:
    found = [part for part in ast.walk(node) if isinstance(part, ast.Constant)]
    return [part for part in found if type(part.value) is int and part.value >= least]


def _value(number: ast.Constant) -> int:
    assert isinstance(number.value, int)
    return number.value


def has_sizes(call: Call, guess: Call, held: Mapping[str, int | float]) -> bool:
    """Whether a number of the call may be one that follows from sizes.

    held: numbers of the module, by path.
    """
    if guess.module or call.name in _OWN:
        return False
    words = [value for word, value in guess.words.items() if word not in _NO_SIZES]
    leaves = list(_flat([*guess.tensors, *words]))
    has_whole = any(isinstance(leaf, Size) or (type(leaf) is int and leaf > 2) for leaf in leaves)
    points = [leaf for leaf in leaves if type(leaf) is float]
    return has_whole or not set(points).isdisjoint(held.values()) or (call.infix and any(map(_is_long, points)))


def _is_long(number: float) -> bool:
    """Whether nobody writes a factor like this: it has many digits, or is a whole number that is large."""
    return abs(number) > _LEAST_FACTOR or len(repr(abs(number)).replace(".", "").strip("0")) > _MOST_DIGITS


def fitted(line: int, guess: Call, base: Run, others: Sequence[Run]) -> Call:
    """The guess with numbers that are right in all runs, as far as an expression is found.

    Args:
        line: the number of the call.
        base: the run that was guessed from.
        others: runs with the same calls at other sizes.
    """
    call, changed = base.calls[line], [run.calls[line] for run in others]
    if not has_sizes(call, guess, base.numbers):
        return guess
    search = _Search(call, line, (base, *others))
    tensors = [
        search.mended(new, [old, *(other.tensors[k] for other in changed)])
        for k, (new, old) in enumerate(zip(guess.tensors, call.tensors, strict=True))
    ]
    words = dict(guess.words)
    for word in words.keys() & call.words.keys():
        words[word] = search.mended(words[word], [other.words.get(word) for other in (call, *changed)])
    if call.infix:  # what was guessed has its brackets
        tensors = [
            Size(f"({new.text})") if new is not old and isinstance(new, Size) and " " in new.text else new
            for new, old in zip(tensors, guess.tensors, strict=True)
        ]
    return dataclasses.replace(guess, tensors=tensors, words=words)


def with_attributes(line: int, guess: Call, base: Run, others: Sequence[Run]) -> Call:
    """The guess with the names of numbers that the module holds, for those with a point that change with sizes as these
    do, and that are no size, and no power of one; itself where there are none."""
    calls = [run.calls[line] for run in (base, *others)]
    if guess.module or not others:
        return guess

    def named(new: Any, olds: Sequence[Any]) -> Any:
        if any(type(old) is not float for old in olds) or len(set(olds)) == 1 or _PLAIN.fullmatch(repr(new)):
            return new
        runs = list(zip((base, *others), olds, strict=True))
        same = [name for name in base.numbers if all(_same(run.numbers.get(name), old) for run, old in runs)]
        return Size(f"self.{same[0]}") if same else new

    places = enumerate(guess.tensors)
    tensors = [named(new, [call.tensors[k] for call in calls]) for k, new in places]
    words = {word: named(new, [call.words.get(word) for call in calls]) for word, new in guess.words.items()}
    is_same = all(map(operator.is_, (*tensors, *words.values()), (*guess.tensors, *guess.words.values())))
    return guess if is_same else dataclasses.replace(guess, tensors=tensors, words=words)


@dataclasses.dataclass(frozen=True)
class _Size:
    """A size that may be named: its values in all runs."""

    text: str
    values: tuple[int, ...]
    place: int = 0
    """Which dimension it is, from the last one."""
    is_late: bool = False
    """Whether it is of a value that the line does not read: to name it keeps the value from being part of a kernel."""

    @property
    def part(self) -> str:
        return f"({self.text})" if " " in self.text else self.text

    def gives(self, wanted: tuple[int, ...], times: int = 1, more: int = 0, parts: int = 1) -> bool:
        """Whether so many times its values and something more, in parts, are these."""
        return all((times * v + more) // parts == other for v, other in zip(self.values, wanted, strict=True))


class _Search:
    """Looks for expressions of what is known before a line."""

    def __init__(self, call: Call, line: int, runs: Sequence[Run]):
        self._runs = runs
        base = runs[0]
        inputs = [name for name in base.shapes if re.fullmatch(r"in\d+", name)]
        held = [name for name in base.shapes if name.startswith("self.")]
        count = base.made[line]
        made = [f"t{number}" for number in range(count - 1, max(count - _MOST_VALUES, 0) - 1, -1)]
        self._early = dict.fromkeys((*(ref.name for ref in call.refs), *inputs, *held))
        self._names = list(dict.fromkeys((*self._early, *made)))

    @functools.cached_property
    def _sizes(self) -> list[_Size]:
        """Of operands first, then of inputs, of what the module holds, of values made before."""
        return [*self._held("n"), *(size for name in self._names for size in self._of(name)), *self._held("u")]

    def _held(self, kind: str) -> list[_Size]:
        """Whole numbers that the module holds."""
        names = [name for name in self._runs[0].numbers if name.startswith(kind)]
        return [_Size(f"self.{n}", tuple(int(run.numbers.get(n, 0)) for run in self._runs)) for n in names]

    def _of(self, name: str) -> list[_Size]:
        shapes = [run.shapes.get(name, ()) for run in self._runs]
        if len({len(shape) for shape in shapes}) != 1:
            return []
        rank, late = len(shapes[0]), name not in self._early
        return [_Size(f"{name}.shape[{k}]", tuple(shape[k] for shape in shapes), k - rank, late) for k in range(rank)]

    @functools.cached_property
    def _products(self) -> list[_Size]:
        """Of dimensions side by side."""
        sides = [size for name in self._names for size in pairwise(self._of(name))]
        return [_Size(f"{a.text} * {b.text}", tuple(map(operator.mul, a.values, b.values))) for a, b in sides]

    def mended(self, new: Any, olds: Sequence[Any], place: int = 0) -> Any:
        """A part of a guess. `olds` are those of the call in all runs, `place` is where it stands in a list, from its
        end."""
        old = olds[0]
        if all(isinstance(part, slice) for part in (new, *olds)):
            return slice(*(self.mended(getattr(new, e), [getattr(o, e) for o in olds]) for e in _ENDS))
        if isinstance(old, list | tuple) and isinstance(new, list | tuple):
            if {len(part) if isinstance(part, list | tuple) else -1 for part in olds} != {len(new)}:
                return new
            return type(new)(self.mended(n, [o[k] for o in olds], k - len(new)) for k, n in enumerate(new))
        if not all(type(part) in (int, float) and math.isfinite(part) for part in olds) or new == -1 != old:
            return new
        if isinstance(new, Size) and all(
            _same(run.value(new.text), o) for run, o in zip(self._runs, olds, strict=True)
        ):
            return new
        if all(_same(old, part) for part in olds):
            return old
        return next((Size(text) for text in self._expressions(tuple(olds), place)), new)

    def _expressions(self, wanted: tuple[float, ...], place: int) -> Iterator[str]:
        """Expressions of sizes that have these values, the likely ones first."""
        if any(value != int(value) for value in wanted):
            yield from self._roots(wanted)
            return
        whole = tuple(int(value) for value in wanted)
        sizes = sorted(self._sizes, key=lambda size: (size.is_late, size.place != place))
        yield from (size.text for size in sizes if size.values == whole)
        yield from (text for size in sizes for text in _multiples(size, whole))
        for parts in (2, 3, 4):
            yield from (f"{size.text} // {parts}" for size in sizes if size.gives(whole, parts=parts))
            rest = parts - 1
            yield from (f"({s.text} + {rest}) // {parts}" for s in sizes if s.gives(whole, more=rest, parts=parts))
        for size in sizes:
            more = whole[0] - size.values[0]
            if size.gives(whole, more=more):
                yield f"{size.text} {'+' if more > 0 else '-'} {abs(more)}"
        yield from (size.text for size in self._products if size.values == whole)
        yield from (text for size in self._products for text in _multiples(size, whole))
        for more in (1, -1):
            yield from (f"{s.text} {'+-'[more < 0]} 1" for s in self._products if s.gives(whole, more=more))
        for a, b in permutations(sizes[:_MOST_PAIRED], 2):
            for sign, join in _JOINS.items():
                if 0 not in b.values and tuple(map(join, a.values, b.values)) == whole:
                    yield f"{a.text} {sign} {b.text}"

    def _roots(self, wanted: tuple[float, ...]) -> Iterator[str]:
        """Powers of a size, and a constant that is divided by one."""
        sign = "-" if wanted[0] < 0 else ""
        for size in (*self._sizes, *self._products):
            for power in POWERS:
                if min(size.values) > 0 and all(
                    _same(abs(w), v**power) for w, v in zip(wanted, size.values, strict=True)
                ):
                    yield f"{sign}{size.part} ** {power}"
        for size in (*self._sizes, *self._products):
            total = wanted[0] * size.values[0]
            if len(set(size.values)) > 1 and all(_same(w * v, total) for w, v in zip(wanted, size.values, strict=True)):
                yield f"{total:.9g} / {size.part}"


def _multiples(size: _Size, wanted: tuple[int, ...]) -> Iterator[str]:
    """A part of a size, or so many times as much."""
    first, number = size.values[0], wanted[0]
    if 0 < number < first and first % number == 0 and size.gives(wanted, parts=first // number):
        yield f"{size.text} // {first // number}"
    if 0 < first < number and number % first == 0 and size.gives(wanted, number // first):
        yield f"{size.text} * {number // first}"


def _same(found: Any, value: float) -> bool:
    if not isinstance(found, int | float):
        return False
    return found == value if type(value) is int else abs(found - value) <= 1e-9 * abs(value)


def _flat(value: Any) -> Iterator[Any]:
    if isinstance(value, slice):
        value = [value.start, value.stop, value.step]
    if isinstance(value, list | tuple):
        for part in value:
            yield from _flat(part)
    elif not isinstance(value, Ref):
        yield value
