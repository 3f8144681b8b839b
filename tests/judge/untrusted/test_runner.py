"""What a runner observes of the calls that it answers."""

from __future__ import annotations

import contextlib
import dis
import inspect
from types import SimpleNamespace

import pytest

from drkernel.judge.boundary.shared_tensors import HostArea
from drkernel.judge.untrusted import runner as runner_module
from drkernel.judge.untrusted.cuda.runner import CudaRunner
from drkernel.judge.untrusted.runner import Runner

LARGE = 2**26 + 1
"""Numbers of an output: 256 MiB and a little."""
SOURCE = """
import torch, torch.nn as nn
class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.kept, self.calls = [torch.empty({numbers}) for _ in range({buffers})], 0
    def forward(self):
        self.calls += 1
        y = self.kept[self.calls % {buffers}] if {buffers} else torch.empty({numbers})
        return y.fill_(self.calls)
"""


class Unrecorded(Runner):
    @staticmethod
    @contextlib.contextmanager
    def record(skip, budget):
        yield SimpleNamespace(to_json=dict)


@pytest.mark.parametrize("numbers", [64, pytest.param(LARGE, marks=pytest.mark.slow)])
@pytest.mark.parametrize(("buffers", "overwrites"), [(0, False), (1, True)])
def test_a_call_that_changes_the_last_output_is_seen_however_large_that_is(numbers, buffers, overwrites):
    runner = Unrecorded(HostArea.create("in", 2**16), HostArea.create("out", 4 * numbers + 2**16))
    source = SOURCE.format(numbers=numbers, buffers=buffers)
    nothing = {"list": [{"list": []}, {"dict": []}]}
    build = {"do": "build", "model": 0, "args": nothing, "slots": [], "seed": 0, "how": {"active": False}}
    call = {"do": "call", "model": 0, "args": {"list": []}, "slots": [], "train": False, "seed": 0, "skip": []}
    first, second = ({"do": "load", "source": source, "name": "ModelNew"}, build)
    assert "error" not in runner.answer(first) and "error" not in runner.answer(second)
    found = [runner.answer(call | {"budget": 0.0}) for _ in range(2)]
    assert [reply["overwrites"] for reply in found] == [False, overwrites]


def test_a_runner_on_a_gpu_replaces_what_the_simulated_device_alone_has():
    """A GPU's sandbox does not let a runner import the simulated device's modules."""
    methods = [value for value in vars(Runner).values() if inspect.isfunction(value)]
    used = {step.argval for method in methods for step in dis.get_instructions(method) if step.opname == "LOAD_GLOBAL"}
    assert not [name for name in used if is_simulated(getattr(runner_module, name, None))]
    assert {name for name in vars(Runner) if is_simulated(getattr(Runner, name))} <= vars(CudaRunner).keys()


def is_simulated(value: object) -> bool:
    return str(getattr(value, "__module__", "")).startswith("drkernel.judge.untrusted.simulated")
