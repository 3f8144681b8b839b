"""What the static check refuses of the dotted origins of names: `torch.utils.data`, `contextlib.wraps`.

A member may be used under the name of the module where it is at home, and under that of another module as far as the
table of its home allows. So what a module imports for itself opens nothing.
"""

from __future__ import annotations

from drkernel.judge.trusted.source import denylist
from drkernel.judge.trusted.source.source_names import holds_modules, home_of, is_class, is_storage, module_named


def is_allowed(module: str) -> bool:
    """Whether a module may be used."""
    return module in denylist.MODULES or module.startswith(("torch.ops.", *denylist.FAMILIES))


def forbidden(path: str, namespaces: frozenset[str]) -> str | None:
    """What is forbidden on the way along a dotted path, or None. `namespaces`: those of torch.ops that may be used."""
    module, *members = path.split(".")
    while members:
        member, *members = members
        full = f"{module}.{member}"
        found = module_named(full)
        listed = denylist.MODULE_DUNDERS | denylist.PRIVATE.get(module, frozenset())
        private = member.startswith("_") and member not in listed
        others = module in denylist.ONLY and member not in denylist.ONLY[module]
        if private or others or member in denylist.MEMBERS.get(module, ()) or (found and not is_allowed(found)):
            return full
        if is_storage(full) or (module == "torch.ops" and member not in namespaces):
            return full
        if not found:
            hidden = next((part for part in members if part.startswith("_") and not part.startswith("__")), None)
            return _not_at_home(module, member) or (f"{full}.{hidden}" if hidden else None)
        module = found
    return None


def _not_at_home(module: str, member: str) -> str | None:
    """What a member of a module is, where that may not be used: `contextlib.wraps` is functools.wraps."""
    full = f"{module}.{member}"
    if member in denylist.ONLY.get(module, ()):
        return None
    home, name = home_of(full)
    if home.partition(".")[0] == module.partition(".")[0]:
        refused = False
    elif home == "builtins":
        refused = name in denylist.BUILTINS | denylist.ONLY_CALLED
    elif is_allowed(home):
        refused = name not in denylist.ONLY.get(home, (name,))
    else:
        refused = True
    if not (refused or name in denylist.MEMBERS.get(home, ()) or holds_modules(full)):
        return None
    return full if (home, name) == (module, member) else f"{full}, which is {home}.{name},"


def no_value(origin: str) -> str | None:
    """The kind of what may be named and used, and not be handed on; None for all else."""
    if module_named(origin):
        return "module"
    home = ".".join(home_of(origin))
    if home in denylist.ONE_ARGUMENT | denylist.ONLY_ENTERED | denylist.ONLY_WITH.keys():
        return "function"
    of_blocks = home.startswith("triton.language.") and not home.endswith("range")
    return "class" if of_blocks and is_class(origin) else None
