"""Which keys a run or a study reads. One that somebody typed and that its stage, the reward or estimator that it chose,
or its other settings leave without effect is refused, never ignored.

Only what was typed counts (`command_line.typed`): presets, such as `policy=qwen3_8b`, set keys for all stages.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from operator import attrgetter
from typing import Any

from drkernel.config.judge import OF_SERVERS, JudgeConfig
from drkernel.config.lora import LoraConfig
from drkernel.config.reward import RewardConfig
from drkernel.config.scaling import ScalingConfig
from drkernel.config.tasks import TasksConfig
from drkernel.types import DrKernelError

_FOR_RL = "a run with stage=rl"
_OF_SFT = "sft.lr, sft.lr_warmup_share or sft.lr_end"
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
    "rl": {"sft": "stage=sft", "coldstart": "coldstart=seed_3m, seed_8m or seed_large"},
    "sft": {"coldstart": "coldstart=seed_3m, seed_8m or seed_large", **_SUPERVISED},
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


@dataclass(frozen=True)
class Unused:
    """Keys that some settings leave without effect."""

    keys: tuple[str, ...]
    """A group's name stands for what `group=variant` sets, and not for its keys."""
    here: Callable[[Any], bool]
    """Whether a configuration, of a run or a study, has such settings."""
    where: str
    """The key that decides."""
    expected: str
    """What to set instead."""


_LORA = tuple(f"policy.lora.{item.name}" for item in dataclasses.fields(LoraConfig) if item.name != "rank")
_CLIPS = ("algo.clip_low", "algo.clip_high", "algo.dual_clip", "algo.ratio_level")
_SCALED = ("sequence_mean_token_sum", "token_sum_over_constant")
_OVERLONG = ("reward.overlong_window", "reward.overlong_limit")
_SCHEDULE = "trainer.lr_schedule=linear or cosine"
_OF_ENDPOINTS = tuple(
    f"endpoint.{key}"
    for key in (
        *("model", "key_variable", "concurrency", "requests_per_minute", "timeout_s", "retries", "patience_s"),
        *("max_answer_tokens", "feedback_tokens", "prompt_price", "answer_price"),
    )
)
_OF_POLICIES = ("policy.path", "policy.prompts", "policy.thinking", "engine.name")
_OF_SLOTS = ("engine.slots", "engine.kv_cache_gib", "engine.eager")
_OF_LENGTHS = ("engine.max_answer_tokens", "engine.max_tokens")
_SPENT = tuple(f"scaling.{key}" for key in ("budget", "tokens", "seconds", "stop_at", "patience"))
_SHOWN = tuple(f"scaling.{key}" for key in ("window", "keep", "by"))


_PLAYS = "trainer.validate_every=100, which plays tasks, or stage=rl"
_POLICY_MADE = "policy.prompts, and coldstart.hidden, layers and kv_heads, which say what policy is made"


def _group(name: str, kind: type, *but: str) -> tuple[str, ...]:
    """A group and its keys, but for some."""
    return (name, *(f"{name}.{item.name}" for item in dataclasses.fields(kind) if item.name not in but))


def _plays_nothing(*stages: str) -> Callable[[Any], bool]:
    """Whether a run has one of these stages and plays no tasks to validate; a study has no stage."""
    return lambda c: getattr(c, "stage", "rl") in stages and not c.generates


def _is_hosted(config: Any) -> bool:
    """Whether a study's model is behind an endpoint; a run has none."""
    return hasattr(config, "endpoint") and bool(config.endpoint.url)


