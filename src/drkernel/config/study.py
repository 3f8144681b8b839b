"""The configuration of a study. `load_study` turns what Hydra composed into an `EvaluateConfig` in the first line of
evaluate.py."""

from __future__ import annotations

import dataclasses
import re
from dataclasses import dataclass, field

from hydra.core.config_store import ConfigStore
from omegaconf import DictConfig, OmegaConf

from drkernel.config import ranges
from drkernel.config.checks import expect_name, expect_room
from drkernel.config.choices import CHOICES, OF_STUDIES
from drkernel.config.command_line import typed
from drkernel.config.conversion import resolve
from drkernel.config.effects import expect_chosen, expect_effects
from drkernel.config.endpoint import EndpointConfig
from drkernel.config.engine import EngineConfig
from drkernel.config.judge import JudgeConfig, expect_judge
from drkernel.config.keys import MACHINE, SECRET
from drkernel.config.lora import LoraConfig
from drkernel.config.paths import located
from drkernel.config.policy import PolicyConfig
from drkernel.config.registry import options_of
from drkernel.config.reward import RewardConfig
from drkernel.config.scaling import ScalingConfig
from drkernel.config.tasks import TasksConfig
from drkernel.config.trainer import TrainerConfig
from drkernel.objective.rewards import REWARDS
from drkernel.tasks.generators import expect_known
from drkernel.types import DrKernelError

MAY_CHANGE = (
    *("run_dir", "name", "shard", "report", "scaling.trials", *MACHINE),
    *("endpoint.concurrency", "endpoint.requests_per_minute"),
    *("endpoint.url", "endpoint.timeout_s", "endpoint.retries", "endpoint.patience_s"),
)
"""Keys that a resumed study may change: no turn depends on them."""
NOT_IN_NAME = ("name", "shard", "report", "scaling.trials", *MACHINE, SECRET)
"""Those of them that conf/evaluate.yaml leaves out of the study folder's name, and the secret."""
TIMED = ("engine.slots", "endpoint.concurrency", "judge.workers", "trainer.gpus", "trainer.threads")
"""... but for these where `scaling.seconds` is set: what a turn costs depends on how many share the machine."""
UNUSED = {"policy.lr", "tasks.count", "engine.agreement", "engine.sleep", "engine.tensor_parallel", "policy.lora"}
UNUSED |= {"policy.fp32_head", *(f"reward.overlong_{key}" for key in ("penalty", "window", "limit"))}
UNUSED |= {f"policy.lora.{item.name}" for item in dataclasses.fields(LoraConfig)}
UNUSED |= {f"trainer.{item.name}" for item in dataclasses.fields(TrainerConfig)} - {"trainer.gpus", "trainer.threads"}
"""Keys of the groups shared with training that no study depends on. A policy's file may have them."""


@dataclass
class EvaluateConfig:
    """One study. `python evaluate.py` composes it from conf/evaluate.yaml."""

    name: str = "evaluate"
    """First part of the run folder: outputs/<name>/<overrides>."""
    seed: int = 0
    """Seed of all completions, together with task, trial and call: 0 or more."""
    run_dir: str = "outputs/evaluate/default"
    """Where everything of this study goes; stable, so that the same command resumes it."""
    split: str = "test"
    """Which tasks of the source: train | validation | test | all. A source of its own (`tasks.eval_source`) counts as
    test as a whole."""
    ids: list[str] | None = None
    """Only tasks whose id matches one of these patterns, e.g. [kernelbench/level1/1?, '*softmax*']; None: all."""
    shard: str | None = None
    """`i/n` plays every n-th task, beginning with number i. The same command without it collects what the shards
    played, plays what is missing, and reports."""
    label: str | None = None
    """What reports call the model; None: its path or name."""
    solutions: str | None = None
    """A folder or file of solutions made elsewhere; they are judged, and nothing is generated."""
    compare: list[str] | None = None
    """Folders of finished studies; they are compared, and nothing is played."""
    report: bool = True
    """Write the report at the end."""
    tasks: TasksConfig = field(default_factory=TasksConfig)
    policy: PolicyConfig = field(default_factory=PolicyConfig)
    endpoint: EndpointConfig = field(default_factory=EndpointConfig)
    engine: EngineConfig = field(default_factory=EngineConfig)
    judge: JudgeConfig = field(default_factory=JudgeConfig)
    reward: RewardConfig = field(default_factory=RewardConfig)
    """What ranks the turns of a managed prompt, and what `patience` looks at."""
    scaling: ScalingConfig = field(default_factory=ScalingConfig)
    trainer: TrainerConfig = field(default_factory=TrainerConfig)
    """Only `gpus` and `threads` matter here. Each GPU has an engine and an equal part of the tasks."""

    @property
    def generates(self) -> bool:
        """Whether a policy generates here, which needs GPUs beside those of the judge."""
        return not (self.endpoint.url or self.solutions or self.compare)

    @property
    def occupies_gpus(self) -> bool:
        """Whether a policy computes beside the judge."""
        return self.generates


def load_study(composed: DictConfig) -> EvaluateConfig:
    """Type-check what Hydra composed. Raises DrKernelError naming the key, what was found and what was expected."""
    for key, override in typed():
        if key in UNUSED:
            raise DrKernelError(f"config: {override} does nothing in evaluate.py: {key} is for training")
    config = located(resolve(composed, EvaluateConfig, CHOICES | OF_STUDIES, ranges.RANGES | ranges.OF_STUDIES))
    expect_judge(config)
    expect_chosen(
        "reward.name", config.reward.name, {name: options_of(entry) for name, entry in REWARDS.items()}, typed()
    )
    expect_effects(config, typed())
    if config.generates:
        expect_room(config.engine)
    expect_name(config.name)
    expect_known(config.tasks.generator)
    shard(config)
    return config


def shard(config: EvaluateConfig) -> tuple[int, int]:
    """(i, n) of `shard`, (0, 1) without one."""
    found = re.fullmatch(r"(\d+)/(\d+)", config.shard or "0/1")
    if not found or int(found[1]) >= int(found[2]):
        raise DrKernelError(f"config: shard={config.shard!r} must be i/n with i from 0 to n - 1, e.g. 0/8")
    return int(found[1]), int(found[2])


ConfigStore.instance().store("evaluate_schema", EvaluateConfig)
OmegaConf.register_new_resolver("not_in_name", lambda: list(NOT_IN_NAME), replace=True)
