"""The whole project: imports run downwards and not in circles, files are short, and what is cited is there."""

from __future__ import annotations

import functools
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.imports import ROOT, imports, modules

pytestmark = pytest.mark.xdist_group("layout")  # one worker reads the imports

FLOORS = (
    {"types", "hardware", "seeds"},
    {"tasks", "objective", "config"},
    {"judge", "policy", "slurm"},
    {"rollout"},
    {"training", "coldstart", "scaling", "environment"},
)
"""The parts of drkernel, ground first. Programs stand on top: all modules outside the package."""
SIDEWAYS = {
    ("config", "objective"),
    ("config", "tasks"),
}
SIDEWAYS |= {
    ("coldstart", "scaling"),  # repairs are made of a study
    ("coldstart", "training"),
    ("scaling", "training"),
}
"""(importer, imported) of one floor."""
UPWARDS = {("config", "judge")}
"""... and against the rule: what the options of a judge may be (judge/options.py). Nothing may be added."""
CIRCLES = {("update_step", "update_step_trl")}
"""Imports inside functions that close a circle: --trl of benchmarks/update_step.py loads what measures TRL with its
functions, where TRL is installed. Nothing may be added."""
SUFFIXES = {".css", ".html", ".js", ".md", ".py", ".sh", ".toml", ".yaml"}
FOLDERS = ("benchmarks", "conf", "docs", "slurm", "src", "sweeps", "tests")
LONGEST = 400
CITED = re.compile(r"(?<![\w/.-])(?:reference/[\w.-]+|(?:docs|results|benchmarks)/[\w./-]*\w\.(?:md|py|svg))")
NAMED = re.compile(r"(?<![\w/.-])(?:DESIGN|LOG|CHANGELOG|CONTRIBUTING|[a-z-]+/README)\.md\b")


def part(module: str) -> str | None:
    """The part of drkernel that a module belongs to; None for a program."""
    names = module.split(".")
    return names[1] if names[0] == "drkernel" and len(names) > 1 else None


@functools.cache
def graph() -> dict[str, set[str]]:
    """The modules that each module imports."""
    known = modules()
    return {name: {other for other in imports(path) if other in known} for name, path in known.items()}


def circle(edges: dict[str, set[str]]) -> list[str]:
    """The modules of one circle, or none."""
    done: set[str] = set()

    def search(module: str, way: list[str]) -> list[str]:
        if module in way:
            return way[way.index(module) :]
        if module not in done:
            for other in sorted(edges[module]):
                if found := search(other, [*way, module]):
                    return found
        done.add(module)
        return []

    return next((found for module in edges if (found := search(module, []))), [])


def texts() -> Iterator[Path]:
    """The code and the documents."""
    yield from (path for path in ROOT.glob("*") if path.suffix in SUFFIXES)
    yield from (ROOT / "results").rglob("*.md")
    for folder in FOLDERS:
        yield from (path for path in (ROOT / folder).rglob("*") if path.suffix in SUFFIXES)


def parts() -> set[tuple[str, str]]:
    """(part of drkernel, another part or a program that it imports)."""
    found = set()
    for name, others in graph().items():
        if one := part(name):
            found |= {(one, part(other) or other) for other in others - {"drkernel"}}
    return {(one, other) for one, other in found if one != other}


def test_every_part_has_a_floor():
    assert {part(name) for name in modules()} - {None} == set().union(*FLOORS)


def test_imports_run_downwards():
    floor = {name: height for height, names in enumerate(FLOORS) for name in names}
    programs = len(FLOORS)
    wrong = {(one, other) for one, other in parts() if floor[one] <= floor.get(other, programs)}
    assert wrong == SIDEWAYS | UPWARDS


def test_objective_knows_nothing_but_the_nouns():
    assert {other for one, other in parts() if one == "objective"} <= {"types"}


def test_no_module_imports_itself_by_a_detour():
    edges = {one: {other for other in others if (one, other) not in CIRCLES} for one, others in graph().items()}
    assert all(other in graph()[one] for one, other in CIRCLES)
    assert circle(edges) == []


def test_a_circle_is_found():
    assert circle({"a": {"b"}, "b": {"c"}, "c": {"b"}, "d": set()}) == ["b", "c"]
    assert circle({"a": {"b", "c"}, "b": {"c"}, "c": set()}) == []


def test_no_file_is_long():
    long = {str(path.relative_to(ROOT)): n for path in texts() if (n := len(path.read_text().splitlines())) > LONGEST}
    assert long == {}


@pytest.mark.parametrize("pattern", [CITED, NAMED], ids=["path", "name"])
def test_what_is_cited_is_in_the_repository(pattern):
    missing = {}
    for path in texts():
        if path == Path(__file__):
            continue
        for word in pattern.findall(path.read_text()):
            places = (ROOT, ROOT / "docs", ROOT / "src/drkernel", path.parent)
            if not any((place / word).exists() for place in places):
                missing.setdefault(str(path.relative_to(ROOT)), set()).add(word)
    assert missing == {}
