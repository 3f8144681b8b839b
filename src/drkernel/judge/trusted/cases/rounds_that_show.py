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
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode

from drkernel.judge.trusted.cases.weight_perturbation import assign, scaled_rows, share_that_differs
from drkernel.judge.trusted.rounding.formats import PRODUCTS
from drkernel.judge.trusted.rounding.rounding import OPERANDS, UNIT
from drkernel.types import Precision

_ROUNDS, _MOST_PRODUCTS = 16, 1024
"""Loops of fewer rounds forget little. Networks of more products take too long: they run some twenty times."""
_EARLY = 4
"""The early rounds are the first of so many parts."""
_MOST, _TRIES = 4.0, 7
"""The largest L2 norm of rows that is tried, and how many norms are."""
_DISTURBED = 2.0**-10
"""By how much of their size the products of early rounds are changed."""
_SHOWS, _GROWS, _VAGUE = 2.0**-10, 2.0**8, 2.0**-9
"""Times as much outputs change at least where early rounds show, and at most; less where an operator's rounding error
would become more than the last."""


def that_remember(
    model: nn.Module, outputs: Callable[[nn.Module, int], object], precision: Precision
) -> dict[str, Tensor]:
    """Larger matrices for a network in whose outputs early rounds of a loop do not show; nothing for others.

    Args:
        model: its weights are perturbed.
        outputs: of a model, to the inputs of a draw.
        precision: of the task.
    """
    most = min(_GROWS, _VAGUE / max(UNIT[precision], OPERANDS[precision]))
    if most < 1.0:  # what 16 bits round away, no weights show
        return {}
    was_training = model.training
    model.eval()
    with _steps_apart():
        with _Products(model) as used:
            outputs(model, 0)
        often = [name for name, number in used.numbers.items() if number >= _ROUNDS]
        if used.numbers.total() > _MOST_PRODUCTS:
            return {}
        ends = {name: used.numbers[name] // _EARLY for name in (*often[:1], *often[-1:])}
        kept = {name: weight.detach().clone() for name, weight in model.named_parameters() if name in used.numbers}
        try:
            return _larger(model, kept, lambda: _effects(model, outputs, ends), most) if ends else {}
        finally:
            assign(model, kept)
            model.train(was_training)


def _larger(
    model: nn.Module, kept: Mapping[str, Tensor], effects: Callable[[], list[float]], most: float
) -> dict[str, Tensor]:
    """The smallest matrices that are found under which early rounds show; else the largest under which errors do not
    grow."""
    if not min(effects()) < _SHOWS:
        return {}
    low, high = 1.0, _MOST
    for _ in range(_TRIES):
        gain = math.sqrt(low * high)
        assign(model, larger := scaled_rows(kept, gain))
        found = effects()
        if not max(found) <= most:
            high = gain
        elif min(found) < _SHOWS:
            low = gain
        else:
            return larger
    return scaled_rows(kept, low)


def _effects(model: nn.Module, outputs: Callable[[nn.Module, int], object], early: Mapping[str, int]) -> list[float]:
    """By how many times as much outputs change as the early products with each of these matrices; NaN where outputs are
    0 or not finite."""
    expected, found = outputs(model, 0), []
    for name, number in early.items():
        with _Products(model, name, number):
            found.append(share_that_differs(expected, outputs(model, 0)) / _DISTURBED)
    return found


class _Products(TorchDispatchMode):
    """Counts the products of this block with each matrix of a model; changes the first with one of them."""

    def __init__(self, model: nn.Module, name: str = "", number: int = 0) -> None:
        super().__init__()
        self.numbers = Counter[str]()
        self._names = {_memory(w): n for n, w in model.named_parameters() if w.dim() > 1 and w.is_floating_point()}
        self._name, self._number, self._generators = name, number, dict[torch.device, torch.Generator]()

    def __torch_dispatch__(self, func: Any, types: Any, args: tuple = (), kwargs: dict | None = None) -> Any:
        made = func(*args, **(kwargs or {}))
        if func.overloadpacket.__name__ in PRODUCTS:
            factors = {self._names.get(_memory(value)) for value in args if isinstance(value, Tensor)}
            self.numbers.update(name for name in factors if name)
            if self._name in factors and self.numbers[self._name] <= self._number:
                return made + _DISTURBED * made * self._noise(made)
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
