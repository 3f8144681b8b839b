"""The config group `sft`: supervised training of any policy."""

from __future__ import annotations

import math
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

    data: Any = None
    """A parquet or .jsonl file, a folder of them, or `hub:OWNER/NAME`, whose split `train` trains
    (`hub:OWNER/NAME/SPLIT`: another); columns as docs/supervised.md says. Several: a list, or SOURCE: WEIGHT, the share
    of a source's rows that an epoch takes: of 0.25 a quarter, another one in each epoch; of 2 all, twice."""
    messages: str = "auto"
    """`plain`: reference, sources and feedback, which policy.prompts renders; `ready`: whole prompts and completions,
    for the chat template as they are; `own_opening`: ready, but the first prompt is that of policy.prompts; `auto`:
    plain where the first message is `original_python_code`, else ready."""
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


def weights(data: Any) -> dict[str, float]:
    """The sources of `sft.data` and their weights. Raises DrKernelError for what is no source, or no weight.

    >>> weights("a.parquet"), weights(["a.parquet", "b"]), weights({"a.parquet": 0.25})
    ({'a.parquet': 1.0}, {'a.parquet': 1.0, 'b': 1.0}, {'a.parquet': 0.25})
    """
    given: list[tuple[Any, Any]] = [*data.items()] if isinstance(data, dict) else []
    given = given or [(source, 1) for source in (data if isinstance(data, list) else [data])]
    sources = [source for source, _ in given]
    for source, weight in given:
        if not isinstance(source, str) or not source:
            expected = "expected a file, a folder or hub:OWNER/NAME; of several a list, or {SOURCE: WEIGHT}"
            raise DrKernelError(f"config: sft.data: found {source!r}; {expected}")
        if sources.count(source) > 1:
            expected = f"expected it once, with a weight: {{{source}: {sources.count(source)}}}"
            raise DrKernelError(f"config: sft.data: found {source} {sources.count(source)} times; {expected}")
        is_number = isinstance(weight, (int, float)) and not isinstance(weight, bool)
        if not is_number or not 0 < weight < math.inf:
            expected = "expected a number above 0 (1: an epoch takes each row once)"
            raise DrKernelError(f"config: sft.data: {source} has the weight {weight}; {expected}")
    return {source: float(weight) for source, weight in given}
