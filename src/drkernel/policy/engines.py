"""The engines by name. Each is imported when it is asked for: vLLM may be absent, and takes seconds to import."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable
from typing import Any

import torch

from drkernel.policy.engine import Engine
from drkernel.policy.model import Policy
from drkernel.types import DrKernelError


def load_engine(
    name: str,
    policy: Policy,
    stop_ids: set[int],
    slots: int = 64,
    context: int = 2048,
    kv_cache_gib: float = 16.0,
    may_sleep: bool = False,
    eager: bool = False,
    tensor_parallel: int = 1,
) -> Engine:
    """The engine of that name, with the policy's weights.

    slots: sequences that decode together; context: most tokens of a trajectory. For vLLM alone: kv_cache_gib;
    may_sleep, so that `sleep()` gives the GPU's memory to the trainer; tensor_parallel, the number of consecutive ranks
    that have one engine together. eager: no CUDA graphs, to start in seconds and decode slowly (vLLM, graphs).
    """
    if name not in ENGINES:
        raise DrKernelError(f"engine.name: found {name!r}, expected one of {', '.join(ENGINES)}")
    options = {"slots": slots, "context": context, "kv_cache_gib": kv_cache_gib, "may_sleep": may_sleep}
    return ENGINES[name](policy, stop_ids, **options, eager=eager, tensor_parallel=tensor_parallel)


def _auto(policy: Policy, stop_ids: set[int], **options: Any) -> Engine:
    """On a GPU vLLM; without vLLM graphs, if it supports the decoder; else transformers."""
    return ENGINES[_best(policy)](policy, stop_ids, **options)


def _best(policy: Policy) -> str:
    if not torch.cuda.is_available():
        return "transformers"
    if importlib.util.find_spec("vllm"):
        return "vllm"
    from drkernel.policy.graphs_engine import unsupported

    on_gpu = policy.device.type == "cuda" and unsupported(policy.model.config) is None
    return "graphs" if on_gpu and importlib.util.find_spec("triton") else "transformers"


def _graphs(policy: Policy, stop_ids: set[int], slots: int, context: int, eager: bool, **others: Any) -> Engine:
    _expect_none("graphs", others)
    from drkernel.policy.graphs_engine import GraphsEngine

    return GraphsEngine(policy, stop_ids, slots, context, eager)


def _transformers(policy: Policy, stop_ids: set[int], slots: int, context: int, **others: Any) -> Engine:
    _expect_none("transformers", others)
    from drkernel.policy.transformers_engine import TransformersEngine

    return TransformersEngine(policy, stop_ids, slots, context)


def _expect_none(name: str, others: dict[str, Any]) -> None:
    """Raises DrKernelError where options ask for what an engine does not have."""
    asked = [f"engine.{key}" for key, option in (("sleep", "may_sleep"), ("eager", "eager")) if others.get(option)]
    if asked:
        raise DrKernelError(f"{', '.join(asked)}: found true, which engine.name={name} does not have")
    if (ranks := others["tensor_parallel"]) > 1:
        found = f"engine.tensor_parallel={ranks}"
        raise DrKernelError(f"config: {found}, which engine.name={name} does not have; expected 1")


def _vllm(policy: Policy, stop_ids: set[int], **options: Any) -> Engine:
    if not importlib.util.find_spec("vllm"):
        expected = (
            "expected vLLM to be installed (requirements.txt, for GPUs), or engine=auto, which takes what there is"
        )
        raise DrKernelError(f"config: engine.name=vllm; {expected}")
    from drkernel.policy.vllm_engine import VllmEngine

    return VllmEngine(policy, stop_ids, **options)


ENGINES: dict[str, Callable[..., Engine]] = {
    "auto": _auto,
    "graphs": _graphs,
    "transformers": _transformers,
    "vllm": _vllm,
}
"""What `engine.name` may be, and what makes it."""
