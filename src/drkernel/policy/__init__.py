"""The language model: tokenizer, prompts, packed log-probabilities, and the engines that generate.

What is named here is imported when it is first used: parts of this package (`canonical`) need no transformers, whose
import takes seconds.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from drkernel.policy.engine import Completion, Engine, Request, Sampling
    from drkernel.policy.engines import ENGINES, load_engine
    from drkernel.policy.model import Policy, Scores, load_tokenizer, new_policy
    from drkernel.policy.prompts import PROMPTS, Prompts, load_prompts
    from drkernel.policy.transfer import check_agreement, export

__all__ = [
    "ENGINES",
    "PROMPTS",
    "Completion",
    "Engine",
    "Policy",
    "Prompts",
    "Request",
    "Sampling",
    "Scores",
    "check_agreement",
    "export",
    "load_engine",
    "load_prompts",
    "load_tokenizer",
    "new_policy",
]

_HOMES = {
    "engine": ("Completion", "Engine", "Request", "Sampling"),
    "engines": ("ENGINES", "load_engine"),
    "model": ("Policy", "Scores", "load_tokenizer", "new_policy"),
    "prompts": ("PROMPTS", "Prompts", "load_prompts"),
    "transfer": ("check_agreement", "export"),
}
_HOME = {name: home for home, names in _HOMES.items() for name in names}


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.{_HOME[name]}"), name)
