"""The config groups of supervised stages: `sft`, for any policy, and `coldstart`, which makes one from nothing."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from drkernel.types import DrKernelError

MESSAGES = ("auto", "plain", "ready", "own_opening")
LOSS_ON = ("all", "right", "until_best", "best")
OPTIMIZERS = ("adamw", "muon")
TOO_LONG = ("drop", "cut")


@dataclass
class SftConfig:
    """`stage=sft`: supervised training on trajectories. The defaults are those of the paper's published scripts."""

    data: str | None = None
    """A parquet file, a folder of them, or `hub:OWNER/NAME`, whose split `train` trains (`hub:OWNER/NAME/SPLIT`:
    another); columns as docs/supervised.md says."""
    messages: str = "auto"
    """`plain`: reference, sources and feedback, which policy.prompts renders; `ready`: whole prompts and answers, for
    the chat template as they are; `own_opening`: ready, but the first prompt is that of policy.prompts; `auto`: plain
    where the first message is `original_python_code`, else ready."""
    loss_on: str = "all"
    """Whose completions train: `all` turns, those that are `right` (records of our own say which), those `until_best`
    (the best included), or the `best` alone."""
    loss_on_feedback: bool = False
    """The messages after the first completion train, too."""
    epochs: float = 4.0
    """Passes over the trajectories."""
    lr: float = 2e-5
    """Peak learning rate; adapters (policy.lora) want about ten times as much."""
    lr_warmup: float = 0.1
    """Share of the steps over which the learning rate rises; then a cosine."""
    lr_end: float = 0.0
    """The last learning rate, as a share of `lr`."""
    optimizer: str = "adamw"
    """`adamw`, or `muon` for matrices, with AdamW for embedding, head and vectors; decay: trainer.weight_decay."""
    batch_size: int = 64
    """Trajectories per optimizer step."""
    batch_tokens: int | None = None
    """Instead of `batch_size`: tokens per optimizer step."""
    max_length: int | None = None
    """Most tokens of a trajectory; None: engine.max_tokens."""
    too_long: str = "drop"
    """What happens to longer ones: `drop`, or `cut` at that length. They are counted either way."""
    held_out: float = 0.02
    """Share of the tasks whose trajectories do not train: the loss is measured on them. 0: none."""
    loss_every: int = 50
    """Steps between two measurements. Validation by generating and judging: trainer.validate_every."""
    save_every: int = 50
    """Steps between checkpoints."""
    max_steps: int | None = None
    """End after so many steps; the learning rate is still that of all epochs. A resumed run may have another value."""


@dataclass
class ColdstartConfig:
    """`stage=coldstart` (conf/coldstart/): a set of trajectories from graded solutions, if `sft.data` names none, a
    tokenizer and a policy with random weights; then supervised training, for which `sft` has the options."""

    tasks: int = 3000
    """Generated training tasks whose solutions are judged."""
    unjudged: int = 0
    """Further training tasks whose solutions are not judged, since that is expensive: each gives trajectories of one
    turn, with a solution that is right by construction."""
    unjudged_trajectories: int = 1
    """Trajectories of each of them."""
    mistakes: int = 2
    """Mistaken solutions judged per task, of the sixteen kinds there are."""
    trajectories: int = 8
    """Trajectories built per task."""
    vocabulary: int = 1024
    """Size of the byte-level BPE."""
    longest_token: int = 16
    """Most bytes in one token: long ones make templated code short, short ones make it easier to recombine."""
    hidden: int = 192
    """Width of the policy."""
    layers: int = 6
    """Depth of the policy."""
    kv_heads: int = 2
    """Its key-value heads of 64; few make generation fast."""
    positions: int = 4096
    """Most tokens that the policy reads, and of a trajectory (`sft.too_long`)."""
    fused_share: float = 0.15
    """Share of the best solutions among the completions. A low one leaves reinforcement learning something to find; the
    presets for PyTorch at large have 0.75, since their policies are used without it."""
    plain: bool = False
    """Solutions in one style: a small policy need not guess which names come next."""


def expect_trajectories(config: Any) -> None:
    """Refuses a supervised stage (of a Config) that cannot begin, or that could not train."""
    sft = config.sft
    if config.stage == "coldstart":
        _expect_a_set(config)
    if config.stage == "rl":
        return
    if sft.optimizer == "muon" and config.policy.lora.rank:
        found = f"sft.optimizer=muon with policy.lora.rank={config.policy.lora.rank}"
        raise DrKernelError(f"config: {found}; expected sft.optimizer=adamw for adapters")
    if not sft.data and config.stage == "sft":
        raise DrKernelError("config: stage=sft without sft.data; expected a parquet file, a folder or hub:OWNER/NAME")
    if config.policy.prompts != "chat" and sft.messages in ("ready", "own_opening"):
        found = f"sft.messages={sft.messages} with policy.prompts={config.policy.prompts}"
        raise DrKernelError(f"config: {found}; expected policy.prompts=chat, whose template such messages are for")


def _expect_a_set(config: Any) -> None:
    """Refuses a cold start that nobody can mean."""
    if config.plan:
        raise DrKernelError("config: plan=true with stage=coldstart; expected stage=rl or sft, whose memory is planned")
