"""Refuses kernels that Python can run but Triton's compiler does not accept. Runs in simulated runners, at a launch."""

from __future__ import annotations

import ast
import inspect
import textwrap
from collections.abc import Callable, Iterator
from types import ModuleType
from typing import Any

import triton.language as tl
from triton.backends.nvidia.compiler import CUDAOptions
from triton.compiler.code_generator import CodeGenerator
from triton.runtime.jit import JITCallable, KernelInterface

LAUNCH_OPTIONS = frozenset(CUDAOptions.__dataclass_fields__) | {"pre_hook", "warmup", "grid", "stream", "debug"}
"""Keyword arguments of a launch that are no parameters of the kernel."""

_COMPILED = frozenset(name.removeprefix("visit_") for name in dir(CodeGenerator) if name.startswith("visit_"))
_WITHIN_OTHERS = frozenset({"FormattedValue", "Starred"})


def refuse_what_does_not_compile(function: Callable) -> None:
    """Checks a function as Triton's compiler would. A function without source passes.

    Raises:
        SyntaxError, NameError: with the line in the function's file.
    """
    try:
        lines, first = inspect.getsourcelines(function)
    except OSError:
        return
    tree = ast.parse(textwrap.dedent("".join(lines))).body[0]
    assert isinstance(tree, ast.FunctionDef)
    ast.increment_lineno(tree, first - 1)
    for statement in tree.body:
        for node in ast.walk(statement):
            kind = type(node).__name__
            nested = isinstance(node, ast.FunctionDef)
            if isinstance(node, (ast.stmt, ast.expr)) and (nested or kind not in _COMPILED | _WITHIN_OTHERS):
                raise _at(node, SyntaxError(f"Triton kernels cannot contain `{kind.lower()}`"))
            if _is_compiled_loop(node):
                for inner in (n for n in ast.walk(node) if isinstance(n, ast.Return)):
                    raise _at(inner, SyntaxError("Triton kernels cannot return from within a loop"))
    for node in _hidden_globals(tree, function.__globals__):
        raise _at(
            node,
            NameError(
                f"kernels cannot use the global `{node.id}`: pass it as an argument, make it a tl.constexpr, "
                "or decorate it with @triton.jit"
            ),
        )


def _is_compiled_loop(node: ast.AST) -> bool:
    """Whether a node is a loop, other than one that is unrolled."""
    over = ast.unparse(node.iter) if isinstance(node, ast.For) else ""
    return isinstance(node, ast.While) or (isinstance(node, ast.For) and "static_range" not in over)


def _at(node: Any, error: Exception) -> Exception:
    """The error, with the line in the file under which the interpreter reports it."""
    vars(error)["kernel_line"] = node.lineno
    return error


def _hidden_globals(tree: ast.FunctionDef, scope: dict[str, Any]) -> Iterator[ast.Name]:
    """The names of globals that a compiled kernel cannot use."""
    names = [node for statement in tree.body for node in ast.walk(statement) if isinstance(node, ast.Name)]
    local = {argument.arg for argument in ast.walk(tree.args) if isinstance(argument, ast.arg)}
    local |= {node.id for node in names if isinstance(node.ctx, ast.Store)}
    for node in names:
        if node.id not in local and node.id in scope and not _visible(scope[node.id]):
            yield node


def _visible(value: Any) -> bool:
    """Whether Triton's compiler lets kernels see this global (CodeGenerator's global_lookup)."""
    return (
        isinstance(value, (ModuleType, JITCallable, KernelInterface, tl.dtype, tl.constexpr))
        or getattr(value, "__triton_builtin__", False)
        or str(getattr(value, "__module__", "")).startswith(("triton.language", "drkernel.judge.untrusted.simulated"))
        or (isinstance(value, tuple) and hasattr(value, "_fields"))
    )
