"""From the command line to a typed configuration, and one clear line where that fails.

`resolve` type-checks what Hydra composed against any dataclass; `one_line_errors` wraps an entry point. An unknown key,
type or variant is named with the nearest valid one.
"""

from __future__ import annotations

import contextlib
import dataclasses
import difflib
import functools
import hashlib
import os
import re
import sys
import time
import traceback
import typing
from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar, cast

from hydra.core.hydra_config import HydraConfig
from hydra.errors import HydraException, OverrideParseException
from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException

from drkernel.ranges import Range, expect_within
from drkernel.types import DrKernelError

C = TypeVar("C")
MACHINE = (
    *("trainer.gpus", "trainer.threads", "trainer.micro_batch_tokens", "trainer.compile", "trainer.recompute"),
    *("engine.slots", "engine.kv_cache_gib", "engine.sleep", "engine.eager", "engine.agreement"),
    *("engine.tensor_parallel", "trainer.offload"),
    *("judge.workers", "judge.gpus", "judge.timeout_s"),
)
"""Keys that say how a machine is used: results depend on them by rounding at most, or not at all. `judge.timeout_s` is
a last resort, since a submission's work is bounded otherwise."""
MAY_CHANGE = (
    *("run_dir", "name", "plan", "sweep", "logger", "logger.wandb", "logger.plots", "logger.completions"),
    *("logger.samples", "logger.page"),
    *("trainer.steps", "trainer.keep", "trainer.save_every", "trainer.keep_every", "trainer.save_async"),
    *("trainer.eval_samples", "trainer.eval_turns", "tasks.eval_count"),
    *("trainer.validate_every", "trainer.best_by", "trainer.stop_below"),
    *("sft.max_steps", "sft.loss_every", "sft.save_every"),
    *MACHINE,
)
"""Keys that a resumed run may change: its next step does not depend on them, but for rounding. All others may not, and
name the run folder, but for SECRET. This is the only list: `may_change` and conf/train.yaml read it."""
SECRET = "judge.secret"
"""A key that a resumed run may not change, and that neither names its folder nor stands in its files, which have a
digest of it."""
CONF = Path(__file__).resolve().parents[2] / "conf"
ADDED = ("arm", "group", "sweep")
"""Config groups that a run has only where it asks for them with a plus."""
OF_PROGRAM = {"scaling": "evaluate.py"} | dict.fromkeys(("algo", "filters", "logger", "coldstart"), "train.py")
"""Config groups that one of the two programs has."""
FIRST_RANK_PRINTS_S = 2.0
"""How long other ranks wait before they end: a launcher kills all ranks once one has ended."""


def resolve(
    composed: DictConfig, kind: type[C], choices: Mapping[str, Collection[str]], ranges: Mapping[str, Range]
) -> C:
    """A `kind` with the values that Hydra composed.

    choices: the words that a field may have, by dotted key. ranges: the numbers that it may be. Keys that the
    config lacks, and values that are None, are not checked.

    Raises DrKernelError naming the key, what was found and what was expected.
    """
    known = valid_keys(kind)
    for key in _keys(cast("dict[str, Any]", OmegaConf.to_container(composed))):
        if key not in known:  # Hydra lets in what was added with a plus
            raise DrKernelError(f"config: unknown key {key!r}{_nearest(key, known)}")
    try:
        config = cast(C, OmegaConf.to_object(OmegaConf.merge(schema(kind), composed)))  # type: ignore[arg-type]  # a class is hashable
    except OmegaConfBaseException as error:
        raise DrKernelError(f"config: {error.full_key or ''}: {str(error).splitlines()[0]}") from None
    for key, words in choices.items():
        value = _get(config, key)
        if value is not None and value not in words:
            raise DrKernelError(f"config: {key}={value!r} is none of {', '.join(words)}{_nearest(str(value), words)}")
    expect_within(config, ranges)
    return config


