"""Lines that one kernel computes, and its source."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from math import prod

from drkernel.coldstart.answers.further import any_step_of
from drkernel.coldstart.answers.kernel_text import EMPTY, TIMES, KernelText, reduced
from drkernel.coldstart.answers.known import Known, Part, Shapes
from drkernel.coldstart.answers.pooling import Pool
from drkernel.coldstart.answers.steps import Step
from drkernel.coldstart.answers.tile_text import Tiles
from drkernel.coldstart.answers.tiles import tiles
from drkernel.coldstart.answers.view import View, first
from drkernel.coldstart.answers.views import LEAST_PROGRAMS, views
from drkernel.policy.canonical.told import Line

MOST_TENSORS = 7
"""That a kernel reads."""
MOST_WAITING = 2
"""Steps that make a group only with what follows them: a mask before a softmax."""
_SCANS = {"cumsum": ("0.0", "+"), "cumprod": ("1.0", "*")}
"""Kinds of statements along what is reduced: the number before the first block, and the sign that joins blocks."""
_FIRST_OF = ("argmax", "argmin")
"""Kinds of statements that make places, of which loops keep one for each lane."""
CONVOLVED = 3
"""How many times as long as an element is written and read the library's depthwise convolutions take longer, about."""
_EMPTY = {**EMPTY, "prod": "1.0", "argmax": EMPTY["max"], "argmin": EMPTY["min"]}
_JOINED = {"sum": "{a} + {b}", "prod": "{a} * {b}", "max": "tl.maximum({a}, {b})", "min": "tl.minimum({a}, {b})"}
_DTYPES = {"int": "torch.long", "bool": "torch.bool"}


@dataclass(frozen=True)
class Statement:
    """A statement of a kernel."""

    target: str
    kind: str
    """As in a recipe (steps.py)."""
    value: str
    is_full: bool
    """Whether there is a value for each element that is reduced."""

    @property
    def needs(self) -> set[str]:
        return set(re.findall(r"\w+", self.value))

    @property
    def reduces(self) -> bool:
        return self.kind in _EMPTY

    def masked(self, mask: str) -> str:
        return f"tl.where({mask}, {self.value}, {_EMPTY[self.kind]})"


