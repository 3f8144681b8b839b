"""One examination asks what its device's policy says. The policy of a GPU is tried here on modelled times."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("examination")]  # one worker runs the script
SCRIPT = """
import json
from drkernel.judge.boundary import aten
from drkernel.judge.boundary.construction import seed_one_generator
from drkernel.judge.boundary.framing import PeerClosed
from drkernel.judge.boundary.sandbox import Limits
from drkernel.judge.trusted.processes.zygote import Zygote
from drkernel.judge.devices.cuda.device import CudaDevice
from drkernel.judge.devices.simulated.device import SimulatedDevice
from drkernel.judge.devices.simulated.gpus import GPUS
from drkernel.judge.trusted.cases.cases import Seeds
from drkernel.judge.trusted.exam_config import ExamConfig
from drkernel.judge.trusted.examination import Examination
from drkernel.judge.devices.simulated.examiner import PROCESS_SPEC
from tests.judge.examples import examples, tasks

NAMES = {NAMES!r}

class LikeCuda(SimulatedDevice):
    policy = CudaDevice.policy

    def measure(self, prepared, submission):
        return super().measure(prepared, submission.restart())

zygote = Zygote(Limits(host_memory_mib=4096, cpu_s=17), PROCESS_SPEC)
aten.install()
seed_one_generator()
zygote.wait_ready()
started, found = [], {{}}

def start():
    started.append(zygote.start())
    return started[-1]

for kind in (SimulatedDevice, LikeCuda):
    device = kind(GPUS["H200"], b"a secret")
    for example in examples("hacks") + examples("honest"):
        if example.name in NAMES:
            config = ExamConfig(timeout_s=8.0, gate=False)
            seeds = Seeds(b"a secret", example.name)
            prepared = device.prepare(tasks()[example.task])
            products = frozenset({{"TF32"}} if "tf32" in example.name else ())
            exam = Examination(
                device, prepared, config, seeds, start(), example.source, restart=start, products=products
            )
            verdict = exam.run()
            explained = "is right in TF32; this task asks for fp32: input_precision='ieee'" in verdict.detail
            facts = verdict.status, verdict.reason, len(started), verdict.general, explained
            found[f"{{kind.__name__}} {{example.name}}"] = facts
            for process in started:
                process.end()
            started.clear()

class Watched(LikeCuda):
    # Notes what it is asked to measure.

    def measure(self, prepared, submission):
        once = SimulatedDevice.measure(self, prepared, submission)
        for each in (submission, submission.restart()):
            shape, model = list(each.case.inputs[0].shape), each.case.plan.model
            same = each.reference_model.reference is prepared.reference
            measured.append([shape, model, same, each.seeds("timed", 0), each.client is submission.client])
        return once

device, measured = Watched(GPUS["H200"], b"a secret", 3), []
config = ExamConfig(timeout_s=8.0, timed_shapes=3)
example = next(e for e in examples("honest") if e.name == "84_elementwise")
prepared = device.prepare(tasks()[example.task])
seeds = Seeds(b"a secret", example.name)
exam = Examination(device, prepared, config, seeds, start(), example.source, restart=start)
verdict = exam.run()
rows = verdict.evidence["timed_shapes"]["shapes"]
shapes = [list(p.reference.inputs(0)[0].shape) for p in (prepared, *prepared.timed)]
found["several shapes"] = [verdict.status, len(started), measured, shapes, rows]
for process in started:
    process.end()
print(json.dumps(found))
"""
EXPECTED = {
    "17_default_weights": ("incorrect", "wrong_values"),
    "24_tf32_dot": ("incorrect", "wrong_values"),
    "27_one_shape": ("not_general", "wrong_on_other_shape"),
    "31_cache_sum": ("hack", "no_triton_launch"),
    "04_decoy": ("hack", "launch_without_effect"),
    "08_padding": ("ok", "slower"),
    "95_tf32x3": ("ok", None),
    "84_elementwise": ("ok", None),
    "113_raises_elsewhere": ("ok", None),
    "329_left_to_pytorch_elsewhere": ("ok", None),
    "115_batch_norm_folded": ("ok", None),
}
"""Status and reason by submission, on any device."""


@pytest.fixture(scope="module")
def found():
    environment = os.environ | {
        "TRITON_INTERPRET": "1",
        "PYTHONPATH": os.pathsep.join(sys.path),
        "PYTHONWARNINGS": "ignore",
    }
    script = SCRIPT.format(NAMES=tuple(EXPECTED))
    answer = subprocess.run([sys.executable, "-c", script], env=environment, capture_output=True, text=True)
    assert answer.returncode == 0, answer.stderr
    return json.loads(answer.stdout.splitlines()[-1])


@pytest.mark.parametrize("kind", ["SimulatedDevice", "LikeCuda"])
@pytest.mark.parametrize("name", EXPECTED)
def test_a_verdict_does_not_depend_on_which_cases_a_policy_prefers(found, kind, name):
    status, reason, processes, general, explained = found[f"{kind} {name}"]
    assert (status, reason if EXPECTED[name][1] else None) == EXPECTED[name]
    assert processes == 1 + (kind == "LikeCuda" and status == "ok"), "timed in a second process, where the device asks"
    assert general == (name != "113_raises_elsewhere")
    assert explained == (name == "24_tf32_dot")


def test_each_shape_is_measured_as_the_published_one_is_in_processes_of_its_own(found):
    status, processes, measured, shapes, rows = found["several shapes"]
    assert status == "ok" and len(shapes) == len(rows) == 3
    assert processes == 6, "two for each shape"
    assert [shape for shape, *_ in measured] == [shape for shape in shapes for _ in range(2)]
    assert [model for _, model, *_ in measured] == [0, 0, 4, 4, 5, 5]
    assert all(same for _, _, same, *_ in measured), "the reference's model is that of the shape"
    assert len({seed for *_, seed, _ in measured}) == 3, "inputs of one shape tell nothing of those of another"
    assert [same for *_, same in measured] == [True, False] * 3
