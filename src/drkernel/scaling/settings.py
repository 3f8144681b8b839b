"""The configuration of a study: the groups of drkernel.config that it shares with training, and its own.

Hydra composes conf/evaluate.yaml against `EvaluateConfig`; `load` makes it one in the first line of evaluate.py.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import os
import re
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml
from hydra.core.config_store import ConfigStore
from omegaconf import DictConfig, OmegaConf

from drkernel import config as configuration
from drkernel import ranges
from drkernel.config import EngineConfig, JudgeConfig, PolicyConfig, RewardConfig, TasksConfig, TrainerConfig
from drkernel.lora import LoraConfig
from drkernel.objective.rewards import REWARDS
from drkernel.overrides import MACHINE, SECRET, expect_name, expect_room, resolve, typed
from drkernel.registry import options_of
from drkernel.scaling.strategies import KEEP, STRATEGIES, VALUES, ScalingConfig
from drkernel.stage_keys import expect_chosen, expect_effects
from drkernel.training.run import describe, flatten, write_text
from drkernel.types import DrKernelError, Task

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
IDLE = {"policy.lr", "tasks.count", "engine.agreement", "engine.sleep", "engine.tensor_parallel", "policy.lora"}
IDLE |= {"policy.fp32_head", *(f"reward.overlong_{key}" for key in ("penalty", "window", "limit"))}
IDLE |= {f"policy.lora.{item.name}" for item in dataclasses.fields(LoraConfig)}
IDLE |= {f"trainer.{item.name}" for item in dataclasses.fields(TrainerConfig)} - {"trainer.gpus", "trainer.threads"}
"""Keys of the groups shared with training that no study depends on. A policy's file may have them."""
IDENTITY = "identity.json"
"""The model and the judge's device, in the folder of a study or of a shard."""
TASKS = "tasks.jsonl"
"""A study's tasks: a line is {"id", "source", ...}. The report shows them, and says which have no completion."""
_MIB = 1 << 20


@dataclass
class EndpointConfig:
    """A hosted model behind an OpenAI-compatible server, instead of `policy`. Its key comes from the environment."""

    url: str | None = None
    """E.g. http://localhost:8000/v1; None: no endpoint."""
    model: str | None = None
    """The model's name there; None: the only one that the server offers."""
    key_variable: str = "OPENAI_API_KEY"
    """The environment variable that holds the key; a server without keys needs none."""
    concurrency: int = 16
    """Requests under way together."""
    requests_per_minute: float | None = None
    """Most requests per minute."""
    timeout_s: float = 600.0
    """How long one request may take before it is sent again."""
    retries: int = 8
    """How often a request is sent again after an error that may pass."""
    patience_s: float = 900.0
    """How long a server that is down, or that asks to wait, is waited for."""
    max_answer_tokens: int = 8192
    """Longest completion."""
    feedback_tokens: int = 1024
    """Longest feedback after a turn; estimated, since the tokenizer is not here."""
    prompt_price: float = 0.0
    """Dollars for a million prompt tokens."""
    answer_price: float = 0.0
    """Dollars for a million completion tokens."""


@dataclass
class EvaluateConfig:
    """One study. `python evaluate.py` composes it from conf/evaluate.yaml."""

    name: str = "evaluate"
    """First part of the run folder: outputs/<name>/<overrides>."""
    seed: int = 0
    """Seed of all completions, together with task, trial and call."""
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
    top_p: float = 1.0
    """Nucleus sampling; 1 is the distribution that training samples from, the paper evaluates at 0.95."""
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


CHOICES = configuration.CHOICES | {
    "split": ("train", "validation", "test", "all"),
    "scaling.name": tuple(STRATEGIES),
    "scaling.keep": tuple(KEEP),
    "scaling.by": tuple(VALUES),
}
RANGES = ranges.RANGES | ranges.OF_STUDIES


def load(composed: DictConfig) -> EvaluateConfig:
    """Type-check what Hydra composed. Raises DrKernelError naming the key, what was found and what was expected."""
    for key, override in typed():
        if key in IDLE:
            raise DrKernelError(f"config: {override} does nothing in evaluate.py: {key} is for training")
    config = configuration.located(resolve(composed, EvaluateConfig, CHOICES, RANGES))
    configuration.expect_judge(config)
    expect_chosen(
        "reward.name", config.reward.name, {name: options_of(entry) for name, entry in REWARDS.items()}, typed()
    )
    expect_effects(config, typed())
    if config.generates:
        expect_room(config.engine)
    expect_name(config.name)
    shard(config)
    return config


