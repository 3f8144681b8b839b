"""What a run is built of, as its config says: tasks, policy, engine."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

import torch

from drkernel.config import Config, Judged
from drkernel.config.tasks import TasksConfig
from drkernel.judge.options import longest_s
from drkernel.objective.rollouts import ignoring_hack_check
from drkernel.policy import load_engine
from drkernel.policy.engine import Engine, Sampling
from drkernel.policy.lora import add_adapters, without_adapters
from drkernel.policy.model import Policy, load_tokenizer, stop_tokens
from drkernel.policy.prompts import Prompts, load_prompts
from drkernel.policy.tokenizer import MADE_FOR
from drkernel.policy.transfer import export, export_adapters, export_dtype
from drkernel.rollout import EpisodeConfig
from drkernel.tasks import load_tasks, test_source
from drkernel.tasks.backward import backward_passes
from drkernel.training import offload, plan, update
from drkernel.training.group_engine import GroupEngine, ranks_of_group
from drkernel.training.judging import GpuSharingEngine
from drkernel.training.loading import load_policy, set_adapters
from drkernel.training.ranks import SINGLE, Ranks
from drkernel.training.sharding import prepare_blocks
from drkernel.types import Task

LOGITS = 2**27
"""How many logits such a policy computes at a time."""


def load_sets(config: Config) -> tuple[list[Task], list[Task]]:
    """Training tasks and held-out ones; a benchmark of its own (`tasks.eval_source`) is held out whole."""
    options = config.tasks
    source, split = test_source(options.source, options.eval_source)
    tasks = draw_tasks(options, options.source, "train", options.count)
    held_out = draw_tasks(options, source, split, options.eval_count)
    return _as_asked(config, tasks), _as_asked(config, held_out)


def load_validation(config: Config) -> list[Task]:
    """Tasks of the validation split of the training source, where `trainer.validate_every` asks for them."""
    options = config.tasks
    if not config.trainer.validate_every:
        return []
    tasks = draw_tasks(options, options.source, "validation", options.eval_count)
    return _as_asked(config, tasks)


def _as_asked(config: Config, tasks: list[Task]) -> list[Task]:
    """The tasks, or their backward passes; the first rank says which have none."""
    tell = print if os.environ.get("RANK", "0") == "0" else str
    return backward_passes(tasks, tell) if config.tasks.backward else tasks


def draw_tasks(
    options: TasksConfig, source: str, split: str, count: int | None, on_skip: Callable[[str], None] | None = None
) -> list[Task]:
    """Tasks of a split of the training source or of that of the test tasks, the same in train.py and evaluate.py. Where
    test tasks come from elsewhere, the dtypes of training matter only if the generator draws them. `on_skip` is that of
    `load_tasks`."""
    names = ("seed", "levels", "families", "generator", "precision")
    chosen = {name: getattr(options, name) for name in names}
    if source in (options.source, "generated"):
        chosen["dtypes"] = options.dtypes
    return load_tasks(source, split=split, count=count, on_skip=on_skip, **chosen)


def engine_options(config: Judged) -> dict[str, Any]:
    """The arguments of `drkernel.policy.load_engine`."""
    options = config.engine
    return {
        "name": options.name,
        "slots": options.slots,
        "context": options.max_tokens,
        "kv_cache_gib": options.kv_cache_gib,
        "may_sleep": options.sleep,
        "eager": options.eager,
    }


def sampling_of(config: Judged) -> Sampling:
    """How a run or a study draws tokens."""
    options = config.engine
    return Sampling(options.temperature, options.top_p, options.top_k, options.min_p)


def episode_config(config: Config, turns: int) -> EpisodeConfig:
    """What the config says about an episode of at most `turns` turns."""
    return EpisodeConfig(
        turns=turns,
        max_tokens=config.engine.max_answer_tokens,
        feedback_limit=config.judge.feedback_tokens,
        sampling=sampling_of(config),
        feedback_view=(lambda verdict: verdict) if config.reward.hack_check else ignoring_hack_check,
        deadline_s=2 * longest_s(config.judge.timeout_s) + 300,  # the judge gives up before that
    )


def make_policy(config: Config, ranks: Ranks) -> Policy:
    """The policy, sharded over the ranks. A single CPU process has it whole, so that its results repeat bit for bit;
    each GPU has a small one whole (`plan.is_whole`), for which sharding would cost more than its arithmetic."""
    policy = _load(config, ranks)
    policy.fp32_head, policy.bfloat16_on_cpu = config.policy.fp32_head, config.trainer.bfloat16
    return policy


def _load(config: Config, ranks: Ranks) -> Policy:
    path, lora = config.policy.path, config.policy.lora if config.policy.lora.rank else None
    if ranks.size == 1 and ranks.device.type == "cpu":
        policy = Policy.load(path)
        return set_adapters(add_adapters(policy, lora), path, config.seed, ranks) if lora else policy
    compiled = {"fullgraph": True, "dynamic": True} if config.trainer.compile and ranks.device.type == "cuda" else None
    options: dict[str, Any] = {"activation_checkpointing": config.trainer.recompute, "compile": compiled}
    if config.trainer.bfloat16 and ranks.device.type == "cpu":
        options["dtype"] = torch.bfloat16
    shape = ranks.broadcast_object(lambda: plan.shape_of(path)) if ranks.device.type == "cuda" else None
    if shape and plan.is_whole(config, shape):
        policy = Policy.load(path, device=str(ranks.device))
        policy.chunk = max(policy.chunk, LOGITS // shape.vocabulary)
        prepare_blocks(policy, **options)
        return policy
    return load_policy(path, ranks, lora=lora, lora_seed=config.seed, **options)


def make_reference(config: Config, policy: Policy, ranks: Ranks) -> Policy | None:
    """The policy that a run began with, where `algo.kl_coef` asks for it: a second one, or the adapters' base, to be
    scored `without_adapters`. Collective."""
    if not config.algo.kl_coef:
        return None
    return policy if policy.lora else make_policy(config, ranks)


def make_prompts(config: Judged, taught: bool = False) -> Prompts:
    """The prompts that the config chooses, with the stop tokens of the policy's generation_config.json. `taught`: the
    policy is to learn them, whatever it was made for."""
    options = config.policy
    tokenizer, stops = load_tokenizer(options.path), stop_tokens(options.path)
    if taught:
        tokenizer.init_kwargs[MADE_FOR] = options.prompts
    return load_prompts(options.prompts, tokenizer, options.template, options.thinking, stops)


def make_optimizer(config: Config, policy: Policy) -> torch.optim.Optimizer:
    """Reinforcement learning's: AdamW, its state where `trainer.offload` says."""
    made = update.make_optimizer(policy, config.policy.lr, config.trainer.weight_decay)
    return offload.placed(made, config.trainer.offload)


