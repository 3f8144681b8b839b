"""How a kernel goes through a pool: a program has a block of windows, and a loop goes through the places in them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from math import prod
from typing import ClassVar

from drkernel.coldstart.answers.factors import divided, factors
from drkernel.coldstart.answers.kernel_text import SIDES
from drkernel.coldstart.answers.known import Shapes
from drkernel.coldstart.answers.steps import Step, Window
from drkernel.coldstart.answers.view import Place, Shape, View

NOWHERE = Window((), (), (), ())


@dataclass(frozen=True)
class Pool(View):
    """Elements are those of windows; rows are windows, of which each is one element of the output."""

    made: Shape = ()
    """The shape of the output."""
    window: Window = NOWHERE
    is_loop: ClassVar[bool] = True
    axis: ClassVar[str] = ""
    mask: ClassVar[str] = "n"
    inside: ClassVar[frozenset[str]] = frozenset("j")

    @classmethod
    def of(cls, step: Step, shapes: Shapes) -> Pool:
        assert step.window is not None and step.over is not None
        return cls(shapes[step.operands[0]], step.over, made=shapes[step.makes], window=step.window)

    @property
    def _sides(self) -> str:
        return SIDES[len(self.window.kernel)]

    @property
    def _windows(self) -> list[tuple[int, int, int, int]]:
        """Kernel, stride, padding and dilation by dimension."""
        window = self.window
        return list(zip(window.kernel, window.stride, window.padding, window.dilation, strict=True))

    @property
    def loop(self) -> str:  # type: ignore[override]
        return f"for r in range({factors(self.window.kernel)}):"

    def place(self, shape: Shape, of_row: bool) -> Place | None:
        if of_row and shape == self.made:
            return self.row
        shape = (1,) * (len(self.shape) - len(shape)) + shape
        if shape == self.shape:
            return "j", "n"
        return ("0", "") if prod(shape) == 1 else dict(self._beside()).get(shape)

    def _beside(self) -> Iterator[tuple[Shape, Place]]:
        yield self._only(1, 1), ("p % C", "m")
        yield (*self.shape[:2], *(1,) * len(self.window.kernel)), ("p", "m")

    @property
    def row(self) -> Place:
        return "i", "m"

    @property
    def of_rows(self) -> list[Shape]:
        return [self.made]

    @property
    def head(self) -> list[str]:
        """The place of each window, and in `p` the number of its plane."""
        lines, rest = super().block, "i"
        for side in reversed(self._sides):
            lines.append(f"x{side} = {rest} % O{side}")
            rest += f" // O{side}"
        return [*lines, f"p = {rest}"]

    @property
    def block(self) -> list[str]:
        """The place `r` of each window, and whether it lies in the tensor."""
        lines, masks, index = [], ["m"], "p"
        for dim, (side, (kernel, stride, pad, dilation)) in enumerate(zip(self._sides, self._windows, strict=True)):
            step = divided("r", self.window.kernel[dim + 1 :])
            step += f" % {kernel}" if prod(self.window.kernel[:dim]) > 1 else ""
            step = f"{step} * {dilation}" if dilation > 1 else step
            moved = f"x{side} * {stride}" if stride > 1 else f"x{side}"
            lines.append(f"y{side} = {moved} + {step}{f' - {pad}' if pad else ''}")
            masks += [f"(y{side} >= 0) & (y{side} < {side})"] if pad else []
            index = f"({index} * {side} + y{side})"
        return [*lines, f"n = {' & '.join(masks)}", f"j = {index[1:-1]}"]

    def sizes(self, lead: str, used: str) -> dict[str, str]:
        found = super().sizes(lead, used)
        for place, side in enumerate(self._sides, 2):
            found |= {side: f"{lead}.shape[{place}]", f"O{side}": f"o.shape[{place}]"}
        return found

    def output(self, lead: str, shape: Shape) -> str | None:
        if shape != self.made:
            return None
        sides = [f"*{lead}.shape[:2]"]
        for place, (kernel, stride, pad, dilation) in enumerate(self._windows, 2):
            over = f" + 2 * {pad}" * (pad > 0)
            over += f" - {kernel}" if dilation == 1 else f" - {dilation} * ({kernel} - 1) - 1"
            inside = f"{lead}.shape[{place}]{over}"
            sides.append(f"({inside}) // {stride} + 1" if stride > 1 else f"{inside} + 1")
        return f"{lead}.new_empty(({', '.join(sides)}))"
