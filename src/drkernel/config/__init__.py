"""The configuration of train.py (`Config`) and of evaluate.py (`EvaluateConfig`): one dataclass per group of conf/,
each in a file of the group's name, with a docstring under every field.

Hydra composes against these dataclasses (the `schema` entries of conf/train.yaml and conf/evaluate.yaml). `load_run`
and `load_study` make them of what it composed, in the first line of a program; nobody downstream sees OmegaConf. An
unknown key, type or variant raises `DrKernelError` with the nearest valid name.

Rewards, filters and advantage estimators declare their options themselves (registry.py). Those keys and their defaults
are the keyword-only parameters of the functions in objective/, whose docstrings explain them.

    run.py, study.py                    the two whole configurations
    tasks.py, policy.py, ...            a group each
    choices.py, ranges.py               which words and numbers a field may have
    checks.py, effects.py               what contradicts what; which typed keys would do nothing
    command_line.py, keys.py, paths.py  what was typed, which keys there are, where the repository is
    conversion.py, folder_names.py      to and from YAML; names of run folders
    help.py                             what --help prints: groups and all keys
    errors.py, nearest.py               one line for what is wrong, with what may have been meant
"""

from __future__ import annotations

from drkernel.config import folder_names, help  # noqa: F401  # the resolvers that conf/ uses
from drkernel.config.algo import AlgoConfig
from drkernel.config.coldstart import ColdstartConfig
from drkernel.config.endpoint import EndpointConfig
from drkernel.config.engine import EngineConfig
from drkernel.config.errors import one_line_errors
from drkernel.config.filters import FiltersConfig
from drkernel.config.judge import JudgeConfig, Judged
from drkernel.config.logger import LoggerConfig
from drkernel.config.lora import LoraConfig
from drkernel.config.paths import REPOSITORY
from drkernel.config.policy import PolicyConfig
from drkernel.config.reward import RewardConfig
from drkernel.config.run import Config, load_run
from drkernel.config.scaling import ScalingConfig
from drkernel.config.sft import SftConfig
from drkernel.config.study import EvaluateConfig, load_study
from drkernel.config.tasks import TasksConfig
from drkernel.config.trainer import TrainerConfig

__all__ = [
    "REPOSITORY",
    "AlgoConfig",
    "ColdstartConfig",
    "Config",
    "EndpointConfig",
    "EngineConfig",
    "EvaluateConfig",
    "FiltersConfig",
    "JudgeConfig",
    "Judged",
    "LoggerConfig",
    "LoraConfig",
    "PolicyConfig",
    "RewardConfig",
    "ScalingConfig",
    "SftConfig",
    "TasksConfig",
    "TrainerConfig",
    "load_run",
    "load_study",
    "one_line_errors",
]
