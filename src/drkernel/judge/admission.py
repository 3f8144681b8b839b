"""The static gate: what a submission may not contain, found in its syntax tree in a few milliseconds.

A cheap filter before anything runs, never the judge: whatever passes meets the sandbox and the examiner. Comments,
strings and names are no evidence; `if __name__ == "__main__":` blocks never run and are not looked at.
"""

from __future__ import annotations

import ast
import hashlib
import warnings
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

MAX_SOURCE = 100_000
MAX_DEPTH = 200

IMPORTS = frozenset(
    "torch triton math cmath typing typing_extensions functools itertools collections dataclasses enum operator contextlib "
    "warnings abc copy numbers __future__ numpy random time string re textwrap logging os sys types statistics fractions "
    "decimal bisect heapq json pprint einops packaging platform".split()
)
"""Top-level modules that may be imported."""
DENIED_MODULES = (
    "torch._C torch._dynamo torch._inductor torch._functorch torch._ops torch._subclasses torch._higher_order_ops "
    "torch.overrides torch.utils._python_dispatch torch.utils._pytree torch.utils.cpp_extension torch.utils.dlpack "
    "torch.utils.data torch.utils.hooks torch.utils.flop_counter torch.utils.benchmark torch.jit torch.compiler torch.export "
    "torch.fx torch.multiprocessing torch.distributed torch.hub torch.serialization torch.storage torch.package torch.profiler "
    "torch.autograd.profiler torch.autograd.graph torch.testing torch.onnx torch.monitor torch.random torch.futures "
    "triton.runtime triton.compiler triton.backends triton.tools triton.testing triton.profiler triton._C triton.knobs "
    "triton.language.core triton.language.semantic triton.experimental numpy.ctypeslib numpy.lib.npyio numpy.testing "
    "numpy.f2py numpy.distutils numpy.core numpy._core os.path collections.abc.__builtins__"
).split()
DENIED_MODULES = frozenset(name for name in DENIED_MODULES if not name.startswith(("os.", "collections.")))
ALLOWED_MEMBERS = {
    "os": frozenset("environ getenv path cpu_count linesep sep name".split()),
    "os.path": frozenset("join dirname basename abspath exists isfile isdir splitext expanduser normpath sep".split()),
    "sys": frozenset("maxsize float_info version version_info platform byteorder float_repr_style".split()),
    "types": frozenset("SimpleNamespace MappingProxyType NoneType EllipsisType".split()),
    "triton.runtime": frozenset("driver Autotuner JITFunction Config autotuner".split()),
    "triton.runtime.driver": frozenset(["active"]),
    "triton.runtime.autotuner": frozenset("Config autotune heuristics Autotuner".split()),
    "triton.runtime.jit": frozenset(["JITFunction"]),
    "triton.tools": frozenset(["tensor_descriptor"]),
    "triton.tools.tensor_descriptor": frozenset(["TensorDescriptor"]),
    "triton.testing": frozenset("do_bench".split()),
}
"""Modules of which only these members may be used."""
DENIED_MEMBERS = {
    "torch": frozenset(
        "compile jit load save from_file frombuffer manual_seed seed initial_seed set_rng_state get_rng_state random "
        "use_deterministic_algorithms set_deterministic_debug_mode set_default_dtype set_default_device set_default_tensor_type "
        "_dynamo _C ops_internal classes hub multiprocessing distributed package fx export compiler overrides profiler "
        "UntypedStorage TypedStorage set_num_threads fork wait".split()
    ),
    "torch.cuda": frozenset("manual_seed manual_seed_all set_rng_state cudart memory jiterator CUDAPluggableAllocator".split()),
    "torch.autograd": frozenset("profiler graph".split()),
    "torch.utils": frozenset("cpp_extension dlpack data hooks".split()),
    "torch.nn.modules.module": frozenset(
        "register_module_forward_hook register_module_forward_pre_hook register_module_full_backward_hook".split()
    ),
    "triton": frozenset("compile compiler knobs".split()),
    "numpy": frozenset("load save savez savez_compressed loadtxt savetxt fromfile memmap genfromtxt DataSource".split()),
    "time": frozenset(["sleep"]),
    "json": frozenset(),
    "logging": frozenset("FileHandler handlers config basicConfig".split()),
    "functools": frozenset(),
}
"""Members that may not be used, by module."""
DENIED_BUILTINS = frozenset(
    "eval exec compile open vars globals locals __import__ input breakpoint delattr memoryview __builtins__ __loader__ "
    "__spec__ exit quit help".split()
)
DENIED_ATTRIBUTES = frozenset(
    "__dict__ __globals__ __code__ __class__ __subclasses__ __bases__ __base__ __mro__ __builtins__ __closure__ __func__ "
    "__self__ __getattribute__ __reduce__ __reduce_ex__ __defaults__ __kwdefaults__ __wrapped__ __import__ __loader__ "
    "__spec__ __torch_function__ __torch_dispatch__ __array_interface__ __setattr__ __delattr__ __init_subclass__ "
    "__cuda_array_interface__ __subclasshook__ __instancecheck__ __module__ __closure__ __weakref__ "
    "f_back f_locals f_globals f_code f_builtins gi_frame gi_code cr_frame tb_frame tb_next ag_frame co_code "
    "__traceback__ _make_subclass _make_wrapper_subclass _apply untyped_storage storage _typed_storage set_ "
    "register_forward_hook register_forward_pre_hook tofile share_memory_ from_buffer".split()
)
DENIED_METHODS = frozenset("__call__ __getattribute__ __torch_function__ __torch_dispatch__ _call_impl __reduce__ train eval".split())
"""Methods that ModelNew (or any class) may not define."""
_TENSOR_CLASSES = ("torch.Tensor", "torch.nn.Parameter", "torch.nn.parameter.Parameter", "torch.FloatTensor", "torch._tensor.Tensor")
_FROZEN_ROOTS = ("torch", "triton", "time", "builtins", "numpy", "os", "sys", "math", "functools", "operator", "random", "warnings")
_SETTABLE = ("torch.backends.", "os.environ")
_LAUNCHERS = frozenset("jit autotune heuristics".split())


