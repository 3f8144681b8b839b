"""The taxonomy of reference/judging.md: what cheats or is wrong is refused, what is honest passes."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

import pytest

from tests.judge.examples import examples

HACKS, HONEST = examples("hacks"), examples("honest")
REQUIRED = [*range(1, 20), 22, 23, *range(25, 28), *range(30, 34), 36, *range(38, 42), 43, *range(54, 68)]
REQUIRED += [52, *range(70, 75), 78, *range(80, 84)]
TAMED = ["03_delegate", "55", "59", "61_patch_setattr", "65", "70", "71", "72", "73", "81", "82", "83"]
"""Without the gate these fail at their misdeed and then answer honestly."""


@pytest.fixture(scope="module")
def verdicts(judge, tasks):
    pending = {e.name: judge.submit(tasks[e.task], e.source) for e in [*HACKS, *HONEST]}
    return {name: future.result() for name, future in pending.items()}


@pytest.fixture(scope="module")
def ungated_verdicts(ungated, tasks):
    pending = {e.name: ungated.submit(tasks[e.task], e.source) for e in [*HACKS, *HONEST]}
    return {name: future.result() for name, future in pending.items()}


def test_every_class_that_needs_no_gpu_has_an_example():
    numbers = {int(e.name.partition("_")[0]) for e in [*HACKS, *HONEST]}
    assert {*REQUIRED, *range(84, 113)} <= numbers


@pytest.mark.parametrize("example", HACKS, ids=lambda e: e.name)
def test_a_hack_is_refused(example, verdicts):
    verdict = verdicts[example.name]
    assert verdict.status in example.statuses, verdict
    assert example.reason in ("", verdict.reason), verdict
    assert verdict.detail and verdict.speedup is None


@pytest.mark.parametrize("example", HONEST, ids=lambda e: e.name)
def test_an_honest_submission_passes(example, verdicts):
    verdict = verdicts[example.name]
    assert verdict.status == "ok", verdict
    assert verdict.reason in ("faster", "lazy", "slower")
    assert verdict.speedup > 0 and 0 < verdict.coverage <= 1
    assert verdict.profile and verdict.reference_profile


@pytest.mark.parametrize("example", HACKS, ids=lambda e: e.name)
def test_without_the_gate_no_hack_gains_anything(example, ungated_verdicts):
    verdict = ungated_verdicts[example.name]
    if not example.name.startswith(tuple(TAMED)):
        assert verdict.status != "ok", verdict
    assert verdict.reason != "judge_failure"


@pytest.mark.parametrize("example", HONEST, ids=lambda e: e.name)
def test_the_gate_changes_nothing_for_the_honest(example, verdicts, ungated_verdicts):
    with_gate, without = verdicts[example.name], ungated_verdicts[example.name]
    assert with_gate.to_dict() | {"seconds": 0} == without.to_dict() | {"seconds": 0}


def test_a_submission_that_raises_on_other_shapes_is_not_general(verdicts):
    assert not verdicts["113_raises_elsewhere"].general
    assert all(verdicts[e.name].general for e in HONEST if e.name != "113_raises_elsewhere")


def test_harmful_submissions_leave_no_process_and_no_file_behind(ungated_verdicts, ungated, tasks):
    assert ungated.judge(tasks["relu"], next(e.source for e in HONEST if e.name.startswith("90"))).ok
    for folder in ("/tmp", "/dev/shm", "/var/tmp", ".", "~", "~/.triton/cache", "~/.cache/torch_extensions"):
        path = Path(folder).expanduser()
        assert not path.is_dir() or not [name for name in os.listdir(path) if name.startswith("drkernel_")]
    assert not Path("verdict.json").exists()
    assert len(_descendants()) <= 2 * 2 * 3  # two judges of two workers: examiner, zygote, and a runner being buried


def _descendants() -> set[int]:
    """The processes that descend from this one."""
    parents = {}
    for path in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):
            parents[int(path.parent.name)] = int(path.read_text().rpartition(")")[2].split()[1])
    found = {os.getpid()}
    while more := {pid for pid, parent in parents.items() if parent in found} - found:
        found |= more
    return found - {os.getpid()}
