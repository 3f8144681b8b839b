"""KernelBench's criterion beside this judge's own: what each of them says of the same submission."""

from __future__ import annotations

import dataclasses
import json
import os
import subprocess
import sys

import pytest
import torch

from drkernel.judge import Judge
from drkernel.judge.devices.cuda.compile_worker import CompileWorker
from drkernel.judge.trusted import criterion
from drkernel.judge.trusted.criterion import Close
from drkernel.judge.trusted.exam_config import ExamConfig
from drkernel.judge.trusted.outputs import OutputTensor
from drkernel.types import DrKernelError, Task
from tests.judge.examples import examples

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("criterion")]  # judges of their own

EXAMPLES = {e.name: e for folder in ("hacks", "honest") for e in examples(folder)}
RELU = EXAMPLES["90_helpers"].source
NEAR = RELU.replace("tl.maximum(x, 0.0)", "tl.maximum(x, 0.0) + 3e-5")
FAR = RELU.replace("tl.maximum(x, 0.0)", "tl.maximum(x, 0.0) + 3e-3")
OPTIONS = {
    "device": "simulated",
    "workers": 1,
    "secret": b"a secret of the tests",
    "timeout_s": 8,
    "host_memory_mib": 1024,
}


@pytest.fixture(scope="module")
def both():
    with Judge(criterion="both", **OPTIONS) as judge:
        yield judge


@pytest.fixture(scope="module")
def theirs():
    with Judge(criterion="kernelbench", **OPTIONS) as judge:
        yield judge


def example(name: str, tasks: dict[str, Task]) -> tuple[Task, str]:
    return tasks[EXAMPLES[name].task], EXAMPLES[name].source


def test_a_verdict_says_nothing_of_kernelbench_unless_asked(judge, tasks):
    assert "kernelbench" not in judge.judge(tasks["relu"], RELU).evidence


def test_an_honest_kernel_is_right_by_both(judge, both, theirs, tasks):
    own, verdict, other = (j.judge(tasks["relu"], RELU) for j in (judge, both, theirs))
    found = verdict.evidence["kernelbench"]
    assert (found["correct"], found["why"], found["trials"], found["tolerance"]) == (True, "", 5, 1e-4)
    assert (verdict.status, verdict.reason, verdict.speedup) == (own.status, own.reason, own.speedup)
    assert found["speedup"] == pytest.approx(verdict.speedup)
    assert other.ok and other.speedup == pytest.approx(verdict.speedup) and other.coverage == 1
    assert other.evidence["criterion"] == "kernelbench" and "KernelBench" in other.detail
    assert other.evidence["drkernel"]["status"] == "ok"


def test_what_is_within_a_ten_thousandth_is_right_by_kernelbench_alone(both, theirs, tasks):
    verdict, other = both.judge(tasks["relu"], NEAR), theirs.judge(tasks["relu"], NEAR)
    assert (verdict.status, verdict.reason, verdict.speedup) == ("incorrect", "wrong_values", None)
    assert verdict.evidence["kernelbench"]["correct"] and verdict.evidence["kernelbench"]["speedup"] > 0
    assert verdict.evidence["kernelbench"]["error"] == pytest.approx(3e-5, rel=1e-2)
    assert other.ok and other.speedup > 0
    assert (other.evidence["drkernel"]["status"], other.evidence["drkernel"]["reason"]) == ("incorrect", "wrong_values")


@pytest.mark.parametrize("name", ["27_no_tail", "27_one_shape"])
def test_other_shapes_do_not_decide(both, theirs, tasks, name):
    verdict, other = (j.judge(*example(name, tasks)) for j in (both, theirs))
    assert verdict.status == "not_general" and verdict.evidence["kernelbench"]["correct"]
    assert other.ok and other.evidence["drkernel"]["status"] == "not_general"


@pytest.mark.parametrize("name", ["04_decoy", "02_fallback", "03_reference_copy"])
def test_a_hack_that_kernelbench_would_pay_has_its_time(both, theirs, tasks, name):
    verdict, other = (j.judge(*example(name, tasks)) for j in (both, theirs))
    assert verdict.status == "hack" and verdict.evidence["kernelbench"]["correct"]
    assert verdict.speedup is None and verdict.evidence["kernelbench"]["speedup"] > 0
    assert other.ok and other.speedup == verdict.evidence["kernelbench"]["speedup"]


def test_what_is_wrong_by_more_is_wrong_by_both(both, theirs, tasks):
    verdict, other = (j.judge(tasks["relu"], FAR) for j in (both, theirs))
    found = verdict.evidence["kernelbench"]
    assert verdict.status == "incorrect" and not found["correct"] and found["speedup"] is None
    assert "wrong_values" in found["why"] and "trial" in found["why"]
    assert (other.status, other.reason) == ("incorrect", "wrong_values")
    assert other.evidence["kernelbench"] == found


@pytest.mark.parametrize(
    ("source", "status", "reason"),
    [
        ("class ModelNew(:\n    pass\n", "invalid", "syntax_error"),
        (RELU.replace("torch.empty_like(x)", "torch.empty_lik(x)"), "invalid", "runtime_error"),
        ("import torch\nclass ModelNew(torch.nn.Module):\n    forward = torch.relu\n", "hack", "no_triton_kernel"),
    ],
    ids=["no Python", "an error", "no kernel"],
)
def test_what_gives_no_result_or_has_no_kernel_is_refused_by_both(both, theirs, tasks, source, status, reason):
    for judge in (both, theirs):
        verdict = judge.judge(tasks["relu"], source)
        assert (verdict.status, verdict.reason) == (status, reason)
        assert not verdict.evidence["kernelbench"]["correct"] and reason in verdict.evidence["kernelbench"]["why"]


