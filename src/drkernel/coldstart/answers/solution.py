"""A graded submission."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Kind = Literal["lazy", "partial", "fused", "best", "mistaken", "hack"]


@dataclass(frozen=True)
class Solution:
    """A complete submission and its grade."""

    kind: Kind
    source: str
    note: str = ""
    """What makes it so: the name of the plan, of the mistake or of the hack."""
