"""What submissions may use of the allowed modules opens none that they may not use, and no attribute by a string."""

from __future__ import annotations

import ast
import importlib
import inspect
import pkgutil
import sys
import textwrap
import types
from collections.abc import Iterator

import pytest
import torch

from drkernel.judge.boundary.construction import seed_one_generator
from drkernel.judge.trusted.source import denylist, origins
from drkernel.judge.trusted.source.source_names import home_of, module_named

BY_NAME = {
    "getattr",
    "setattr",
    "delattr",
    "eval",
    "exec",
    "__import__",
    "import_module",
    "__dict__",
    "vars",
    "globals",
}
"""What a function's code names that reads or writes attributes by strings."""


def modules() -> Iterator[tuple[str, types.ModuleType]]:
    names = set(denylist.MODULES) | set(denylist.FAMILIES)
    for family in denylist.FAMILIES:
        found = pkgutil.iter_modules(importlib.import_module(family).__path__)
        names |= {f"{family}.{part.name}" for part in found if not part.name.startswith("_")}
    for name in sorted(names):
        try:
            yield name, importlib.import_module(name)
        except (ImportError, OSError):  # torch.ops is no module, others are not installed here
            continue


def members() -> Iterator[tuple[str, object]]:
    """The public members that pass the check."""
    for module, content in modules():
        for name, value in list(vars(content).items()):
            path = f"{module}.{name}"
            if not name.startswith("_") and not origins.forbidden(path, frozenset()):
                yield path, value


def test_no_member_is_a_module_or_has_modules():
    for path, value in members():
        if isinstance(value, types.ModuleType):
            assert origins.is_allowed(module_named(path) or ""), path
        content = value.values() if isinstance(value, dict) else value if isinstance(value, (list, tuple, set)) else ()
        assert not any(isinstance(inner, types.ModuleType) for inner in list(content)), path


def test_no_member_of_a_module_that_is_not_listed_reads_attributes_by_strings():
    for path, value in members():
        home, (module, _, name) = home_of(path), path.rpartition(".")
        if name in denylist.ONLY.get(module, ()):
            continue  # somebody has looked at it
        if isinstance(value, types.FunctionType) and not origins.is_allowed(home[0]):
            assert not BY_NAME & set(value.__code__.co_names), path
            assert home[0].partition(".")[0] == path.partition(".")[0], path


LOOKED_AT = {
    "argparse.Namespace.__init__",  # of itself
    "argparse.ArgumentParser.parse_known_args",  # of a namespace, which the check lets nobody give
    "argparse.ArgumentParser._parse_known_args",
    "argparse.ArgumentParser.parse_known_intermixed_args",
    "argparse.ArgumentParser._get_handler",  # of itself
    "collections.namedtuple",  # evaluates names that it has checked
    "dataclasses.fields",
    "dataclasses.replace",  # fields of a dataclass
    "functools.total_ordering",  # comparisons
}
"""What reads or writes attributes by strings in the standard library all the same."""


def test_few_members_of_the_standard_library_use_attributes_by_strings():
    found = set()
    for path, value in members():
        root = path.partition(".")[0]
        if root in sys.stdlib_module_names and path != "statistics.namedtuple":
            kinds = [kind for kind in getattr(value, "__mro__", ()) if kind.__module__.partition(".")[0] == root]
            functions = {f"{path}.{name}": part for kind in kinds for name, part in vars(kind).items()} | {path: value}
            found |= {name for name, function in functions.items() if _computes_names(function)}
    assert found <= LOOKED_AT


def _computes_names(function: object) -> bool:
    """Whether the text of a function has `getattr(x, name)`, or evaluates."""
    if not isinstance(function := getattr(function, "__func__", function), types.FunctionType):
        return False
    if not BY_NAME & set(function.__code__.co_names):
        return False
    tree = ast.parse(textwrap.dedent(inspect.getsource(function)))
    calls = [node for node in ast.walk(tree) if isinstance(node, ast.Call) and isinstance(node.func, ast.Name)]
    by_name = [call for call in calls if call.func.id in BY_NAME - {"vars", "globals"}]
    return not all("attr" in call.func.id and isinstance(call.args[1], ast.Constant) for call in by_name)


@pytest.mark.parametrize(
    "path",
    [
        "torch.distributions.utils.update_wrapper",
        "torch.utils.checkpoint.get_type_hints",
        "typing_extensions.GenericMeta",
        "triton.language.extra.modules",
        "triton.language.extra.module_from_spec",
        "enum.Enum._convert_",
        "enum.global_enum",
        "torch.get_device_module",
        "contextlib.redirect_stdout",
        "typing_extensions.get_annotations",
        "torch.FloatStorage",
        "torch.cuda.FloatStorage",
        "torch.StorageBase",
    ],
)
def test_what_is_at_home_elsewhere_obeys_the_table_of_its_home(path):
    assert origins.forbidden(path, frozenset())


def test_what_an_examiner_replaces_is_at_home_where_it_was(monkeypatch):
    monkeypatch.setattr(torch, "manual_seed", seed_one_generator)
    home_of.cache_clear()
    assert origins.forbidden("torch.manual_seed", frozenset()) is None
    home_of.cache_clear()


@pytest.mark.parametrize(
    "path",
    [
        "contextlib.wraps",
        "triton.Config",
        "triton.reinterpret",
        "torch.types.Number",
        "torch.nn.Parameter",
        "numpy.random.seed",
        "operator.mul",
        "triton.language.float32",
        "torch.distributions.Normal",
        "collections.abc.Callable",
    ],
)
def test_what_people_use_is_allowed(path):
    assert origins.forbidden(path, frozenset()) is None
