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
    ("trusted.processes.worker", "devices.cuda.compile_worker"),
    ("trusted.processes.worker", "devices.cuda.examiner"),
    ("trusted.processes.worker", "devices.simulated.examiner"),
}
"""Devices import trusted/, which knows only their Protocol, but for the process that chooses one and for reductions,
which has an implementation of its own on a GPU."""
OUTSIDE = {"drkernel", "types", "tasks", "tasks.module", "tasks.own_sizes", "tasks.scopes", "tasks.sources"}
OUTSIDE |= {"hardware.visible", "hardware.windows"}
"""The modules of drkernel outside the judge that its folders may import."""
INSIDE = {
    ("training.judging", "devices.cuda.gpu_lock"),  # an engine waits for the judge's timing
    ("training.plan", "devices.simulated.gpus"),
    ("training.step_time", "devices.simulated.gpus"),
}
"""Imports of the judge's folders by the rest of the package, which else imports the modules beside them, and the client
of a server."""
GROUND = {"outputs", "reductions", "spent"}
GROUNDED = ("source", "rounding", "comparison", "sizes", "cases")
"""Folders of trusted/, ground first: their modules import from those below, and the modules of GROUND."""
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


def test_folders_of_trusted_import_downwards():
    for importer, name in inside("trusted"):
        folder, known = importer.split(".")[1], name.split(".")
        if folder in GROUNDED and known[0] == "trusted":
            below = GROUNDED[: GROUNDED.index(folder) + 1]
            assert known[1] in GROUND or known[1] in below, f"{importer} imports {name}"


def loaded(*folders: str) -> set[str]:
    """The judge's modules that are loaded with those of these folders."""
    edges: dict[str, set[str]] = {}
    for one, other in set().union(*(inside(folder) for folder in FOLDERS)):
        edges.setdefault(one, set()).add(other)
    found, left = set(), [module for module in edges if module.split(".")[0] in folders]
    while left:
        if (module := left.pop()) not in found:
            found.add(module)
            left += edges.get(module, ())
    return found


def test_boundary_has_what_both_sides_load_directly_or_through_another_of_its_modules():
    paths = [path for path in (HOME / "boundary").rglob("*.py") if path.stem != "__init__"]
    modules = {".".join(path.relative_to(HOME).with_suffix("").parts) for path in paths}
    assert modules - loaded("untrusted") == set(), "what only the trusted side loads belongs to it"
    assert modules - loaded("trusted", "devices") == set(), "what only the untrusted side loads belongs to it"


def test_the_rest_of_the_package_imports_little_of_the_judges_folders():
    found = set()
    for path in (ROOT / "src/drkernel").rglob("*.py"):
        if HOME not in path.parents:
            importer = ".".join(path.relative_to(ROOT / "src/drkernel").with_suffix("").parts)
            names = (
                name.removeprefix("drkernel.judge.") for name in imports(path) if name.startswith("drkernel.judge.")
            )
            found |= {(importer, name) for name in names if name.split(".")[0] in FOLDERS}
    assert found == INSIDE


def test_an_exception_that_has_ended_is_taken_off_the_list():
    found = set().union(*(inside(folder) for folder in FOLDERS))
    assert found >= EXCEPTIONS, "these imports are gone: take them off EXCEPTIONS"
