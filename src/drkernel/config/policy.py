"""The config group `policy`: the language model that is trained."""

from __future__ import annotations

from dataclasses import dataclass, field

from drkernel.config.lora import LoraConfig
from drkernel.config.registry import Imported

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
