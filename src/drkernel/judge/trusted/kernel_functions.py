"""Which functions of a source are Triton's: those under `@triton.jit`, and those that `triton.jit(f)` is given."""

from __future__ import annotations

import ast

from drkernel.tasks.scopes import Names


class KernelFunctions:
    """The kernels of a source. `names` is at the module's scope."""

    def __init__(self, tree: ast.Module, names: Names):
        functions = [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)]
        given = {argument.id for node in ast.walk(tree) for argument in _given(node, names)}
        self._given = given & {function.name for function in functions}
        decorated = {node.name for node in tree.body if isinstance(node, ast.FunctionDef) and _decorated(node, names)}
        self.names = decorated | self._given | {name for node in tree.body for name in _assigned(node, names)}
        """The names that kernels have in the module."""

    def has(self, node: ast.FunctionDef, names: Names) -> bool:
        """Whether a function is a kernel. `names` is at the scope around it."""
        return node.name in self._given or _decorated(node, names)


def _is_jit(node: ast.expr, names: Names) -> bool:
    """Whether an expression is `triton.jit` or `triton.jit(...)`."""
    origins = names.origins(node.func if isinstance(node, ast.Call) else node)
    return any(origin.startswith("triton.") and origin.rpartition(".")[2] == "jit" for origin in origins)


def _decorated(node: ast.FunctionDef, names: Names) -> bool:
    return any(_is_jit(decorator, names) for decorator in node.decorator_list)


def _given(node: ast.AST, names: Names) -> list[ast.Name]:
    """The function that a call of `triton.jit` is given, where it is named."""
    if not isinstance(node, ast.Call) or not _is_jit(node.func, names):
        return []
    first = node.args[:1] + [keyword.value for keyword in node.keywords if keyword.arg == "fn"]
    return [argument for argument in first if isinstance(argument, ast.Name)]


def _assigned(node: ast.stmt, names: Names) -> list[str]:
    """The names that get a kernel by a statement `name = triton.autotune(...)(triton.jit(f))`."""
    targets = node.targets if isinstance(node, ast.Assign) else []
    if not targets or not any(_given(part, names) for part in ast.walk(node)):
        return []
    return [target.id for target in targets if isinstance(target, ast.Name)]