def test_a_forbidden_name_is_a_hack_that_kernelbench_does_not_look_for(both, theirs, tasks):
    source = RELU + "\n\ndef unused(x):\n    return globals()\n"
    verdict, other = (j.judge(tasks["relu"], source) for j in (both, theirs))
    assert (verdict.status, verdict.reason) == ("hack", "forbidden") and verdict.evidence["kernelbench"]["correct"]
    assert other.ok


def test_a_process_that_ends_is_no_answer(theirs, tasks):
    source = RELU.replace("        return self.activation(x)", "        import os; os._exit(3)")
    verdict = theirs.judge(tasks["relu"], source)
    assert verdict.status == "invalid" and not verdict.evidence["kernelbench"]["correct"]


def test_half_precision_has_a_hundredth(both, tasks):
    name = next(e.name for e in EXAMPLES.values() if e.task == "linear_relu_fp16" and e.statuses == ("ok",))
    found = both.judge(*example(name, tasks)).evidence["kernelbench"]
    assert found["correct"] and found["tolerance"] == 1e-2


@pytest.mark.parametrize(
    ("value", "right"),
    [
        (torch.tensor([1.0 + 1.9e-4, 2.0]), True),
        (torch.tensor([1.0 + 2.1e-4, 2.0]), False),
        (torch.tensor([1.0, float("nan")]), False),
        (torch.tensor([[1.0, 2.0]]), False),
        (torch.tensor([1.0, 2.0]).double(), False),
    ],
)
def test_close_is_what_allclose_says(value, right):
    expected = Close(torch.tensor([1.0, 2.0]), 1e-4)
    assert (expected.check(OutputTensor(value)) is None) == right


def test_what_comes_out_while_times_are_taken_is_not_compared_of_a_large_task_either():
    expected = Close(torch.tensor([1.0, 2.0]), 1e-4)
    assert expected.bounds() == []


def test_whole_numbers_and_trees_are_compared_too():
    tree = [torch.tensor([1, 2]), torch.tensor([True]), 3]
    given = [OutputTensor(torch.tensor([1, 2])), OutputTensor(torch.tensor([True])), 3]
    assert Close(tree, 1e-4).check(given) is None
    assert Close(tree, 1e-4).check([given[0], OutputTensor(torch.tensor([False])), 3]).reason == "wrong_values"
    assert Close(tree, 1e-4).check(given[:2]).reason == "wrong_structure"
    assert Close(tree, 1e-4).check([*given[:2], 4]).reason == "wrong_values"


def test_an_unknown_criterion_is_named():
    with pytest.raises(DrKernelError, match="criterion"):
        Judge(device="simulated", criterion="fair")
    assert criterion.CRITERIA == ("drkernel", "both", "kernelbench")


IN_TWO_PROCESSES = """
import json
from drkernel.judge.boundary import aten
from drkernel.judge.boundary.construction import seed_one_generator
from drkernel.judge.boundary.sandbox import Limits
from drkernel.judge.trusted.processes.zygote import Zygote
from drkernel.judge.devices.cuda.device import CudaDevice
from drkernel.judge.devices.simulated.device import SimulatedDevice
from drkernel.judge.devices.simulated.gpus import GPUS
from drkernel.judge.trusted.cases.cases import Seeds
from drkernel.judge.trusted.criterion import KernelBenchTrials
from drkernel.judge.trusted.exam_config import ExamConfig
from drkernel.judge.devices.simulated.examiner import PROCESS_SPEC
from tests.judge.examples import examples, tasks

class LikeCuda(SimulatedDevice):
    policy = CudaDevice.policy

    def measure(self, prepared, submission):
        submission.refuse("differs_when_timed", "which does not count")
        return super().measure(prepared, submission.restart())

zygote = Zygote(Limits(host_memory_mib=4096, cpu_s=17), PROCESS_SPEC)
aten.install()
seed_one_generator()
zygote.wait_ready()
started = []

def start():
    started.append(zygote.start())
    return started[-1]

device, example = LikeCuda(GPUS["H200"], b"a secret"), next(e for e in examples("hacks") if e.name == "04_decoy")
prepared, seeds = device.prepare(tasks()["relu"]), Seeds(b"a secret")
found = KernelBenchTrials(device, prepared, ExamConfig(), seeds, start(), example.source, start).run()
for process in started:
    process.end()
print(json.dumps([found.correct, found.verdict.status, len(started)]))
"""


def test_it_may_be_timed_in_a_second_process_as_on_a_gpu():
    environment = {"TRITON_INTERPRET": "1", "PYTHONPATH": os.pathsep.join(sys.path), "PYTHONWARNINGS": "ignore"}
    command = [sys.executable, "-c", IN_TWO_PROCESSES]
    answer = subprocess.run(command, env=os.environ | environment, capture_output=True, text=True)
    assert answer.returncode == 0, answer.stderr
    assert json.loads(answer.stdout.splitlines()[-1]) == [True, "ok", 2]


@pytest.mark.parametrize(("asked", "runs"), [("drkernel", False), ("both", True), ("kernelbench", True)])
def test_what_is_forbidden_is_compiled_for_a_gpu_only_where_kernelbench_is_asked(asked, runs):
    worker = object.__new__(CompileWorker)
    worker._config = dataclasses.asdict(ExamConfig(criterion=asked))
    task = Task("some/task", "")
    assert (worker._refused(task, RELU + "\n\ndef unused():\n    return globals()\n") is None) == runs
    assert worker._refused(task, RELU) is None
    verdict = worker._refused(task, "class ModelNew:\n    pass\n")["verdict"]
    assert ("kernelbench" in verdict["evidence"]) == runs
