"""The configuration: one dataclass per config group of conf/, a docstring under every field (those of `policy` and
`engine`, `judge`, `trainer`, `sft` are in policy_config.py, judge_config.py, trainer_config.py and sft_config.py).

Hydra composes against these dataclasses (the `schema` entry of conf/train.yaml). `load` turns what it composed into a
`Config` in the first line of an entry point; nobody downstream sees OmegaConf. An unknown key, type or variant raises
`DrKernelError` with the nearest valid name.

Rewards, filters and advantage estimators declare their options themselves (`drkernel.registry`). Those keys and their
defaults are the keyword-only parameters of the functions in objective/, whose docstrings explain them. Where a key has
one of a few values, the values come from a registry too (`CHOICES`).
"""

from __future__ import annotations

import dataclasses
import hashlib
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Optional, Protocol, TypeVar

from hydra.core.config_store import ConfigStore
from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException

from drkernel.judge.options import WORDS, JudgeOptions, choose_device, choose_workers
from drkernel.judge_config import JudgeConfig
from drkernel.objective.advantages import ADVANTAGES
from drkernel.objective.filters import COMPARED_TURNS, GROUP_FILTERS, PRS_MODES, TOKEN_FILTERS, TURN_FILTERS
from drkernel.objective.loss import AGGREGATIONS, RATIO_LEVELS
from drkernel.objective.metrics import THRESHOLDS
from drkernel.objective.mismatch import LEVELS
from drkernel.objective.rewards import REWARDS
from drkernel.overrides import (
    expect_a_correction,
    expect_a_gradient,
    expect_a_penalty,
    expect_a_schedule,
    expect_name,
    expect_room,
    resolve,
    schema,
    typed,
)
from drkernel.policy_config import ENGINES, PROMPTS, THINKING, EngineConfig, PolicyConfig
from drkernel.ranges import RANGES
from drkernel.registry import options_class, options_of, with_options_of
from drkernel.sft_config import LOSS_ON, MESSAGES, OPTIMIZERS, TOO_LONG, ColdstartConfig, SftConfig, expect_trajectories
from drkernel.stage_keys import expect_chosen, expect_effects, expect_read
from drkernel.tasks.generator import VERSION
from drkernel.trainer_config import TrainerConfig
from drkernel.types import PRECISIONS

C = TypeVar("C")
REPOSITORY = Path(__file__).resolve().parents[2]
SCHEDULES = ("constant", "linear", "cosine")
"""How the learning rate goes on after its warm-up."""
BEST_BY = ("reward", "correct", *(f"fast@{threshold:g}" for threshold in THRESHOLDS))
"""The measures of a validation, each of the last turn, by which a checkpoint may be the best."""
CHOICES: dict[str, Collection[str]] = {
    "stage": ("rl", "sft", "coldstart"),
    "algo.advantage": tuple(ADVANTAGES),
    "algo.aggregation": tuple(AGGREGATIONS),
    "algo.importance_level": tuple(LEVELS),
    "algo.ratio_level": RATIO_LEVELS,
    "reward.name": tuple(REWARDS),
    "tasks.precision": PRECISIONS,
    "policy.prompts": PROMPTS,
    "policy.thinking": THINKING,
    "engine.name": ENGINES,
    **{f"judge.{key}": words for key, words in WORDS.items()},
    "logger.wandb": ("disabled", "offline", "online"),
    "filters.mrs.level": tuple(LEVELS),
    "filters.prs.mode": PRS_MODES,
    "filters.zero_variance.turns": COMPARED_TURNS,
    "trainer.offload": ("none", "optimizer"),
    "trainer.layout": ("trajectory", "turn"),
    "trainer.lr_schedule": SCHEDULES,
    "trainer.best_by": BEST_BY,
    "sft.messages": MESSAGES,
    "sft.loss_on": LOSS_ON,
    "sft.optimizer": OPTIMIZERS,
    "sft.too_long": TOO_LONG,
}
"""The fields that take one of a few words."""


@dataclass
class TasksConfig:
    """What is to be solved (conf/tasks/)."""

    source: str = "generated"
    """`generated`, `handwritten`, one half of it (`handwritten:development`, `handwritten:final`), `written`, a
    folder (.py files, KernelBench), a .jsonl, .parquet or .py file, or `hub:<id>`."""
    count: int | None = None
    """How many training tasks to take; None takes all (a generator must be told)."""
    seed: int = 0
    """Which tasks the generator draws; the split of a composition never depends on it."""
    generator: int = VERSION
    """Version of the generator: 1 composes operators, 2 draws graphs of them, among them small networks, 3 writes
    programs statement by statement, 4 does so with more kinds of statements, 5 and later vary written tasks. The tasks
    of version 1 and a seed never change. Those of later versions change with the code: name the commit, too."""
    levels: list[int] | None = None
    """KernelBench levels to keep; None keeps all."""
    families: list[str] | None = None
    """Operator families to keep; None keeps all."""
    dtypes: list[str] = field(default_factory=lambda: ["float32"])
    """The generator's: float32, float16, bfloat16, in equal shares; one that is named twice has two shares."""
    precision: str = "auto"
    """What arithmetic right submissions may use: ieee, tf32 or low (docs/policies.md); auto: by the task's dtypes."""
    eval_source: str | None = None
    """Where the test tasks come from; None: the test split of `source`, or the set published beside it."""
    eval_count: int = 48
    """How many test tasks the before/after table covers."""


