"""The config group `filters`: which rollouts train."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Optional, TypeVar

from drkernel.config.registry import options_class, options_of
from drkernel.objective.filters import GROUP_FILTERS, TOKEN_FILTERS, TURN_FILTERS

C = TypeVar("C")


@dataclass
class RefillConfig:
    """What every group filter has besides its own options: dropped groups are replaced by others."""

    max_refills: int = 2
    """How many times a step may draw more prompts before it goes on with what it has."""
    oversample: float = 1.0
    """How many times trainer.prompts groups a step draws at first. The first that carry signal train, in the order in
    which they were drawn: how soon a group is done, and so how short its completions are, has no part in it."""


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
