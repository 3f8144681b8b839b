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
        "(lambda vars: vars(1)); vars(x)",
        "getattr(self, f'__cl{x}'), getattr(self, f'{x}')",
        "getattr((i for i in ()), f'gi{x}')",
        "'{0.x}'.join(x), str.__class__",
        "import string; string.Formatter()",
        "import typing; typing.get_type_hints(self)",
        "def f(y: \"__import__('os')\"): pass",
        "def f() -> sys.modules.clear(): pass",
        "self.forward.__annotations__['x'] = 'eval(1)'",
        "import functools; functools.singledispatch(self)",
        "import dataclasses; dataclasses.make_dataclass('C', [])",
        "import dataclasses; dataclasses.sys.modules",
        "import logging; logging.sys.modules, logging.os",
        "from random import _os",
        "from contextlib import sys; sys.modules",
        "import threading; threading.Thread(target=print).start()",
        "import weakref; weakref.finalize(self, print)",
        "class A: __array_interface__ = None",
        "class A:\n            def __array_struct__(self): pass",
        "y = {'__array_interface__': 1}",
        "y = dict(__array_interface__=1)",
        "x.__array__()",
        "import numpy; numpy.matmul(x, x), numpy.linalg.inv(x)",
        "import numpy as np; np.lib.stride_tricks",
        "import operator as o; o.methodcaller('relu')(x)",
        "torch.utils.data.DataLoader(x)",
        "from torch.package import PackageImporter",
        "torch.serialization.load('x')",
        "torch._C._nn.gelu(x)",
        "torch.cuda._compile_kernel('x', 'y')",
        "torch.classes.load_library('x')",
        "torch.jit.CompilationUnit('x'), torch.jit.script(self)",
        "from torch.nn.parallel import parallel_apply",
        "torch.nn.DataParallel(self)",
        "torch.overrides.enable_reentrant_dispatch",
        "torch.ops.prims.mul(x, x)",
        "torch.ops._c10d_functional.all_reduce(x)",
        "torch.ops.inductor._reinterpret_tensor(x)",
        "note = 'mkldnn::x'; torch.ops.mkldnn._linear_pointwise(x)",
        "torch.ops.aten.relu.default.redispatch(x, x)",
        "lib = torch.library.Library('aten', 'IMPL')",
        "torch.library.impl('aten::relu', 'CPU')(self)",
        "lib = torch.library.Library('own', 'DEF'); lib.impl('f', x, with_keyset=True)",
        "torch.library._del_library",
        "tl.core._unwrap_if_constexpr(x)",
        "triton.knobs.runtime.launch_enter_hook = x",
        "class A(type(x)): pass",
        "class A(x.dtype): pass",
        "class A(torch.Tensor, metaclass=x): pass",
        "class A(triton.runtime.JITFunction): pass",
        "class A(nn.Module):\n            def __call__(self, x): pass",
        "class A(nn.Module): pass\n        class B(A):\n            def __call__(self, x): pass",
        "x.as_subclass(self)",
        "class A: __name__ = '__main__'",
        "def __name__(): pass",
        "torch.testing._internal",
        "torch.__dict__",
        "torch.__getattr__('_dynamo')",
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
    number = refusal.evidence["line"]
    assert 12 <= number <= 12 + line.count("\n") and f"line {number}" in refusal.detail


