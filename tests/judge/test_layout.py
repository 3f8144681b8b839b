"""The judge's folders show who is trusted: what may import what, read from the sources."""

from __future__ import annotations

import pytest

from tests.imports import ROOT, imports

HOME = ROOT / "src/drkernel/judge"
FOLDERS = ("trusted", "boundary", "untrusted", "devices")
ALLOWED = {
    "trusted": {"trusted", "boundary", "devices"},
    "devices": {"devices", "trusted", "boundary"},
    "boundary": {"boundary"},
    "untrusted": {"untrusted", "boundary"},
}
"""By folder: the folders that its modules may import from."""
TRUSTED_FROM_DEVICES = {
    ("trusted.criterion", "devices.base"),
    ("trusted.examination", "devices.base"),
    ("trusted.judging", "devices.base"),
    ("trusted.shape_times", "devices.base"),
    ("trusted.reductions", "devices.cuda.fused"),
    ("trusted.worker", "devices.cuda.compile_worker"),
    ("trusted.worker", "devices.cuda.examiner"),
    ("trusted.worker", "devices.simulated.examiner"),
}
"""Devices import trusted/, which knows only their Protocol, but for the process that chooses one and for reductions,
which has an implementation of its own on a GPU."""
OUTSIDE = {"drkernel", "types", "tasks", "tasks.module", "tasks.own_sizes", "tasks.scopes", "tasks.sources"}
"""The modules of drkernel outside the judge that its folders may import."""
EXCEPTIONS: set[tuple[str, str]] = set()
"""Imports against the rules that are still to be ended. Nothing may be added."""


def imported(folder: str) -> set[tuple[str, str]]:
    """(module, what it imports) of a folder of the judge."""
    found = set()
    for path in (HOME / folder).rglob("*.py"):
        importer = ".".join(path.relative_to(HOME).with_suffix("").parts)
        own = (name for name in imports(path) if name.split(".")[0] == "drkernel")
        found |= {(importer, name.removeprefix("drkernel.")) for name in own}
    return found


def inside(folder: str) -> set[tuple[str, str]]:
    """The imports of a folder that are of the judge, relative to it."""
    return {(importer, name.removeprefix("judge.")) for importer, name in imported(folder) if name.startswith("judge")}


@pytest.mark.parametrize("folder", FOLDERS)
def test_each_folder_imports_only_from_those_that_it_may(folder):
    wrong = {pair for pair in inside(folder) if pair[1].split(".")[0] not in ALLOWED[folder]}
    assert wrong - EXCEPTIONS == set()


@pytest.mark.parametrize("folder", FOLDERS)
def test_the_judge_needs_little_of_the_rest_of_the_project(folder):
    assert {name for _, name in imported(folder) if not name.startswith("judge")} <= OUTSIDE


def test_trusted_code_knows_devices_by_their_protocol():
    known = {pair for pair in inside("trusted") if pair[1].startswith("devices")}
    assert known <= TRUSTED_FROM_DEVICES


def test_an_exception_that_has_ended_is_taken_off_the_list():
    found = set().union(*(inside(folder) for folder in FOLDERS))
    assert found >= EXCEPTIONS, "these imports are gone: take them off EXCEPTIONS"
