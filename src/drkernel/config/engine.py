"""The config group `engine`: what generates."""

from __future__ import annotations

from dataclasses import dataclass

from drkernel.config.registry import Imported

ENGINES = Imported(
    {
        "auto": "drkernel.policy.engines:auto",
        "graphs": "drkernel.policy.engines.graphs_engine:GraphsEngine",
        "transformers": "drkernel.policy.engines.transformers_engine:TransformersEngine",
        "vllm": "drkernel.policy.engines.vllm_engine:VllmEngine",
    }
)
"""What `engine.name` may be: called with a policy, its stop tokens, and those options of `load_engine` that it has."""


@dataclass
class EngineConfig:
    """What generates (conf/engine/)."""

    name: str = "auto"
    """`auto` takes vLLM where there is a GPU and vLLM, `graphs` where there is only a GPU, else transformers."""
    max_answer_tokens: int = 400
    """Most tokens of one completion."""
    max_tokens: int = 2048
    """Most tokens of a trajectory, all turns together; a trajectory that would not fit ends early."""
    slots: int = 64
    """Sequences that decode together."""
    temperature: float = 1.0
    """Sampling temperature in training; log-probabilities of the engine and the trainer are at this temperature."""
    top_p: float = 1.0
    """Nucleus sampling, in training, validation and studies; 1 cuts nothing. The paper evaluates at 0.95. To train with
    top_p, top_k or min_p, set algo.importance_cap (docs/method.md)."""
    top_k: int = 0
    """Only so many of the most probable tokens are sampled; 0: all."""
    min_p: float = 0.0
    """Only tokens at least this many times as probable as the most probable one are sampled; 0: all."""
    kv_cache_gib: float = 16.0
    """vLLM only: size of the key-value cache, set explicitly so that nothing has to be estimated."""
    agreement: float = 0.1
    """vLLM, graphs: largest mean difference between the engine's log-probabilities and the trainer's after a sync, in
    nats per token; beyond it the run stops. Two bf16 implementations differ by about 0.03."""
    sleep: bool = False
    """vLLM only: give the GPU's memory to the trainer after each rollout. For policies that do not fit otherwise."""
    eager: bool = False
    """vLLM, graphs: no CUDA graphs; starts in seconds and decodes slowly."""
    tensor_parallel: int = 1
    """vLLM only: so many consecutive ranks of a node have one engine together, each a slice of every weight and of the
    cache. For policies whose engine does not fit on one GPU; otherwise one engine per rank generates faster."""
