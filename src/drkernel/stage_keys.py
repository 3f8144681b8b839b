"""Which keys a stage reads. One that somebody typed and that the stage would not read is refused, never ignored.

Only what was typed counts (`overrides.typed`): presets, such as `policy=qwen3_8b`, set keys for all stages.
"""

from __future__ import annotations

from collections.abc import Iterable

from drkernel.types import DrKernelError

_FOR_RL = "a run with stage=rl"
_OF_SFT = "sft.lr, sft.lr_warmup or sft.lr_end"
UNREAD = {
    "rl": {"sft": "stage=sft", "coldstart": "stage=coldstart"},
    "sft": {
        "coldstart": "stage=coldstart",
        "policy.lr": "sft.lr",
        "trainer.steps": "sft.epochs or sft.max_steps",
        "trainer.save_every": "sft.save_every",
        **dict.fromkeys(("trainer.prompts", "trainer.samples", "group"), "sft.batch_size or sft.batch_tokens"),
        **{f"trainer.{key}": _OF_SFT for key in ("lr_schedule", "lr_warmup", "lr_steps", "lr_end")},
        **{f"reward.overlong_{key}": _FOR_RL for key in ("penalty", "window", "limit")},
        **dict.fromkeys(("trainer.layout", "trainer.overlap", "algo", "filters", "arm"), _FOR_RL),
    },
}
"""By stage: a group or key that it does not read, and what to set instead."""
COLDSTART_READS = (
    *("name", "stage", "seed", "run_dir", "plan", "sweep", "logger", "coldstart", "judge", "reward.hack_check"),
    *("tasks.dtypes", "tasks.generator", "trainer.turns", "trainer.micro_batch_tokens", "trainer.threads"),
)
"""`stage=coldstart` makes a policy of its own and reads these alone."""
COLDSTART_INSTEAD = {
    "sft": "stage=sft",
    "policy.lr": "coldstart.lr",
    "policy": "coldstart.vocabulary, hidden and layers, which say what policy is made",
    "tasks": "tasks.dtypes, tasks.generator or coldstart.tasks",
    "engine.max_tokens": "coldstart.positions",
    "trainer.steps": "coldstart.epochs",
    **{f"trainer.{key}": "coldstart.lr" for key in ("lr_schedule", "lr_warmup", "lr_steps", "lr_end")},
}


def expect_read(stage: str, overrides: Iterable[tuple[str, str]]) -> None:
    """Raises DrKernelError for the first of (key, override as typed) that the stage does not read.

    >>> expect_read("sft", [("policy.lr", "policy.lr=1")])
    Traceback (most recent call last):
    drkernel.types.DrKernelError: config: policy.lr=1 does nothing with stage=sft; expected sft.lr
    """
    for key, override in overrides:
        if stage == "coldstart":
            unread = not _find(key, COLDSTART_READS)
            found = _find(key, COLDSTART_INSTEAD)
            instead = COLDSTART_INSTEAD[found] if found else f"{_FOR_RL} or sft, or no such setting"
        else:
            unread = bool(found := _find(key, UNREAD[stage]))
            instead = UNREAD[stage].get(found, "")
        if unread:
            raise DrKernelError(f"config: {override} does nothing with stage={stage}; expected {instead}")


def _find(key: str, entries: Iterable[str]) -> str:
    """The longest entry that is the key or a group that it is in, or nothing."""
    return max((entry for entry in entries if f"{key}.".startswith(f"{entry}.")), key=len, default="")
