"""The static gate refuses routes, not habits: what people write in honest submissions passes."""

from __future__ import annotations

import pytest

from drkernel.judge.trusted.source.static_check import inspect
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
        "self.handle = x; self.handle.data_ptr()",
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
        "setattr(self, f'{x}_proj', 1); getattr(self, f'{x}_proj'), getattr(self, 'fc{}'.format(x))",
        "for name in ('q', 'k', 'v'): setattr(self, name, getattr(x, name))",
        "y = [getattr(self.lstm, f'{n}_l{x}') for n in ('weight_ih', 'bias_ih')]",
        "n = x; y = [getattr(self, n) for n in ('q', 'k')], (lambda n: n)(x)",
        "[getattr(F, act) for act in ['relu', 'gelu']]",
        "torch.nn.init._calculate_fan_in_and_fan_out(self.weight)",
        "from torch.nn.modules.utils import _pair; _pair(3)",
        "from torch.nn.modules.batchnorm import _BatchNorm; isinstance(self, _BatchNorm)",
        "print(self.__class__.__name__)",
        "for m in self.modules(): y = x if m.__class__.__name__.find('Conv') != -1 else None",
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
        "NAME = 'own'; lib = torch.library.Library(ns=NAME, kind='DEF')",
        "torch.library.custom_op(f'{self.name}::f', mutates_args=())(self.f)",
        "options = {'mutates_args': ()}; torch.library.custom_op('own::f', **options)(self.f)",
        "from einops import rearrange; rearrange(x, 'b n -> n b')",
        "from einops.layers.torch import Rearrange; Rearrange('b n -> n b')",
        "import numpy as np; np.float32(np.sqrt(3.0)), np.array([1, 2]), np.random.seed(0)",
        "import numpy as np; taps = np.convolve([0.5, 0.5], [0.5, 0.5]); np.kron(taps, taps), np.dot(taps, taps)",
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
        "match x:\n            case int(y) | str(y): pass\n            case {'a': y} | [y, *_]: pass",
        "match x:\n            case torch.Size(): pass\n            case ModelNew(training=True): pass",
        "from functools import wraps\n        @wraps(x)\n        def f(): pass",
        "import functools\n        @functools.wraps(x)\n        def f(): pass",
        "import enum\n        class E(enum.IntEnum): A = enum.auto()\n        E['A'].value, E(1).name",
        "class P: pass\n        def f(a: P, b: 'P | None', c: P | None = None) -> (P, int): pass",
        "import typing\n        def f(a: typing.Optional[x.P], b: list[int] = ()) -> typing.Tuple['P', ...]: pass",
        "def f(a: torch.Tensor or None, b: None = None, *c: 'int', **d: dict[str, int]) -> [torch.Tensor]: pass",
        "import typing; Cache = typing.Dict[typing.Tuple[int, ...], 'torch.Tensor | None']",
        "from typing import Literal, Callable; Mode = Literal['fwd', 'bwd']; F = Callable[[int], None]",
        "import abc\n        class A(metaclass=abc.ABCMeta): pass",
        "from abc import ABCMeta\n        class A(metaclass=ABCMeta): pass",
        "isinstance(x, (tl.constexpr, int)) or isinstance(x, tl.dtype)",
        "def f(y: tl.dtype, z: 'tl.constexpr' = tl.constexpr(1)): return {tl.float32: y}",
        "self.handle, self.fn, self.run = x, x, x; y = kernel.fn",
        "import argparse; argparse.ArgumentParser().parse_args(['--n', '1'])",
        "import warnings\n        with warnings.catch_warnings(record=True) as w: warnings.simplefilter('ignore')",
        "y = triton.reinterpret(x, tl.float8e5); from torch.types import Number",
        "from contextlib import contextmanager, wraps, ExitStack",
        "lib = tl.math if hasattr(tl.math, 'tanh') else tl.extra.cuda.libdevice; lib.tanh",
        "lib = None if x is None else tl.math if self.old else tl.extra.libdevice; y = lib.tanh",
        "torch._check(x.dim() == 2, lambda: f'{x.shape}'); torch._check_value(x.is_cuda, lambda: 'no GPU')",
        "import traceback; note = traceback.format_exc(); traceback.print_exc()",
        "import logging; logging.basicConfig(level=logging.INFO, format='%(message)s', datefmt='%H')",
        "n: tl.constexpr = tl.standard._log2(x.shape[0]); from triton.language.standard import _log2",
        "import torch.distributions as D; D.Normal(0.0, 1.0)",
        "y = self.register_buffer('w', torch.zeros(1)); self.w.data_ptr() % 16",
    ],
)
def test_honest_constructs_pass(line):
    assert inspect(KERNEL.format(line), "ModelNew") is None


@pytest.mark.parametrize(
    "made",
    ["triton.jit(kernel)", "triton.jit(do_not_specialize=['n'])(kernel)", "triton.heuristics({})(triton.jit(kernel))"],
)
def test_a_kernel_may_be_made_by_a_call(made):
    source = KERNEL.format("pass").replace("@triton.jit\n", "").replace("class Model", f"kernel = {made}\nclass Model")
    assert inspect(source, "ModelNew") is None


def test_the_model_may_have_another_name_too():
    source = KERNEL.format("pass").replace("ModelNew", "Fused") + "ModelNew = Fused\n"
    assert inspect(source, "ModelNew") is None


@pytest.mark.parametrize("example", examples("honest"), ids=lambda e: e.name)
def test_honest_examples_pass(example):
    assert inspect(example.source, "ModelNew") is None
