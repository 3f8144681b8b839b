"""The static gate names line and construct, and does not mistake words for deeds."""

from __future__ import annotations

import pytest

from drkernel.judge.trusted.source.static_check import inspect

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
        "x.__class__.__name__.__class__",
        "x.__class__.__name__ = 'Tensor'",
        "torch._C._cuda_synchronize()",
        "torch.compile(self)",
        "torch.ops.load_library('x.so')",
        "torch.cuda.synchronize = lambda: None",
        "setattr(type(x), f'al{x}', None)",
        "setattr(type(self), f'{x}call__', None)",
        "setattr(self, f'_{x}', 1)",
        "setattr(self, 'fc' + x, 1)",
        "setattr(self, 'fc%d' % x, 1)",
        "for name in ('q', '__class__'): getattr(self, name)",
        "[getattr(self, f'{name}{x}') for name in ('q', '__cl')]",
        "[getattr(self, f'{name!r}{x}') for name in ('q', 'k')]",
        "name = x; [getattr(self, f'{name}_{x}') for y in ('q', 'k')]",
        "for name in ('q', x): getattr(self, name)",
        "name = x; [getattr(self, name) for name in ('q', 'k')], getattr(self, name)",
        "[getattr(self, name) for name in ('q', 'k') for name in x]",
        "[getattr(self, name) for name in ('q', 'k') if (lambda name: name)(x)]",
        "[(lambda name: getattr(self, name))(x) for name in ('q', 'k')]",
        "for name in ('q', 'k'): (lambda name: getattr(self, name))(x)",
        "for name in ('relu', 'gelu'): setattr(torch, name, None)",
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
        "import logging; logging.basicConfig(filename='x')",
        "a = torch; b = a; c = b; d = c; e = d; f = e; f.compile(self)",
        "a0 = torch; " + "; ".join(f"a{i + 1} = a{i}" for i in range(50)) + "; a50.compile(self)",
        "a = torch; " + "; ".join("a = a.nn" for i in range(50)) + "; a.compile(self)",
        "a = torch; a = a.nn; a = a.utils; b = a",
        "lib = tl if x else torch; lib.compile(self)",
        "lib = x if x else torch if self else x; lib.relu = None",
        "lib = torch if x else None; lib.relu = None",
        "lib = (torch if x else x).relu",
        "lib = torch if (torch and x) else x",
        "self.lib = torch if x else tl",
        "lib = torch if x else tl; self.lib = lib",
        "class A(nn.Module if self.x else self.y): pass",
        "import logging; logging.basicConfig(**x)",
        "import logging; configure = logging.basicConfig; configure(handlers=[x])",
        "import logging; self.configure = logging.basicConfig",
        "import traceback; traceback.walk_stack(None)",
        "import traceback; traceback.sys.modules",
        "import traceback; traceback.print_tb(x)",
        "from traceback import linecache",
        "from random import _os",
        "from contextlib import sys; sys.modules",
        "import threading; threading.Thread(target=print).start()",
        "import weakref; weakref.finalize(self, print)",
        "class A: __array_interface__ = None",
        "class A:\n            def __array_struct__(self): pass",
        "y = {'__array_interface__': 1}",
        "y = dict(__array_interface__=1)",
        "x.__array__()",
        "import numpy; numpy.linalg.inv(x)",
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
        "lib = torch.library.Library(kind='IMPL', ns='aten')",
        "torch.library.impl(qualname='aten::relu', types='CPU')(self)",
        "torch.library.get_kernel(torch.ops.aten.relu.default, 'CUDA')",
        "key = torch.DispatchKeySet(1)",
        "op = torch.ops.aten.relu.default; op._op_dk(x, x)",
        "op = torch.ops.aten.relu.default; op._handle.redispatch_boxed(x, x)",
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
        "match x:\n            case object(__globals__=y): pass",
        "match x:\n            case ModelNew(y): pass",
        "match x:\n            case dict(y, z): pass",
        "class A: __match_args__ = ('data',)",
        "import functools; functools.wraps(x, updated=())(self)",
        "import functools; functools.wraps(*x)(self)",
        "import functools; y = [functools.wraps]",
        "import functools; w = functools.wraps; w(x, ())(self)",
        "import contextlib; contextlib.wraps(x, assigned=())(self)",
        "import torch.utils.checkpoint as c; c.get_type_hints(self)",
        "import enum; enum.Enum._convert_('A', 'os', bool)",
        "import enum\n        class E(enum.Enum): A = 1\n        E._convert_('A', 'os', bool)",
        "import enum; enum.global_enum(x)",
        "import typing; typing.List['x()']",
        "import typing; y = typing.List[x]; y.__args__[0]._evaluate({}, {}, ())",
        "y = '__globals__'",
        "triton.language.extra.modules['os']",
        "self.f(tl.tensor)",
        "for kind in [tl.tensor]: kind.handle = x",
        "y = {'a': tl.dtype}",
        "kernel.run = x",
        "kernel._body, kernel.fn = x, x",
        "setattr(kernel, 'fn', x)",
        "import argparse; argparse.ArgumentParser().parse_args([], self)",
        "import argparse; argparse.ArgumentParser().parse_known_args(namespace=self)",
        "import warnings; y = warnings.catch_warnings()",
        "import warnings; warnings.catch_warnings()._module.sys",
        "torch.get_device_module('cuda')",
        "text = 'x()'\n        def f(y: text): pass",
        "def f(text):\n            def g(y: text): pass",
        "import os\n        def f(y: os.environ['X']): pass",
        "import typing; text = 'x()'; y = typing.List[text]",
        "class E:\n            text = 'x()'\n        def f(y: E.text): pass",
        "def f(y: 'x' + '()'): pass",
        "F = torch.nn.functional; F.relu._x",
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