@dataclass
@with_options_of(ADVANTAGES.values())
class AlgoConfig:
    """How returns become gradients (conf/algo/). The estimators in objective/advantages.py add their own options: `std`
    (GRPO only: divide by the standard deviation of the group)."""

    advantage: str = "trloo"
    """Which estimator: a name of objective/advantages.py."""
    gamma: float = 1.0
    """Discount over turns."""
    updates: int = 1
    """Optimizer steps per rollout. With one, as in the paper, the probability ratio is 1 and clipping cannot act."""
    ratio_level: str = "token"
    """What the clipped ratio is of: a `token`, or the geometric mean over a turn (`turn_geometric`, GSPO) or over a
    trajectory (`geometric`). Means vary far less than tokens, and want narrower clips (conf/algo/gspo.yaml)."""
    clip_low: float = 0.2
    """Lower clip of the probability ratio: 1 - clip_low."""
    clip_high: float = 0.28
    """Upper clip of the probability ratio: 1 + clip_high."""
    dual_clip: float = 3.0
    """Bound of the ratio for negative advantages."""
    kl_coef: float = 0.0
    """Factor of the KL to the policy that the run began with, in the loss (k3). 0, as in the paper: no such term, no
    second policy in memory; with LoRA there is none, for the base is there."""
    entropy_coef: float = 0.0
    """Factor of the entropy in nats, which the loss is lowered by, each token weighing as in the loss. 0, as in the
    paper: no bonus."""
    aggregation: str = "token_mean"
    """How token losses are averaged (objective/loss.py). The paper's is `sequence_mean_token_sum`."""
    loss_scale: float = 1000.0
    """Divisor of `sequence_mean_token_sum` and length of `token_sum_over_constant`."""
    importance_cap: float | None = None
    """Cap of the truncated importance weights (train / rollout); None: no weights, as in the paper."""
    importance_level: str = "token"
    """What a weight is the ratio of: a name of objective/mismatch.py."""
    drop_regressions: bool = False
    """Drop a failed turn that follows a rewarded one, as the paper's code does without saying."""


@dataclass
@with_options_of(REWARDS.values())
class RewardConfig:
    """What a verdict is worth (conf/reward/). The rewards in objective/rewards.py add their own options:

    cap: largest speed-up that pays. scale: factor on the whole reward; the paper's published code uses 0.5.
    coverage_from: PR pays from this speed-up on: a full rewrite at half speed must not beat a faster hybrid; paper: 0.
    """

    name: str = "profiling"
    """binary: C | speedup: C (1 + min(s, cap)) | profiling: C (1 + min(s, cap) + PR)."""
    hack_check: bool = True
    """If False, hacks with correct outputs are rewarded and the policy's feedback does not mention them, as in the
    paper's ablation. Metrics and the table at the end still call them hacks."""
    overlong_penalty: float = 0.0
    """Largest penalty for a long completion, taken off its turn's reward in training; 0, as in the paper: none."""
    overlong_window: int = 0
    """Over so many tokens before `overlong_limit` the penalty grows linearly; DAPO: a fifth of the limit."""
    overlong_limit: int | None = None
    """The tokens of a completion at which the penalty is whole; None: engine.max_answer_tokens."""


@dataclass
class RefillConfig:
    """What every group filter has besides its own options: dropped groups are replaced by others."""

    max_refills: int = 2
    """How many times a step may draw more prompts before it goes on with what it has."""
    oversample: float = 1.0
    """How many times trainer.prompts groups a step draws at first. The first that carry signal train, in the order in
    which they were drawn: how soon a group is done, and so how short its answers are, has no part in it."""


def one_field_each(config: type[C]) -> type[C]:
    """A decorator: one optional field for each registered filter."""
    for name, entry in (GROUP_FILTERS | TURN_FILTERS | TOKEN_FILTERS).items():
        title, bases = f"{name.title().replace('_', '')}Config", (RefillConfig,) if name in GROUP_FILTERS else ()
        globals()[title] = options_class(entry, title, __name__, bases)
        config.__annotations__[name] = Optional[globals()[title]]  # noqa: UP045
        setattr(config, name, None)
    return config