@dataclass(frozen=True)
class Group(KernelText):
    """Steps in a view of their tensors."""

    view: View
    known: Known

    @cached_property
    def outside(self) -> list[str]:
        """What it reads: values, then parameters."""
        made = {step.makes for step in self.steps}
        read = dict.fromkeys(name for step in self.steps for name in step.operands if name not in made)
        return sorted(read, key=lambda name: name.startswith("self."))

    @property
    def shapes(self) -> Shapes:
        return self.known.shapes

    @cached_property
    def rows(self) -> set[str]:
        """Of what it makes: values of which there is one for all that is reduced."""
        before: set[str] = set()  # a window, whose output may be as large as what it goes over
        for step in reversed(self.steps):
            before |= set(step.operands) if step.window or step.makes in before else set()
        made = {step.makes for step in self.steps if self._shape(step.makes) in self.view.of_rows}
        return made - before

    @cached_property
    def parts(self) -> dict[str, Part]:
        """Of what it reads: parts of the whole shape, which are read from the tensor that they are parts of."""
        found = {name: self.known.parts[name] for name in self._whole if name in self.known.parts}
        return found if not self._is_alone else {n: p for n, p in found.items() if p.place in (0, p.number - 1)}

    @cached_property
    def _whole(self) -> list[str]:
        return [name for name in self.outside if self._shape(name) == self.view.shape]

    @property
    def _is_alone(self) -> bool:
        """Whether no other value of the whole shape says that a part is as long as the others: of a tensor of an odd
        size it may be longer."""
        return len(self._whole) == 1

    @cached_property
    def arguments(self) -> list[str]:
        """The tensors that it is given."""
        return list(dict.fromkeys(self.parts[name].whole if name in self.parts else name for name in self.outside))

    @cached_property
    def lead(self) -> str | None:
        """What has the whole shape of what it reads: a tensor of the dtype that it makes, if there is one."""
        whole = [name for name in self._whole if name not in self.parts]
        alike = [name for name in whole if self.known.dtypes.get(name) == self.known.dtypes.get(self.makes)]
        return next(iter([*alike, *whole, *self.parts]), None)

    def _shape(self, name: str) -> tuple[int, ...] | None:
        return self._own.get(name) or self.shapes.get(name)

    @cached_property
    def _own(self) -> Shapes:
        """Shapes that the form does not tell; the first step that says one counts."""
        return {name: shape for step in reversed(self.steps) for name, shape in (step.own or {}).items()}

    @cached_property
    def places(self) -> dict[str, tuple[str, str]] | None:
        """Where in each tensor that it reads the element lies, and the mask; None where it cannot be a kernel."""
        found: dict[str, tuple[str, str]] = {}
        made = {step.makes for step in self.steps}
        if len({(part.dim, part.number) for part in self.parts.values()}) > 1:
            return None
        if any(step.after for step in self.steps[:-1]):
            return None
        for step in self.steps:
            if step.size and set(re.findall(r"\w+", step.size)) & made:
                return None
            of_row = step.makes in self.rows
            if step.is_view and step.operands[0] in self.outside:
                return None
            if not of_row and (step.is_view or self.shapes[step.makes] != self.view.shape):
                return None
            for name in step.operands:
                if name in made and not step.over and not self._meets(name, of_row):
                    return None
                if name in self.outside:
                    shape = self._shape(name)
                    place = None if shape is None else self.view.place(shape, of_row and not step.over)
                    if place is None or found.setdefault(name, place) != place or len(found) > MOST_TENSORS:
                        return None
        return found if self.lead else None

    def _meets(self, name: str, of_row: bool) -> bool:
        """Whether a value that it makes has an element for each that a point-wise step makes."""
        if name in self.rows and not of_row:
            return self.view.spreads(self._shape(name) or ())
        return of_row == (name in self.rows)

    def _of_part(self, name: str, where: str) -> str:
        """Where in the tensor that a value is part of the element lies."""
        if name not in self.parts:
            return where
        part, where = self.parts[name], f"({where})" if " " in where else where
        added = {0: "", 1: " + Q"}.get(part.place, f" + {part.place} * Q")
        added = " + P - Q" if self._is_alone and part.place else added
        return f"{where} // Q * P + {where} % Q{added}"

    def is_whole(self, uses: Mapping[str, int]) -> bool:
        """Whether nothing but the last value is needed elsewhere."""
        return super().is_whole(uses) and self._output("x") is not None

    def _output(self, lead: str) -> str | None:
        """The tensor that it fills; None where its shape or its dtype does not follow from what it reads."""
        made = self.view.output(lead, self._shape(self.makes) or ())
        if made and (dtype := self.known.dtypes.get(self.makes)) != self.known.dtypes.get(self.lead or ""):
            return f"{made[:-1]}, dtype={_DTYPES[dtype]})" if dtype in _DTYPES else None
        return made

    @property
    def saved(self) -> int:
        """Ten times the elements that need not be written and read again, and a little; more for a convolution."""
        convolves = any(step.window and len(step.operands) > 1 for step in self.steps)
        once = sum(not step.is_view for step in self.steps) + CONVOLVED * convolves
        return prod(self.view.shape) * (10 * once - 9)

    @property
    def told(self) -> dict[str, str]:
        """Sizes that follow from the module, or from what is no argument."""
        groups = {"G": self.view.groups} if re.fullmatch(r"self\..+", self.view.groups) else {}
        return groups | super().told

    def text(self, number: int) -> str:
        """The kernel and the function that launches it."""
        arguments = [self.name(value) for value in self.arguments]
        leading = self.parts.get(self.lead or "")
        lead = "h" if leading else self.name(self.lead or "")
        body = self._loops() if self.view.is_loop else self._straight()
        grid = self.view.grid(lead)
        sizes = self.view.sizes(lead, "\n".join([*body, grid, self.steps[-1].after]))
        for part in list(self.parts.values())[:1]:
            whole = self.name(part.whole)
            sizes |= {"Q": f"{first(lead, part.dim)}.numel()", "P": f"{first(whole, part.dim)}.numel()"}
        taken = [size for size in sizes | self.told if re.search(rf"\b{size}\b", "\n".join(body))]
        contiguous = [
            name for name, value in zip(arguments, self.arguments, strict=True) if not value.startswith("self.")
        ]
        wrapper = [f"{name} = {name}.contiguous()" for name in contiguous]
        if leading:
            whole, dim = self.name(leading.whole), leading.dim
            half = f"narrow({dim}, 0, {whole}.shape[{dim}] // {leading.number})"
            own = f"chunk({leading.number}, {dim})[{leading.place}]"
            wrapper.append(f"h = {whole}.{own if self._is_alone else half}")
        wrapper.append(f"o = {self._output(lead)}")
        wrapper += [f"{size} = {text}" for size, text in sizes.items() if size not in self.told]
        joins = TIMES if any(statement.kind == "prod" for statement in self._statements) else ""
        return joins + self.written(number, body, wrapper, grid, taken, self.view.constants, self.steps[-1].after)

    @cached_property
    def _statements(self) -> list[Statement]:
        """All tensors are loaded first, in the order of the signature; the lines follow in theirs."""
        names: dict[str, str] = {}
        loads: dict[str, Statement] = {}
        found: list[Statement] = []
        full: set[str] = set()
        for step in self.steps:
            if step.is_view:
                names[step.makes] = names[step.operands[0]]
                continue
            for operand in step.operands:
                if operand not in names:
                    names[operand] = self.name(operand)
                    where, mask = (self.places or {})[operand]
                    at = "" if where == "0" else f" + {self._of_part(operand, where)}"
                    tensor = self.parts[operand].whole if operand in self.parts else operand
                    masked = mask and f", mask={mask}"
                    load = f"tl.load({self.name(tensor)}_ptr{at}{masked}){self._widened(operand, step)}"
                    is_full = bool(self.view.inside & set(re.findall(r"\w+", where)))
                    loads[operand] = Statement(names[operand], "", load, is_full)
                    full |= {names[operand]} if is_full else set()
            names[step.makes] = self.name(step.makes)
            for statement in self._of_step(step, names):
                is_full = not statement.reduces and bool(statement.needs & full)
                found.append(replace(statement, is_full=is_full))
                full |= {statement.target} if is_full else set()
        return [*(loads[name] for name in self.outside if name in loads), *found]

    def _widened(self, operand: str, step: Step) -> str:
        """Values of 16 bits are computed with in 32."""
        told = operand if operand in self.shapes else step.operands[0]
        return ".to(tl.float32)" if self.known.dtypes.get(told) in ("float16", "bfloat16") else ""

    def _of_step(self, step: Step, names: Mapping[str, str]) -> Iterator[Statement]:
        for target, kind, text in self.filled(step, names):
            yield Statement(target, kind, text, is_full=False)

    def _straight(self) -> list[str]:
        """The kernel where a program holds all that is reduced."""
        lines = [*self.view.head, *self.view.block]
        for one in self._statements:
            value = one.value
            if one.reduces:
                value = reduced(one.kind, one.masked("m"), self.view.axis)
            elif one.kind:
                value = f"tl.{one.kind}({value}, {self.view.axis[0]})"
            lines.append(f"{one.target} = {value}")
        return [*lines, self._store()]

    def _loops(self) -> list[str]:
        """The kernel that goes through what is reduced once for each reduction, and once more to write."""
        lines = list(self.view.head)
        for one in self._statements:
            if one.kind in _FIRST_OF:
                lines += self._place_of(one)
            elif one.reduces:
                fill = f"tl.full({self.view.tile}, {_EMPTY[one.kind]}, tl.float32)"
                value = one.masked(self.view.mask) if self.view.mask else one.value
                joined = _JOINED[one.kind].format(a="a", b=value)
                lines += [f"a = {fill}", *self._loop(one.needs, f"a = {joined}")]
                lines.append(f"{one.target} = {reduced(one.kind, 'a', self.view.axis) if self.view.axis else 'a'}")
            elif not one.is_full:
                lines.append(f"{one.target} = {one.value}")
        whole = self.makes not in self.rows
        return [*lines, *(self._loop({self.name(self.makes)}, self._store()) if whole else [self._store()])]

    def _loop(self, needs: set[str], last: str) -> list[str]:
        """A loop over the blocks that computes what is needed, and ends with this statement."""
        inner: list[Statement] = []
        for one in reversed(self._statements):
            if one.is_full and one.target in needs:
                inner.insert(0, one)
                needs = needs | one.needs
        lines = [f"c = {self.view.carried(_SCANS[one.kind][0])}" for one in inner if one.kind]
        indent = ""
        for loop, block in self.view.nest:
            lines.append(indent + loop)
            indent += "    "
            lines += [indent + line for line in block]
        return [*lines, *(indent + line for one in inner for line in self._in_loop(one)), indent + last]

    def _in_loop(self, one: Statement) -> list[str]:
        """A statement for one block; a scan goes on from the last element of the block before, `c`."""
        if one.kind not in _SCANS:
            return [f"{one.target} = {one.value}"]
        scan = f"c {_SCANS[one.kind][1]} tl.{one.kind}({one.value}, {self.view.axis[0]})"
        last = f"tl.sum(tl.where(j == t + BLOCK - 1, {one.target}, 0.0), {self.view.axis})"
        return [f"{one.target} = {scan}", f"c = {last}"]

    def _place_of(self, one: Statement) -> list[str]:
        """The first place of the largest or the smallest: each lane has its own, `b`, until the end."""
        kind, empty = one.kind.removeprefix("arg"), _EMPTY[one.kind]
        better = "better = x > a" if kind == "max" else "better = x < a"
        loop = self._loop(one.needs, f"x = {one.masked(self.view.mask)}")
        joined = [better, "a = tl.where(better, x, a)", "b = tl.where(better, j, b)"]
        best = f"tl.{kind}(a, {self.view.axis})"
        return [
            f"a = tl.full({self.view.tile}, {empty}, tl.float32)",
            f"b = tl.zeros({self.view.tile}, tl.int32)",
            *loop,
            *(f"    {line}" for line in joined),
            f"{one.target} = tl.min(tl.where(a == {best}, b, N), {self.view.axis})",
        ]

    def _store(self) -> str:
        where, mask = self.view.row if self.makes in self.rows else ("i", "m")
        made = self._statements[-1].target
        return f"tl.store(o_ptr + {where}, {made}{mask and f', mask={mask}'})"


