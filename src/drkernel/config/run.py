"""The configuration of a run. `load_run` turns what Hydra composed into a `Config` in the first line of train.py."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from typing import Any

from hydra.core.config_store import ConfigStore
from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException

from drkernel.config.algo import AlgoConfig
from drkernel.config.checks import (
    expect_a_correction,
    expect_a_gradient,
    expect_a_penalty,
    expect_a_schedule,
    expect_name,
    expect_room,
    expect_trajectories,
    expect_whole_distribution,
)
from drkernel.config.choices import CHOICES
from drkernel.config.coldstart import ColdstartConfig
from drkernel.config.command_line import typed
from drkernel.config.conversion import resolve, schema
from drkernel.config.effects import expect_chosen, expect_effects, expect_read
from drkernel.config.engine import EngineConfig
from drkernel.config.filters import FiltersConfig
from drkernel.config.judge import JudgeConfig, expect_judge
from drkernel.config.logger import LoggerConfig
from drkernel.config.paths import located
from drkernel.config.policy import PolicyConfig
from drkernel.config.ranges import RANGES
from drkernel.config.registry import options_of
from drkernel.config.reward import RewardConfig
from drkernel.config.sft import SftConfig
from drkernel.config.tasks import TasksConfig
from drkernel.config.trainer import TrainerConfig
from drkernel.objective.advantages import ADVANTAGES
from drkernel.objective.rewards import REWARDS
from drkernel.tasks.generators import expect_known


@dataclass
class Config:
    """One run. `python train.py` composes it from conf/train.yaml."""

    name: str = "train"
    """First part of the run folder: outputs/<name>/<overrides>."""
    stage: str = "rl"
    """`rl`; before it `sft`, on trajectories, or `coldstart`, which makes a
    policy from nothing (conf/coldstart/)."""
    seed: int = 0
    """Seed of tasks drawn, rollouts and filters: 0 or more."""
    run_dir: str = "outputs/train/default"
    """Where everything of this run goes; stable, so that the same command resumes it."""
    plan: bool = False
    """Print what the run would take of each GPU's memory (training/plan.py), and an estimate of a step's seconds
    (training/step_time.py), and do nothing else."""
    tasks: TasksConfig = field(default_factory=TasksConfig)
    policy: PolicyConfig = field(default_factory=PolicyConfig)
    engine: EngineConfig = field(default_factory=EngineConfig)
    judge: JudgeConfig = field(default_factory=JudgeConfig)
    algo: AlgoConfig = field(default_factory=AlgoConfig)
    reward: RewardConfig = field(default_factory=RewardConfig)
    filters: FiltersConfig = field(default_factory=FiltersConfig)
    trainer: TrainerConfig = field(default_factory=TrainerConfig)
    coldstart: ColdstartConfig = field(default_factory=ColdstartConfig)
    sft: SftConfig = field(default_factory=SftConfig)
    logger: LoggerConfig = field(default_factory=LoggerConfig)

    @property
    def generates(self) -> bool:
        """Whether a policy generates here and a judge judges, each on GPUs of its own."""
        return self.stage == "rl" or self.trainer.validate_every > 0

    @property
    def occupies_gpus(self) -> bool:
        """Whether a policy trains or generates, now or after the judge, so that a judge takes the last GPU alone."""
        return True


def load_run(composed: DictConfig) -> Config:
    """Type-check what Hydra composed. Raises DrKernelError naming the key, what was found and what was expected."""
    config = located(resolve(composed, Config, CHOICES, RANGES))
    expect_read(config.stage, typed())
    expect_name(config.name)
    expect_known(config.tasks.generator)
    expect_a_gradient(config)
    if config.generates:
        expect_room(config.engine)
    expect_a_correction(config)
    expect_whole_distribution(config)
    expect_a_penalty(config)
    expect_judge(config)
    expect_chosen("reward.name", config.reward.name, _options(REWARDS), typed())
    expect_chosen("algo.advantage", config.algo.advantage, _options(ADVANTAGES), typed())
    expect_a_schedule(config.trainer)
    expect_trajectories(config)
    expect_effects(config, typed())
    return config


def _options(registry: Mapping[str, Callable]) -> dict[str, Collection[str]]:
    return {name: options_of(entry) for name, entry in registry.items()}


def with_defaults(tree: dict[str, Any]) -> dict[str, Any]:
    """What `to_yaml` wrote, perhaps by an older version, with the defaults of the keys that came later."""
    try:
        return OmegaConf.to_container(OmegaConf.merge(schema(Config), tree))  # type: ignore[return-value]
    except OmegaConfBaseException:  # it has keys that are gone, and is compared as it is
        return tree


ConfigStore.instance().store("schema", Config)
