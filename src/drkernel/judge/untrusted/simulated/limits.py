"""What Triton's compiler or CUDA's driver refuses to launch: blocks and grids that are too large.

Runs in simulated runners. In a dry run the host may have read a number that is only a guess there. What it launches
from then on says nothing of a GPU, so that nothing is refused.
"""

from __future__ import annotations

import math
from typing import Any

from triton._utils import TRITON_MAX_TENSOR_NUMEL
from triton._utils import validate_block_shape as _elements
from triton.runtime import errors

MOST_PROGRAMS = (2**31 - 1, 65535, 65535)
"""Programs along x, y and z of a grid that CUDA allows."""


class LaunchLimitExceeded(RuntimeError):
    """A GPU would not launch the kernel, whatever the data are."""


class Guesses:
    """Whether the host has read a number of tensors without data."""

    made = False


def grid_sizes(name: str, grid: Any) -> tuple[int, ...]:
    """The sizes of a grid for the kernel `name`.

    Raises:
        InterpreterError: it is no grid.
        LaunchLimitExceeded: it has more programs along one axis than CUDA allows. An empty grid launches nothing.
    """
    sizes = tuple(int(size) for size in (grid if isinstance(grid, (tuple, list)) else (grid,)))
    if not 1 <= len(sizes) <= 3 or min(sizes) < 0:
        raise errors.InterpreterError(
            f"kernel `{name}`: the grid must have 1 to 3 dimensions of at least 0, found {sizes}"
        )
    if 0 in sizes or Guesses.made:
        return sizes
    for axis, size, most in zip("xyz", sizes, MOST_PROGRAMS, strict=False):
        if size > most:
            raise LaunchLimitExceeded(
                f"kernel `{name}`: a grid of {sizes} has {size} programs along {axis}, at most {most} are possible"
            )
    return sizes


def block_elements(shape: list[int] | tuple[int, ...]) -> int:
    """The elements of a block of this shape, in the place of Triton's own function.

    Raises:
        TypeError, ValueError: as Triton's own, where a size is no power of two.
        LaunchLimitExceeded: there are more than Triton allows.
    """
    try:
        return _elements(shape)
    except ValueError:
        if (count := math.prod(shape)) <= TRITON_MAX_TENSOR_NUMEL:
            raise
        raise LaunchLimitExceeded(
            f"a block of shape {tuple(shape)} has {count} elements, Triton allows at most {TRITON_MAX_TENSOR_NUMEL}"
        ) from None
