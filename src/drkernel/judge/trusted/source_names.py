"""The modules that a source may mean by a dotted path.

The static check lets a module be used under imported names and their plain aliases alone (`tasks.scopes`), so that
nothing else can be a module.
"""

from __future__ import annotations

import functools
import importlib
import sys
from types import ModuleType

from drkernel.judge.trusted import denylist

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
