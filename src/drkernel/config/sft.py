"""The config group `sft`: supervised training of any policy."""

from __future__ import annotations

from dataclasses import dataclass

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
    lr_warmup_share: float = 0.1
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
