"""What generates: the engines by name. Each is imported when it is asked for: vLLM may be absent, and takes seconds.

Their protocol is `policy/engine.py`. `kv.py` belongs to `transformers_engine.py`, `decode_*.py` to `graphs_engine.py`;
both draw by `sampling.py`. `endpoint.py` is a model behind a server, which generates for studies alone.
"""

from __future__ import annotations

import importlib.util
import inspect
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import torch

from drkernel.config.engine import ENGINES
from drkernel.policy.engine import Engine
from drkernel.types import DrKernelError

if TYPE_CHECKING:
    from drkernel.policy.model import Policy


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
    options |= {"eager": eager, "tensor_parallel": tensor_parallel}
    entry = ENGINES[name]
    return entry(policy, stop_ids, **_options_of(name, entry, options))


def auto(policy: Policy, stop_ids: set[int], **options: Any) -> Engine:
    """On a GPU vLLM; without vLLM graphs, if it supports the decoder; else transformers."""
    return load_engine(_best(policy), policy, stop_ids, **options)


def _best(policy: Policy) -> str:
    if not torch.cuda.is_available():
        return "transformers"
    if importlib.util.find_spec("vllm"):
        return "vllm"
    from drkernel.policy.engines.graphs_engine import unsupported

    on_gpu = policy.device.type == "cuda" and unsupported(policy.model.config) is None
    return "graphs" if on_gpu and importlib.util.find_spec("triton") else "transformers"


def _options_of(name: str, entry: Callable[..., Engine], options: dict[str, Any]) -> dict[str, Any]:
    """Those of the options that an engine declares. Raises DrKernelError where others ask for what it does not have."""
    parameters = inspect.signature(entry).parameters
    if any(parameter.kind is parameter.VAR_KEYWORD for parameter in parameters.values()):
        return options
    others = {key: value for key, value in options.items() if key not in parameters}
    asked = [f"engine.{key}" for key, option in (("sleep", "may_sleep"), ("eager", "eager")) if others.get(option)]
    if asked:
        raise DrKernelError(f"{', '.join(asked)}: found true, which engine.name={name} does not have")
    if (ranks := others.get("tensor_parallel", 1)) > 1:
        found = f"engine.tensor_parallel={ranks}"
        raise DrKernelError(f"config: {found}, which engine.name={name} does not have; expected 1")
    return {key: value for key, value in options.items() if key in parameters}
