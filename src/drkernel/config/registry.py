"""Registries: a plain dictionary per kind of thing, from the name that a config types to a function or a class.

The keyword-only parameters of an entry are its options: their names, types and defaults become keys of the config
(`with_options_of`, `options_class`), and `bind` hands the configured values back to the entry. So a new entry is a
function, one line in its registry, and a YAML file that names it.

    REWARDS                                       objective/rewards.py       reward.name
    GROUP_FILTERS, TURN_FILTERS, TOKEN_FILTERS    objective/filters.py       filters.<name>
    ADVANTAGES                                    objective/advantages.py    algo.advantage
    AGGREGATIONS                                  objective/loss.py          algo.aggregation
    LEVELS                                        objective/mismatch.py      filters.mrs.level, algo.importance_level
    RATIO_LEVELS                                  objective/loss.py          algo.ratio_level
    ENGINES                                       config/engine.py           engine.name
    PROMPTS                                       config/policy.py           policy.prompts

Those of the last two lines are `Imported`: what they name takes seconds to import, or may be missing.
"""

from __future__ import annotations

import dataclasses
import importlib
import inspect
import typing
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from typing import Any, NamedTuple, TypeVar

C = TypeVar("C", bound=type)


class Option(NamedTuple):
    """One keyword-only parameter of a registered function or class."""

    type: Any
    default: Any


class Imported(Mapping[str, Any]):
    """A registry whose entries are imported when they are asked for.

    homes: name -> `module:attribute`.

    >>> found = Imported({"root": "math:sqrt", "of a package that is missing": "nothing:here"})
    >>> list(found), found["root"](4.0)
    (['root', 'of a package that is missing'], 2.0)
    """

    def __init__(self, homes: dict[str, str]):
        self.homes = homes

    def __getitem__(self, name: str) -> Any:
        module, _, attribute = self.homes[name].partition(":")
        return getattr(importlib.import_module(module), attribute)

    def __iter__(self) -> Iterator[str]:
        return iter(self.homes)

    def __len__(self) -> int:
        return len(self.homes)


def options_of(entry: Callable) -> dict[str, Option]:
    """The options of an entry by name.

    >>> def reward(correct, *, cap: float = 3.0): ...
    >>> options_of(reward)
    {'cap': Option(type=<class 'float'>, default=3.0)}
    """
    function = entry.__init__ if isinstance(entry, type) else entry  # type: ignore[misc]
    types = typing.get_type_hints(function)
    parameters = inspect.signature(function).parameters.values()
    return {p.name: Option(types[p.name], p.default) for p in parameters if p.kind is p.KEYWORD_ONLY}


def bind(entry: Callable, values: Mapping[str, Any]) -> Callable:
    """The entry with those of `values` that are options of it; of a class, an instance.

    >>> def reward(correct, *, cap: float = 3.0):
    ...     return cap * correct
    >>> bind(reward, {"cap": 2.0, "an option of another reward": 1})(1)
    2.0
    """
    chosen = {name: values[name] for name in options_of(entry) if name in values}
    return entry(**chosen) if isinstance(entry, type) else partial(entry, **chosen)


def with_options_of(entries: Iterable[Callable]) -> Callable[[C], C]:
    """A decorator that gives a config class, below its own fields, one field for each option of some entries.

    To be put between `@dataclass` and the class. Entries that share an option must agree on its type and default.
    """

    def decorate(config: C) -> C:
        found: dict[str, Option] = {}
        for entry in entries:
            for name, option in options_of(entry).items():
                assert found.setdefault(name, option) == option, f"{name}: two defaults, {option} and {found[name]}"
                config.__annotations__[name] = option.type
                setattr(config, name, option.default)
        return config

    return decorate


def options_class(entry: Callable, name: str, module: str, bases: tuple[type, ...] = ()) -> type:
    """A config dataclass of the options of one entry; it may have none. Pickling needs it in `module` under `name`."""
    fields = [(key, option.type, option.default) for key, option in options_of(entry).items()]
    summary = (inspect.getdoc(entry) or "").partition("\n>>>")[0].rstrip()  # examples are run where the function is
    namespace = {"__doc__": summary, "__module__": module}
    return dataclasses.make_dataclass(name, fields, bases=bases, namespace=namespace)
