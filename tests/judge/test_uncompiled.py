"""Kernels that Python runs and Triton does not compile for an H200: the simulated device refuses them, as a GPU does.

The folder submissions/uncompiled has them. Each is right in Triton's interpreter.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest

from drkernel.judge import Judge
from tests.judge.examples import examples

UNCOMPILED = examples("uncompiled")
BEFORE = {"42_block_too_large": "InterpreterError", "43_too_many_warps": "ThreadsExceeded"}
"""What is refused by another name before the compiler is asked."""


@pytest.fixture(scope="module")
def errors(tmp_path_factory):
    """What Triton raises, by file."""
    paths = {"PYTHONPATH": os.pathsep.join(sys.path), "TRITON_CACHE_DIR": str(tmp_path_factory.mktemp("cache"))}
    command = [sys.executable, "-W", "ignore", "-m", "tests.judge.compiled", "uncompiled"]
    environment = os.environ | paths | {"TRITON_INTERPRET": "0"}
    done = subprocess.run(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, check=True)
    lines = done.stdout.decode().splitlines()
    rows = [json.loads(line) for line in lines if line.startswith('{"name"')]  # the compiler prints, too
    return {row["name"]: row["error"] for row in rows}


@pytest.fixture(scope="module")
def verdicts(judge, tasks):
    pending = {example.name: judge.submit(tasks[example.task], example.source) for example in UNCOMPILED}
    return {name: future.result() for name, future in pending.items()}


@pytest.mark.slow
@pytest.mark.xdist_group("uncompiled")
@pytest.mark.parametrize("name", [example.name for example in UNCOMPILED])
def test_triton_does_not_compile_it_and_the_judge_says_so(name, errors, verdicts):
    verdict = verdicts[name]
    assert errors[name], "Triton compiles it"
    error = BEFORE.get(name, errors[name])
    assert (verdict.status, verdict.reason, verdict.evidence["error"]) == ("invalid", "runtime_error", error)


HEAD = "import torch\nimport torch.nn as nn\nimport triton\nimport triton.language as tl\n\n\n"
KERNEL = """@triton.jit
def {name}(x_ptr, y_ptr, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(y_ptr + i, tl.maximum(tl.load(x_ptr + i, mask={mask}), 0.0), mask=i < n)


"""
MODEL = """class ModelNew(nn.Module):
    def forward(self, x):
        y = torch.empty_like(x)
        grid = lambda meta: (triton.cdiv(x.numel(), meta["BLOCK"]),)
        {launch}
        return y
"""
CHAIN, PLAIN = KERNEL.format(name="chain", mask="0 <= i < n"), KERNEL.format(name="plain", mask="i < n")
LAUNCH = "{}[grid](x, y, x.numel(), BLOCK=1024)"


def source(*kernels: str, launch: str) -> str:
    return HEAD + "".join(kernels) + MODEL.format(launch=launch)


def judged(judge: Judge, tasks: dict, *kernels: str, launch: str):
    return judge.judge(tasks["relu"], source(*kernels, launch=launch))


def test_a_refusal_names_the_line_and_the_compilers_reason(judge, tasks):
    verdict = judged(judge, tasks, CHAIN, launch=LAUNCH.format("chain"))
    text = "UnsupportedLanguageConstruct: line 10: simultaneous multiple comparison is not supported"
    assert (verdict.reason, verdict.evidence["line"]) == ("runtime_error", 10) and text in verdict.detail


def test_whoever_catches_the_compilers_error_has_no_kernel_on_a_gpu(judge, tasks):
    launch = "try:\n            {}\n        except Exception:\n            y = torch.relu(x)"
    verdict = judged(judge, tasks, CHAIN, launch=launch.format(LAUNCH.format("chain")))
    assert (verdict.status, verdict.evidence["error"]) == ("invalid", "UnsupportedLanguageConstruct")
    launch = "try:\n            {}\n        except Exception:\n            {}"
    both = launch.format(LAUNCH.format("chain"), LAUNCH.format("plain"))
    assert judged(judge, tasks, CHAIN, PLAIN, launch=both).ok


def test_a_trace_that_fails_for_another_reason_refuses_nothing(judge, tasks):
    launch = "y += float(x.sum()) * 0\n        " + LAUNCH.format("plain")
    assert judged(judge, tasks, PLAIN, launch=launch).ok


CONFIGURATIONS = """@triton.autotune([{}], key=["n"])
"""
CONFIG = 'triton.Config({{"BLOCK": {}}}, num_warps={})'


def test_an_autotuner_leaves_out_what_a_gpu_cannot_load(judge, tasks):
    launch = "plain[grid](x, y, x.numel())"
    tuned = lambda *configurations: CONFIGURATIONS.format(", ".join(configurations)) + PLAIN
    asserting = PLAIN.replace("    i =", "    tl.static_assert(BLOCK != 256)\n    i =")
    assert judged(judge, tasks, tuned(CONFIG.format(1024, 64), CONFIG.format(1024, 4)), launch=launch).ok
    two = CONFIGURATIONS.format(", ".join((CONFIG.format(1024, 4), CONFIG.format(256, 4))))
    assert judged(judge, tasks, two + asserting, launch=launch).ok
    verdict = judged(judge, tasks, tuned(CONFIG.format(1024, 64), CONFIG.format(512, 64)), launch=launch)
    assert (verdict.status, verdict.reason) == ("invalid", "runtime_error")


def test_what_does_not_compile_is_nothing_by_kernelbenchs_criterion_either(tasks):
    options = {"device": "simulated", "workers": 1, "secret": b"s", "timeout_s": 8, "host_memory_mib": 1024}
    with Judge(**options, criterion="kernelbench") as judge:
        verdict = judged(judge, tasks, CHAIN, launch=LAUNCH.format("chain"))
        assert (verdict.status, verdict.reason) == ("invalid", "runtime_error")
        assert not verdict.evidence["kernelbench"]["correct"]
        assert judged(judge, tasks, PLAIN, launch=LAUNCH.format("plain")).ok
