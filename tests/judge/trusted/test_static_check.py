"""The static gate names line and construct, and does not mistake words for deeds."""

from __future__ import annotations

import pytest

from drkernel.judge.trusted.static_check import inspect
from tests.judge.examples import examples

KERNEL = """import torch
import torch.nn as nn
import triton
import triton.language as tl

@triton.jit
def kernel(x_ptr):
    tl.store(x_ptr, 1.0)

class ModelNew(nn.Module):
    def forward(self, x):
        {}
        return x
"""


@pytest.mark.parametrize(
    "line",
    [
        "import subprocess",
        "from os import system",
        "import os; os.system('true')",
        "import ctypes",
        "import importlib",
        "import multiprocessing as m",
        "eval('x')",
        "open('/etc/passwd')",
        "__import__('os')",
        "globals()['x']",
        "getattr(torch, 're' + 'lu')",
        "getattr(x, '__class__')",
        "x.__class__.__subclasses__()",
        "torch._C._cuda_synchronize()",
        "torch.compile(self)",
        "torch.ops.load_library('x.so')",
        "torch.cuda.synchronize = lambda: None",
        "setattr(torch, 'relu', None)",
        "t = torch; t.relu = None",
        "del torch.relu",
        "triton.runtime.driver.active.utils = None",
        "from triton.runtime import interpreter",
        "import time; time.perf_counter = lambda: 0",
        "torch.load('x')",
        "torch.utils._python_dispatch",
        "getattr(torch, f're{1}')",
        "self.n += 1; y = x if self.n > 3 else None",
        "(lambda vars: vars(1)); vars(x)",
        "import sys; sys.modules",
        "self.forward.__globals__",
        "type('T', (torch.Tensor,), {})",
        "nn.Module.__call__ = None",
        "tl.load = None",
        "kernel.fn.__code__ = None",
        "import triton.testing; triton.testing.do_bench_cudagraph = None",
        "import operator; operator.attrgetter('relu')(torch)",
    ],
)
def test_forbidden_constructs_are_named_with_their_line(line):
    refusal = inspect(KERNEL.format(line), "ModelNew")
    assert refusal and (refusal.status, refusal.reason) == ("hack", "forbidden"), line
    assert refusal.evidence["line"] == 12 and "line 12" in refusal.detail


@pytest.mark.parametrize(
    "line",
    [
        "import os; os.environ.get('X'), os.path.join('a', 'b')",
        "import sys; sys.maxsize, sys.version_info",
        "getattr(x, 'shape'), getattr(self, 'cache', None), hasattr(x, 'foo')",
        "torch.backends.cuda.matmul.allow_tf32 = False",
        "torch.cuda.current_stream().synchronize()",
        "triton.runtime.driver.active.get_current_device()",
        "from triton.language.extra import libdevice",
        "self.block, self.cache['k'] = 1, 2",
        "def compile(self): return 'exec'",
        "note = 'eval(open(1))'  # torch.compile",
        "count = 0; count += 1; x = x if count > 3 else x",
        "x.storage_offset(), x.is_contiguous(), x._version",
        "with torch.no_grad(), torch.cuda.device(0): pass",
        "super().__init__; self.__doc__",
        "input, vars, open = x, x, x; y = vars + open + input",
        "y = [vars for vars in x]; z = (lambda eval: eval)(x)",
        "getattr(self, f'layer{x}'); setattr(self, f'layer{x}', 1)",
        "print(self.__class__.__name__)",
        "torch.manual_seed(0)",
        "import sys; print(1, file=sys.stderr)",
        "from triton.runtime.errors import OutOfResources",
        "self.count += 1",
    ],
)
def test_honest_constructs_pass(line):
    assert inspect(KERNEL.format(line), "ModelNew") is None


@pytest.mark.parametrize("example", examples("honest"), ids=lambda e: e.name)
def test_honest_examples_pass(example):
    assert inspect(example.source, "ModelNew") is None


@pytest.mark.parametrize(
    ("source", "reason"),
    [
        ("def f(:", "syntax_error"),
        ("x = '\0'", "syntax_error"),
        ("(" * 500 + ")" * 500, "syntax_error"),
        ("import torch", "no_model"),
        ("#" * 200_000, "too_large"),
        ("class ModelNew:\n    pass", "no_triton_kernel"),
        ("", "no_model"),
        ("x = '\ud800'", "syntax_error"),
    ],
)
def test_what_is_no_submission_is_told_so(source, reason):
    assert inspect(source, "ModelNew").reason == reason
