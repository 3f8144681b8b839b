"""What the host reads of tensors without data: guesses. Runs in simulated runners.

A number is 1, and of elements that data choose there is one: few grids depend on it. Of answers to questions, and of
truth values, the first ones are yes, so that loops end (`nn.init.trunc_normal_` draws until no number is outside).

What such a run launches from the first guess on says nothing of a GPU. So the examiner may ask for runs that take their
guesses for what is so, and give other answers. Where the first of these is no, numbers are large, and data choose all
elements.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.utils._python_dispatch import (
    _disable_current_modes,
    _get_current_dispatch_mode,
    _pop_mode_temporarily,
)
from torch.utils._pytree import tree_leaves, tree_map_only

MOST_TRUE = 64
"""Answers of a constructor or of a forward that are alike."""
MOST_READ = 2**20
"""Numbers that are read back, or worked on, at once."""
LARGE = 2**36
"""More than any tensor has elements."""

Outputs = tuple[tuple[tuple[int, ...], torch.dtype], ...]
"""The shape and dtype of each."""


class Guesses:
    """What the host has read so far."""

    made = numbers = False
    """Whether it has read anything, and whether that was no mere answer to a question."""
    asked = 0
    """How many answers it has been given."""
    lacked = False
    """Whether an operator raised an error since there are no data."""
    answers: Sequence[bool] = ()
    """The first answers, over and over, where guesses are taken for what is so."""

    @classmethod
    def doubtful(cls) -> bool:
        """Whether what follows says nothing of a GPU."""
        return cls.made and not cls.answers

    @classmethod
    def large(cls) -> bool:
        """Whether numbers are."""
        return bool(cls.answers) and not cls.answers[0]

    @classmethod
    def read(cls) -> str:
        """In one word: `numbers`, `answers`, or an empty string."""
        return "numbers" if cls.numbers else "answers" if cls.made else ""


def truth() -> bool:
    """The answer to a question."""
    Guesses.made = True
    Guesses.asked += 1
    first = not Guesses.answers or Guesses.answers[(Guesses.asked - 1) % len(Guesses.answers)]
    return first == (Guesses.asked <= MOST_TRUE)


def number() -> int:
    """A number that is read back."""
    Guesses.made = Guesses.numbers = True
    return LARGE if Guesses.large() else 1


def item(tensor: Tensor) -> int:
    """What is read of a tensor of one element."""
    return int(truth()) if tensor.dtype == torch.bool else number()


def _some(most: int) -> int:
    """How many elements data choose."""
    return max(1, most) if number() == LARGE else 1


def _unique(x: Tensor, inverse: bool, counts: bool, dim: int | None) -> Outputs:
    number = _some(x.numel() if dim is None else x.shape[dim])
    shape = (number,) if dim is None else (*x.shape[:dim], number, *x.shape[dim:][1:])
    turned = (tuple(x.shape) if dim is None else (x.shape[dim],)) if inverse else (0,)
    return (shape, x.dtype), (turned, torch.int64), ((number if counts else 0,), torch.int64)


_aten = torch.ops.aten
CHOOSING: dict[Any, Callable[..., Outputs]] = {
    _aten.nonzero.default: lambda x: (((_some(x.numel()), x.dim()), torch.int64),),
    _aten.masked_select.default: lambda x, mask: (((_some(x.numel()),), x.dtype),),
    _aten.bincount.default: lambda x, weights=None, minlength=0: (
        ((max(number(), minlength),), torch.int64 if weights is None else weights.dtype),
    ),
    _aten.repeat_interleave.Tensor: lambda repeats, output_size=None: (((number(),), repeats.dtype),),
    _aten._unique2.default: lambda x, sorted=True, return_inverse=False, return_counts=False: _unique(
        x, return_inverse, return_counts, None
    ),
    _aten.unique_dim.default: lambda x, dim, sorted=True, return_inverse=False, return_counts=False: _unique(
        x, return_inverse, return_counts, dim % x.dim()
    ),
    _aten.unique_consecutive.default: lambda x, return_inverse=False, return_counts=False, dim=None: _unique(
        x, return_inverse, return_counts, None if dim is None else dim % x.dim()
    ),
}
"""Operators whose result has as many elements as data say -> its tensors."""
ASKING = frozenset({_aten.equal.default, _aten.allclose.default})
"""Operators that answer a question."""


def of_guesses(func: Callable, args: Any, kwargs: Any) -> Any:
    """What a function makes of tensors of guesses in the place of those that have no data; its tensors have data.

    Raises:
        LookupError: there are none, or they are too large. If that is so or the function fails, nothing was read.
    """
    given = [leaf for leaf in tree_leaves((args, kwargs)) if isinstance(leaf, Tensor)]
    if not given or sum(tensor.numel() for tensor in given) > MOST_READ:
        raise LookupError("no tensors that are small enough")
    with _disable_current_modes():
        with _pop_mode_temporarily() if _get_current_dispatch_mode() else contextlib.nullcontext():
            known_args, known_kwargs = tree_map_only(Tensor, _guessed, (args, kwargs))
        made = func(*known_args, **known_kwargs)
    number()
    return made


def _guessed(tensor: Tensor) -> Tensor:
    kind, value = tensor.dtype, LARGE if Guesses.large() else 1
    most = 1 if kind == torch.bool else LARGE if kind.is_floating_point or kind.is_complex else torch.iinfo(kind).max
    return torch.full(tensor.shape, min(value, most), dtype=kind)


def listed(tensor: Tensor) -> Any:
    """All numbers of a tensor, as `tolist` gives them."""
    value = number()
    return np.full(tuple(tensor.shape), truth() if tensor.dtype == torch.bool else value).tolist()
