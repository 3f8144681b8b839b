"""What kernels of lines have in common, however they go through their tensors: names, and the text around the body."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

from drkernel.coldstart.answers.steps import Step

SIDES = {1: "W", 2: "HW", 3: "DHW"}
"""Names of the dimensions of a window. `xW` is a place in the output, `yW` one in the tensor."""
EMPTY = {"sum": "0.0", "max": "float('-inf')", "min": "float('inf')"}
"""What a reduction is of nothing, by kind."""
TIMES = """\
@triton.jit
def times(a, b):
    return a * b
"""
"""What joins the factors of a product (`reduced`)."""
_KERNEL = """\
@triton.jit
def kernel{number}({signature}):
{body}
def f{number}({arguments}):
{wrapper}
    kernel{number}[{grid}]({given})
    return o{after}
"""


@dataclass(frozen=True)
class KernelText:
    """Steps that one kernel computes; nothing but the last of the values that it makes is needed elsewhere."""

    steps: tuple[Step, ...]
    names: Mapping[str, str]
    """By value, where they are not those of the lines."""

    @property
    def made(self) -> list[str]:
        """The values, in order."""
        return [step.makes for step in self.steps]

    @property
    def makes(self) -> str:
        return self.made[-1]

    @cached_property
    def outside(self) -> list[str]:
        """What it reads: values, then parameters."""
        raise NotImplementedError

    @cached_property
    def arguments(self) -> list[str]:
        """The tensors that it is given."""
        return self.outside

    def text(self, number: int) -> str:
        """The kernel and the function that launches it."""
        raise NotImplementedError

    def is_whole(self, uses: Mapping[str, int]) -> bool:
        """Whether nothing but the last value is needed elsewhere."""
        read = Counter(name for step in self.steps for name in set(step.operands))
        return all(uses[name] == read[name] for name in self.made[:-1])

    @cached_property
    def kernel(self) -> str:
        """Its source under names that do not depend on where it stands: those with the same share a kernel."""
        names = {name: f"t{place}" for place, name in enumerate(self.made)}
        read = dict.fromkeys([*self.outside, *self.arguments])
        names |= {name: f"x{place}" for place, name in enumerate(read)}
        return replace(self, names=names).text(0)

    def call(self, number: int) -> str:
        return f"{self.makes} = f{number}({', '.join([*self.arguments, *self.told.values()])})"

    @property
    def told(self) -> dict[str, str]:
        """Sizes that `forward` computes, by their names in the kernel."""
        return {self.size(step): step.size for step in self.steps if step.size}

    def size(self, step: Step) -> str:
        return f"s{self.name(step.makes).removeprefix('t')}"

    def name(self, value: str) -> str:
        held = [name for name in self.arguments if name.startswith("self.")]
        return self.names.get(value) or (f"p{held.index(value)}" if value in held else value)

    def filled(self, step: Step, names: Mapping[str, str]) -> Iterator[tuple[str, str, str]]:
        """The statements of a step as (target, kind, expression), with these names for its values."""
        digits = names[step.makes].removeprefix("t")
        inner = {name: f"{name}{digits}" for name in "uvw"}
        given = [names[operand] for operand in step.operands]
        for target, kind, text in step.recipe:
            value = text.format(*given, o=names[step.makes], size=self.size(step), **inner)
            yield target.format(o=names[step.makes], **inner), kind, value

    def written(
        self,
        number: int,
        body: Sequence[str],
        wrapper: Sequence[str],
        grid: str,
        taken: Sequence[str],
        constants: Mapping[str, object],
        after: str = "",
    ) -> str:
        """The text.

        Args:
            taken: names of the numbers that the kernel takes.
            constants: what the launch gives besides; those in capitals are the kernel's.
            after: see Step.
        """
        arguments = [self.name(value) for value in self.arguments]
        known = [f"{constant}: tl.constexpr" for constant in constants if constant.isupper()]
        return _KERNEL.format(
            number=number,
            signature=", ".join([*(f"{name}_ptr" for name in (*arguments, "o")), *taken, *known]),
            body="\n".join(f"    {line}" for line in body),
            arguments=", ".join([*arguments, *self.told]),
            wrapper="\n".join(f"    {line}" for line in wrapper),
            grid=grid,
            after=after,
            given=", ".join([*arguments, "o", *taken, *(f"{name}={value}" for name, value in constants.items())]),
        )


def reduced(kind: str, value: str, axis: str) -> str:
    """A reduction. Triton has none for products."""
    if kind != "prod":
        return f"tl.{kind}({value}, {axis})"
    dim, comma, rest = axis.partition(",")
    return f"tl.reduce({value}, {dim}, times{comma}{rest})"
