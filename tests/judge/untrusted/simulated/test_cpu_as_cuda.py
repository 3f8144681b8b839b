"""Code written for a CUDA device, run in a process of its own where CPU tensors pass for CUDA tensors."""

import subprocess
import sys
import textwrap

import pytest

PRELUDE = """
from drkernel.judge.untrusted.simulated.device import install, record
install(fake_cuda=True)
import torch, triton, triton.language as tl
import torch.nn as nn, torch.nn.functional as F
from triton.language.extra import libdevice

@triton.jit
def add(x, y, out, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out + i, tl.load(x + i, mask=i < n) + tl.load(y + i, mask=i < n), mask=i < n)

def triton_add(x, y):
    assert x.is_cuda and y.device.type == "cuda", "Triton needs CUDA tensors"
    out = torch.empty_like(x)
    with torch.cuda.device(x.device):
        add[(triton.cdiv(x.numel(), 64),)](x, y, out, x.numel(), BLOCK=64)
    return out
"""

SNIPPETS = {
    "factories and device questions": """
        x = torch.randn(10, 10, device="cuda")
        assert x.is_cuda and not x.is_cpu and x.device == torch.device("cuda:0") and x.get_device() == 0
        assert torch.zeros(3, device=x.device).device == x.device
        assert torch.tensor([1.0], device=torch.device("cuda", 0)).is_cuda
        with torch.device("cuda"):
            assert torch.zeros(3).is_cuda
        torch.set_default_device("cuda")
        assert torch.zeros(3).is_cuda
    """,
    "moves": """
        x = torch.ones(3).cuda().to("cuda").to(device="cuda:0", dtype=torch.float16, non_blocking=True).to(0)
        assert x.dtype == torch.float16 and x.cpu().float().numpy().sum() == 3
        assert x.to(torch.ones(2, device="cuda")).dtype == torch.float32
    """,
    "operators with an implementation for CUDA": """
        def negated(x: torch.Tensor) -> torch.Tensor:
            return x.neg()
        def wrong(x: torch.Tensor) -> torch.Tensor:
            raise AssertionError("an implementation for another device")
        torch.library.custom_op("own::f", negated, mutates_args=(), device_types="cuda").register_kernel("cpu")(wrong)
        library = torch.library.Library("own", "FRAGMENT")
        for name, keys in {"g": ("CPU", "CUDA"), "h": ("CUDA", "CPU")}.items():
            library.define(f"{name}(Tensor x) -> Tensor")
            for key in keys:
                library.impl(name, negated if key == "CUDA" else wrong, key)
        for name in "fgh":
            with record() as trace:
                assert (getattr(torch.ops.own, name)(torch.ones(3)) == -1).all()
            assert "neg" in [row.name for row in trace.rows], "what it computes is recorded"
    """,
    "a kernel that is compiled ahead": """
        x = torch.ones(130, device="cuda")
        out = torch.empty_like(x)
        with record() as trace:
            kernel = add.warmup(x, x, out, x.numel(), BLOCK=64, num_warps=8, grid=(1,))
        assert not trace.rows
        kernel._init_handles()
        registers, shared = kernel.n_regs, kernel.metadata.shared
        properties = triton.runtime.driver.active.utils.get_device_properties(torch.cuda.current_device())
        assert properties["max_num_regs"] // (registers * 32 * kernel.metadata.num_warps) > 0 < shared
        with record() as trace:
            kernel[(3, 1, 1)](x, x, out, x.numel(), 64)
            assert add[(3,)](x, x, out, x.numel(), BLOCK=64).n_spills == 0
        assert (out == 2).all() and [(row.calls, row.programs) for row in trace.rows] == [(2, 6)]
        out.zero_()
        kernel[(3, 1, 1)](x, x, out, x.numel(), 16)
        assert (out == 2).all(), "its block is the one that it was compiled with"
    """,
    "the host's memory is another one": """
        import numpy as np
        array, memory = np.ones(3, np.float32), bytearray(3)
        made = [torch.from_numpy(array), torch.as_tensor(array), torch.asarray(array)]
        made += [torch.asarray(memory, dtype=torch.uint8)]
        kept = made[0].numpy()
        for tensor in made:
            tensor.fill_(5)
        assert array.sum() == 3 and kept.sum() == 3 and sum(memory) == 0
        for method in ("apply_", "map_"):
            try:
                getattr(made[0], method)(print)
            except TypeError:
                continue
            raise AssertionError(method)
    """,
    "modules": """
        model = nn.Sequential(nn.Linear(4, 4, device="cuda"), nn.ReLU(), nn.LayerNorm(4)).cuda().to("cuda").eval()
        assert next(model.parameters()).is_cuda and model(torch.randn(2, 4, device="cuda")).device.type == "cuda"
        lstm = nn.LSTM(4, 4).cuda()
        assert lstm(torch.randn(5, 2, 4).cuda())[0].shape == (5, 2, 4)
    """,
    "a kernel under a device guard": """
        x = torch.randn(100, device="cuda")
        assert torch.equal(triton_add(x, x), 2 * x)
    """,
    "properties and the driver": """
        assert torch.cuda.is_available() and torch.cuda.device_count() == 1 and torch.cuda.current_device() == 0
        assert torch.cuda.get_device_capability() == (9, 0) and torch.cuda.is_bf16_supported()
        sms = torch.cuda.get_device_properties("cuda").multi_processor_count
        device = triton.runtime.driver.active.get_current_device()
        assert triton.runtime.driver.active.utils.get_device_properties(device)["multiprocessor_count"] == sms == 132
        assert triton.runtime.driver.active.get_current_target().backend == "cuda"
        torch.cuda.synchronize(); torch.cuda.empty_cache()
    """,
    "a side stream that is joined": """
        x = torch.randn(100, device="cuda")
        stream, event = torch.cuda.Stream(), torch.cuda.Event(enable_timing=True)
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):
            y = triton_add(x, x)
            y.record_stream(stream)
            event.record(stream)
        torch.cuda.current_stream().wait_event(event)
        torch.cuda.current_stream().wait_stream(stream)
        assert torch.equal(y, 2 * x) and torch.cuda.current_stream().cuda_stream == 0
    """,
    "a CUDA graph keeps the grid of its capture": """
        x, out, programs = torch.ones(128, device="cuda"), torch.zeros(128, device="cuda"), [1]
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            add[lambda meta: (programs[0],)](x, x, out, 128, BLOCK=64)
        programs[0] = 2
        graph.replay()
        assert out.sum() == 128
    """,
    "a CUDA graph replayed on refreshed inputs": """
        x, out = torch.zeros(100, device="cuda"), torch.empty(100, device="cuda")
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            y = x * 2 + 1
            add[(2,)](x, y, out, 100, BLOCK=64)
            halves = out.view(2, 50).sum(1)
        x.copy_(torch.arange(100.0))
        with record() as trace:
            graph.replay()
        assert torch.equal(out, 3 * torch.arange(100.0) + 1)
        assert torch.equal(halves, out.view(2, 50).sum(1))
        assert [(row.name, row.triton) for row in trace.rows] == [
            ("mul", False), ("add", False), ("add", True), ("sum", False)]
    """,
    "autograd": """
        w = torch.randn(4, 4, device="cuda", requires_grad=True)
        (w * 2).sum().backward()
        assert w.grad.is_cuda
        class Function(torch.autograd.Function):
            @staticmethod
            def forward(ctx, x):
                return triton_add(x, x)
        with record() as trace:
            Function.apply(w)
        assert [row.site.split(":")[0] for row in trace.rows] == ["add"]
    """,
    "random numbers": """
        generator = torch.Generator(device="cuda").manual_seed(3)
        first = torch.rand(3, generator=generator, device="cuda")
        assert torch.equal(first, torch.rand(3, generator=torch.Generator("cuda").manual_seed(3), device="cuda"))
        torch.manual_seed(1); torch.cuda.manual_seed_all(1)
        with torch.random.fork_rng():
            torch.rand(1)
    """,
    "operators are recorded as ever": """
        x = torch.randn(8, 8, device="cuda")
        with torch.no_grad(), record() as trace:
            F.gelu(F.linear(x, x)).contiguous()
        assert [row.name for row in trace.rows] == ["mm", "gelu"], trace.rows
        assert trace.rows[0].flops == 2 * 8 ** 3
    """,
    "custom operators": """
        @torch.library.custom_op("drkernel_test::twice", mutates_args=())
        def twice(x: torch.Tensor) -> torch.Tensor:
            return triton_add(x, x).relu()
        x = torch.ones(4, device="cuda")
        with record() as trace:
            twice(x)
        assert [row.name for row in trace.rows] == ["add", "relu"]
    """,
    "the host cannot read device memory by its address": """
        import ctypes
        x = torch.ones(4, device="cuda")
        assert x.data_ptr() % 4096 == torch._C.TensorBase.untyped_storage(x).data_ptr() % 4096
        assert x.data_ptr() != torch._C.TensorBase.untyped_storage(x).data_ptr()
        assert str(x.data_ptr() // 4096) not in open("/proc/self/maps").read()
    """,
    "copies to the host are counted, and threads and hooks recorded": """
        import threading, numpy
        from drkernel.judge.boundary.op_trace import site_of
        x = torch.ones(64, device="cuda")
        for copy in (torch.Tensor.tolist, lambda x: x.cpu().numpy(), lambda x: numpy.asarray(x.cpu())):
            with record() as trace:
                copy(x)
            assert [(row.name, row.calls) for row in trace.rows] == [("_local_scalar_dense", 9)], trace.rows
        class Rate(float):
            def __lt__(self, other):
                x.tolist()
                return False
        with record() as trace:
            F.dropout(x, Rate(0.5))
        assert ("_local_scalar_dense", 9) in [(row.name, row.calls) for row in trace.rows]
        with record() as trace:
            str(x)
        assert max(row.calls for row in trace.rows if row.name == "_local_scalar_dense") > 64
        with record() as trace:
            thread = threading.Thread(target=lambda: torch.relu(torch.zeros(3, device="cuda")))
            thread.start()
            thread.join()
        assert "relu" in [row.name for row in trace.rows]
        for skip in ((), (site_of(add),)):
            add.pre_run_hooks[:] = [lambda *_, **__: x.relu_()]
            with record(skip=skip) as trace:
                triton_add(x, x)
            assert "relu_" in [row.name for row in trace.rows]
        add.pre_run_hooks.clear()
    """,
    "what the interpreter computes with torch is no operator of the submission": """
        @triton.jit
        def special(x, out, BLOCK: tl.constexpr):
            i = tl.arange(0, BLOCK)
            v = tl.load(x + i)
            tl.store(out + i, tl.erf(v) + libdevice.erfc(v) + libdevice.lgamma(v) + libdevice.j0(v))

        x = torch.rand(64, device="cuda") + 1
        with record() as trace:
            special[(1,)](x, torch.empty_like(x), BLOCK=64)
        assert [row.name for row in trace.rows] == ["special"], [row.name for row in trace.rows]
    """,
    "operators without a kernel for a GPU raise": """
        x = torch.ones(4, 4, device="cuda")
        with record():
            try:
                torch.ops.mkldnn._linear_pointwise(x, x, None, "none", [], "")
            except NotImplementedError as error:
                assert "mkldnn" in str(error)
            else:
                raise AssertionError("not refused")
    """,
    "printing, copying, saving": """
        import copy, io
        x = nn.Parameter(torch.ones(2, device="cuda"))
        assert "1." in repr(x) and x.detach().tolist() == [1, 1] and copy.deepcopy(x).is_cuda
        torch.save(x, io.BytesIO())
        assert x.detach().pin_memory().sum().item() == 2
    """,
}


def run(*snippets):
    program = PRELUDE + "".join(
        f"\ndef snippet_{i}():\n{textwrap.indent(textwrap.dedent(s), '    ')}" for i, s in enumerate(snippets)
    )
    program += """
import json, traceback
COUNT = sum(name.startswith("snippet_") for name in dir())
errors = []
for name in [f"snippet_{i}" for i in range(COUNT)]:
    try:
        globals()[name]()
        errors.append(None)
    except Exception:
        errors.append(traceback.format_exc())
print(json.dumps(errors))
"""
    return program


@pytest.fixture(scope="module")
def results(tmp_path_factory):
    import json

    file = tmp_path_factory.mktemp("fake_cuda") / "snippets.py"
    file.write_text(run(*SNIPPETS.values()))
    done = subprocess.run([sys.executable, str(file)], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    return dict(zip(SNIPPETS, json.loads(done.stdout.splitlines()[-1]), strict=True))


@pytest.mark.slow
@pytest.mark.xdist_group("cpu as cuda")  # one worker runs all snippets
@pytest.mark.parametrize("snippet", SNIPPETS)
def test_cuda_code_runs_unchanged(snippet, results):
    assert results[snippet] is None, results[snippet]
