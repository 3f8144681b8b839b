"""Other shapes that are timed are of comparable work, drawn in secret, and alike for all submissions to a task."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest

from drkernel.judge.trusted import timed_shapes

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("timed shapes")]  # one worker runs the script

SCRIPT = """
import functools, json, sys, torch
torch.set_num_threads(1)
from drkernel.judge.boundary import aten
from drkernel.judge.boundary.construction import seed_one_generator
from drkernel.judge.devices.simulated.device import SimulatedDevice
from drkernel.judge.devices.simulated.gpus import GPUS
from drkernel.judge.trusted import timed_shapes
from drkernel.judge.trusted.least_work import least_work
from drkernel.judge.trusted.timed_shapes import input_shapes
from drkernel.tasks.module import Reference
from drkernel.types import Task
from tests.judge.examples import tasks

aten.install()
seed_one_generator()
ONLY = "if x.shape != (16, 64): raise ValueError(x.shape)"
FIXED = Task("fixed", tasks()["exact_shape"].source.replace("return torch.sig", ONLY + "\\n        return torch.sig"))
FULL = "if type(x) is torch.Tensor and x.shape != (16, 64): raise torch.OutOfMemoryError('no room')"
CRAMPED = Task("cramped", FIXED.source.replace(ONLY, FULL))
PADS = "if x.shape[1] % 2:\\n            x = nn.functional.pad(x, (0, 1))\\n        "
PADDED = Task("padded", tasks()["relu"].source.replace("return torch.relu", PADS + "return torch.relu"))
known = tasks() | {"fixed": FIXED, "padded": PADDED}

def found(name, secret, shapes=4):
    prepared = SimulatedDevice(GPUS["H200"], secret, shapes).prepare(known[name])
    rows = []
    for each in (prepared, *prepared.timed):
        work = least_work(Reference(each.task, each.sizes), False)
        shape = lambda inputs: [list(t.shape) for t in inputs if isinstance(t, torch.Tensor)]
        us = sum(row.microseconds for row in each.reference_costs[each.mode_alternatives[0][0]].profile())
        rows.append({
            "sizes": dict(each.sizes), "inputs": input_shapes(each.task, each.sizes), "us": us,
            "run": shape(each.reference.inputs(0)), "bytes": work.bytes, "operations": work.operations,
            "hidden": [shape(other.inputs(0)) for other in each.hidden],
        })
    return rows

NAMES = ("relu", "softmax", "matmul", "square_matmul", "layer_norm", "group_norm", "conv_bias_relu", "embedding",
         "gather_rows", "causal_attention", "half_linear", "triangular_matmul", "cross_entropy", "batch_norm")
answer = {name: found(name, b"one") for name in NAMES}
answer["again"], answer["other"] = found("relu", b"one"), found("relu", b"two")
answer["single"] = found("relu", b"one", 1)
answer["fixed"], answer["padded"] = found("fixed", b"one"), found("padded", b"one")
device = SimulatedDevice(GPUS["H200"], b"one", 4)
prepared = device.prepare(CRAMPED)
answer["cramped"] = len(prepared.timed), prepared.dropped
admit = timed_shapes.prepared_elsewhere
timed_shapes.prepared_elsewhere = functools.partial(admit, alone=False)
try:
    device.prepare(CRAMPED)
except Exception as error:
    answer["beside others"] = type(error.__cause__).__name__
timed_shapes.prepared_elsewhere = admit
answer["first"] = [found("relu", bytes([n]), 2)[1]["sizes"] for n in range(16)]
print(json.dumps(answer))
"""


@pytest.fixture(scope="module")
def found():
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path), "PYTHONWARNINGS": "ignore"}
    answer = subprocess.run([sys.executable, "-c", SCRIPT], env=environment, capture_output=True, text=True)
    assert answer.returncode == 0, answer.stderr
    return json.loads(answer.stdout.splitlines()[-1])


TASKS = (
    "relu", "softmax", "matmul", "square_matmul", "layer_norm", "group_norm", "conv_bias_relu", "embedding",
    "gather_rows", "causal_attention", "half_linear", "triangular_matmul", "cross_entropy", "batch_norm",
)  # fmt: skip


@pytest.mark.parametrize("task", TASKS)
def test_work_is_comparable(found, task):
    published, *others = found[task]
    assert len(others) == 3
    for other in others:
        for key in ("bytes", "operations"):
            assert timed_shapes.LEAST_WORK <= (other[key] or 1) / (published[key] or 1) <= timed_shapes.MOST_WORK
        assert timed_shapes.LEAST_TIME <= other["us"] / published["us"] <= timed_shapes.MOST_TIME


@pytest.mark.parametrize("task", TASKS)
def test_no_shape_comes_twice(found, task):
    for key in ("inputs", "run"):
        shapes = [json.dumps(row[key]) for row in found[task]]
        assert len(set(shapes)) == len(shapes)


@pytest.mark.parametrize("task", TASKS)
def test_even_sizes_and_odd_ones_take_turns(found, task):
    """The small twin of an odd size is odd, and of an even one even, so that it has the same tails."""
    kinds = []
    for row in found[task][1:]:
        assert row["sizes"]
        kinds.append({value % 2 for value in row["sizes"].values()})
    assert all(kinds[0] != kind for kind in kinds[1::2]) or any(len(kind) > 1 for kind in kinds)


def test_the_same_judge_times_all_submissions_at_the_same_shapes(found):
    assert found["relu"] == found["again"]


def test_another_judge_times_at_others(found):
    sizes = lambda name: [row["sizes"] for row in found[name][1:]]
    assert sizes("relu") != sizes("other")
    assert len({json.dumps(first) for first in found["first"]}) > 8, "of 16 secrets"
    assert {value % 2 for first in found["first"] for value in first.values()} == {0, 1}


def test_what_is_compared_elsewhere_stays_the_same(found):
    assert found["single"][0] == found["relu"][0] and len(found["single"]) == 1


def test_a_task_that_runs_at_one_shape_alone_has_no_other(found):
    assert len(found["fixed"]) == 1


def test_what_a_task_does_at_odd_sizes_alone_is_not_timed(found):
    widths = [row["inputs"][0][1] for row in found["padded"]]
    assert len(widths) == 4 and not any(width % 2 for width in widths)


def test_a_shape_at_which_memory_gives_out_is_dropped(found):
    timed, dropped = found["cramped"]
    assert timed == 0 and len(dropped) == 3
    assert all(row["sizes"] and "out of memory" in row["why"] for row in dropped)


def test_what_others_hold_of_the_memory_drops_no_shape(found):
    assert found["beside others"] == "OutOfMemoryError"