@pytest.mark.parametrize(
    "line", ["x.handle.data.sort(-1)", "getattr(x, 'handle')", "x._flatten_ir([])", "x.__getstate__()['handle']"]
)
def test_kernels_may_not_look_behind_their_blocks(line):
    source = KERNEL.format("pass").replace("tl.store(x_ptr, 1.0)", f"x = tl.load(x_ptr)\n    {line}")
    refusal = inspect(source, "ModelNew")
    assert refusal and refusal.reason == "forbidden" and refusal.evidence["line"] == 9
    ways = (
        "triton.jit(kernel)",
        "g = kernel\nf = triton.jit(g)",
        "list(map(triton.jit, [kernel]))",
        "h = [kernel]\nf = triton.jit(h[0])",
    )
    for way in ways:
        called = source.replace("@triton.jit\n", "\n").replace(
            "class Model", f"{way}\n@triton.jit\ndef other(): pass\nclass Model"
        )
        refusal = inspect(called, "ModelNew")
        assert refusal and refusal.reason == "forbidden" and refusal.evidence["line"] == 9, way


def test_what_runs_behind_a_kernel_made_by_a_call_may_not_be_set():
    for made in ("f = triton.jit(kernel)", "f = triton.autotune([], [])(triton.jit(fn=kernel))"):
        source = KERNEL.format("f.fn = x").replace("@triton.jit\n", "").replace("class Model", f"{made}\nclass Model")
        refusal = inspect(source, "ModelNew")
        assert refusal and refusal.reason == "forbidden" and "of a kernel" in refusal.detail


def test_a_main_block_is_inspected_where_it_may_run():
    block = "if __name__ == '__main__':\n    import subprocess\n"
    assert inspect(KERNEL.format("pass") + block, "ModelNew") is None
    for change in ("__name__ = '__main__'", "import math as __name__", "for __name__ in ('__main__',): pass"):
        assert inspect(change + "\n" + KERNEL.format("pass") + block, "ModelNew").reason == "forbidden"


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
