"""How much shared memory a kernel takes at least: the tiles that a loop loads in advance for `tl.dot`.

Runs in simulated runners. The compiler decides what lies in shared memory, and it is not asked. So the bound counts
only what it was seen to place there for an H200, whatever the tiles, strides and masks: both operands of a `tl.dot`
that are loaded as they are, in the same turn of an innermost loop. In fp32 they lie there once for each stage but one.
In 16 bits it depends on strides whether they do, so they count once. Where a branch, an index that is loaded or an
option of the loop may change this, nothing is counted.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from typing import Any

import triton.language as tl
from triton.runtime import errors

from drkernel.judge.untrusted.simulated.limits import LaunchLimitExceeded

MOST_BYTES = 232_448
"""Shared memory of a program on an H200, the most of all GPUs that are modelled."""
_DEFAULT_STAGES = 3
"""Triton's own, where a launch names none."""


class SharedMemoryExceeded(LaunchLimitExceeded, errors.OutOfResources):
    """A kernel needs more shared memory than a GPU has. Triton's autotuner leaves such a configuration out."""

    def __str__(self) -> str:
        return str(self.args[0])


def stages_of(options: dict[str, Any], names: Iterable[str]) -> int:
    """Stages of the loops of a launch; 0 where they are not known.

    Args:
        options: the keyword arguments of the launch.
        names: the kernel's parameters, to which a keyword may belong instead.
    """
    stages = options.get("num_stages", _DEFAULT_STAGES)
    known = "num_stages" not in names and options.get("num_ctas", 1) == 1
    return stages if known and isinstance(stages, int) else 0


class Loop:
    """A loop of a kernel that is going round.

    Args:
        outer: the loop around it, if any.
        stages: see `stages_of`.
        options: keyword arguments of tl.range.
        turns: after how many it is a loop to the compiler, too.
    """

    def __init__(self, outer: Loop | None, stages: int, options: dict[str, Any], turns: int = 2):
        given = {name: getattr(value, "value", value) for name, value in options.items()}
        self.stages = given.pop("num_stages", None) or stages
        self.as_usual = not any(given.values())
        """Whether no option changes what the compiler makes of it, and of the loops in it."""
        self.certain = self.as_usual and (outer is None or outer.as_usual)
        self.turn = object()
        """Stands for the turn that goes on: loads in it have this mark."""
        self._bytes, self._turns = 0, turns
        if outer is not None:
            outer.certain = False

    def loaded(self, dtype: tl.dtype, volatile: bool) -> dict[str, Any]:
        """Notes with a block that is loaded. What is no fraction may be an index or an address of what comes next."""
        if not dtype.is_floating() or volatile:
            self.certain = False
        return {"turn": self.turn}

    def product(self, left: Any, right: Any) -> None:
        """Takes note of a `tl.dot` of two blocks of two dimensions."""
        mine = all(side.attr.get("turn") is self.turn and side.data.ndim == 3 for side in (left, right))
        dtype = left.dtype.scalar
        if mine and left is not right and dtype in (tl.float32, tl.float16, tl.bfloat16):
            elements = sum(math.prod(side.data.shape[1:]) for side in (left, right))
            stages = self.stages - 1 if dtype == tl.float32 else min(1, self.stages - 1)
            self._bytes = max(self._bytes, stages * elements * dtype.primitive_bitwidth // 8)

    def turns(self, values: Iterable[Any]) -> Iterator[Any]:
        """The values of the loop's variable, one for each turn.

        Raises:
            SharedMemoryExceeded: after a turn, see MOST_BYTES.
        """
        for number, value in enumerate(values, 1):
            self.turn = object()
            yield value
            if self.certain and number >= self._turns and self._bytes > MOST_BYTES:
                raise SharedMemoryExceeded(
                    f"out of resource: the operands of tl.dot take at least {self._bytes} bytes of shared memory with "
                    f"num_stages={self.stages}, a program has {MOST_BYTES}; smaller blocks or fewer stages need less"
                )


def loop_of(builder: Any, options: dict[str, Any], values: Iterable[Any], is_fixed: bool = True) -> Iterator[Any]:
    """The values of a loop's variable, while the builder knows that it is in this loop. Whoever leaves the loop by an
    error starts its programs anew, and the builder is in no loop then.

    Args:
        is_fixed: whether the compiler knows how often it goes round: once is no loop then.
    """
    outer, builder.loop = builder.loop, Loop(builder.loop, builder.stages, options, 2 if is_fixed else 1)
    yield from builder.loop.turns(values)
    builder.loop = outer
