"""The language model: tokenizer, prompts, packed log-probabilities, and the engines that generate."""

from __future__ import annotations

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
