"""The classes of judge/CHEATS.md on a real GPU: what cheats or is wrong is refused, what is honest passes."""

from __future__ import annotations

import os
import time
from dataclasses import dataclass
from pathlib import Path

import pytest
import torch

from drkernel.judge import Judge
from drkernel.types import Task, Verdict
from tests.judge.examples import TAMED, Example, as_expected, descendants, examples, gains, honest_speedups, traces

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device"),
]
HACKS, HONEST = examples("hacks", "cuda"), examples("honest", "cuda")
_BURIAL_S = 10.0


@dataclass(frozen=True)
class Campaign:
    """All examples judged by one judge, which has been closed since."""

    verdicts: dict[str, Verdict]
    last: Verdict
    """On an honest submission, after all others."""
    left: set[int]
    """Processes that outlive the judge."""

    def honest_speedup(self, example: Example) -> float | None:
        return honest_speedups(self.verdicts, HONEST).get(example.task)


def campaign(tasks: dict[str, Task], gate: bool) -> Campaign:
    """Without the gate there is no screen either: all depends on the examination."""
    before = descendants()
    with Judge(
        device="cuda", workers=os.cpu_count() or 2, secret=b"a secret of the tests", timeout_s=8, gate=gate, screen=gate
    ) as judge:
        pending = {e.name: judge.submit(tasks[e.task], e.source) for e in [*HACKS, *HONEST]}
        verdicts = {name: future.result() for name, future in pending.items()}
        plain = next(e for e in HONEST if e.name == "90_helpers")
        last = judge.judge(tasks[plain.task], plain.source + "\n# once more\n")
    deadline = time.monotonic() + _BURIAL_S
    while (left := descendants() - before) and time.monotonic() < deadline:
        time.sleep(0.1)
    return Campaign(verdicts, last, left)


@pytest.fixture(scope="module")
def gated(tasks):
    return campaign(tasks, gate=True)


@pytest.fixture(scope="module")
def ungated(tasks):
    return campaign(tasks, gate=False)


@pytest.mark.parametrize("example", HACKS, ids=lambda e: e.name)
def test_a_hack_is_refused(example, gated):
    verdict = gated.verdicts[example.name]
    assert not as_expected(example, verdict, gated.honest_speedup(example))
    assert verdict.ok or (verdict.detail and verdict.speedup is None)


@pytest.mark.parametrize("example", HONEST, ids=lambda e: e.name)
def test_an_honest_submission_passes(example, gated):
    verdict = gated.verdicts[example.name]
    assert verdict.status == "ok", verdict
    assert verdict.reason in ("faster", "lazy", "slower")
    assert verdict.speedup > 0 and 0 < verdict.coverage <= 1
    assert verdict.reference_ms > 0 and verdict.submission_ms > 0
    assert verdict.profile and verdict.reference_profile
    assert verdict.device.startswith("cuda:")


@pytest.mark.parametrize("example", HACKS, ids=lambda e: e.name)
def test_without_the_gate_no_hack_gains_anything(example, ungated):
    verdict = ungated.verdicts[example.name]
    if not example.name.startswith(TAMED) and "ok" not in example.statuses:
        assert verdict.status != "ok", verdict
    assert not gains(example, verdict, ungated.honest_speedup(example))
    assert not verdict.is_judge_failure


@pytest.mark.parametrize("example", HONEST, ids=lambda e: e.name)
def test_the_gate_changes_nothing_for_the_honest(example, gated, ungated):
    with_gate, without = gated.verdicts[example.name], ungated.verdicts[example.name]
    assert (with_gate.status, with_gate.general) == (without.status, without.general)


def test_a_submission_that_raises_on_other_shapes_is_not_general(gated):
    assert not gated.verdicts["113_raises_elsewhere"].general
    assert all(gated.verdicts[e.name].general for e in HONEST if e.name != "113_raises_elsewhere")


@pytest.mark.parametrize("gate", ["gated", "ungated"])
def test_harmful_submissions_leave_nothing_behind_and_the_gpu_in_order(gate, request):
    done = request.getfixturevalue(gate)
    assert done.last.ok, done.last
    assert not done.left and not traces() and not Path("verdict.json").exists()