@functools.cache
def schema(kind: type) -> DictConfig:
    """The types and defaults of a dataclass, to merge values into: a merge copies it."""
    return OmegaConf.structured(kind)


def expect_a_gradient(config: Any) -> None:
    """Refuses settings of a training under which no step could train, though all of them would run."""
    config.policy.lora.check()
    if config.stage == "coldstart" and config.policy.lora.rank:
        raise DrKernelError("config: policy.lora.rank is set, but stage=coldstart trains all weights; expected 0")
    samples, temperature = config.trainer.samples, config.engine.temperature
    smallest = config.filters.zero_variance.min_size if config.filters.zero_variance else 1
    if temperature <= 0:
        found = f"engine.temperature={temperature:g} has no log-probabilities to train on"
        raise DrKernelError(f"config: {found}; expected more than 0, the paper's is 1")
    stripped = config.policy.thinking == "stripped"
    if config.algo.ratio_level == "geometric" and (stripped or config.trainer.layout == "turn"):
        cuts = "policy.thinking=stripped" if stripped else "trainer.layout=turn"
        found = f"algo.ratio_level=geometric with {cuts}, which cuts trajectories into rows"
        raise DrKernelError(f"config: {found}; expected algo.ratio_level=turn_geometric")
    if config.stage != "rl" and stripped:
        found = f"policy.thinking=stripped with stage={config.stage}"
        raise DrKernelError(f"config: {found}; expected none or kept")
    if samples < smallest:
        raise DrKernelError(
            f"config: trainer.samples={samples} makes groups that filters.zero_variance drops, since each must have "
            f"min_size={smallest}; expected trainer.samples of at least {smallest}, or filters=none"
        )


def expect_name(name: str) -> None:
    """Refuses a name that would put a run among the folders of all runs, or outside of them."""
    if not name.strip("./ ") or ".." in Path(name).parts or Path(name).is_absolute():
        raise DrKernelError(f"config: name={name}; expected a word, the first part of the run folder")


def expect_room(engine: Any) -> None:
    """Refuses completions (of an EngineConfig) that leave a trajectory no token for its prompt."""
    longest, whole = engine.max_answer_tokens, engine.max_tokens
    if longest >= whole:
        found = f"engine.max_answer_tokens={longest} with engine.max_tokens={whole} leaves no room for a prompt"
        raise DrKernelError(f"config: {found}; expected engine.max_answer_tokens below engine.max_tokens")


def expect_a_correction(config: Any) -> None:
    """Refuses first turns of older weights that nothing corrects, or whose examination the update would disturb."""
    if not config.trainer.overlap:
        return
    if config.algo.importance_cap is None:
        found = "trainer.overlap=true trains on first turns of the weights before"
        raise DrKernelError(f"config: {found}; expected algo.importance_cap, e.g. 2")
    if config.judge.share:
        found = "trainer.overlap=true with judge.share=true has submissions timed on GPUs that train meanwhile"
        raise DrKernelError(f"config: {found}; expected one of them")


def expect_a_penalty(config: Any) -> None:
    """Refuses a penalty for long completions that could not be paid; sets the limit that is not given."""
    reward, longest = config.reward, config.engine.max_answer_tokens
    limit = longest if reward.overlong_limit is None else reward.overlong_limit
    penalty, window = reward.overlong_penalty, reward.overlong_window
    if not penalty:
        return
    if not 1 <= limit <= longest:  # no completion is longer: the whole penalty, or any, would never be due
        expected = f"expected 1 to engine.max_answer_tokens={longest}"
        raise DrKernelError(f"config: reward.overlong_limit={limit}; {expected}")
    if not 1 <= window <= limit:
        found = f"reward.overlong_penalty={penalty:g} over reward.overlong_window={window}"
        raise DrKernelError(f"config: {found}; expected a window of 1 to {limit} tokens, e.g. {max(1, limit // 5)}")
    reward.overlong_limit = limit


