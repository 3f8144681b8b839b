"""The language model: tokenizer, prompts, packed log-probabilities, and the engines that generate."""

from __future__ import annotations

import importlib.util

import torch

from drkernel.policy.engine import Completion, Engine, Request, Sampling
from drkernel.policy.model import Policy, Scores, load_tokenizer, new_policy
from drkernel.policy.prompts import Prompts, load_prompts
from drkernel.policy.transfer import check_agreement
from drkernel.types import DrKernelError

__all__ = [
    "Completion",
    "Engine",
    "Policy",
    "Prompts",
    "Request",
    "Sampling",
    "Scores",
    "check_agreement",
    "load_engine",
    "load_prompts",
    "load_tokenizer",
    "new_policy",
]


def load_engine(
    name: str,
    policy: Policy,
    stop_ids: set[int],
    slots: int = 64,
    context: int = 2048,
    kv_cache_gib: float = 16.0,
    may_sleep: bool = False,
    eager: bool = False,
) -> Engine:
    """`transformers`, `vllm`, or `auto`: vLLM where there is a GPU and vLLM, else transformers.

    slots: sequences that decode together; context: most tokens of a trajectory. For vLLM alone: kv_cache_gib;
    may_sleep, so that `sleep()` gives the GPU's memory to the trainer; eager, to start in seconds and decode slowly.
    """
    if name == "auto":
        name = "vllm" if torch.cuda.is_available() and importlib.util.find_spec("vllm") else "transformers"
    if name == "transformers":
        if may_sleep or eager:
            raise DrKernelError("engine.sleep, engine.eager: found true, which engine.name=transformers does not have")
        from drkernel.policy.transformers_engine import TransformersEngine

        return TransformersEngine(policy, stop_ids, slots, context)
    if name == "vllm":
        from drkernel.policy.vllm_engine import VllmEngine

        return VllmEngine(policy, stop_ids, slots, context, kv_cache_gib, may_sleep, eager)
    raise DrKernelError(f"engine.name: found {name!r}, expected auto, transformers or vllm")
