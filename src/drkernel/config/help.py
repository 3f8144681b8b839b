"""What `--help` of train.py and evaluate.py prints: the groups that the program takes, and all of its keys.

Hydra's own help lists what conf/ has, whoever takes it, and the keys of one composition, without those of filters that
are off.
"""

from __future__ import annotations

import dataclasses
import typing
from collections.abc import Iterator
from typing import Any

import yaml
from omegaconf import OmegaConf

from drkernel.config.keys import ADDED
from drkernel.config.paths import CONF
from drkernel.config.run import Config
from drkernel.config.study import EvaluateConfig

KINDS = {"train": Config, "evaluate": EvaluateConfig}
TAKE_ADDED = ("train",)
"""The programs for which the groups of ADDED are written."""


def help_of(program: str) -> str:
    """The help of a program, for Hydra, which takes `$` for a variable of its template."""
    groups = [f"  {group}={' | '.join(variants(name))}" for group, name in groups_of(program)]
    keys = [f"  {key}={value}" for key, value in defaults(KINDS[program])]
    takes_filters = any(name == "filters" for _, name in groups_of(program))
    lines = [
        f"python {program}.py [GROUP=VARIANT] [KEY=VALUE]    fields are explained in src/drkernel/config/, by group",
        "",
        "Groups; one that is there only where it is asked for has a plus:" if program in TAKE_ADDED else "Groups:",
        *groups,
        "",
        "All keys and their defaults, before groups set others; --cfg job prints what a command line composes:",
        *keys,
        "",
        *(["A filter's keys need the filter: filters=[zero_variance,mrs] filters.mrs.level=token."] * takes_filters),
        "--hydra-help lists Hydra's own flags; with -m, KEY=A,B runs both, hydra/launcher=slurm on a cluster.",
    ]
    return "\n".join(lines).replace("$", "$$")


def groups_of(program: str) -> list[tuple[str, str]]:
    """(group as one types it, group) of those that a program takes."""
    entries = yaml.safe_load((CONF / f"{program}.yaml").read_text(encoding="utf-8"))["defaults"]
    own = [group for entry in entries if isinstance(entry, dict) for group in entry if " " not in group]
    added = ADDED if program in TAKE_ADDED else ()
    return [(group, group) for group in sorted(own)] + [(f"+{group}", group) for group in added]


def variants(group: str) -> list[str]:
    """The variants of a group."""
    return sorted(path.stem for path in (CONF / group).glob("*.yaml"))


def defaults(kind: type, prefix: str = "") -> Iterator[tuple[str, str]]:
    """(key, default as YAML) of all keys of a configuration, those of parts included that are off by default."""
    types, made = typing.get_type_hints(kind), kind()
    for item in dataclasses.fields(kind):
        parts = (types[item.name], *typing.get_args(types[item.name]))
        if part := next((each for each in parts if dataclasses.is_dataclass(each)), None):
            yield from defaults(typing.cast(type, part), f"{prefix}{item.name}.")
        else:
            yield prefix + item.name, _shown(getattr(made, item.name))


def _shown(value: Any) -> str:
    text = yaml.safe_dump(value, default_flow_style=True, width=10**6).strip()
    return text.removesuffix("\n...").replace(", ", ",")


OmegaConf.register_new_resolver("help_of", help_of, replace=True)
