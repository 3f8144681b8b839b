"""Which keys a stage reads. One that somebody typed and that the stage would not read is refused, never ignored.

Only what was typed counts (`overrides.typed`): presets, such as `policy=qwen3_8b`, set keys for all stages.
"""

from __future__ import annotations

from collections.abc import Iterable

from drkernel.types import DrKernelError

_FOR_RL = "a run with stage=rl"
_OF_SFT = "sft.lr, sft.lr_warmup or sft.lr_end"
_SUPERVISED = {
    "policy.lr": "sft.lr",
    "trainer.steps": "sft.epochs or sft.max_steps",
    "trainer.save_every": "sft.save_every",
    **dict.fromkeys(("trainer.prompts", "trainer.samples", "group"), "sft.batch_size or sft.batch_tokens"),
    **{f"trainer.{key}": _OF_SFT for key in ("lr_schedule", "lr_warmup", "lr_steps", "lr_end")},
    **{f"reward.overlong_{key}": _FOR_RL for key in ("penalty", "window", "limit")},
    **dict.fromkeys(("trainer.layout", "trainer.overlap", "algo", "filters", "arm"), _FOR_RL),
}
UNREAD = {
    "rl": {"sft": "stage=sft", "coldstart": "coldstart=seed or coldstart=seed_large"},
    "sft": {"coldstart": "coldstart=seed or coldstart=seed_large", **_SUPERVISED},
    "coldstart": {
        "policy.path": "coldstart.hidden, layers and kv_heads, which say what policy is made",
        **dict.fromkeys(("policy.template", "policy.thinking"), "stage=sft of a policy with policy.prompts=chat"),
        **_SUPERVISED,
    },
}
"""By stage: a group or key that it does not read, and what to set instead."""


def expect_read(stage: str, overrides: Iterable[tuple[str, str]]) -> None:
    """Raises DrKernelError for the first of (key, override as typed) that the stage does not read.

    >>> expect_read("sft", [("policy.lr", "policy.lr=1")])
    Traceback (most recent call last):
    drkernel.types.DrKernelError: config: policy.lr=1 does nothing with stage=sft; expected sft.lr
    """
    for key, override in overrides:
        if found := _find(key, UNREAD[stage]):
            expected = UNREAD[stage][found]
            raise DrKernelError(f"config: {override} does nothing with stage={stage}; expected {expected}")


def is_read(stage: str, key: str) -> bool:
    """Whether a stage reads a key.

    >>> is_read("rl", "sft.lr"), is_read("sft", "sft.lr")
    (False, True)
    """
    return not _find(key, UNREAD[stage])


def _find(key: str, entries: Iterable[str]) -> str:
    """The longest entry that is the key or a group that it is in, or nothing."""
    return max((entry for entry in entries if f"{key}.".startswith(f"{entry}.")), key=len, default="")
