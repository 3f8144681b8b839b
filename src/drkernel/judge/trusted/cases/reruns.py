"""The reference's forward, and the same again on the same inputs with other rounding; see `rounding`."""

from __future__ import annotations

import contextlib
import copy
import functools
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import torch
from torch import Tensor, nn

from drkernel.judge.boundary import tf32
from drkernel.judge.trusted.cases import domain
from drkernel.judge.trusted.cases.reference_model import ReferenceModel
from drkernel.judge.trusted.comparison import lowering
from drkernel.judge.trusted.comparison.slices import LARGE
from drkernel.judge.trusted.outputs import is_float, leaves, map_tensors, map_trees
from drkernel.judge.trusted.rounding import formats, rounding, ties, widened
from drkernel.judge.trusted.rounding.rerounding import Rerounded, Roundings, Site
from drkernel.judge.trusted.rounding.whole_numbers import later_if_possible
from drkernel.judge.trusted.spent import spent
from drkernel.tasks import module
from drkernel.types import DrKernelError, Precision

Ways = dict[Precision, tuple[formats.Lower, ...]]
NOISY_RUNS = 4
"""Runs with noise where outputs are few."""


def forward(built: ReferenceModel, model: nn.Module, inputs: list, train: bool, seed: int, noise: bool = False) -> Any:
    """The outputs of `built.model`, or of a copy of it; the model is left as it is. `noise`: see `domain.forward`."""
    torch.manual_seed(seed)
    run = functools.partial(domain.forward, built.reference, noise=noise)
    if next(model.buffers(), None) is None:
        return run(model.train(train), inputs)
    if sum(weight.nbytes for weight in model.parameters()) < LARGE:
        return run(copy.deepcopy(model).train(train), inputs)  # training moves running statistics
    kept = [(module, dict(module._buffers), copy.deepcopy(module._buffers)) for module in model.modules()]
    try:
        return run(model.train(train), inputs)
    finally:
        for module, buffers, values in kept:
            module._buffers.update(buffers)
            for name, buffer in buffers.items():
                if buffer is not None and (value := values[name]) is not None:
                    buffer.copy_(value)