@dataclass(frozen=True)
class Refusal:
    """Why a submission is not run."""

    status: str
    reason: str
    detail: str
    evidence: dict[str, Any] = field(default_factory=dict)


class _Found(Exception):
    def __init__(self, node: ast.AST, what: str):
        super().__init__(what)
        self.line, self.what = getattr(node, "lineno", None), what


def digest(source: str) -> str:
    """Hash of a source that ignores trailing white space."""
    text = "\n".join(line.rstrip() for line in source.rstrip().splitlines())
    return hashlib.sha256(text.encode(errors="surrogatepass")).hexdigest()


def inspect(source: str, answer_name: str) -> Refusal | None:
    """Looks at a submission without running it. None if it may run."""
    if len(source) > MAX_SOURCE:
        return Refusal("invalid", "too_large", f"the source has {len(source)} characters, at most {MAX_SOURCE} are allowed")
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            tree = ast.parse(source)
    except SyntaxError as error:
        return _syntax_error(error, source)
    except (ValueError, RecursionError, MemoryError) as error:
        return Refusal("invalid", "syntax_error", f"{type(error).__name__}: {error}")
    tree.body = [node for node in tree.body if not _is_main_block(node)]
    if not any(isinstance(node, ast.ClassDef) and node.name == answer_name for node in ast.walk(tree)):
        return Refusal("invalid", "no_model", f"the source does not define a class {answer_name}")
    names = _Names(tree)
    try:
        _Gate(names).check(tree)
    except _Found as found:
        text = _line(source, found.line)
        detail = f"line {found.line}: `{text}`: {found.what} is not allowed" if found.line else f"{found.what} is not allowed"
        return Refusal("hack", "forbidden", detail, {"line": found.line, "forbidden": found.what})
    except RecursionError:
        return Refusal("invalid", "syntax_error", "the source is nested too deeply")
    if not any(names.is_kernel(node) for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)):
        return Refusal("hack", "no_triton_kernel", "the source defines no @triton.jit function; PyTorch alone is no answer")
    return None


def _syntax_error(error: SyntaxError, source: str) -> Refusal:
    text = _line(source, error.lineno)
    place = f"line {error.lineno}: `{text}`: " if error.lineno else ""
    return Refusal("invalid", "syntax_error", f"{place}{error.msg}", {"line": error.lineno})


def _line(source: str, number: int | None) -> str:
    lines = source.splitlines()
    return lines[number - 1].strip()[:120] if number and number <= len(lines) else ""


