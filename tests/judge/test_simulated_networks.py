"""Networks at published sizes on the simulated device: sizes inside them become smaller on both sides."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from drkernel.types import Task

pytestmark = pytest.mark.slow
sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks"))


@pytest.mark.parametrize("name", ["mlp_sizes_inside", "mlp_default_arguments", "mamba", "reads_a_value", "alexnet"])
def test_a_network_of_millions_of_weights_tells_right_from_wrong(judge, name):
    from simulated_coverage import NETWORKS, answer

    task = Task(name, (NETWORKS / f"{name}.py").read_text())
    assert judge.judge(task, answer(task.source)).ok
    wrong = judge.judge(task, answer(task.source, True))
    assert (wrong.status, wrong.reason) == ("incorrect", "wrong_values")
