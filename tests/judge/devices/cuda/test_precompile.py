"""Kernels are found without a GPU, compiled to cubins, and found again by Triton itself."""

from __future__ import annotations

import ctypes
import json
import os
import subprocess
import sys
from multiprocessing.connection import Pipe
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

from drkernel.judge.devices.cuda import precompile, ptxas
from drkernel.judge.devices.cuda.precompile import Call, Compiled
from drkernel.judge.trusted.processes.failures import Failed

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("precompile")]  # one compile worker

WORKSHOP = Path(__file__).with_name("workshop.py")
HEAD = """
import torch
import triton
import triton.language as tl
"""
ADD = (
    HEAD
    + """
@triton.jit
def twice(v):
    return v + v

@triton.jit
def add(x, y, n, B: tl.constexpr):
    i = tl.program_id(0) * B + tl.arange(0, B)
    tl.store(y + i, twice(tl.load(x + i, mask=i < n)), mask=i < n)
"""
)
MODEL = """
class ModelNew(torch.nn.Module):
    def forward(self, x):
        y = torch.empty_like(x)
        {launch}
        return y
"""


@pytest.fixture(scope="module")
def workshop():
    ours, theirs = Pipe()
    paths = [*os.environ.get("PYTHONPATH", "").split(":"), str(Path(precompile.__file__).parents[4])]
    environment = {**os.environ, "TRITON_INTERPRET": "0", "PYTHONPATH": ":".join(paths)}
    handle = theirs.fileno()
    process = subprocess.Popen([sys.executable, WORKSHOP, str(handle)], pass_fds=[handle], env=environment)
    theirs.close()
    yield ours
    process.kill()
    process.wait()


@pytest.fixture
def compile(workshop, tmp_path):
    def compile(source: str, *inputs: list, init: tuple = ((), {}), missing: tuple = ()) -> Compiled:
        calls = [Call.of([list(init[0]), init[1]], list(values), train=False) for values in inputs]
        workshop.send((source, calls, missing, tmp_path, None, os.environ.get("TRITON_LIBCUDA_PATH", "")))
        answer = workshop.recv()
        return Compiled(**{**answer, "failure": answer["failure"] and Failed(*answer["failure"])})

    return compile


@pytest.fixture
def launched(workshop, tmp_path):
    def launched(source: str, *inputs: torch.Tensor, cache_only: bool = True) -> dict:
        calls = [Call.of([[], {}], list(inputs), False)]
        workshop.send((source, calls, (), tmp_path, {"cache_only": cache_only}, ""))
        return workshop.recv()

    return launched