def _is_main_block(node: ast.stmt) -> bool:
    test = getattr(node, "test", None)
    if not isinstance(node, ast.If) or node.orelse or not isinstance(test, ast.Compare) or not isinstance(test.ops[0], ast.Eq):
        return False
    sides = [test.left, test.comparators[0]]
    name = any(isinstance(side, ast.Name) and side.id == "__name__" for side in sides)
    return name and any(isinstance(side, ast.Constant) and side.value == "__main__" for side in sides)


class _Names:
    """What imported names stand for: `tl` is `triton.language`, `F.relu` is `torch.nn.functional.relu`."""

    def __init__(self, tree: ast.Module):
        self.origin: dict[str, str] = {}
        for node in ast.walk(tree):
            if isinstance(node, ast.Import):
                for alias in node.names:
                    self.origin[alias.asname or alias.name.partition(".")[0]] = (
                        alias.name if alias.asname else alias.name.partition(".")[0]
                    )
            elif isinstance(node, ast.ImportFrom):
                for alias in node.names:
                    self.origin[alias.asname or alias.name] = f"{node.module}.{alias.name}"
        for _ in range(3):
            for node in ast.walk(tree):
                if isinstance(node, ast.Assign) and len(node.targets) == 1 and isinstance(node.targets[0], ast.Name):
                    if (full := self.full(node.value)) and node.targets[0].id not in self.origin:
                        self.origin[node.targets[0].id] = full

    def full(self, node: ast.AST) -> str | None:
        """The dotted origin of a name or attribute chain; None if it does not start at an import."""
        parts = []
        while isinstance(node, ast.Attribute):
            parts.append(node.attr)
            node = node.value
        if not isinstance(node, ast.Name) or node.id not in self.origin:
            return None
        return ".".join([self.origin[node.id], *reversed(parts)])

    def is_kernel(self, node: ast.FunctionDef) -> bool:
        for decorator in node.decorator_list:
            target = decorator.func if isinstance(decorator, ast.Call) else decorator
            full = self.full(target) or ""
            if full.startswith("triton.") and full.rpartition(".")[2] == "jit":
                return True
        return False


