"""What `kernel.warmup(...)` and launches return: in the place of a compiled kernel. Runs in simulated runners.

People ask it for registers and shared memory, to choose the grid of a persistent kernel, and launch it.
"""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any


class CompiledKernel:
    """A kernel that nothing has compiled. It says what is usual of a small one.

    Args:
        launch: runs the kernel; takes its arguments, options and grid. No attribute of it leads elsewhere.
        options: those of the launch.
        fixed: the constants that it was compiled with, by their places among the parameters. A launch is given them
            anew, and has these all the same.
    """

    n_regs, n_spills, n_max_threads = 32, 0, 1024
    _SHARED = 1024

    def __init__(
        self,
        name: str,
        launch: Callable[[tuple, dict, Any], None],
        options: dict[str, Any],
        fixed: dict[int, Any],
    ):
        warps, stages = options.get("num_warps", 4), options.get("num_stages", 3)
        self.name = name
        self.metadata = SimpleNamespace(name=name, shared=self._SHARED, num_warps=warps, num_stages=stages, num_ctas=1)
        self.asm = dict.fromkeys(("ttir", "ttgir", "llir", "ptx"), "")
        self._launch = lambda args, grid: launch(tuple(fixed.get(n, arg) for n, arg in enumerate(args)), {}, grid)

    def _init_handles(self) -> None:
        """Loads it, on a GPU."""

    def __getitem__(self, grid: Any) -> Callable[..., None]:
        """A launch takes all parameters by position, as Triton's does."""
        return lambda *args, stream=None: self._launch(args, grid)
