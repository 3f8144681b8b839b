"""Whole numbers among the outputs of operators: counts, masks and levels, which any format in question holds exactly.

Whether there are some is told by all elements, and who asks waits for the device. Most outputs have a fraction among
their first elements. So a run may go on as if none were whole, and look at the first elements of all its outputs
together: `Samples`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol, TypeVar

import torch
from torch import Tensor

from drkernel.judge.trusted import reductions
from drkernel.types import DrKernelError

T = TypeVar("T")
_EXACT_BELOW, _SOME = 2.0**20, 256
_WAITED_FOR = 2**26
"""Elements of a tensor that is asked whether it is whole."""
_ROOM = 64
"""Outputs that are looked at together."""
_DIGITS, _NO_CHANCE = 23, 30.0
"""Binary digits of fp32; so many that are all zero are so for a reason."""


class MayBeWhole(Exception):
    """A run went on as if no output were whole, and one may be: it says nothing."""


class Samples:
    """The first elements of outputs, which nobody has looked at yet."""

    def __init__(self) -> None:
        self._rows: Tensor | None = None
        self._number = 0

    def add(self, output: Tensor) -> None:
        """Keeps the first elements of an output, as they are now.

        Raises:
            MayBeWhole: see `look`, which is due now and then.
        """
        if self._number == _ROOM:
            self.look()
        if self._rows is None:
            self._rows = torch.zeros((_ROOM, _SOME), dtype=torch.float64, device=output.device)
        some = output.flatten()[:_SOME]
        self._rows[self._number, : len(some)].copy_(some)
        self._number += 1

    def look(self) -> None:
        """Waits for the device, if there are any.

        Raises:
            MayBeWhole: the first elements of an output are whole.
        """
        if not self._number:
            return
        assert self._rows is not None
        rows, self._rows, self._number = self._rows[: self._number], None, 0
        if bool(_exact(rows).all(1).any()):
            raise MayBeWhole


class Remembers(Protocol):
    """A model with what is known of it."""

    copies: dict[str, Any]
    """Made by its runs."""
    has_counts: bool
    """Whether a run has met outputs that may be whole."""


def later_if_possible(run: Callable[[bool], T], model: Remembers) -> T:
    """What a run with noise gives: run(later), whose argument is `Noise.whole_later`. Where looking later is in vain,
    once more, as if nothing had run before; and at once from then on."""
    if not model.has_counts:
        before = dict(model.copies)
        try:
            return run(True)
        except (MayBeWhole, DrKernelError):
            model.has_counts, model.copies = True, before
    return run(False)


def is_count(output: Tensor, args: tuple) -> bool:
    """Whether all are whole numbers, and not by chance: of fp32 sums of half a million every sixteenth is one."""
    if not is_whole(output):
        return False
    digits = (_DIGITS - output.abs().clamp_min(1.0).log2()).sum()
    return bool(digits > _NO_CHANCE) or all(
        is_whole(t) for t in args if isinstance(t, Tensor) and t.is_floating_point()
    )


def is_whole(tensor: Tensor) -> bool:
    """Whether all are whole numbers that any format in question holds exactly."""
    first = tensor.flatten()[:_SOME] if tensor.is_contiguous() else tensor
    return bool(_exact(first).all()) and bool(_exact(tensor).all())


def unless_whole(tensor: Tensor, other: Callable[[], Tensor]) -> Tensor:
    """Another value of a tensor, or the tensor itself where it is whole. A GPU decides that by itself and nobody waits,
    but for large tensors, since both values and the chosen one take memory."""
    if not tensor.is_cuda or tensor.numel() >= _WAITED_FOR:
        return tensor if is_whole(tensor) else other()
    fused = reductions.fused_for(tensor) if tensor.is_contiguous() else None
    whole = fused.all_whole(tensor.view(-1), _EXACT_BELOW) if fused else _exact(tensor).all()
    return torch.where(whole, tensor, other())


def _exact(values: Tensor) -> Tensor:
    return (values == values.round()) & (values.abs() < _EXACT_BELOW)