ALIASES = [
    "t: object = torch",
    "a = t = torch",
    "t, u = torch, 1",
    "[t] = [torch]",
    "(t := torch)",
    "y = [t for t in (torch,)]",
    "y = [torch for torch in [torch]]",
    "y = {1: torch}",
    "y = lambda: torch",
    "y = torch if x else x",
    "y = x or torch",
    "y = not torch",
    "y = f'{torch}'",
    "def f(t=torch): pass",
    "def f(*, t=torch): pass",
    "def f(t: torch): pass",
    "def f(): return torch",
    "def f(): yield torch",
    "for t in torch, x: pass",
    "for t in [torch]: pass",
    "with torch as t: pass",
    "assert torch",
    "while torch: pass",
    "global t; t = torch",
    "def f():\n            global t\n            import torch as t",
    "self.t = torch",
    "x['t'] = torch",
    "x += torch",
    "class A: t = torch",
    "class A: import torch",
    "match torch:\n            case t: pass",
    "match x:\n            case y if torch: pass",
    "print(x, file=torch.nn)",
    "self.f(torch), self.f(t=torch), self.f(*[torch]), self.f(**{'t': torch})",
    "super().f(torch.nn.functional)",
    "getattr(x, 'a', torch)",
    "getattr(torch, 'cuda')",
    "def isinstance(t, y): return t\n        isinstance(torch, x)",
    "x == torch",
    "import torch.nn.functional as F; F.relu = x",
    "def f():\n            t = 1\n            def g():\n                global torch\n                torch.relu = x",
    "y = getattr",
    "y: object = getattr",
    "y = [getattr]",
    "self.f(getattr, setattr)",
    "def f(g=getattr): pass",
    "y = lambda: type",
    "def f():\n            if 0: getattr = x\n        getattr(x, '__dict__')",
    "from os.path import *",
    "from torch import *",
    "from typing import *",
]


@pytest.mark.parametrize("line", ALIASES)
def test_a_module_and_getattr_are_no_values(line):
    refusal = inspect(KERNEL.format(line), "ModelNew")
    assert refusal and refusal.reason == "forbidden", line


def test_what_a_class_body_and_the_module_bind_does_not_hide_what_is_behind_it():
    behind = ["y = [(torch := torch) for _ in (1,)]\n"]
    behind += ["class A:\n    t = getattr\n    getattr = 1\n", "y = eval\nif 0:\n    eval = 1\n"]
    behind += ["class A:\n    torch.relu = 1\n    torch = 2\n"]
    for text in behind:
        assert inspect(text + KERNEL.format("pass"), "ModelNew").reason == "forbidden", text


def test_a_main_block_is_inspected_where_it_may_run():
    block = "if __name__ == '__main__':\n    import subprocess\n"
    assert inspect(KERNEL.format("pass") + block, "ModelNew") is None
    for change in ("__name__ = '__main__'", "import math as __name__", "for __name__ in ('__main__',): pass"):
        assert inspect(change + "\n" + KERNEL.format("pass") + block, "ModelNew").reason == "forbidden"


HABITS = """
import argparse
import dataclasses
import enum
import functools
import logging
import os
import threading
import warnings
from dataclasses import dataclass, field
from typing import Dict, List, NamedTuple, Optional, Tuple, Union

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
import triton
import triton.language as tl
from torch import Tensor
from torch.autograd import Function

try:
    from triton.language.extra.cuda import libdevice
except ImportError:
    try:
        libdevice = tl.extra.libdevice
    except AttributeError:
        libdevice = tl.math

__all__ = ["ModelNew"]
__version__ = "1.0"
logger = logging.getLogger(__name__)
HAS_TRITON = triton is not None and hasattr(tl, "make_tensor_descriptor")
DEBUG = os.environ.get("DEBUG", "0") == "1"
NUM_SMS = torch.cuda.get_device_properties(0).multi_processor_count if torch.cuda.is_available() else 1
_lock = threading.Lock()
_cache: Dict[Tuple[int, ...], "Plan"] = {}


class Activation(enum.Enum):
    RELU = "relu"
    GELU = "gelu"


@dataclass(frozen=True)
class Plan:
    block: int = 1024
    warps: Optional[int] = None
    sizes: List[int] = field(default_factory=list)


class Shape(NamedTuple):
    rows: int
    columns: int


@triton.jit
def kernel(x_ptr, n: tl.int32, BLOCK: "tl.constexpr"):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(x_ptr + i, libdevice.tanh(tl.load(x_ptr + i, mask=i < n)), mask=i < n)


class Launcher:
    __slots__ = ("plan", "calls")

    def __init__(self, plan: "Plan"):
        super().__init__()
        self.plan, self.calls = plan, 0

    def __call__(self, x: Tensor) -> Tensor:
        self.calls += 1
        kernel[(triton.cdiv(x.numel(), self.plan.block),)](x, x.numel(), BLOCK=self.plan.block)
        return x

    def __repr__(self) -> str:
        return f"{self.__class__.__name__}({self.plan!r})"


class Apply(Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x


@functools.lru_cache(maxsize=None)
def sizes(n: int) -> int:
    return int(np.prod([n, 2])) if isinstance(n, int) else triton.next_power_of_2(n)


class Base(nn.Module):
    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        if type(self) is Base:
            raise NotImplementedError


class ModelNew(Base):
    def __init__(self, n: int = 4, dtype: torch.dtype = torch.float32):
        super(ModelNew, self).__init__()
        self.warm, self.graph = 0, None
        self.launch = Launcher(Plan())
        for i in range(n):
            setattr(self, f"layer{i}", nn.Linear(4, 4))
        self.act = F.relu
        self.__dict_of_sizes = {}

    def extra_repr(self):
        return f"n={self.warm}"

    @torch.compiler.disable
    @torch.no_grad()
    def forward(self, x: Union[Tensor, None]) -> Tensor:
        with _lock, torch.cuda.device(x.device), warnings.catch_warnings():
            self.warm += 1
            if self.warm > 3 and self.graph is None:
                self.graph = torch.cuda.CUDAGraph()
            assert x.is_cuda, f"{x.device} {x.shape}"
            return getattr(self, "act")(self.launch(x.to(getattr(torch, "float32"))))


@triton.testing.perf_report(triton.testing.Benchmark(["n"], [1], "a", ["b"], ["c"], [("d", "e")], "f", "g", {}))
def benchmark(n, provider):
    return triton.testing.do_bench(lambda: torch.relu(torch.randn(n, device="cuda")))


def get_inputs():
    torch.manual_seed(0)
    return [torch.rand(4, 4)]


if __name__ == "__main__":
    import sys, subprocess, time
    print(open(sys.argv[0]).read(), eval("1"))
    torch.testing.assert_close(ModelNew()(get_inputs()[0]), get_inputs()[0])
"""


