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
from drkernel.types import Task
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


@pytest.mark.parametrize(
    "launch",
    [
        "try:\n            {}\n        except Exception:\n            raise ValueError('no') from None",
        "assert x[:0].tolist() == []\n        {}",
        "assert x[:1].equal(x[:1])\n        {}",
        "assert (x[0, 0] * 0).item() == 0\n        {}",
        "assert not x[0].isnan().any()\n        {}",
        "x[0][x[0] > 0].sum()\n        {}",
        "while not (x[:1] == x[:1]).all():\n            pass\n        {}",
        "if torch.equal(x[:1], y[:1] + 2):\n            return y\n        {}",
        "if not torch.equal(x[:1], x[:1]):\n            return y\n        {}",
    ],
)
def test_what_ends_a_trace_later_or_needs_data_hides_no_kernel(judge, tasks, launch):
    verdict = judged(judge, tasks, CHAIN, launch=launch.format(LAUNCH.format("chain")))
    assert (verdict.status, verdict.evidence["error"]) == ("invalid", "UnsupportedLanguageConstruct")


DESCRIBED = """@triton.jit
def described(x_ptr, y_ptr, n, BLOCK: tl.constexpr):
    x = tl.make_tensor_descriptor(x_ptr, [n], [1], [BLOCK])
    y = tl.make_tensor_descriptor(y_ptr, [n], [1], [BLOCK])
    i = tl.program_id(0) * BLOCK
    y.store([i], tl.maximum(x.load([i]), 0.0))


"""


def test_a_descriptor_of_a_kernel_needs_an_allocator(judge, tasks):
    launch = LAUNCH.format("described").replace("1024", "256")
    verdict = judged(judge, tasks, DESCRIBED, launch=launch)
    assert (verdict.status, verdict.reason) == ("invalid", "runtime_error") and "set_allocator" in verdict.detail
    allocator = (
        "triton.set_allocator(lambda size, align, stream: torch.empty(size, dtype=torch.int8, device='cuda'))\n        "
    )
    assert judged(judge, tasks, DESCRIBED, launch=allocator + launch).ok


ODD = """
import torch
import torch.nn as nn
ROWS, COLUMNS = 4096, 4097
class Model(nn.Module):
    def forward(self, x):
        return torch.relu(x)
def get_inputs():
    return [torch.randn(ROWS, COLUMNS)]
def get_init_inputs():
    return []
SMALL = {"ROWS": 32, "COLUMNS": 64}
"""
ROWS_OF_BLOCKS = """@triton.jit
def rows(x_ptr, y_ptr, m, n, OWN: tl.constexpr, B: tl.constexpr):
    x = tl.make_tensor_descriptor(x_ptr, [m, n], [n, 1], [B, B]) if OWN else x_ptr
    i, j = tl.program_id(0) * B, tl.program_id(1) * B
    row, column = i + tl.arange(0, B)[:, None], j + tl.arange(0, B)[None, :]
    tl.store(y_ptr + row * n + column, tl.maximum(x.load([i, j]), 0.0), mask=(row < m) & (column < n))


"""


@pytest.mark.parametrize("of_kernel", [True, False])
def test_strides_of_a_descriptor_must_be_multiples_of_16_bytes_at_the_published_sizes(judge, of_kernel):
    given = "x" if of_kernel else "TensorDescriptor.from_tensor(x, [32, 32])"
    launch = f"""triton.set_allocator(lambda size, align, stream: torch.empty(size, dtype=torch.int8, device="cuda"))
        m, n = x.shape
        rows[(triton.cdiv(m, 32), triton.cdiv(n, 32))]({given}, y, m, n, OWN={of_kernel}, B=32)"""
    code = source("from triton.tools.tensor_descriptor import TensorDescriptor\n\n\n", ROWS_OF_BLOCKS, launch=launch)
    even = judge.judge(Task("even", ODD.replace("4097", "4096")), code)
    assert even.ok, even
    verdict = judge.judge(Task("odd", ODD), code)
    assert (verdict.status, verdict.reason) == ("invalid", "runtime_error") and "16" in verdict.detail


def test_a_cluster_has_at_most_16_blocks(judge, tasks):
    launch = LAUNCH.format("plain").replace("BLOCK=1024", "BLOCK=1024, num_ctas=32")
    verdict = judged(judge, tasks, PLAIN, launch=launch)
    assert (verdict.status, verdict.reason) == ("invalid", "runtime_error") and "num_ctas" in verdict.detail


def test_a_trace_that_fails_for_another_reason_refuses_nothing(judge, tasks):
    launch = "y += float(x.sum()) * 0\n        " + LAUNCH.format("plain")
    assert judged(judge, tasks, PLAIN, launch=launch).ok


def test_a_block_whose_size_is_read_need_not_compile_at_each_guess(judge, tasks):
    asserting = PLAIN.replace("    i =", "    tl.static_assert(BLOCK >= 64)\n    i =")
    launch = "size = int((x[0, 0] * 0 + 64).item())\n        plain[grid](x, y, x.numel(), BLOCK={})"
    assert judged(judge, tasks, asserting, launch=launch.format("size")).ok
    verdict = judged(judge, tasks, asserting.replace("64", "2048"), launch=launch.format("size"))
    assert (verdict.status, verdict.reason) == ("invalid", "runtime_error")


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
