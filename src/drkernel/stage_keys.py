"""Which keys a run reads. One that somebody typed and that its stage, or the reward or estimator that it chose, would
not read is refused, never ignored.

Only what was typed counts (`overrides.typed`): presets, such as `policy=qwen3_8b`, set keys for all stages.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping

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


def expect_chosen(
    key: str, chosen: str, options: Mapping[str, Collection[str]], overrides: Iterable[tuple[str, str]]
) -> None:
    """Raises DrKernelError for the first typed option of other entries of a registry that the chosen one has not.

    key: the one that names the entry; options of entries, by name, are keys of the same group.

    >>> expect_chosen("reward.name", "binary", {"binary": [], "capped": ["cap"]}, [("reward.cap", "reward.cap=2")])
    Traceback (most recent call last):
    drkernel.types.DrKernelError: config: reward.cap=2 does nothing with reward.name=binary; expected capped
    """
    group = key.partition(".")[0]
    for typed, override in overrides:
        owners = [name for name, own in options.items() if typed in {f"{group}.{option}" for option in own}]
        if owners and chosen not in owners:
            expected = ", ".join(owners)
            raise DrKernelError(f"config: {override} does nothing with {key}={chosen}; expected {expected}")


def expect_idle(idle: str, overrides: Iterable[tuple[str, str]], where: str, expected: str) -> None:
    """Raises DrKernelError where somebody typed a key that other settings leave without effect.

    >>> expect_idle("a.level", [("a.level", "a.level=turn")], "without a.cap", "a.cap=2")
    Traceback (most recent call last):
    drkernel.types.DrKernelError: config: a.level=turn does nothing without a.cap; expected a.cap=2
    """
    for key, override in overrides:
        if key == idle:
            raise DrKernelError(f"config: {override} does nothing {where}; expected {expected}")


def is_read(stage: str, key: str) -> bool:
    """Whether a stage reads a key.

    >>> is_read("rl", "sft.lr"), is_read("sft", "sft.lr")
    (False, True)
    """
    return not _find(key, UNREAD[stage])


def _find(key: str, entries: Iterable[str]) -> str:
    """The longest entry that is the key or a group that it is in, or nothing."""
    return max((entry for entry in entries if f"{key}.".startswith(f"{entry}.")), key=len, default="")