def test_a_source_as_people_write_them_passes():
    refusal = inspect(HABITS, "ModelNew")
    assert refusal is None, refusal


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
        "self.n += 1; y = x if self.n > 3 else None",
        "class A:\n            def __call__(self, x): return x",
        "class A(dict): pass\n        class B(A): pass",
        "class E(Exception): pass",
        "f = torch.compiler.disable(self.forward)",
        "F = torch.nn.functional; y = F.relu(x)",
        "def f(F, getattr, type): return F.x(getattr, type)",
        "y = [torch.relu(t) for t in (x, x)]",
        "y = {'relu': torch.relu, 'dtype': torch.float32}",
        "y = '{:.2f} {}'.format(1.0, 2), f'{x.shape!r:>3}'",
        "isinstance(x, torch.Tensor) and type(x) == int and isinstance(x, type)",
        "y = torch.ops.aten.relu(x); z = torch.ops.own.f; note = 'own::f'",
        "lib = torch.library.Library('own', 'DEF'); lib.define('f(Tensor x) -> Tensor')",
        "import numpy as np; np.float32(np.sqrt(3.0)), np.array([1, 2]), np.random.seed(0)",
        "import os; os.environ['X'] = '1'",
        "with torch.inference_mode(), torch.autocast('cuda', enabled=False): pass",
        "torch.cuda.get_device_properties(x.device).multi_processor_count",
        "props = triton.runtime.driver.active.utils.get_device_properties(0)",
        "from torch.nn.parameter import Parameter; p = Parameter(x)",
        "from torch.utils.checkpoint import checkpoint",
        "from collections.abc import Callable; from collections import defaultdict",
        "import itertools, functools, contextlib; contextlib.nullcontext()",
        "import warnings; warnings.filterwarnings('ignore'); warnings.warn('x')",
        "import logging; logging.getLogger(__name__).info('x')",
        "y: 'torch.Tensor' = x; z: 'list[int] | None' = None",
        "torch.set_float32_matmul_precision('high'); torch.cuda.empty_cache()",
        "del self.cache; import copy; copy.deepcopy(self)",
        "triton.set_allocator(lambda size, align, stream: torch.empty(size))",
        "y = torch.cuda.Stream(); y.wait_stream(torch.cuda.current_stream())",
        "import time; t = time.perf_counter()",
        "print(torch.__version__, triton.__version__)",
        "y = self.register_buffer('w', torch.zeros(1)); self.w.data_ptr() % 16",
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