@dataclass
@one_field_each
class FiltersConfig:
    """Which rollouts train (conf/filters/). Compose: `filters=[zero_variance,mrs]`. Each filter of objective/filters.py
    has a field here, whose keys are the filter's options; None, the default, switches it off."""

    @property
    def max_refills(self) -> int:
        """How many times a step may draw more prompts in place of groups that were dropped."""
        return max((getattr(self, name).max_refills for name in self.chosen(GROUP_FILTERS)), default=0)

    @property
    def oversample(self) -> float:
        """How many times the groups that are needed a step draws at first."""
        return max((getattr(self, name).oversample for name in self.chosen(GROUP_FILTERS)), default=1.0)

    def chosen(self, registry: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
        """The filters of a registry that are on, and their options."""
        on = {name: getattr(self, name) for name in registry if getattr(self, name) is not None}
        return {name: {key: getattr(value, key) for key in options_of(registry[name])} for name, value in on.items()}


@dataclass
class LoggerConfig:
    """Where metrics go besides metrics.jsonl (conf/logger/)."""

    wandb: str = "offline"
    """disabled | offline | online."""
    project: str = "drkernel"
    """wandb project."""
    plots: bool = True
    """Write PNG plots at the end of the run."""
    completions: bool = True
    """Keep every completion with its verdict, reward and advantage: completions/ of the run folder, a file per step."""
    samples: int = 0
    """wandb: trajectories in a table of each validation, with their texts, verdicts and rewards; 0: no table."""
    page: bool = False
    """Write the page of the run (view.html, training/view.py) at its end; with wandb also as an artifact."""


@dataclass
class Config:
    """One run. `python train.py` composes it from conf/train.yaml."""

    name: str = "train"
    """First part of the run folder: outputs/<name>/<overrides>."""
    stage: str = "rl"
    """`rl`; before it `sft`, on trajectories, or `coldstart`, which makes a
    policy from nothing (conf/coldstart/)."""
    seed: int = 0
    """Seed of tasks drawn, rollouts and filters."""
    run_dir: str = "outputs/train/default"
    """Where everything of this run goes; stable, so that the same command resumes it."""
    plan: bool = False
    """Print what the run would take of each GPU's memory (training/plan.py), and do nothing else."""
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


class Judged(Protocol):
    """What a training's config and a study's both say about the judge and the engine."""

    seed: int
    policy: PolicyConfig
    engine: EngineConfig
    judge: JudgeConfig
    reward: RewardConfig

    @property
    def generates(self) -> bool: ...

    @property
    def occupies_gpus(self) -> bool: ...


def load(composed: DictConfig) -> Config:
    """Type-check what Hydra composed. Raises DrKernelError naming the key, what was found and what was expected."""
    config = located(resolve(composed, Config, CHOICES, RANGES))
    expect_read(config.stage, typed())
    expect_name(config.name)
    expect_a_gradient(config)
    if config.generates:
        expect_room(config.engine)
    expect_a_correction(config)
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


def located(config: Any) -> Any:
    """The config with a policy folder and a template of the repository found from any working directory."""
    for key in ("path", "template"):
        given = getattr(config.policy, key)
        if given and not Path(given).exists() and (REPOSITORY / given).exists():
            setattr(config.policy, key, str(REPOSITORY / given))
    return config


def judge_options(config: Judged) -> dict[str, Any]:
    """The arguments of `drkernel.judge.Judge` on this machine; without a secret of its own its key is the seed, so that
    runs repeat."""
    judge, beside = config.judge, config.occupies_gpus
    device, gpus = choose_device(judge.device, judge.gpus, judge.share, beside)
    placed = {"device": device, "gpus": gpus, "workers": choose_workers(judge.workers, device, gpus, beside)}
    return _judge_options(config) | placed


def _judge_options(config: Judged) -> dict[str, Any]:
    """`judge_options` as they are given, for any machine."""
    options = {name: value for name, value in dataclasses.asdict(config.judge).items() if name != "feedback_tokens"}
    options["price_hacks"] = not config.reward.hack_check
    return options | {"secret": (options["secret"] or f"drkernel run {config.seed}").encode()}


def expect_judge(config: Judged) -> None:
    """Raises DrKernelError where no judge can have the options that a config gives it."""
    JudgeOptions(**_judge_options(config))


def to_yaml(config: Any) -> str:
    """The whole configuration (a run's or a study's) as YAML, every key in force; of a secret its digest."""
    if secret := config.judge.secret:
        digest = f"sha256:{hashlib.sha256(secret.encode()).hexdigest()[:16]}"
        config = dataclasses.replace(config, judge=dataclasses.replace(config.judge, secret=digest))
    return OmegaConf.to_yaml(OmegaConf.structured(config))


def with_defaults(tree: dict[str, Any]) -> dict[str, Any]:
    """What `to_yaml` wrote, perhaps by an older version, with the defaults of the keys that came later."""
    try:
        return OmegaConf.to_container(OmegaConf.merge(schema(Config), tree))  # type: ignore[return-value]
    except OmegaConfBaseException:  # it has keys that are gone, and is compared as it is
        return tree


ConfigStore.instance().store("schema", Config)