def groups(lines: Sequence[Line], known: Known, at_any_cost: bool = False) -> Iterator[Group | Tiles]:
    """The largest groups, from the first line on; each line is in one of them at most. Products come first.

    Args:
        at_any_cost: also where a kernel is slower, or of few programs.
    """
    uses = Counter(name for line in lines for name in line.reads)
    steps = [step for line in lines if (step := any_step_of(line, known))]
    products = list(tiles(lines, steps, known, at_any_cost))
    least = 1 if at_any_cost else LEAST_PROGRAMS
    yield from products
    taken = {step.makes for product in products for step in product.steps}
    for place, step in enumerate(steps):
        left = [later for later in steps[place + 1 :] if later.makes not in taken]
        if step.makes not in taken and (group := _largest(step, left, uses, known, least)):
            group = _with_own_operands(group, [s for s in steps if s.makes not in taken], uses, least)
            taken |= {s.makes for s in group.steps}
            yield group


def _with_own_operands(group: Group, steps: Sequence[Step], uses: Mapping[str, int], least: int) -> Group:
    """The group with the point-wise steps whose results nothing else needs, and those that only these need."""
    places = {step.makes: place for place, step in enumerate(steps)}
    refused: set[str] = set()
    while True:
        read = Counter(name for step in group.steps for name in set(step.operands))
        own = [name for name in group.outside if name in places and name not in refused and uses[name] == read[name]]
        if not own:
            return group
        step = steps[places[own[-1]]]
        every = tuple(sorted((*group.steps, step), key=lambda s: places[s.makes]))
        wider = None if step.over or step.is_view else _group(every, group.known, least)
        if wider and wider.view == group.view and wider.is_whole(uses):
            group = wider
        else:
            refused.add(step.makes)


