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
    return ENGINES[name](policy, stop_ids, slots, context, kv_cache_gib, may_sleep, eager, tensor_parallel)


def _auto(policy: Policy, stop_ids: set[int], *options: Any) -> Engine:
    """On a GPU vLLM; without vLLM graphs, if it supports the decoder; else transformers."""
    return ENGINES[_best(policy)](policy, stop_ids, *options)


def _best(policy: Policy) -> str:
    if not torch.cuda.is_available():
        return "transformers"
    if importlib.util.find_spec("vllm"):
        return "vllm"
    from drkernel.policy.graphs_engine import unsupported

    on_gpu = policy.device.type == "cuda" and unsupported(policy.model.config) is None
    return "graphs" if on_gpu and importlib.util.find_spec("triton") else "transformers"


def _graphs(
    policy: Policy,
    stop_ids: set[int],
    slots: int,
    context: int,
    kv_cache_gib: float,
    may_sleep: bool,
    eager: bool,
    tensor_parallel: int,
) -> Engine:
    if may_sleep:
        raise DrKernelError("engine.sleep: found true, which engine.name=graphs does not have")
    _expect_one_rank("graphs", tensor_parallel)
    from drkernel.policy.graphs_engine import GraphsEngine

    return GraphsEngine(policy, stop_ids, slots, context, eager)


def _transformers(
    policy: Policy,
    stop_ids: set[int],
    slots: int,
    context: int,
    kv_cache_gib: float,
    may_sleep: bool,
    eager: bool,
    tensor_parallel: int,
) -> Engine:
    if may_sleep or eager:
        raise DrKernelError("engine.sleep, engine.eager: found true, which engine.name=transformers does not have")
    _expect_one_rank("transformers", tensor_parallel)
    from drkernel.policy.transformers_engine import TransformersEngine

    return TransformersEngine(policy, stop_ids, slots, context)


def _expect_one_rank(name: str, tensor_parallel: int) -> None:
    if tensor_parallel > 1:
        found = f"engine.tensor_parallel={tensor_parallel}"
        raise DrKernelError(f"config: {found}, which engine.name={name} does not have; expected 1")


def _vllm(policy: Policy, stop_ids: set[int], *options: Any) -> Engine:
    from drkernel.policy.vllm_engine import VllmEngine

    return VllmEngine(policy, stop_ids, *options)


ENGINES: dict[str, Callable[..., Engine]] = {
    "auto": _auto,
    "graphs": _graphs,
    "transformers": _transformers,
    "vllm": _vllm,
}
"""What `engine.name` may be, and what makes it."""
