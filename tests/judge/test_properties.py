"""The properties P1 to P12 of judge/PROPERTIES.md on the simulated device: no attack on one of them earns anything."""

from __future__ import annotations

import pytest

from tests.judge.examples import as_expected, examples

ATTACKS = examples("attacks", "simulated")


@pytest.fixture(scope="module")
def verdicts(judge, tasks):
    pending = {example.name: judge.submit(tasks[example.task], example.source) for example in ATTACKS}
    return {name: future.result() for name, future in pending.items()}


@pytest.mark.slow
@pytest.mark.xdist_group("properties")
@pytest.mark.parametrize("example", ATTACKS, ids=lambda e: e.name)
def test_an_attack_earns_nothing(example, verdicts):
    verdict = verdicts[example.name]
    assert not as_expected(example, verdict)
    assert not verdict.is_judge_failure