def shard(config: EvaluateConfig) -> tuple[int, int]:
    """(i, n) of `shard`, (0, 1) without one."""
    found = re.fullmatch(r"(\d+)/(\d+)", config.shard or "0/1")
    if not found or int(found[1]) >= int(found[2]):
        raise DrKernelError(f"config: shard={config.shard!r} must be i/n with i from 0 to n - 1, e.g. 0/8")
    return int(found[1]), int(found[2])


def keep(config: EvaluateConfig, folder: Path, tasks: Sequence[Task], identity: Mapping[str, str]) -> None:
    """Write what reproduces a study, or one of its shards, which may start together, and its tasks to its folder.

    identity: the model and the judge's device. Raises DrKernelError where the folder, or the study's, belongs to
    another study, or where the study or one of its shards had another identity or other tasks.
    """
    study, text = Path(config.run_dir), configuration.to_yaml(config)
    free = set(MAY_CHANGE) - set(TIMED if config.scaling.seconds is not None else ())
    for place in (folder, study):
        _expect_same(place / "config.yaml", _flat, _flat(text), free)
    for place in (folder, study, *sorted(study.glob("shards/*"))):
        _expect_same(place / IDENTITY, json.loads, identity)
        _expect_same(place / TASKS, _digests, {f"task {task.id}": task.digest for task in tasks})
    folder.mkdir(parents=True, exist_ok=True)
    describe(folder, text)
    write_text(folder / IDENTITY, json.dumps(identity, indent=1) + "\n")
    write_text(folder / TASKS, "".join(json.dumps(dataclasses.asdict(task)) + "\n" for task in tasks))


def fingerprint(policy: str) -> str:
    """Which weights a policy has, at the cost of reading a little: 16 hex digits over config.json and, of each
    safetensors file, its size and its first and last MiB. A hub id stands for itself.

    Raises DrKernelError where the path is neither a policy's folder nor a hub id.
    """
    folder = Path(policy)
    if not folder.exists() and re.fullmatch(r"[\w-][\w.-]*(/[\w.-]+)?", policy):
        return policy
    if not (folder / "config.json").is_file():
        raise DrKernelError(f"policy.path: no config.json in {policy}; expected a Hugging Face folder or a hub id")
    digest = hashlib.sha256((folder / "config.json").read_bytes())
    for path in sorted(folder.glob("*.safetensors")):
        with open(path, "rb") as file:
            size = file.seek(0, os.SEEK_END)
            file.seek(0)
            digest.update(f"{path.name} {size} ".encode() + file.read(_MIB))
            file.seek(max(0, size - _MIB))
            digest.update(file.read(_MIB))
    return digest.hexdigest()[:16]


def _expect_same(
    path: Path, read: Callable[[str], Mapping], now: Mapping[str, Any], free: Collection[str] = ()
) -> None:
    """DrKernelError where a study's file, if there is one, has another value under a key that is not free to change."""
    try:
        before = read(path.read_text(encoding="utf-8")) if path.exists() else now
    except (ValueError, TypeError, KeyError, yaml.YAMLError) as error:
        raise DrKernelError(f"{path}: not what a study leaves there ({type(error).__name__}: {error})") from None
    for key in sorted((before.keys() | now.keys()) - set(free)):
        if before.get(key) != now.get(key):
            raise DrKernelError(
                f"{path}: this study was made with {key}={before.get(key)}, now it is {now.get(key)}; "
                "choose another name=... or remove the folder"
            )


def _flat(text: str) -> dict[str, Any]:
    return flatten(yaml.safe_load(text))


def _digests(lines: str) -> dict[str, str]:
    """By task, from a study's tasks.jsonl."""
    tasks = [Task(**json.loads(line)) for line in lines.split("\n") if line]
    return {f"task {task.id}": task.digest for task in tasks}


ConfigStore.instance().store("evaluate_schema", EvaluateConfig)
OmegaConf.register_new_resolver("not_in_name", lambda: list(NOT_IN_NAME), replace=True)
