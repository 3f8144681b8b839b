"""Lines that one kernel computes, and its source."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from math import prod

from drkernel.coldstart.answers.steps import Shapes, Step, step_of
from drkernel.coldstart.answers.views import View, views
from drkernel.policy.canonical.edits import Line

MOST_TENSORS = 7
"""That a kernel reads."""
_KERNEL = """\
@triton.jit
def kernel{number}({signature}):
{body}
def f{number}({arguments}):
{wrapper}
    kernel{number}[{grid}]({given})
    return o
"""
_EMPTY = {"sum": "0.0", "max": "float('-inf')", "min": "float('inf')"}
_JOINED = {"sum": "{a} + {b}", "max": "tl.maximum({a}, {b})", "min": "tl.minimum({a}, {b})"}


@dataclass(frozen=True)
class Part:
    """A statement of a kernel."""

    target: str
    kind: str
    """sum, max, min: over all that is reduced; empty: no reduction."""
    value: str
    is_full: bool
    """Whether there is a value for each element that is reduced."""

    @property
    def needs(self) -> set[str]:
        return set(re.findall(r"\w+", self.value))

    def masked(self) -> str:
        return f"tl.where(m, {self.value}, {_EMPTY[self.kind]})"


@dataclass(frozen=True)
class Group:
    """Steps that one kernel computes; nothing but the last of them is needed elsewhere."""

    steps: tuple[Step, ...]
    view: View
    shapes: Shapes
    names: Mapping[str, str] = field(default_factory=dict)

    @property
    def makes(self) -> str:
        return self.steps[-1].makes

    @cached_property
    def outside(self) -> list[str]:
        """What it reads: values, then parameters."""
        made = {step.makes for step in self.steps}
        read = dict.fromkeys(name for step in self.steps for name in step.operands if name not in made)
        return sorted(read, key=lambda name: name.startswith("self."))

    @cached_property
    def rows(self) -> set[str]:
        """Of what it makes: values of which there is one for all that is reduced."""
        return {step.makes for step in self.steps if self.shapes[step.makes] in self.view.of_rows}

    @property
    def lead(self) -> str | None:
        """A tensor of the whole shape that it reads."""
        return next((name for name in self.outside if self._shape(name) == self.view.shape), None)

    def _shape(self, name: str) -> tuple[int, ...] | None:
        own = (step.own[name] for step in self.steps if step.own and name in step.own)
        return next(own, None) or self.shapes.get(name)

    @cached_property
    def places(self) -> dict[str, tuple[str, str]] | None:
        """Where in each tensor that it reads the element lies, and the mask; None where it cannot be a kernel."""
        found: dict[str, tuple[str, str]] = {}
        for step in self.steps:
            of_row = step.makes in self.rows
            if not of_row and (step.is_view or self.shapes[step.makes] != self.view.shape):
                return None
            for name in step.operands:
                if name in self.outside:
                    shape = self._shape(name)
                    place = None if shape is None else self.view.place(shape, of_row and not step.over)
                    if place is None or found.setdefault(name, place) != place:
                        return None
        return found if len(found) <= MOST_TENSORS and self.lead else None

    def is_whole(self, uses: Mapping[str, int]) -> bool:
        """Whether nothing but the last value is needed elsewhere."""
        read = Counter(name for step in self.steps for name in set(step.operands))
        alone = all(uses[step.makes] == read[step.makes] for step in self.steps[:-1])
        return alone and self.view.output("x", self.shapes[self.makes]) is not None

    @property
    def saved(self) -> int:
        """Ten times the elements that need not be written and read again, and a little."""
        return prod(self.view.shape) * (10 * sum(not step.is_view for step in self.steps) - 9)

    @cached_property
    def kernel(self) -> str:
        """Its source under names that do not depend on where it stands: groups with the same share a kernel."""
        made = {step.makes: f"t{place}" for place, step in enumerate(self.steps)}
        read = {name: f"x{place}" for place, name in enumerate(self.outside)}
        return replace(self, names={**made, **read}).text(0)

    def call(self, number: int) -> str:
        return f"{self.makes} = f{number}({', '.join([*self.outside, *self._told.values()])})"

    @property
    def _told(self) -> dict[str, str]:
        """Sizes that follow from the module, or from what is no argument."""
        return {"G": self.view.groups} if re.search(r"\D", self.view.groups) else {}

    def text(self, number: int) -> str:
        """The kernel and the function that launches it."""
        arguments = [self._name(value) for value in self.outside]
        lead = self._name(self.lead or "")
        body = self._loops() if self.view.is_loop else self._straight()
        grid = self.view.grid(lead)
        sizes = self.view.sizes(lead, "\n".join([*body, grid]))
        taken = [size for size in sizes if re.search(rf"\b{size}\b", "\n".join(body))]
        constants = self.view.constants
        known = [f"{constant}: tl.constexpr" for constant in constants if constant.isupper()]
        contiguous = [
            name for name, value in zip(arguments, self.outside, strict=True) if not value.startswith("self.")
        ]
        wrapper = [f"{name} = {name}.contiguous()" for name in contiguous]
        wrapper.append(f"o = {self.view.output(lead, self.shapes[self.makes])}")
        wrapper += [f"{size} = {text}" for size, text in sizes.items() if size not in self._told]
        return _KERNEL.format(
            number=number,
            signature=", ".join([*(f"{name}_ptr" for name in (*arguments, "o")), *taken, *known]),
            body="\n".join(f"    {line}" for line in body),
            arguments=", ".join([*arguments, *self._told]),
            wrapper="\n".join(f"    {line}" for line in wrapper),
            grid=grid,
            given=", ".join([*arguments, "o", *taken, *(f"{name}={value}" for name, value in constants.items())]),
        )

    def _name(self, value: str) -> str:
        held = [name for name in self.outside if name.startswith("self.")]
        return self.names.get(value) or (f"p{held.index(value)}" if value in held else value)

    @cached_property
    def _parts(self) -> list[Part]:
        """Statements in order, each tensor loaded before it is needed."""
        names: dict[str, str] = {}
        found: list[Part] = []
        full: set[str] = set()
        for step in self.steps:
            if step.is_view:
                names[step.makes] = names[step.operands[0]]
                continue
            for operand in step.operands:
                if operand not in names:
                    names[operand] = self._name(operand)
                    where, mask = (self.places or {})[operand]
                    at = "" if where == "0" else f" + {where}"
                    load = f"tl.load({names[operand]}_ptr{at}{mask and f', mask={mask}'})"
                    found.append(Part(names[operand], "", load, bool({"i", "j"} & set(re.findall(r"\w+", at)))))
                    full |= {names[operand]} if found[-1].is_full else set()
            names[step.makes] = self._name(step.makes)
            for part in self._of_step(step, names):
                found.append(replace(part, is_full=not part.kind and bool(part.needs & full)))
                full |= {part.target} if found[-1].is_full else set()
        return found

    def _of_step(self, step: Step, names: Mapping[str, str]) -> Iterator[Part]:
        digits = names[step.makes].removeprefix("t")
        inner = {name: f"{name}{digits}" for name in "uvw"}
        given = [names[operand] for operand in step.operands]
        for target, kind, text in step.recipe:
            filled = text.format(*given, o=names[step.makes], **inner)
            yield Part(target.format(o=names[step.makes], **inner), kind, filled, is_full=False)

    def _straight(self) -> list[str]:
        """The kernel where a program holds all that is reduced."""
        lines = [*self.view.head, *self.view.block]
        for part in self._parts:
            reduced = part.kind and f"tl.{part.kind}({part.masked()}, {self.view.axis})"
            lines.append(f"{part.target} = {reduced or part.value}")
        return [*lines, self._store()]

    def _loops(self) -> list[str]:
        """The kernel that goes through what is reduced once for each reduction, and once more to write."""
        lines = list(self.view.head)
        for part in self._parts:
            if part.kind:
                fill = f"tl.full({self.view.tile}, {_EMPTY[part.kind]}, tl.float32)"
                joined = _JOINED[part.kind].format(a="a", b=part.masked())
                lines += [f"a = {fill}", *self._loop(part.needs, f"a = {joined}")]
                lines.append(f"{part.target} = tl.{part.kind}(a, {self.view.axis})")
            elif not part.is_full:
                lines.append(f"{part.target} = {part.value}")
        whole = self.makes not in self.rows
        return [*lines, *(self._loop({self._name(self.makes)}, self._store()) if whole else [self._store()])]

    def _loop(self, needs: set[str], last: str) -> list[str]:
        """A loop over the blocks that computes what is needed, and ends with this statement."""
        inner: list[Part] = []
        for part in reversed(self._parts):
            if part.is_full and part.target in needs:
                inner.insert(0, part)
                needs = needs | part.needs
        block = [*self.view.block, *(f"{part.target} = {part.value}" for part in inner), last]
        return ["for t in range(0, N, BLOCK):", *(f"    {line}" for line in block)]

    def _store(self) -> str:
        where, mask = self.view.row if self.makes in self.rows else ("i", "m")
        made = next(part.target for part in reversed(self._parts))
        return f"tl.store(o_ptr + {where}, {made}{mask and f', mask={mask}'})"


def groups(lines: Sequence[Line], shapes: Shapes) -> Iterator[Group]:
    """The largest groups, from the first line on; each line is in one of them at most."""
    uses = Counter(name for line in lines for name in line.reads)
    steps = [step for line in lines if (step := step_of(line, shapes))]
    taken: set[str] = set()
    for place, step in enumerate(steps):
        left = [later for later in steps[place + 1 :] if later.makes not in taken]
        if step.makes not in taken and (group := _largest(step, left, uses, shapes)):
            taken |= {s.makes for s in group.steps}
            yield group


def _largest(first: Step, later: Sequence[Step], uses: Mapping[str, int], shapes: Shapes) -> Group | None:
    """The largest group that begins with a step."""
    steps: tuple[Step, ...] = ()
    best: Group | None = None
    for step in (first, *later):
        if step is first or {s.makes for s in steps} & set(step.operands):
            group = _group((*steps, step), shapes)
            if group is None and step is first:
                return None
            if group is not None:
                steps = group.steps
                best = group if group.is_whole(uses) else best
    return best if best and not all(step.is_view for step in best.steps) else None


def _group(steps: tuple[Step, ...], shapes: Shapes) -> Group | None:
    """Steps as a group, in the simplest view that they allow."""
    found = (Group(steps, view, shapes) for view in views(steps, shapes))
    return next((group for group in found if group.places is not None), None)