def _largest(start: Step, later: Sequence[Step], uses: Mapping[str, int], known: Known, least: int) -> Group | None:
    """The largest group that begins with a step."""
    steps: tuple[Step, ...] = ()
    waiting: tuple[Step, ...] = ()
    best: Group | None = None
    for step in (start, *later):
        if step is not start and not {s.makes for s in (*steps, *waiting)} & set(step.operands):
            continue
        group = _group((*steps, *waiting, step), known, least)
        if group is None and waiting and steps:
            group = _group((*steps, step), known, least)
        if group is not None:
            steps, waiting = group.steps, ()
            best = group if group.is_whole(uses) else best
        elif len(waiting) < MOST_WAITING:
            waiting = (*waiting, step)
        elif not steps:
            return None
    computes = best and prod(best.view.shape) > 1 and not all(step.is_view for step in best.steps)
    return best if computes else None


def _group(steps: tuple[Step, ...], known: Known, least: int) -> Group | None:
    """Steps as a group, in the simplest view that they allow."""
    reductions = [step for step in steps if step.over]
    found: Iterable[View]
    if any(step.window for step in reductions):
        found = [Pool.of(reductions[0], known.shapes)] if len(reductions) == 1 else []
    else:
        found = views(steps, known.shapes, least)
    every = (Group(steps, {}, view, known) for view in found)
    return next((group for group in every if group.places is not None), None)
