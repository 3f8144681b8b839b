"""Which functions of a source are Triton's: those under `@triton.jit`, and those that `triton.jit(f)` is given."""

from __future__ import annotations

import ast

from drkernel.tasks.scopes import Names


class KernelFunctions:
    """The kernels of a source. `names` is at the module's scope. Where `triton.jit` is given what has no name, or is
    itself a value, each function may be one."""

    def __init__(self, tree: ast.Module, names: Names):
        nodes = list(ast.walk(tree))
        functions = [node for node in nodes if isinstance(node, ast.FunctionDef)]
        self._given = {f.name for f in functions} & {given.id for node in nodes for given in _given(node, names)}
        decorated = {node.name for node in tree.body if isinstance(node, ast.FunctionDef) and _decorated(node, names)}
        self._names = decorated | self._given | {name for node in tree.body for name in _assigned(node, names)}
        clear = {id(_callee(decorator)) for function in functions for decorator in function.decorator_list}
        clear |= {id(_callee(node)) for node in nodes if self._is_clear(node, names)}
        self._any = any(isinstance(node, _PLAIN) and _is_jit(node, names) and id(node) not in clear for node in nodes)
        self.exist = any(self.has(function, names) for function in functions)
        """Whether there are any."""

    def has(self, node: ast.FunctionDef, names: Names) -> bool:
        """Whether a function is a kernel. `names` is at the scope around it."""
        return self._any or node.name in self._given or _decorated(node, names)

    def named(self, name: str) -> bool:
        """Whether a name of the module is a kernel's."""
        return self._any or name in self._names

    def _is_clear(self, node: ast.AST, names: Names) -> bool:
        """Whether a node calls `triton.jit` with functions of the source, by their names."""
        given = _given(node, names)
        return bool(given) and {argument.id for argument in given} <= self._given


_PLAIN = (ast.Name, ast.Attribute)


def _callee(node: ast.AST) -> ast.AST:
    """What is called first in `f(...)(...)`: f."""
    while isinstance(node, ast.Call):
        node = node.func
    return node


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
