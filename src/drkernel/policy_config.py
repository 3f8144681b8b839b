"""The config groups `policy` and `engine`: the language model that is trained, and what generates with it."""

from __future__ import annotations

from dataclasses import dataclass, field

from drkernel.lora import LoraConfig
from drkernel.registry import Imported

ENGINES = Imported(
    {
        "auto": "drkernel.policy.engines:auto",
        "graphs": "drkernel.policy.graphs_engine:GraphsEngine",
        "transformers": "drkernel.policy.transformers_engine:TransformersEngine",
        "vllm": "drkernel.policy.vllm_engine:VllmEngine",
    }
)
"""What `engine.name` may be: called with a policy, its stop tokens, and those options of `load_engine` that it has."""
PROMPTS = Imported(
    {
        "compact": "drkernel.policy.prompts:CompactPrompts",
        "canonical": "drkernel.policy.prompts:CanonicalPrompts",
        "chat": "drkernel.policy.prompts:ChatPrompts",
    }
)
"""What `policy.prompts` may be: called with a tokenizer (`chat`: and a template, thinking, stop tokens)."""
THINKING = ("none", "kept", "stripped")
"""What `policy.thinking` may be."""


@dataclass
class PolicyConfig:
    """The language model that is trained (conf/policy/)."""

    path: str = "assets/seed"
    """A Hugging Face folder (looked up from the working directory, then from the repository) or hub id."""
    prompts: str = "compact"
    """`compact` or `canonical` for policies with drkernel's own tokenizer: the task as it is written, or in canonical
    form (policy/canonical/). `chat` for instruct models."""
    template: str | None = None
    """`chat` only: a YAML file with the texts of the prompts, own system message included (docs/policies.md, Prompts);
    looked up as `path`. None: the texts of policy/templates.py."""
    thinking: str = "none"
    """`chat` only. `none`: the chat template asks for answers without thoughts. `kept`: the model thinks, and its
    thoughts stay in the history. `stripped`: later turns see its answers alone; each turn is then a row of its own."""
    lr: float = 1e-6
    """AdamW learning rate, the highest that `trainer.lr_schedule` reaches. The paper's 1e-6 suits 8B and 14B; a policy
    of a few million wants far more."""
    fp32_head: bool = False
    """On GPUs: the trainer's logits in float32, not in bfloat16 as the rest. Costs memory for a float32 head, and time;
    vLLM's stay in bfloat16."""
    lora: LoraConfig = field(default_factory=LoraConfig)
    """Adapters that train in place of all weights; `policy.lora.rank=32` adds them."""


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
    kv_cache_gib: float = 16.0
    """vLLM only: size of the key-value cache, set explicitly so that nothing has to be estimated."""
    agreement: float = 0.1
    """vLLM, graphs: largest mean difference between the engine's log-probabilities and the trainer's after a sync, in
    nats per token; beyond it the run stops. Two bf16 implementations differ by about 0.03."""
    sleep: bool = False
    """vLLM only: give the GPU's memory to the trainer during the update. For policies that do not fit otherwise."""
    eager: bool = False
    """vLLM, graphs: no CUDA graphs; starts in seconds and decodes slowly."""
    tensor_parallel: int = 1
    """vLLM only: so many consecutive ranks of a node have one engine together, each a slice of every weight and of the
    cache. For policies whose engine does not fit on one GPU; otherwise one engine per rank generates faster."""