class _Gate(ast.NodeVisitor):
    """Raises _Found at the first forbidden construct."""

    def __init__(self, names: _Names):
        self.names = names

    def check(self, tree: ast.Module) -> None:
        self.visit(tree)
        _refuse_phase_switch(tree)

    def visit_Import(self, node: ast.Import) -> None:
        for alias in node.names:
            self._module(node, alias.name)

    def visit_ImportFrom(self, node: ast.ImportFrom) -> None:
        if node.level or not node.module:
            raise _Found(node, "a relative import")
        for alias in node.names:
            if alias.name == "*" and node.module.partition(".")[0] in ("os", "sys", "types"):
                raise _Found(node, f"import of everything from {node.module}")
            self._module(node, f"{node.module}.{alias.name}" if alias.name != "*" else node.module)

    def _module(self, node: ast.AST, name: str) -> None:
        root = name.partition(".")[0]
        if root not in IMPORTS:
            raise _Found(node, f"import of {name}")
        self._dotted(node, name)

    def _dotted(self, node: ast.AST, name: str) -> None:
        """Refuses a dotted origin that leads to, or through, something forbidden."""
        parts = name.split(".")
        for cut in range(1, len(parts)):
            module, member = ".".join(parts[:cut]), parts[cut]
            full = f"{module}.{member}"
            if module in ALLOWED_MEMBERS:
                if member not in ALLOWED_MEMBERS[module]:
                    raise _Found(node, full)
            elif member in DENIED_MEMBERS.get(module, ()) or (full in DENIED_MODULES and full not in ALLOWED_MEMBERS):
                raise _Found(node, full)
            if module in _INTERNAL and member.startswith("_") and not member.startswith("__"):
                raise _Found(node, full)

    def visit_Name(self, node: ast.Name) -> None:
        if node.id in DENIED_BUILTINS and node.id not in self.names.origin:
            raise _Found(node, node.id)

    def visit_Attribute(self, node: ast.Attribute) -> None:
        if node.attr in DENIED_ATTRIBUTES:
            raise _Found(node, f".{node.attr}")
        if full := self.names.full(node):
            self._dotted(node, full)
            if isinstance(node.ctx, (ast.Store, ast.Del)):
                self._frozen(node, full)
        elif isinstance(node.ctx, (ast.Store, ast.Del)) and _is_call_or_class(node.value):
            raise _Found(node, "assignment to an attribute of a class or of a call's result")
        self.generic_visit(node)

    def _frozen(self, node: ast.AST, full: str) -> None:
        if full.partition(".")[0] in _FROZEN_ROOTS and not full.startswith(_SETTABLE):
            raise _Found(node, f"assignment to {full}")

    def visit_Subscript(self, node: ast.Subscript) -> None:
        full = self.names.full(node.value)
        if full and isinstance(node.ctx, (ast.Store, ast.Del)):
            self._frozen(node, full)
        self.generic_visit(node)

    def visit_Call(self, node: ast.Call) -> None:
        name = node.func.id if isinstance(node.func, ast.Name) else None
        if name in ("getattr", "hasattr", "setattr"):
            self._reflection(node, name)
        if name == "type" and len(node.args) != 1:
            raise _Found(node, "type() with several arguments")
        if name == "super" and node.args:
            pass
        full = self.names.full(node.func) or ""
        if full in ("operator.attrgetter", "operator.methodcaller"):
            raise _Found(node, full)
        self.generic_visit(node)

    def _reflection(self, node: ast.Call, name: str) -> None:
        """getattr and setattr with literal, plain names only; setattr on the submission's own objects only."""
        if len(node.args) < 2 or not isinstance(node.args[1], ast.Constant) or not isinstance(node.args[1].value, str):
            if name == "hasattr":
                return
            raise _Found(node, f"{name} with a computed name")
        attribute = ast.copy_location(ast.Attribute(node.args[0], node.args[1].value, ast.Load()), node)
        if name == "setattr":
            attribute.ctx = ast.Store()
        self.visit_Attribute(attribute)

    def visit_ClassDef(self, node: ast.ClassDef) -> None:
        for base in node.bases:
            if self.names.full(base) in _TENSOR_CLASSES:
                raise _Found(node, f"the Tensor subclass {node.name}")
        if any(keyword.arg == "metaclass" for keyword in node.keywords):
            raise _Found(node, "a metaclass")
        for member in node.body:
            defined = [member.name] if isinstance(member, ast.FunctionDef) else _targets(member)
            for name in defined:
                if name in DENIED_METHODS:
                    raise _Found(member, f"the definition of {name}")
        self.generic_visit(node)

    def visit_AsyncFunctionDef(self, node: ast.AsyncFunctionDef) -> None:
        raise _Found(node, "an async function")


_INTERNAL = ("torch", "triton", "torch.nn", "torch.cuda", "torch.nn.functional", "triton.language", "torch.utils", "torch.autograd")


def _is_call_or_class(node: ast.AST) -> bool:
    return isinstance(node, ast.Call) and not (isinstance(node.func, ast.Name) and node.func.id == "super")


def _targets(node: ast.AST) -> list[str]:
    targets = node.targets if isinstance(node, ast.Assign) else [node.target] if isinstance(node, ast.AnnAssign) else []
    return [target.id for target in targets if isinstance(target, ast.Name)]


def _refuse_phase_switch(tree: ast.Module) -> None:
    """A counter of calls that decides what is done: `self.n += 1` in one place and `if self.n > 5` in another."""
    counters: dict[str, ast.AST] = {}
    for function in ast.walk(tree):
        if isinstance(function, (ast.FunctionDef, ast.Lambda)):
            for node in _persistent_increments(function):
                counters[ast.unparse(node.target)] = node
    for node in ast.walk(tree):
        if isinstance(node, (ast.If, ast.While, ast.IfExp)):
            for part in ast.walk(node.test):
                if isinstance(part, (ast.Attribute, ast.Subscript, ast.Name)) and ast.unparse(part) in counters:
                    raise _Found(node, "a branch on a counter of calls")


def _persistent_increments(function: ast.AST) -> Iterator[ast.AugAssign]:
    """`x += constant` on attributes, items and globals: state that outlives the call."""
    shared = {name for node in ast.walk(function) if isinstance(node, (ast.Global, ast.Nonlocal)) for name in node.names}
    for node in ast.walk(function):
        if isinstance(node, ast.AugAssign) and isinstance(node.op, (ast.Add, ast.Sub)) and isinstance(node.value, ast.Constant):
            if not isinstance(node.target, ast.Name) or node.target.id in shared:
                yield node