class Rerun:
    """The reference run again on the same inputs with other rounding, see `rounding`.

    Args:
        once: it runs once only: then memory for one set of inputs is enough.
        edits: whether the reference changes its inputs.

    What a run gives is a pair: the outputs, and the inputs after the call, an empty list where they do not change.
    """

    def __init__(
        self,
        precision: Precision,
        built: ReferenceModel,
        inputs: list,
        train: bool,
        seed: int,
        once: bool = False,
        edits: bool = False,
    ):
        self._built, self._inputs, self._train, self._seed, self._once = built, inputs, train, seed, once
        self._edits = edits
        self.products = 0
        """How many operators of the reference are products, once it ran with noise."""
        self.precision: Precision = "ieee" if self._narrow() else precision
        """What is granted. A task of 16 bits grants rounding to its own format (`Noise`), whatever it says."""

    def exact(self, mode: Any = None) -> Any:
        """The outputs in fp64; with a mode of `rounding`, what it makes of them."""
        widened = lambda tensor: tensor.double() if tensor.is_floating_point() else tensor
        return self._run(self._copy("exact", widened), widened, torch.float64, mode)

    def noisy(self, number: int, whole: bool = False) -> Any:
        """The outputs with noise in every operator: of fp64 on the CPU, of fp32 on a GPU, where fp64 is slow.

        Args:
            whole: whether whole numbers get noise, too, where the reference chooses. It tells outputs that hang on a
                tie, such as the place of a maximum.
        """
        if whole and not self._once and not self._chooses():
            found, given = self.noisy(number), self._with_given_operands(number)
            return map_trees(lambda value, other: value if is_float(value) else other, found, given)
        run = functools.partial(self._noisy, number, whole)
        return run(False) if self._once or not module.DEVICE else later_if_possible(run, self._built)

    def _with_given_operands(self, number: int) -> Any:
        """As `noisy`, with inputs and weights as they are. Where nothing is chosen, whole numbers that follow from them
        without rounding are the same for all: which bin a boundary belongs to."""
        wide = self._wide
        noise = rounding.Noise(self.precision, (self._seed + number) % 2**63, self._narrow())
        widened = lambda t: t.to(torch.promote_types(t.dtype, wide)) if t.is_floating_point() else t
        return self._run(self._copy("given", widened), widened, wide, noise)

    def _chooses(self) -> bool:
        """Whether the reference chooses among numbers that may be equal; found out once."""
        known = self._built.reference.choices
        if self._train not in known:
            self._run(self._built.model, torch.clone, None, seen := ties.Choices())
            known[self._train] = seen.seen
        return known[self._train]

    @property
    def _wide(self) -> torch.dtype:
        return torch.float64 if module.DEVICE is None else torch.float32

    def _noisy(self, number: int, whole: bool, later: bool) -> Any:
        """As `noisy`; if `later`, it may raise MayBeWhole."""
        wide = self._wide
        noise = rounding.Noise(self.precision, (self._seed + number) % 2**63, self._narrow(), later)

        def around(tensor: Tensor) -> Tensor:
            return noise.around(tensor.to(torch.promote_types(tensor.dtype, wide), copy=True), whole)

        change = lambda tensor: around(tensor) if tensor.is_floating_point() else tensor
        try:
            found = self._run(self._copy("noisy", change), change, wide, noise)
            noise.settle()
            return found
        finally:
            self.products = noise.products

    def more_noisy(self, exact: Any, numbers: Iterable[int], whole: bool) -> Iterator[Any]:
        """More outputs as `noisy`, and as all that the task allows; where one product follows another, those with other
        roundings to 16 bits, too: each product is rounded in eager, and the next one multiplies that."""
        yield from (self.noisy(number, whole) for number in numbers)
        yield from self.as_allowed(exact, formats.ALLOWED)
        with contextlib.suppress(DrKernelError, ValueError):
            yield from self.rerounded(NOISY_RUNS * (self.products > 1))

    def rerounded(self, number: int) -> list[Any]:
        """The outputs in fp64 with the roundings of a 16-bit task drawn again, so many times; see rerounding."""
        if not number or not self._narrow():
            return []
        rounded = self._roundings()
        return [self.exact(Rerounded(rounded, self._seed + drawn)) for drawn in range(number)]

    def _roundings(self) -> dict[Site, torch.dtype]:
        """The operators of eager that round to 16 bits."""
        self._run(self._built.model, torch.clone, None, seen := Roundings())
        return seen.formats

    def _narrow(self) -> torch.dtype | None:
        """The 16-bit format of inputs and weights, where they have one; else that in which the reference multiplies."""
        tensors = [*self._built.model.parameters(), *(t for _, t in leaves(self._inputs) if isinstance(t, Tensor))]
        found = {t.dtype for t in tensors if t.is_floating_point() and t.element_size() < 4}
        return _widest(found) or self._format_of_products()

    def _format_of_products(self) -> torch.dtype | None:
        """The 16-bit format of the reference's products, where it makes such numbers itself; found out once."""
        known = self._built.reference.product_formats
        if self._train not in known and not self._once:
            known[self._train] = None  # the run asks for it, too
            with contextlib.suppress(DrKernelError):
                rounded = self._roundings().items()
                known[self._train] = _widest({kind for (name, _), kind in rounded if name in formats.PRODUCTS})
        return known.get(self._train)

    def lowered(self) -> Iterator[tuple[str, Any]]:
        """The outputs with products that the task refuses by their errors; none where there are no products."""
        if self.products and not self._narrow():
            with contextlib.suppress(DrKernelError):  # a reference that no mode follows is compared without
                for name, lower in formats.LOWERINGS[self.precision].items():
                    yield name, self.exact(formats.Lowered(lower))

    def as_allowed(self, exact: Any, ways: Ways = formats.USUAL) -> Iterator[Any]:
        """The outputs with part of the errors of products in the formats that the task allows: of each, the largest."""
        worst = exact
        for other in self.in_allowed(ways):
            worst = map_trees(lowering.further, exact, worst, other)
        if worst is not exact:
            yield map_trees(lowering.part_of_the_way, exact, worst)

    def in_allowed(self, ways: Ways = formats.ALLOWED) -> Iterator[Any]:
        """The outputs with products in each format that the task allows, as they are asked for."""
        return (self.exact(formats.Lowered(lower)) for lower in ways[self.precision] if self.products)

    def in_formats(self) -> Iterator[tuple[str, Any]]:
        """The outputs with products in each format that the task forbids, as they are asked for."""
        if self.products and not self._narrow():
            with contextlib.suppress(DrKernelError):
                for name in formats.FORBIDDEN[self.precision]:
                    for lower in formats.FORMATS[name]:
                        yield name, self.exact(formats.Lowered(lower))

    def _copy(self, name: str, change: Callable[[Tensor], Tensor]) -> nn.Module:
        """A copy of the model with other parameters, made once."""
        if name not in self._built.copies:
            model = copy.deepcopy(self._built.model)
            with torch.no_grad():
                for tensor in (*model.parameters(), *model.buffers()):
                    tensor.data = change(tensor.data)
            self._built.copies[name] = model
        return self._built.copies[name]

    def _run(self, model: nn.Module, change: Callable[[Tensor], Tensor], dtype: torch.dtype | None, mode: Any) -> Any:
        inputs, given = [], self._inputs if self._once else list(self._inputs)
        while given:
            inputs.append(map_tensors(given.pop(0), (lambda tensor: change(tensor.clone())) if self._edits else change))
        kind = type(mode).__name__.lower() if mode else "exact"
        with spent(kind), tf32.allowing(False), widened.run(dtype, mode):
            outputs = forward(self._built, model, inputs, self._train, self._seed, noise=bool(mode))
        return outputs, inputs if self._edits else []


def _widest(kinds: set[torch.dtype]) -> torch.dtype | None:
    """Of 16-bit formats, that with the largest errors; None of none."""
    return torch.bfloat16 if torch.bfloat16 in kinds else next(iter(kinds), None)