UNUSED_WHERE = (
    Unused(("policy",), lambda c: getattr(c, "stage", "rl") == "coldstart", "stage", _POLICY_MADE),
    # The judge of a cold start reads reward.hack_check, and the set is drawn by tasks.generator in tasks.dtypes.
    Unused(
        _group("reward", RewardConfig, "hack_check"),
        _plays_nothing("sft", "coldstart"),
        "trainer.validate_every",
        _PLAYS,
    ),
    Unused(
        _group("tasks", TasksConfig, "generator", "dtypes"),
        _plays_nothing("sft", "coldstart"),
        "trainer.validate_every",
        _PLAYS,
    ),
    Unused(
        (*_group("judge", JudgeConfig, "feedback_tokens"), "reward.hack_check", "tasks.generator", "tasks.dtypes"),
        _plays_nothing("sft"),
        "trainer.validate_every",
        _PLAYS,
    ),
    Unused(
        ("trainer.turns", "trainer.eval_samples", "trainer.eval_turns"),
        _plays_nothing("sft", "coldstart"),
        "trainer.validate_every",
        _PLAYS,
    ),
    Unused(
        ("sft.batch_size",),
        lambda c: c.sft.batch_tokens is not None,
        "sft.batch_tokens",
        "sft.batch_tokens, or sft.batch_tokens=null",
    ),
    Unused(("sft.loss_every",), lambda c: not c.sft.held_out, "sft.held_out", "sft.held_out above 0"),
    Unused(_CLIPS, lambda c: c.algo.updates == 1, "algo.updates", "algo.updates of 2 or more"),
    Unused(("algo.loss_scale",), lambda c: c.algo.aggregation not in _SCALED, "algo.aggregation", " or ".join(_SCALED)),
    Unused(
        ("algo.importance_level",),
        lambda c: c.algo.importance_cap is None,
        "algo.importance_cap",
        "a cap: algo.importance_cap=2",
    ),
    Unused(_OVERLONG, lambda c: not c.reward.overlong_penalty, "reward.overlong_penalty", "reward.overlong_penalty=1"),
    Unused(
        ("judge.across_shapes",),
        lambda c: c.judge.timed_shapes == 1,
        "judge.timed_shapes",
        "judge.timed_shapes of 2 or more",
    ),
    Unused(
        tuple(f"judge.{key}" for key in OF_SERVERS),
        lambda c: c.judge.servers is not None,
        "judge.servers",
        "an option of `drkernel-judge --serve`, or no judge.servers",
    ),
    Unused(
        ("judge.token_file",), lambda c: c.judge.servers is None, "judge.servers", "judge.servers=[http://HOST:PORT]"
    ),
    Unused(("judge.gpu",), lambda c: c.judge.device == "cuda", "judge.device", "judge.device=simulated"),
    Unused(
        ("engine.kv_cache_gib",),
        lambda c: c.engine.name in ("graphs", "transformers"),
        "engine.name",
        "engine.name=vllm",
    ),
    Unused(("engine.agreement",), lambda c: c.engine.name == "transformers", "engine.name", "vllm or graphs"),
    Unused(("trainer.lr_end",), lambda c: c.trainer.lr_schedule == "constant", "trainer.lr_schedule", _SCHEDULE),
    Unused(
        ("trainer.best_by", "trainer.validate_first"),
        lambda c: not c.trainer.validate_every,
        "trainer.validate_every",
        "trainer.validate_every=10",
    ),
    Unused(_LORA, lambda c: not c.policy.lora.rank, "policy.lora.rank", "policy.lora.rank=32"),
    Unused(
        ("logger.samples",),
        lambda c: c.logger.wandb == "disabled",
        "logger.wandb",
        "logger=wandb or logger=offline",
    ),
    Unused(_OF_ENDPOINTS, lambda c: not c.endpoint.url, "endpoint.url", "endpoint.url=http://HOST:PORT/v1"),
    Unused(_OF_POLICIES, _is_hosted, "endpoint.url", "endpoint.model, or no endpoint.url"),
    Unused(_OF_SLOTS, _is_hosted, "endpoint.url", "endpoint.concurrency, or no endpoint.url"),
    Unused(_OF_LENGTHS, _is_hosted, "endpoint.url", "endpoint.max_answer_tokens, or no endpoint.url"),
    Unused(("judge.feedback_tokens",), _is_hosted, "endpoint.url", "endpoint.feedback_tokens"),
    Unused(
        (*_group("scaling", ScalingConfig), *_OF_POLICIES, *_OF_SLOTS, *_OF_LENGTHS),
        lambda c: bool(getattr(c, "solutions", None)),
        "solutions",
        "no solutions, which are judged as they are",
    ),
    Unused(
        _SPENT, lambda c: c.scaling.name == "single", "scaling.name", "scaling.trials, or scaling=parallel or another"
    ),
    Unused(("scaling.chains",), lambda c: c.scaling.name != "mixture", "scaling.name", "scaling=mixture"),
    Unused(_SHOWN, lambda c: c.scaling.name != "managed", "scaling.name", "scaling=managed"),
    Unused(("scaling.by",), lambda c: c.scaling.keep == "last", "scaling.keep", "scaling.keep=top or window"),
)
"""For runs and studies: a condition is asked only where one of its keys was typed, which only a program with that key
lets somebody do. What evaluate.py reads of no configuration is in `study.UNUSED`."""


def expect_effects(config: Any, overrides: Iterable[tuple[str, str]]) -> None:
    """Raises DrKernelError for the first of (key, override as typed) that other settings leave without effect.

    >>> from types import SimpleNamespace
    >>> config = SimpleNamespace(judge=SimpleNamespace(timed_shapes=1))
    >>> expect_effects(config, [("judge.across_shapes", "judge.across_shapes=worst")])
    Traceback (most recent call last):
    drkernel.types.DrKernelError: config: judge.across_shapes=worst does nothing with judge.timed_shapes=1; expected \
judge.timed_shapes of 2 or more
    """
    for key, override in overrides:
        for rule in UNUSED_WHERE:
            if key in rule.keys and rule.here(config):
                value = attrgetter(rule.where)(config)
                found = f"{rule.where}={'null' if value is None else value}"
                raise DrKernelError(f"config: {override} does nothing with {found}; expected {rule.expected}")


def is_read(stage: str, key: str) -> bool:
    """Whether a stage reads a key.

    >>> is_read("rl", "sft.lr"), is_read("sft", "sft.lr")
    (False, True)
    """
    return not _find(key, UNREAD[stage])


def _find(key: str, entries: Iterable[str]) -> str:
    """The longest entry that is the key or a group that it is in, or nothing."""
    return max((entry for entry in entries if f"{key}.".startswith(f"{entry}.")), key=len, default="")
