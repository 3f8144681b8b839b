"""An examination leaves no tensor to the garbage collector, which would come minutes later for a GPU's memory."""

from __future__ import annotations

import ast
import os
import subprocess
import sys
from pathlib import Path

import pytest

import drkernel

SCRIPT = """
import gc, torch
from drkernel.judge.boundary import aten
from drkernel.judge.boundary.construction import seed_one_generator
from drkernel.judge.trusted.exam_config import ExamConfig
from drkernel.judge.boundary.sandbox import Limits
from drkernel.judge.devices.simulated.examiner import PROCESS_SPEC, SimulatedExaminer
from drkernel.judge.trusted.processes.zygote import Zygote
from drkernel.types import DrKernelError, Task
from tests.judge.examples import examples, tasks

zygote = Zygote(Limits(host_memory_mib=4096, cpu_s=17), PROCESS_SPEC)
aten.install()
seed_one_generator()
examiner = SimulatedExaminer(zygote, ExamConfig(timeout_s=5.0, gate=False), b"a secret")
zygote.wait_ready()
chosen = [*examples("hacks", "simulated")[::24], *examples("honest", "simulated")[::6]]
for example in chosen:
    examiner.prepared(tasks()[example.task])
relu = tasks()["relu"].source
lazy = Task("zeros", relu.replace("torch.relu(x)", "torch.relu(x) * 0"))
narrow = Task("narrow", relu.replace("torch.relu(x)", "torch.relu(x.float() if x.dtype != torch.float64 else 1 / 0)"))
examiner.prepared(narrow)
honest = next(example.source for example in examples("honest", "simulated") if example.name == "106_try")
gc.collect()
gc.disable()
for example in chosen:
    examiner.judge(tasks()[example.task], example.source)
assert examiner.judge(narrow, honest).ok
try:
    examiner.prepared(lazy)
except DrKernelError as error:
    assert "degenerate" in str(error), error
else:
    raise AssertionError("a task whose answer is zero")
for task in [narrow, *(tasks()[example.task] for example in chosen)]:
    examiner.prepared(task).shared.forget()
left = [thing for thing in gc.get_objects() if isinstance(thing, torch.Tensor)]
print(len(chosen), len(left))
"""


@pytest.mark.slow
def test_an_examination_leaves_no_tensor_to_the_garbage_collector():
    environment = os.environ | {
        "TRITON_INTERPRET": "1",
        "PYTHONPATH": os.pathsep.join(sys.path),
        "PYTHONWARNINGS": "ignore",
    }
    answer = subprocess.run([sys.executable, "-c", SCRIPT], env=environment, capture_output=True, text=True)
    assert answer.returncode == 0, answer.stderr
    examined, left = map(int, answer.stdout.split()[-2:])
    assert examined > 30 and not left


SOURCES = sorted(
    path for part in ("judge", "tasks") for path in Path(drkernel.__file__).parent.joinpath(part).rglob("*.py")
)


def catches(function: ast.AST) -> bool:
    """Whether a generator catches what is thrown into it."""
    tries = [node for node in ast.walk(function) if isinstance(node, ast.Try) and node.handlers]
    return any(isinstance(node, ast.Yield) for each in tries for part in each.body for node in ast.walk(part))


@pytest.mark.parametrize("path", SOURCES, ids=lambda path: path.stem)
def test_no_context_manager_is_a_generator_that_catches(path):
    """From Python 3.12 on the error that it catches and the frames that the error came from keep each other."""
    managers = [
        node
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.FunctionDef) and any("contextmanager" in ast.unparse(d) for d in node.decorator_list)
    ]
    assert not [manager.name for manager in managers if catches(manager)]