def meta(*shape: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    return torch.empty(shape, dtype=dtype, device="meta")


def groups(folder: Path) -> dict[str, list[dict]]:
    """The metadata of the compiled kernels, by name."""
    found: dict[str, list[dict]] = {}
    for path in sorted((folder / "kernels").glob("*/__grp__*.json")):
        name = path.name.removeprefix("__grp__")
        found.setdefault(name.removesuffix(".json"), []).append(json.loads((path.parent / name).read_text()))
    return found


def launching(source: str, launch: str) -> str:
    return source + MODEL.format(launch=launch)


def test_triton_itself_finds_every_kernel_and_runs_no_stage(compile, launched):
    source = launching(ADD, "add[(9,)](x, y, x.numel(), B=64)")
    assert compile(source, [meta(1000)]).kernels == 1
    assert launched(source, meta(1000), cache_only=False) == {"error": None, "met": []}
    assert launched(source, meta(1000)) == {"error": None, "met": []}


def test_a_view_off_the_alignment_and_a_length_off_sixteen_are_kernels_of_their_own(compile, launched):
    launch = "add[(9,)](x, y, x.numel(), B=64); add[(9,)](x[1:], y, x.numel() - 1, B=64)"
    source = launching(ADD, launch)
    assert compile(source, [meta(1024)], [meta(4096)]).kernels == 2
    assert launched(source, meta(2048))["error"] is None
    assert launched(source, meta(1025))["error"]["type"] == "MissingKernel"
    assert compile(source, [meta(1025)]).kernels == 2  # (aligned, 1025) and (misaligned, 1024); nothing twice
    assert launched(source, meta(1025))["error"] is None


def test_matmul_is_compiled_for_the_tensor_cores_of_the_target(compile, tmp_path):
    source = launching(
        HEAD
        + """
@triton.jit
def product(x, y, n, N: tl.constexpr):
    i = tl.arange(0, N)
    at = i[:, None] * n + i[None, :]
    a = tl.load(x + at)
    tl.store(y + at, tl.dot(a, a).to(y.dtype.element_ty))
""",
        "product[(1,)](x, y, x.stride(0), N=128)",
    )
    assert compile(source, [meta(128, 128, dtype=torch.float16)]).kernels == 1
    (kernel,) = groups(tmp_path)["product"]
    assert kernel["target"] == {"backend": "cuda", "arch": 90, "warp_size": 32}
    cubin = next((tmp_path / "kernels").glob("*/product.cubin")).read_bytes()
    assert cubin.startswith(b"\x7fELF") and kernel["shared"] > 0


TUNED = (
    HEAD
    + """
def fitting(configs, named, **_):
    return [config for config in configs if config.kwargs["B"] <= named["n"]]

@triton.autotune(
    configs=[triton.Config({"B": 64}, num_warps=2), triton.Config({"B": 128}), triton.Config({"B": 2048})],
    key=["n"], prune_configs_by={"early_config_prune": fitting}, reset_to_zero=["y"],
)
@triton.heuristics({"EVEN": lambda args: args["n"] % args["B"] == 0})
@triton.jit
def tuned(x, y, n, B: tl.constexpr, EVEN: tl.constexpr):
    i = tl.program_id(0) * B + tl.arange(0, B)
    tl.static_assert(B != FORBIDDEN, "that block size is out of the question")
    tl.store(y + i, tl.load(x + i) if EVEN else tl.load(x + i, mask=i < n), mask=i < n)
"""
)
LAUNCH_TUNED = "tuned[lambda meta: (triton.cdiv(x.numel(), meta['B']),)](x, y, x.numel())"


def test_an_autotuner_gets_every_configuration_that_it_does_not_prune(compile, launched):
    source = launching(TUNED.replace("FORBIDDEN", "1"), LAUNCH_TUNED)
    assert compile(source, [meta(192)]).kernels == 2  # 64 even, 128 not
    assert compile(source, [meta(4096)]).kernels == 2  # 64 is there
    assert launched(source, meta(4096))["error"] is None
    assert launched(source, meta(100))["error"]["type"] == "MissingKernel"


def test_a_configuration_that_fails_to_compile_is_pruned_there_as_it_would_be(compile, tmp_path, launched):
    source = launching(TUNED.replace("FORBIDDEN", "128"), LAUNCH_TUNED)
    compiled = compile(source, [meta(4096)])
    assert (compiled.kernels, compiled.failure) == (2, None)
    (marker,) = (tmp_path / "kernels").glob("*/failure.json")
    assert json.loads(marker.read_text())["type"] == "CompileTimeAssertionFailure"
    assert launched(source, meta(4096))["error"] is None


def test_a_kernel_that_fails_to_compile_is_the_submissions_failure_with_its_line(compile, launched):
    source = launching(ADD.replace("return v + v", "return v + w"), "add[(9,)](x, y, x.numel(), B=64)")
    compiled = compile(source, [meta(64)], [meta(1000)])
    line = source.splitlines().index("    return v + w") + 1
    assert (compiled.failure.kind, compiled.failure.line, compiled.call) == ("CompilationError", line, 0)
    assert "w is not defined" in compiled.failure.message and f"line {line}" in compiled.failure.message
    raised = launched(source, meta(64))["error"]
    assert raised == {"type": "CompilationError", "message": compiled.failure.message}


def test_a_kernel_that_no_gpu_can_load_is_the_submissions_failure_at_its_launch(compile):
    source = launching(ADD, "add[(9,)](x, y, x.numel(), B=64, num_warps=64)")
    failure = compile(source, [meta(64)]).failure
    assert (failure.kind, failure.line) == ("OutOfResources", len(source.splitlines()) - 1)
    assert failure.message.startswith("out of resource: threads, Required: 2048, Hardware limit: 1024")


@pytest.mark.parametrize(
    ("source", "kind", "line"),
    [
        ("import torch\nx = (", "SyntaxError", 2),
        ("import torch\nimport a_module_that_is_not", "ModuleNotFoundError", 2),
        ("import torch", "AttributeError", None),
        (HEAD + "undefined_name", "NameError", 5),
        (launching(ADD, "undefined_name(x)"), "NameError", 18),
    ],
)
def test_errors_that_no_gpu_would_mend_are_failures(compile, source, kind, line):
    failure = compile(source, [meta(64)]).failure
    assert (failure.kind, failure.line) == (kind, line)


def test_what_depends_on_values_ends_the_trace_and_keeps_what_was_found(compile):
    launch = "add[(9,)](x, y, x.numel(), B=64); add[(9,)](x, y, int(x.sum().item()), B=128)"
    compiled = compile(launching(ADD, launch), [meta(64)])
    assert (compiled.kernels, compiled.failure) == (1, None)


def test_a_number_read_back_from_what_the_submission_made_itself_is_known_until_it_is_overwritten(compile):
    read = "add[(9,)](x, y, torch.full((), 7).item(), B=64)"
    assert compile(launching(ADD, read), [meta(64)]).kernels == 1
    loop = "flag = torch.ones(1)\n        while flag.item():\n            add[(9,)](x, flag, 5, B=32)"
    assert compile(launching(ADD, loop), [meta(64)]).kernels == 1
    loop = "flag = torch.ones(1)\n        while flag.item():\n            flag.mul_(0)"
    assert compile(launching(ADD, loop), [meta(64)]).failure is None


def test_what_was_missing_is_compiled_from_its_description(launched, compile, tmp_path):
    source = (
        ADD
        + """
@triton.jit
def apply(x, y, f: tl.constexpr, T: tl.constexpr, scale, pair, n, M: tl.constexpr):
    i = tl.arange(0, 64)
    tl.store(y + i, f(tl.load(x + i).to(T) * scale) + pair[0], mask=i < n)
"""
    ) + MODEL.format(launch="REPLACED\n        apply[(1,)](x, y, twice, tl.float16, 0.1, (1, 32), 1, (2, None))")
    blind = source.replace("REPLACED", "x.sum().item()")
    assert compile(blind, [meta(64)]).kernels == 0
    seen = source.replace("REPLACED", "pass")
    met = launched(seen, meta(64))["met"]
    assert met[0]["kernel"] == "apply" and json.loads(json.dumps(met)) == met
    absurd = ({}, {"kernel": "nothing"}, {"kernel": "os:system"}, {**met[0], "kernel": "ModelNew"})
    compiled = compile(blind, [meta(64)], missing=(*absurd, *met))
    assert (compiled.kernels, compiled.failure) == (1, None)
    assert launched(seen, meta(64))["error"] is None


def test_an_autotuner_describes_all_its_missing_configurations_at_once(compile, tmp_path, launched):
    source = launching(TUNED.replace("FORBIDDEN", "1"), LAUNCH_TUNED)
    (tmp_path / "kernels").mkdir()
    answer = launched(source, meta(4096))
    assert answer["error"]["type"] == "MissingKernel" and len(answer["met"]) >= 3
    assert compile(source.replace("y = torch", "x.sum().item(); y = torch"), [meta(4096)], missing=answer["met"])
    assert launched(source, meta(4096))["error"] is None


def test_weights_and_constructors_that_need_values(compile):
    model = """
class ModelNew(torch.nn.Module):
    def __init__(self, size, slope=1.0):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.rand(size, size))
        self.scale = float(torch.rand(3).sum())
        self.packed = torch.cat([self.weight, self.weight])

    def forward(self, x):
        assert x.is_cuda and x.device == self.weight.device == torch.device("cuda:0") == self.packed.device
        assert torch.cuda.is_available() and torch.cuda.get_device_capability() == (9, 0)
        y = torch.empty(x.shape, device=x.device)
        add[(9,)](self.packed @ x, y, 64, B=64)
        add[(9,)](torch.zeros(5), y, 5, B=64)
        return torch.relu(y)
"""
    compiled = compile(ADD + model, [meta(64, 64)], init=((64,), {"slope": 2.0}))
    assert (compiled.kernels, compiled.failure) == (2, None)


def test_a_custom_operator_runs_its_own_function(compile):
    source = (
        ADD
        + """
@torch.library.custom_op("precompiled::add", mutates_args=())
def operator(x: torch.Tensor) -> torch.Tensor:
    y = torch.empty_like(x)
    add[(9,)](x[1:], y, x.numel(), B=64)
    return y

@operator.register_fake
def _(x):
    return torch.empty_like(x)

class ModelNew(torch.nn.Module):
    def forward(self, x):
        return torch.ops.precompiled.add(x) + 1
"""
    )
    assert compile(source, [meta(64)]).kernels == 1


def test_options_of_ptxas_beyond_a_few_are_refused(compile, tmp_path):
    source = launching(ADD, "add[(9,)](x, y, 5, B=64, ptx_options=OPTIONS)")
    assert compile(source.replace("OPTIONS", "'--maxrregcount=64'"), [meta(64)]).failure is None
    forged = f"'-o {tmp_path}/forged'"
    failure = compile(source.replace("OPTIONS", forged), [meta(64)]).failure
    assert failure.kind == "PTXASError" and "ptx_options" in failure.message
    assert not (tmp_path / "forged").exists()


def test_what_ptxas_refuses_is_the_submissions_failure(launched, compile, tmp_path):
    source = launching(
        HEAD
        + """
@triton.jit
def broken(x, y):
    i = tl.arange(0, 64)
    v = tl.inline_asm_elementwise("nonsense $0, $1;", "=f,f", [tl.load(x + i)], tl.float32, True, 1)
    tl.store(y + i, v)
""",
        "broken[(1,)](x, y)",
    )
    failure = compile(source, [meta(64)]).failure
    assert failure.kind == "PTXASError" and "broken" in failure.message and str(tmp_path) not in failure.message
    assert launched(source, meta(64))["error"]["type"] == "PTXASError"


def test_warming_the_shared_folder_does_not_fail_without_a_driver(tmp_path):
    precompile.warm_shared(tmp_path)


DRIVER = "cuGetErrorString cuPointerGetAttribute cuCtxGetCurrent cuCtxSetCurrent cuDeviceGet cuDevicePrimaryCtxRetain"
DRIVER += " cuFuncSetAttribute"


@pytest.fixture
def libcuda(tmp_path, monkeypatch):
    """Something to link with where there is no driver."""
    source, library = tmp_path / "driver.c", tmp_path / "libcuda.so.1"
    source.write_text("".join(f"int {name}() {{ return 1; }}" for name in DRIVER.split()))
    subprocess.run(["gcc", "-shared", "-fPIC", "-Wl,-soname,libcuda.so.1", "-o", library, source], check=True)
    monkeypatch.setenv("TRITON_LIBCUDA_PATH", str(tmp_path))
    remembered = precompile.launching.libcuda_dirs, precompile.launching.library_dirs
    for function in remembered:
        function.cache_clear()
    yield library
    for function in remembered:
        function.cache_clear()


def test_shared_modules_are_built_once_and_put_beside_the_kernels(libcuda, compile, tmp_path):
    assert precompile.warm_shared(tmp_path / "shared")
    (module,) = (tmp_path / "shared").rglob("cuda_utils*.so")
    built = module.stat()
    assert precompile.warm_shared(tmp_path / "shared") and module.stat() == built
    assert compile(launching(ADD, "add[(9,)](x, y, 5, B=64)"), [meta(64)]).failure is None
    assert (tmp_path / "kernels" / module.relative_to(tmp_path / "shared")).exists()


@pytest.mark.skipif(ptxas.VERSION >= (3, 7), reason="this Triton launches without a C module per signature")
def test_a_launcher_is_found_by_triton(libcuda, compile, tmp_path, monkeypatch):
    from triton.runtime import build

    assert compile(launching(ADD, "add[(9,)](x, y, x.numel(), B=64)"), [meta(64)]).kernels == 1
    (launcher,) = (tmp_path / "kernels").rglob("__triton_launcher*")
    ctypes.CDLL(str(libcuda))
    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path / "kernels"))
    monkeypatch.setattr(build, "_build", lambda *_: pytest.fail("a compiler ran"))
    source = SimpleNamespace(constants={(3,): 64}, signature={"x": "*fp32", "y": "*fp32", "n": "i32", "B": "constexpr"})
    sizes = dict.fromkeys(("global_scratch_size", "global_scratch_align", "profile_scratch_size"), 0)
    metadata = SimpleNamespace(**sizes, profile_scratch_align=1, launch_cooperative_grid=False, launch_pdl=False)
    launch = precompile.launching.CudaLauncher(source, metadata).launch
    assert launch.__self__.__file__ == str(launcher)
