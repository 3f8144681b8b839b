"""The first lines of a run: where it is kept, what it takes, who judges, and on what it trains."""

from __future__ import annotations

from collections.abc import Sequence

from drkernel.config import Config
from drkernel.config.command_line import typed
from drkernel.tasks.precision import summary
from drkernel.training.judging import described
from drkernel.training.trainer import folder_line
from drkernel.types import Task

PAPERS_LR = 1e-6
"""The paper's learning rate, that of the presets of Qwen3."""
ADAPTERS_LR = 1e-5
"""That of the preset with adapters (policy.lora)."""


def lines(
    config: Config, warning: str, tasks: Sequence[Task], validating: Sequence[Task], held_out: Sequence[Task]
) -> list[str]:
    """What a run says before its first step. warning: what the plan of its memory says, if anything."""
    numbers = [f"{len(tasks)} train"]
    numbers += [f"{len(validating)} validate"] if config.trainer.validate_every else []
    counted = f"tasks: {', '.join(numbers)}, {len(held_out)} test"
    precision = f"precision of training tasks: {summary(tasks)}"
    said = (folder_line(config), warning, large_lr(config), described(config), counted, precision)
    return [line for line in said if line]


def usual_lr(config: Config) -> float:
    """The learning rate of reinforcement learning that presets of chat models have."""
    return ADAPTERS_LR if config.policy.lora.rank else PAPERS_LR


def large_lr(config: Config) -> str:
    """A warning where a chat model would train at the learning rate of the seed policy, which nobody asked for."""
    rate, usual = config.policy.lr, usual_lr(config)
    if config.policy.prompts != "chat" or rate <= 10 * usual or "policy.lr" in dict(typed()):
        return ""
    found = f"policy.lr={rate:g} is the default of policy=seed, {rate / usual:.0f} times the paper's"
    return f"warning: {found}; expected policy.lr={usual:g} for {config.policy.path}, or policy.lr={rate:g} typed"
