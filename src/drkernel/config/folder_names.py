"""Names of run folders, which conf/ makes of the overrides: importing this gives Hydra the resolvers for it."""

from __future__ import annotations

import hashlib
import re

from omegaconf import OmegaConf

from drkernel.config.checks import expect_name
from drkernel.config.keys import MAY_CHANGE, SECRET


def slug(text: str) -> str:
    """A folder name for a run from its overrides: readable, stable, never too long.

    >>> slug("algo=grpo,policy.path=/data/x"), slug("")
    ('algo=grpo,policy.path=-data-x', 'default')
    """
    name = re.sub(r"[^\w=,.\[\]+-]", "-", str(text)) or "default"
    return name if len(name) <= 120 else f"{name[:100]}-{hashlib.sha256(text.encode()).hexdigest()[:12]}"


def checked_name(name: str) -> str:
    """The name of a run, before Hydra makes a folder of it. Raises DrKernelError for one that leads elsewhere."""
    expect_name(str(name))
    return str(name)


OmegaConf.register_new_resolver("checked_name", checked_name, replace=True)
OmegaConf.register_new_resolver("slug", slug, replace=True)
OmegaConf.register_new_resolver("more_than_half", lambda number: number // 2 + 1, replace=True)
OmegaConf.register_new_resolver("not_in_name_of_run", lambda: [*MAY_CHANGE, SECRET], replace=True)
