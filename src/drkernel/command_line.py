"""Commands that a program prints, such that a shell and Hydra read them as they are meant."""

from __future__ import annotations

import shlex

from hydra.core.hydra_config import HydraConfig
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.errors import HydraException


def override(key: str, value: str) -> str:
    """KEY=VALUE with the quotes that it needs on a command line.

    >>> print(override("policy.prompts", "chat"), override("policy.path", "outputs/coldstart=seed/policy"))
    policy.prompts=chat "policy.path='outputs/coldstart=seed/policy'"
    """
    plain = f"{key}={value}"
    for_hydra = plain if _reads(plain) == value else f"{key}='{value.replace(chr(39), chr(92) + chr(39))}'"
    if shlex.quote(for_hydra) == for_hydra:
        return for_hydra
    return shlex.quote(for_hydra) if any(sign in for_hydra for sign in '"$`\\!') else f'"{for_hydra}"'


def variant(group: str) -> str | None:
    """The variant of a config group that this program was started with; None where Hydra did not start it."""
    return HydraConfig.get().runtime.choices.get(group) if HydraConfig.initialized() else None


def _reads(text: str) -> object:
    """The value that Hydra finds in an override, or nothing."""
    try:
        return OverridesParser.create().parse_override(text).value()
    except HydraException:
        return None
