"""Settings of low-rank adaptation (LoRA, arXiv 2106.09685): which weights train, and how large a step of theirs is."""

from __future__ import annotations

import math
from dataclasses import dataclass

from drkernel.types import DrKernelError


@dataclass
class LoraConfig:
    """Train B A of rank `rank` beside each chosen matrix W, and leave W as it is: y = W x + scale B A x."""

    rank: int = 0
    """Rows of A and columns of B; 0: no adapters, all weights of the policy train."""
    alpha: float = 32.0
    """The scale is alpha / rank. Adapters want a learning rate some ten times that of all weights (policy.lr)."""
    rslora: bool = False
    """Scale by alpha / sqrt(rank) instead (rsLoRA, arXiv 2312.03732): large ranks then learn as fast as small ones."""
    dropout: float = 0.0
    """Probability of dropping an input of A in the backward pass's forward. The engine generates without."""
    targets: list[str] | None = None
    """Last names of the linear layers that get adapters, e.g. [q_proj,v_proj]; None: all linear layers of the blocks.
    Embedding and head never do."""
    export_merged: bool = True
    """Also write policy/ of the run folder, a whole policy with the adapters added; adapter/ is always written."""

    @property
    def scale(self) -> float:
        """Factor of B A. The rank must be at least 1.

        >>> LoraConfig(rank=16, alpha=32).scale, LoraConfig(rank=16, alpha=32, rslora=True).scale
        (2.0, 8.0)
        """
        return self.alpha / (self.rank**0.5 if self.rslora else self.rank)

    def check(self) -> None:
        """Raises DrKernelError, naming the key, where a value makes no sense."""
        allowed = {
            "rank": (self.rank >= 0, "0 (no adapters) or more"),
            "alpha": (0 < self.alpha < math.inf, "more than 0"),
            "dropout": (0 <= self.dropout < 1, "a probability below 1"),
            "targets": (self.targets is None or self.targets, "names of linear layers, or null for all"),
        }
        for key, (right, expected) in allowed.items():
            if not right:
                raise DrKernelError(f"config: policy.lora.{key}={getattr(self, key)}; expected {expected}")
