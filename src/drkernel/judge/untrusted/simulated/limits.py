"""What Triton's launcher or CUDA's driver refuses, whatever the kernel: grids, threads, kinds of arguments.

Runs in simulated runners. In a dry run the host may have read a number that is only a guess there. What it launches
from then on says nothing of a GPU, so that nothing is refused.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

import torch
from triton.runtime import errors

from drkernel.judge.untrusted.simulated.guesses import Guesses

MOST_WARPS = 32
"""Of a program: 1024 threads."""
MOST_BLOCKS = 16
"""Of a cluster, which is a program with num_ctas."""
MOST_PROGRAMS = (2**31 - 1, 65535, 65535)
"""Programs along x, y and z of a grid that CUDA allows."""


class LaunchLimitExceeded(RuntimeError):
    """A GPU would not launch the kernel, whatever the data are."""


class ThreadsExceeded(LaunchLimitExceeded, errors.OutOfResources):
    """A program has more threads than a GPU starts. Triton's autotuner leaves such a configuration out."""

    def __str__(self) -> str:
        return str(self.args[0])


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
    if 0 in sizes or Guesses.doubtful():
        return sizes
    for axis, size, most in zip("xyz", sizes, MOST_PROGRAMS, strict=False):
        if size > most:
            raise LaunchLimitExceeded(
                f"kernel `{name}`: a grid of {sizes} has {size} programs along {axis}, at most {most} are possible"
            )
    return sizes


def check_options(name: str, options: dict[str, Any], parameters: Collection[str]) -> None:
    """Checks the options of a launch of the kernel `name`.

    Args:
        parameters: of the kernel, to which a keyword may belong instead.

    Raises:
        InterpreterError: Triton does not take them.
        ThreadsExceeded: there are more warps than a GPU starts.
        LaunchLimitExceeded: there are more blocks than a cluster may have.
    """
    blocks = options.get("num_ctas", 1)
    if "num_ctas" not in parameters and isinstance(blocks, int) and blocks > MOST_BLOCKS:
        raise LaunchLimitExceeded(f"kernel `{name}`: num_ctas is {blocks}, a cluster has at most {MOST_BLOCKS} blocks")
    warps = options.get("num_warps", 1)
    if "num_warps" in parameters or not isinstance(warps, int):
        return
    if warps <= 0 or warps & (warps - 1):
        raise errors.InterpreterError(f"kernel `{name}`: num_warps must be a power of 2, found {warps}")
    if warps > MOST_WARPS:
        raise ThreadsExceeded(
            f"kernel `{name}`: out of resource: {warps} warps are {32 * warps} threads, a program has at most "
            f"{32 * MOST_WARPS}"
        )


def warps_of(options: dict[str, Any], parameters: Collection[str]) -> int:
    """Of a program, by the options of a launch that `check_options` has let pass."""
    warps = options.get("num_warps", 4)
    return warps if isinstance(warps, int) and "num_warps" not in parameters else 4


def check_argument(kernel: str, name: str, value: Any) -> None:
    """Checks an argument that is no constant.

    Raises:
        InterpreterError: Triton hands no such values to kernels.
    """
    if isinstance(value, (str, bytes, list, dict, set, torch.dtype, torch.Size)):
        kind = type(value).__name__
        raise errors.InterpreterError(
            f"kernel `{kernel}`: the argument `{name}` is a {kind}, which only a tl.constexpr parameter may be"
        )
