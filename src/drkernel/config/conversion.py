"""From what Hydra composed to a typed configuration (`resolve`), and from that to YAML (`to_yaml`)."""

from __future__ import annotations

import dataclasses
import functools
import hashlib
from collections.abc import Collection, Iterator, Mapping
from typing import Any, TypeVar, cast

from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException

from drkernel.config.keys import valid_keys
from drkernel.config.nearest import nearest
from drkernel.config.ranges import Range, expect_within
from drkernel.types import DrKernelError

C = TypeVar("C")


def resolve(
    composed: DictConfig, kind: type[C], choices: Mapping[str, Collection[str]], ranges: Mapping[str, Range]
) -> C:
    """A `kind` with the values that Hydra composed.

    choices: the words that a field may have, by dotted key. ranges: the numbers that it may be. Keys that the
    config lacks, and values that are None, are not checked.

    Raises DrKernelError naming the key, what was found and what was expected.
    """
    known = valid_keys(kind)
    for key in _keys(cast("dict[str, Any]", OmegaConf.to_container(composed)), known):
        if key not in known:  # Hydra lets in what was added with a plus
            raise DrKernelError(f"config: unknown key {key!r}{nearest(key, known)}")
    try:
        config = cast(C, OmegaConf.to_object(OmegaConf.merge(schema(kind), composed)))  # type: ignore[arg-type]  # a class is hashable
    except OmegaConfBaseException as error:
        raise DrKernelError(f"config: {error.full_key or ''}: {str(error).splitlines()[0]}") from None
    for key, words in choices.items():
        value = _get(config, key)
        if value is not None and value not in words:
            raise DrKernelError(f"config: {key}={value!r} is none of {', '.join(words)}{nearest(str(value), words)}")
    expect_within(config, ranges)
    return config


@functools.cache
def schema(kind: type) -> DictConfig:
    """The types and defaults of a dataclass, to merge values into: a merge copies it."""
    return OmegaConf.structured(kind)


def to_yaml(config: Any) -> str:
    """The whole configuration (a run's or a study's) as YAML, every key in force; of a secret its digest."""
    if secret := config.judge.secret:
        digest = f"sha256:{hashlib.sha256(secret.encode()).hexdigest()[:16]}"
        config = dataclasses.replace(config, judge=dataclasses.replace(config.judge, secret=digest))
    return OmegaConf.to_yaml(OmegaConf.structured(config))


def _keys(nested: Mapping[str, Any], known: Collection[str], prefix: str = "") -> Iterator[str]:
    """Dotted keys; what is in a known key that is no group, such as `sft.data`, is its value."""
    for name, value in nested.items():
        yield (key := f"{prefix}{name}")
        if isinstance(value, Mapping) and (key not in known or any(each.startswith(f"{key}.") for each in known)):
            yield from _keys(value, known, f"{key}.")


def _get(config: Any, key: str) -> Any:
    for part in key.split("."):
        config = getattr(config, part, None)
    return config
