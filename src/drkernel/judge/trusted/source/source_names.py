"""The modules that a source may mean by a dotted path, and where their members are at home.

The static check lets a module be used under imported names and their plain aliases alone (`tasks.scopes`), so that
nothing else can be a module.
"""

from __future__ import annotations

import contextlib
import functools
import importlib
import sys
from types import ModuleType

import torch

from drkernel.judge.trusted.source import denylist

_SAME = {"posixpath": "os.path"}
"""Modules by the names under which the tables know them."""


@functools.cache
def _loaded(root: str) -> bool:
    """Imports a top-level module that submissions may use, if it exists here: its members are looked at."""
    try:
        importlib.import_module(root)
    except ImportError:
        return False
    return True


@functools.lru_cache(100_000)
def module_named(path: str) -> str | None:
    """The module at a dotted path under the name that it has itself, or None where no module is there.

    `logging.sys` is the module sys. Nothing is imported but top-level modules that submissions may import.
    """
    root, _, rest = path.partition(".")
    if root not in denylist.IMPORTS:
        return None
    if _loaded(root) and not path.startswith("torch.ops"):
        found = sys.modules.get(path) or _member(*path.rpartition(".")[::2]) if rest else sys.modules[root]
        if isinstance(found, ModuleType) and isinstance(name := getattr(found, "__name__", None), str):
            return _SAME.get(name, name)
    known = path in denylist.MODULES or (path.startswith("torch.ops.") and path.count(".") == 2)
    return path if known or not rest else None


def _member(path: str, name: str) -> object:
    """What a module has under a name, without asking the module's own `__getattr__`."""
    holder = sys.modules.get(module_named(path) or "")
    return vars(holder).get(name) if isinstance(holder, ModuleType) else None


@functools.lru_cache(100_000)
def home_of(path: str) -> tuple[str, str]:
    """The module where a member was made, and its name there: `contextlib.wraps` is ("functools", "wraps").

    Of an object that does not say where it was made, its class tells. Where nothing is known, it is the path itself.
    """
    module, _, name = path.rpartition(".")
    found = _member(module, name)
    if found is None or isinstance(found, ModuleType):
        return module_named(module) or module, name
    made_in, called = _made_in(found)
    ours = made_in.startswith("drkernel.")  # what an examiner puts in its place
    if ours or (made_in in ("builtins", "types") and not isinstance(found, type)):
        return module_named(module) or module, name
    plain = made_in.removeprefix("_")  # `_operator` is what operator is made of
    return _SAME.get(made_in, plain if plain in denylist.MODULES else made_in), called


def _made_in(found: object) -> tuple[str, str]:
    """The module and the name that an object says it has, or else its class."""
    for said in (found, type(found)) if callable(found) else (type(found),):
        with contextlib.suppress(Exception):  # of an object that answers for another one
            made_in, called = getattr(said, "__module__", None), getattr(said, "__name__", None)
            if isinstance(made_in, str) and isinstance(called, str):
                return made_in, called
    return "builtins", "object"


@functools.lru_cache(100_000)
def holds_modules(path: str) -> bool:
    """Whether a member is a collection with modules in it, as sys.modules is."""
    found = _member(*path.rpartition(".")[::2])
    values = found.values() if isinstance(found, dict) else found if isinstance(found, (list, tuple, set)) else ()
    return any(isinstance(value, ModuleType) for value in list(values))


@functools.lru_cache(100_000)
def is_class(path: str) -> bool:
    """Whether a member is a class."""
    return isinstance(_member(*path.rpartition(".")[::2]), type)


@functools.lru_cache(100_000)
def is_storage(path: str) -> bool:
    """Whether a member is a class of storages, whose bytes the host may read and write."""
    found = _member(*path.rpartition(".")[::2])
    return isinstance(found, type) and issubclass(found, (torch.StorageBase, torch.TypedStorage, torch.UntypedStorage))
