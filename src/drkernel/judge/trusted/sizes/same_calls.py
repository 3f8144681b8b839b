"""Whether a reference does at other sizes what it does at the published ones.

    self.shortcut = nn.Conv2d(n_in, n_out, 1) if n_in != n_out else None
    if x.shape[-1] % 2: x = F.pad(x, (0, 1))

A task may choose by its sizes what it computes. A submission need not know what it does at others than the published
ones. So sizes at which the reference makes other calls, or has other modules, tell nothing about a submission.
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode

from drkernel.judge.boundary.sequences import stands_for
from drkernel.judge.trusted.outputs import leaves
from drkernel.judge.trusted.sizes.without_data import without_data
from drkernel.tasks.module import Reference
from drkernel.types import Task

_LAYOUTS = {
    *("view", "reshape", "_reshape_alias", "_unsafe_view", "as_strided", "t", "transpose", "permute", "unsqueeze"),
    *("squeeze", "expand", "clone", "contiguous", "copy_", "_to_copy", "detach", "alias", "lift_fresh", "empty"),
}
"""Operators that compute nothing. A size of one may make them needless."""
_PARTS = {"addmm": ("mm", "add")}
"""Operators that torch takes for others where the layout allows it."""
_LONGEST_LOOP = 128
"""Operators of one round of a loop."""


@dataclass(frozen=True)
class Calls:
    """What a reference does in one forward."""

    operators: tuple[str, ...]
    """In turn; of a recurrent layer those of few steps (`boundary.sequences`)."""
    number: float
    """Of operators, with those of all steps."""
    modules: frozenset[tuple[str, str]]
    """The path and the class of each."""
    degenerate: frozenset[tuple[Any, ...]]
    """Operators that make nothing, and those that repeat an operand along a dimension.

    Sizes that become smaller may become one or none: then a width that a network divides is empty, and operands of one
    shape are no longer of one.
    """

    @functools.cached_property
    def once(self) -> tuple[str, ...]:
        """The operators without what loops repeat."""
        return tuple(_once(self.operators))

    def are_of(self, published: Calls) -> bool:
        """Whether these are the calls at the published sizes. Loops may go round more often, or less often."""
        same = self.once == published.once and self.modules == published.modules
        return same and self.degenerate <= published.degenerate


class Recorder(TorchDispatchMode):
    """Notes the calls of this block."""

    def __init__(self) -> None:
        super().__init__()
        self._operators: list[str] = []
        self._number = 0.0
        self._degenerate: set[tuple[Any, ...]] = set()

    def __torch_dispatch__(self, func: Any, types: Any, args: tuple = (), kwargs: dict | None = None) -> Any:
        outputs = func(*args, **(kwargs or {}))
        name = func.overloadpacket.__name__
        if func.namespace == "aten" and name not in _LAYOUTS:
            self._operators += (own := _PARTS.get(name, (name,)))
            self._number += stands_for() * len(own)
        for _, made in leaves(outputs):
            if isinstance(made, Tensor) and not made.numel():
                self._degenerate.add((name,))
            elif isinstance(made, Tensor) and torch.Tag.pointwise in func.tags:
                for place, given in enumerate(value for value in args if isinstance(value, Tensor)):
                    sizes = enumerate(zip(reversed(given.shape), reversed(made.shape), strict=False))
                    self._degenerate |= {(name, place, dim) for dim, (own, whole) in sizes if own == 1 < whole}
        return outputs

    def calls(self, model: nn.Module) -> Calls:
        modules = frozenset((path, type(module).__name__) for path, module in model.named_modules())
        return Calls(tuple(self._operators), self._number, modules, frozenset(self._degenerate))


def _once(operators: Sequence[str]) -> list[str]:
    """Without what repeats at once, the shortest first.

    >>> _once("a b b c b c d".split())
    ['a', 'b', 'c', 'd']
    """
    found = list(operators)
    for length in range(1, _LONGEST_LOOP + 1):
        kept: list[str] = []
        for name in found:
            kept.append(name)
            if kept[-length:] == kept[-2 * length : -length]:
                del kept[-length:]
        found = kept
    return found


def are_same(reference: Reference, loops: bool = True) -> bool:
    """Whether a reference makes the calls that it makes at the published sizes; True where that cannot be told.

    Args:
        loops: whether its loops must go round as often, too. Who unrolls a loop is right at the published sizes.
    """
    published, found = published_calls(reference.task), calls_of(reference)
    if published is None or found is None:
        return True
    return found.are_of(published) and (not loops or found.number == published.number)


def calls_of(reference: Reference) -> Calls | None:
    """What it does at its sizes; None where it does not run without data."""
    return _calls_of(reference.task.source, reference.task.entry_point, tuple(reference.constants.items()))


def published_calls(task: Task) -> Calls | None:
    """What the reference does at the published sizes; None where it does not run without data."""
    return _calls_of(task.source, task.entry_point)


@functools.lru_cache(maxsize=64)
def _calls_of(source: str, entry_point: str, constants: tuple[tuple[str, int], ...] = ()) -> Calls | None:
    try:
        with without_data(), counted_attention():
            reference = Reference(Task("", source, entry_point), dict(constants))
            model, inputs = reference.model(0).eval(), reference.inputs(0)
            with Recorder() as recorder:
                reference.forward(model, inputs)
    except Exception:
        return None
    return recorder.calls(model)


@contextlib.contextmanager
def counted_attention() -> Iterator[None]:
    """nn.TransformerEncoderLayer and its like run as operators that are counted, not as one."""
    before = torch.backends.mha.get_fastpath_enabled()
    torch.backends.mha.set_fastpath_enabled(False)
    try:
        yield
    finally:
        torch.backends.mha.set_fastpath_enabled(before)
