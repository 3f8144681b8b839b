"""What a run is built of, as its config says: tasks, policy, engine."""

from __future__ import annotations

from typing import Any

from drkernel.config import Config
from drkernel.policy import load_engine
from drkernel.policy.engine import Engine
from drkernel.policy.model import Policy
from drkernel.policy.prompts import Prompts
from drkernel.tasks import load_tasks
from drkernel.training.judging import GpuSharingEngine
from drkernel.training.loading import load_policy
from drkernel.training.ranks import Ranks
from drkernel.types import Task


def load_sets(config: Config) -> tuple[list[Task], list[Task]]:
    """Training tasks and held-out ones; a benchmark of its own (`tasks.eval_source`) is held out whole."""
    options, chosen = config.tasks, {"levels": config.tasks.levels, "families": config.tasks.families}
    tasks = load_tasks(options.source, split="train", count=options.count, seed=options.seed, **chosen)
    source = options.eval_source or options.source
    split = "test" if source in (options.source, "generated") else "all"
    held_out = load_tasks(source, split=split, count=options.eval_count, **chosen)
    return tasks, held_out


def engine_options(config: Config) -> dict[str, Any]:
    options = config.engine
    return {
        "name": options.name,
        "slots": options.slots,
        "context": options.max_tokens,
        "kv_cache_gib": options.kv_cache_gib,
        "may_sleep": options.sleep,
        "eager": options.eager,
    }


def make_policy(config: Config, ranks: Ranks) -> Policy:
    """Sharded over the ranks; a single CPU process has it whole, whose results repeat bit for bit."""
    if ranks.size == 1 and ranks.device.type == "cpu":
        return Policy.load(config.policy.path)
    compiled = {"fullgraph": True, "dynamic": True} if config.trainer.compile and ranks.device.type == "cuda" else None
    return load_policy(config.policy.path, ranks, recompute=config.trainer.recompute, compile=compiled)


def make_engine(config: Config, policy: Policy, prompts: Prompts) -> Engine:
    engine = load_engine(policy=policy, stop_ids=prompts.stop_ids, **engine_options(config))
    return GpuSharingEngine(engine, policy.device) if config.judge.share else engine