def expect_a_schedule(trainer: Any) -> None:
    """Refuses settings of the learning rate and the validation (a TrainerConfig) that contradict each other."""
    kind, steps, warm_up = trainer.lr_schedule, trainer.lr_steps, trainer.lr_warmup
    if kind == "constant" and steps is not None:
        expected = "expected trainer.lr_schedule=linear or cosine, or no lr_steps"
        raise DrKernelError(f"config: trainer.lr_steps={steps} ends no schedule that is constant; {expected}")
    if kind != "constant" and (steps is None or steps <= warm_up):
        expected = f"expected a step after the warm-up ({warm_up} steps), e.g. trainer.lr_steps={trainer.steps}"
        raise DrKernelError(f"config: trainer.lr_schedule={kind} ends at trainer.lr_steps={steps}; {expected}")
    if kind == "constant" and warm_up > trainer.steps:
        found = f"trainer.lr_warmup={warm_up} with trainer.steps={trainer.steps} never reaches policy.lr"
        raise DrKernelError(f"config: {found}; expected at most trainer.steps")
    every, share = trainer.validate_every, trainer.stop_below
    if share is not None and not (every and 0 < share < 1):
        found = f"trainer.stop_below={share:g} with trainer.validate_every={every}"
        raise DrKernelError(f"config: {found}; expected a share between 0 and 1, and a validation every few steps")


@contextlib.contextmanager
def one_line_errors(kind: type) -> Iterator[None]:
    """The user's errors become one line on stderr and exit code 2.

    Wraps the Hydra entry point, which may fail to compose a `kind`, and its body, before Hydra adds lines of its own.
    """
    os.environ.setdefault("HYDRA_FULL_ERROR", "1")
    try:
        yield
    except DrKernelError as error:
        if error.on_every_rank and os.environ.get("RANK", "0") != "0":
            time.sleep(FIRST_RANK_PRINTS_S)
            sys.exit(2)
        message = str(error)
    except (HydraException, OmegaConfBaseException) as error:
        message = explain(sys.argv[1:], error, kind)
    except AssertionError as error:  # omegaconf's, for an option of a group that is null
        if "Unexpected type for root: NoneType" not in str(error) or not (message := off(sys.argv[1:], kind)):
            raise
    except ValueError as error:
        if not str(error).startswith("Config group override"):  # Hydra's own, for algo=3
            raise
        message = f"config: {' '.join(sys.argv[1:])}: {error}"
    except OSError as error:
        if not _is_hydras_folder(error):
            raise
        message = f"config: run_dir: {error}; expected hydra.run.dir to be a folder that can be written"
    else:
        return
    print("error: " + " ".join(message.split()), file=sys.stderr)
    sys.exit(2)


def _is_hydras_folder(error: OSError) -> bool:
    """Whether Hydra could not make the folder of a run, which it does before the program's own first line."""
    names = [frame.name for frame in traceback.extract_tb(error.__traceback__)]
    return "run_job" in names and names[names.index("run_job") + 1] == "mkdir"


