"""The keys of a configuration: all that there are, and lists of those with a property in common."""

from __future__ import annotations

import dataclasses
import typing

MACHINE = (
    *("trainer.gpus", "trainer.threads", "trainer.micro_batch_tokens", "trainer.compile", "trainer.recompute"),
    *("engine.slots", "engine.kv_cache_gib", "engine.sleep", "engine.eager", "engine.agreement"),
    *("engine.tensor_parallel", "trainer.offload"),
    *("judge.workers", "judge.gpus", "judge.timeout_s", "judge.servers", "judge.token_file"),
)
"""Keys that say how a machine is used: results depend on them by rounding at most, or not at all. `judge.timeout_s` is
a last resort, since a submission's work is bounded otherwise."""
MAY_CHANGE = (
    *("run_dir", "name", "plan", "sweep", "logger", "logger.wandb", "logger.plots", "logger.completions"),
    *("logger.samples", "logger.page"),
    *("trainer.steps", "trainer.keep", "trainer.save_every", "trainer.keep_every", "trainer.save_async"),
    *("trainer.eval_samples", "trainer.eval_turns", "tasks.eval_count"),
    *("trainer.validate_every", "trainer.validate_first", "trainer.best_by", "trainer.stop_below"),
    *("sft.max_steps", "sft.loss_every", "sft.save_every"),
    *MACHINE,
)
"""Keys that a resumed run may change: its next step does not depend on them, but for rounding. All others may not, and
name the run folder, but for SECRET. This is the only list: `may_change` and conf/train.yaml read it."""
SECRET = "judge.secret"
"""A key that a resumed run may not change, and that neither names its folder nor stands in its files, which have a
digest of it."""
ADDED = ("arm", "group", "sweep")
"""Config groups that a run has only where it asks for them with a plus."""
OF_PROGRAM = dict.fromkeys(("algo", "filters", "logger", "coldstart", "sft", "stage", "plan"), "train.py")
OF_PROGRAM |= dict.fromkeys(("scaling", "endpoint", "split", "ids", "shard", "solutions", "compare"), "evaluate.py")
"""Config groups and keys that one of the two programs has."""


def valid_keys(kind: type, prefix: str = "") -> list[str]:
    """All keys of a configuration, dotted; a group counts as a key (`algo`, `algo.gamma`)."""
    keys, kinds = [], typing.get_type_hints(kind)
    for item in dataclasses.fields(kind):
        keys.append(prefix + item.name)
        for part in (kinds[item.name], *typing.get_args(kinds[item.name])):  # a group, or a group or None
            if isinstance(part, type) and dataclasses.is_dataclass(part):
                keys += valid_keys(part, f"{prefix}{item.name}.")
    return keys


def may_change(key: str) -> bool:
    """Whether a resumed run may have another value under a dotted key.

    >>> may_change("trainer.micro_batch_tokens"), may_change("trainer.samples")
    (True, False)
    """
    return key in MAY_CHANGE