def sync_first_policy(config: Config, policy: Policy, engine: Engine, ranks: Ranks) -> None:
    """Give the engine the policy that a run began with: the adapters' base, or what is loaded again. Collective."""
    if not policy.lora:
        return engine.sync(make_policy(config, ranks))
    with without_adapters(policy):
        engine.sync(policy)


def export_policy(config: Config, policy: Policy, prompts: Prompts, ranks: Ranks) -> None:
    """Write policy/ of the run folder in Hugging Face's format, and of adapters adapter/ in peft's. Collective."""
    folder, lora = Path(config.run_dir), policy.lora
    if lora:
        export_adapters(policy, folder / "adapter")
    if not lora or lora.export_merged:
        export(policy, folder / "policy", prompts.tokenizer, export_dtype(ranks.device))


def make_engine(config: Judged, policy: Policy, prompts: Prompts, ranks: Ranks = SINGLE) -> Engine:
    """This rank's engine, or its part of the one that a group of ranks has together. Collective."""
    group = config.engine.tensor_parallel if ranks.size > 1 else 1
    engine = load_engine(policy=policy, stop_ids=prompts.stop_ids, tensor_parallel=group, **engine_options(config))
    engine = GpuSharingEngine(engine, policy.device) if config.judge.share else engine
    return engine if group == 1 else cast(Engine, GroupEngine(engine, ranks_of_group(ranks, group)))