def explain(overrides: list[str], error: Exception, kind: type) -> str:
    """One line for an error of Hydra's own composition: names the override and the nearest valid key.

    >>> Algo = dataclasses.make_dataclass("Algo", [("gamma", float)])
    >>> Run = dataclasses.make_dataclass("Run", [("algo", Algo)])
    >>> explain(["algo.gama=0"], Exception("Could not override 'algo.gama'."), Run)
    "config: unknown key 'algo.gama'; did you mean 'algo.gamma'?"
    """
    keys = valid_keys(kind)
    for override in overrides:
        key = override.split("=", 1)[0].lstrip("~").split("@")[0]
        if key.startswith(("+", "hydra")):  # +sweep=x is a group; an unknown key is left to `resolve`
            continue
        if key in ADDED:
            return f"config: {override} is added to a run; expected +{override}"
        if key not in keys and key in OF_PROGRAM:
            return f"config: {override} is for {OF_PROGRAM[key]}"
        if key and "=" in override and key not in keys:
            return f"config: unknown key {key!r}{_nearest(key, keys)}"
    if isinstance(error, OverrideParseException):
        key, equals, value = error.override.partition("=")
        if not equals:
            return f"config: {key} has no value; expected {key}=VALUE"
        quoted = "['first','second']" if value.startswith("[") else f"'{value}'"
        return f'config: Hydra cannot read {error.override}; its value may need quotes: "{key}={quoted}"'
    found = re.search(
        r"Could not find '(\w+)/([^']+)'[^:]*Available options[^:]*:\s*(.*?)(?:Config search|$)", str(error), re.S
    )
    if found:
        group, variant, options = found[1], found[2], found[3].split()
        return f"config: {group}={variant} is none of {', '.join(options)}{_nearest(variant, options)}"
    if found := re.search(
        r"Could not (?:find|load) '(\w+)/([^']+)'", str(error)
    ):  # one of a list, for which Hydra names none
        options = sorted(path.stem for path in (CONF / found[1]).glob("*.yaml"))
        return f"config: {found[1]}={found[2]} is none of {', '.join(options)}{_nearest(found[2], options)}"
    cause = str(error.__cause__ or "").partition("\n")[0]
    return f"config: {error}{cause and f': {cause}'}"


def off(overrides: list[str], kind: type) -> str:
    """One line for an override of a filter that is not on, or nothing where there is none.

    >>> Mrs = dataclasses.make_dataclass("Mrs", [("upper", float)])
    >>> Filters = dataclasses.make_dataclass("Filters", [("mrs", Mrs)])
    >>> print(off(["filters.mrs.upper=2"], dataclasses.make_dataclass("Run", [("filters", Filters)])))
    config: filters.mrs.upper=2 does nothing: filters.mrs is off; expected filters=[zero_variance,mrs]
    """
    chosen = next((each.partition("=")[2] for each in overrides if each.startswith("filters=")), "zero_variance")
    on = [name for name in re.findall(r"\w+", chosen) if name != "none"]
    for override in overrides:
        group, _, name = override.partition("=")[0].rpartition(".")
        parent, _, filter_name = group.rpartition(".")
        if parent != "filters" or f"{group}.{name}" not in valid_keys(kind) or filter_name in on:
            continue
        wanted = ",".join([*on, filter_name])
        return f"config: {override} does nothing: {group} is off; expected filters=[{wanted}]"
    return ""


def valid_keys(kind: type, prefix: str = "") -> list[str]:
    """All keys of a configuration, dotted; a group counts as a key (`algo`, `algo.gamma`)."""
    keys, kinds = [], typing.get_type_hints(kind)
    for item in dataclasses.fields(kind):
        keys.append(prefix + item.name)
        for part in (kinds[item.name], *typing.get_args(kinds[item.name])):  # a group, or a group or None
            if isinstance(part, type) and dataclasses.is_dataclass(part):
                keys += valid_keys(part, f"{prefix}{item.name}.")
    return keys


def typed() -> list[tuple[str, str]]:
    """(key or group, override) of what somebody typed, or a sweep chose; nothing where Hydra did not start this."""
    overrides = HydraConfig.get().overrides.task if HydraConfig.initialized() else ()
    return [(each.lstrip("+~").partition("=")[0].partition("@")[0], each) for each in overrides]


def may_change(key: str) -> bool:
    """Whether a resumed run may have another value under a dotted key.

    >>> may_change("trainer.micro_batch_tokens"), may_change("trainer.samples")
    (True, False)
    """
    return key in MAY_CHANGE


def without_secret(command: Sequence[str]) -> list[str]:
    """A command line as files may have it.

    >>> without_secret(["train.py", "judge.secret=abc"])
    ['train.py', 'judge.secret=...']
    """
    return [re.sub(rf"^(\+*{re.escape(SECRET)}=).*", r"\1...", part, flags=re.DOTALL) for part in command]


