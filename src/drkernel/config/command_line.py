"""What somebody typed, and commands that a program prints, such that a shell and Hydra read them as they are meant."""

from __future__ import annotations

import re
import shlex
from collections.abc import Sequence

from hydra.core.hydra_config import HydraConfig
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.errors import HydraException

from drkernel.config.keys import SECRET


def typed() -> list[tuple[str, str]]:
    """(key or group, override) of what somebody typed, or a sweep chose; nothing where Hydra did not start this."""
    overrides = HydraConfig.get().overrides.task if HydraConfig.initialized() else ()
    return [(each.lstrip("+~").partition("=")[0].partition("@")[0], each) for each in overrides]


def override(key: str, value: str) -> str:
    """KEY=VALUE with the quotes that it needs on a command line.

    >>> print(override("policy.prompts", "chat"), override("policy.path", "outputs/coldstart=seed_8m/policy"))
    policy.prompts=chat "policy.path='outputs/coldstart=seed_8m/policy'"
    """
    plain = f"{key}={value}"
    for_hydra = plain if _reads(plain) == value else f"{key}='{value.replace(chr(39), chr(92) + chr(39))}'"
    if shlex.quote(for_hydra) == for_hydra:
        return for_hydra
    return shlex.quote(for_hydra) if any(sign in for_hydra for sign in '"$`\\!') else f'"{for_hydra}"'


def variant(group: str) -> str | None:
    """The variant of a config group that this program was started with; None where Hydra did not start it."""
    return HydraConfig.get().runtime.choices.get(group) if HydraConfig.initialized() else None


def without_secret(command: Sequence[str]) -> list[str]:
    """A command line as files may have it.

    >>> without_secret(["train.py", "judge.secret=abc"])
    ['train.py', 'judge.secret=...']
    """
    return [re.sub(rf"^(\+*{re.escape(SECRET)}=).*", r"\1...", part, flags=re.DOTALL) for part in command]


def _reads(text: str) -> object:
    """The value that Hydra finds in an override, or nothing."""
    try:
        return OverridesParser.create().parse_override(text).value()
    except HydraException:
        return None
