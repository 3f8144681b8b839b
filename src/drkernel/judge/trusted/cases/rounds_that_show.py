"""Weights under which each round of a loop shows in a network's outputs.

    for t in range(x.shape[1]): h = torch.tanh(self.a(x[:, t]) + self.b(h))

With PyTorch's default weights such a loop forgets: what it was told some forty rounds before is below rounding, and who
leaves that out is right. With larger matrices it remembers. With matrices that are larger still, rounding errors grow
from round to round.
"""

from __future__ import annotations

import contextlib
import math
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode

from drkernel.judge.trusted.cases.weight_perturbation import assign, scaled_rows, share_that_differs
from drkernel.judge.trusted.rounding.formats import PRODUCTS
from drkernel.judge.trusted.rounding.rounding import OPERANDS, UNIT
from drkernel.types import Precision

_ROUNDS, _MOST_ROUNDS, _MOST_PRODUCTS = 16, 1024, 4096
"""Loops of fewer rounds forget little. Networks of more rounds, or of more products in several layers, take too long:
they run some twenty times."""
_EARLY = 4
"""The early rounds are the first of so many parts."""
_MOST, _TRIES = 4.0, 7
"""The largest L2 norm of rows that is tried, and how many norms are."""


@dataclass(frozen=True)
class _Bounds:
    """By how much of their size the products of early rounds are changed, and times as much outputs change at least
    where early rounds show, and at most."""

    disturbed: float
    shows: float
    grows: float


_USUAL, _IN_HALF = _Bounds(2.0**-10, 2.0**-10, 2.0**8), _Bounds(2.0**-3, 3 * 2.0**-6, 3 * 2.0**-5)
"""Where numbers have 16 bits, less is rounded away, and rounding alone changes outputs by a hundredth."""
_VAGUE = 2.0**-9
"""Outputs change less where an operator's rounding error would become more than that."""


def that_remember(
    model: nn.Module, outputs: Callable[[nn.Module, int], object], precision: Precision
) -> tuple[tuple[str, ...], float]:
    """The names of a network's matrices where early rounds of a loop do not show in its outputs, and the norm of their
    rows (see `scaled_rows`) with which these do; none for other networks.

    Args:
        model: its weights are perturbed.
        outputs: of a model, to the inputs of a draw.
        precision: of the task.
    """
    bounds = _bounds(model, precision)
    if not bounds:
        return (), 1.0
    was_training = model.training
    model.eval()
    with _steps_apart():
        with Products(model) as used:
            outputs(model, 0)
        often = [name for name, number in used.numbers.items() if number >= _ROUNDS]
        if used.numbers.total() > _MOST_PRODUCTS or max(used.numbers.values(), default=0) > _MOST_ROUNDS:
            return (), 1.0
        ends = {name: used.numbers[name] // _EARLY for name in (*often[:1], *often[-1:])}
        kept = {name: weight.detach().clone() for name, weight in model.named_parameters() if name in used.numbers}
        try:
            norm = _norm(model, kept, lambda: _effects(model, outputs, ends, bounds), bounds) if ends else 0.0
            return (tuple(kept), norm) if norm else ((), 1.0)
        finally:
            assign(model, kept)
            model.train(was_training)


def _bounds(model: nn.Module, precision: Precision) -> _Bounds | None:
    """None where a task of fp32 grants so much rounding that no weights show what it takes away."""
    if any(w.is_floating_point() and w.element_size() < 4 for w in model.parameters()):
        return _IN_HALF
    most = min(_USUAL.grows, _VAGUE / max(UNIT[precision], OPERANDS[precision]))
    return replace(_USUAL, grows=most) if most >= 1.0 else None


def _norm(model: nn.Module, kept: Mapping[str, Tensor], effects: Callable[[], list[float]], bounds: _Bounds) -> float:
    """The norm of the rows of the smallest matrices that are found under which early rounds show; else of the largest
    under which errors do not grow. 0 where they show as it is."""
    if not min(effects()) < bounds.shows:
        return 0.0
    low, high = 1.0, _MOST
    for _ in range(_TRIES):
        gain = math.sqrt(low * high)
        assign(model, scaled_rows(kept, gain))
        found = effects()
        if not max(found) <= bounds.grows:
            high = gain
        elif min(found) < bounds.shows:
            low = gain
        else:
            return gain
    return low


def _effects(
    model: nn.Module, outputs: Callable[[nn.Module, int], object], early: Mapping[str, int], bounds: _Bounds
) -> list[float]:
    """By how many times as much outputs change as the early products with each of these matrices; NaN where outputs are
    0 or not finite."""
    expected, found = outputs(model, 0), []
    for name, number in early.items():
        with Products(model, name, number, bounds.disturbed):
            found.append(share_that_differs(expected, outputs(model, 0)) / bounds.disturbed)
    return found


class Products(TorchDispatchMode):
    """Counts the products of this block with each matrix of a model, and all operators; changes the first products with
    one matrix by a share of their size."""

    def __init__(self, model: nn.Module, name: str = "", number: int = 0, share: float = 0.0) -> None:
        super().__init__()
        self._share = share
        self.numbers, self.calls = Counter[str](), Counter[str]()
        self._names = {_memory(w): n for n, w in model.named_parameters() if w.dim() > 1 and w.is_floating_point()}
        self._name, self._number, self._generators = name, number, dict[torch.device, torch.Generator]()

    def __torch_dispatch__(self, func: Any, types: Any, args: tuple = (), kwargs: dict | None = None) -> Any:
        made = func(*args, **(kwargs or {}))
        self.calls[func.overloadpacket.__name__] += 1
        if func.overloadpacket.__name__ in PRODUCTS:
            factors = {self._names.get(_memory(value)) for value in args if isinstance(value, Tensor)}
            self.numbers.update(name for name in factors if name)
            if self._name in factors and self.numbers[self._name] <= self._number:
                return made + self._share * made * self._noise(made)
        return made

    def _noise(self, like: Tensor) -> Tensor:
        seeded = lambda: torch.Generator(like.device).manual_seed(0)
        draw = self._generators.get(like.device) or self._generators.setdefault(like.device, seeded())
        return torch.randn(like.shape, generator=draw, device=like.device).to(like.dtype)


def _memory(tensor: Tensor) -> int:
    """The same for a matrix and its transpose; not for the matrices of a layer that share one storage."""
    return tensor.data_ptr()


@contextlib.contextmanager
def _steps_apart() -> Iterator[None]:
    """Recurrent layers run as the operators of each step, not as one."""
    mkldnn, cudnn = torch._C._get_mkldnn_enabled(), torch._C._get_cudnn_enabled()
    torch._C._set_mkldnn_enabled(False)
    torch._C._set_cudnn_enabled(False)
    try:
        yield
    finally:
        torch._C._set_mkldnn_enabled(mkldnn)
        torch._C._set_cudnn_enabled(cudnn)