def slug(text: str) -> str:
    """A folder name for a run from its overrides: readable, stable, never too long.

    >>> slug("algo=grpo,policy.path=/data/x"), slug("")
    ('algo=grpo,policy.path=-data-x', 'default')
    """
    name = re.sub(r"[^\w=,.\[\]+-]", "-", str(text)) or "default"
    return name if len(name) <= 120 else f"{name[:100]}-{hashlib.sha256(text.encode()).hexdigest()[:12]}"


OmegaConf.register_new_resolver("slug", slug, replace=True)
OmegaConf.register_new_resolver("more_than_half", lambda number: number // 2 + 1, replace=True)
OmegaConf.register_new_resolver("not_in_name_of_run", lambda: [*MAY_CHANGE, SECRET], replace=True)


def _keys(nested: Mapping[str, Any], prefix: str = "") -> Iterator[str]:
    for name, value in nested.items():
        yield f"{prefix}{name}"
        if isinstance(value, Mapping):
            yield from _keys(value, f"{prefix}{name}.")


def _get(config: Any, key: str) -> Any:
    for part in key.split("."):
        config = getattr(config, part, None)
    return config


SYNONYMS = {
    **dict.fromkeys(("lr", "learning_rate", "actor_lr"), ("policy.lr", "sft.lr")),
    **dict.fromkeys(("beta", "kl", "kl_beta", "kl_loss_coef"), ("algo.kl_coef",)),
    **dict.fromkeys(("batch_size", "train_batch_size"), ("trainer.prompts", "trainer.samples")),
    **dict.fromkeys(("num_generations", "group_size", "rollout_n"), ("trainer.samples",)),
    **dict.fromkeys(("gpu_memory_utilization", "gpu_memory"), ("engine.kv_cache_gib",)),
    **dict.fromkeys(("model", "model_path", "model_name"), ("policy.path", "policy")),
    **dict.fromkeys(("max_new_tokens", "max_response_length"), ("engine.max_answer_tokens",)),
    **dict.fromkeys(("max_model_len", "max_length", "max_seq_len"), ("engine.max_tokens",)),
    **dict.fromkeys(("clip", "clip_range", "epsilon", "cliprange"), ("algo.clip_low", "algo.clip_high")),
    **dict.fromkeys(("epochs", "num_epochs"), ("trainer.steps", "sft.epochs")),
    **dict.fromkeys(("dataset", "data", "data_path", "train_files"), ("tasks.source", "sft.data")),
    "entropy": ("algo.entropy_coef",),
}
"""What people type who come from other programs, by the last part of the key, and what it is called here."""
ABSENT = {
    "resume": "the same command resumes a run, or run_dir=FOLDER",
    **dict.fromkeys(("top_p", "top_k"), "training samples from the whole distribution; see engine.temperature"),
}
"""What is not there under any name, and what is instead."""


def _nearest(word: str, words: Collection[str]) -> str:
    """What may have been meant. A synonym or an equal last part goes before what is spelt alike.

    >>> _nearest("trainer.lr", ["policy.lr", "trainer.lr_end"]), _nearest("trainer.temperature", ["engine.temperature"])
    ("; did you mean 'policy.lr'?", "; did you mean 'engine.temperature'?")
    """
    leaf = word.rpartition(".")[2]
    known = [key for key in SYNONYMS.get(leaf, ()) if key in words]
    if not known and leaf in ABSENT and "trainer.steps" in words:
        return f"; {ABSENT[leaf]}"
    same = [
        key for key in words if "." in key and key.rpartition(".")[2] == leaf and not leaf.startswith(("min", "max"))
    ]
    best = known or (same if len(same) == 1 else []) or difflib.get_close_matches(word, list(words), n=1, cutoff=0.5)
    return f"; did you mean {' or '.join(map(repr, best))}?" if best else ""
