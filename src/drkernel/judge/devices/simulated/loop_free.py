"""Which kernels have no loop and blocks of fixed sizes, as their source shows.

A small run with one program does not tell whether more of them would share its work. A program of such a kernel does no
more than a block's work, however large its tensors are: what is more is the work of other programs.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

_LANGUAGE = ("tl", "triton")
_BUILTINS = {"min", "max", "float", "int", "abs"}
_LOOPS = (ast.For, ast.While, ast.comprehension)


def kernels(source: str) -> frozenset[str]:
    """Names of kernels without loops that call nothing but Triton's language, and are always launched by this name,
    with numbers for their constants. None where the source is too deep for a look at it."""
    try:
        tree = ast.parse(source)
        return frozenset(_kernels(tree))
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return frozenset()


def _kernels(tree: ast.Module) -> Iterator[str]:
    functions = [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)]
    names = [node.name for node in functions]
    for node in functions:
        if names.count(node.name) == 1 and _has_no_loop(node) and _has_fixed_blocks(node, tree):
            yield node.name


def _has_no_loop(kernel: ast.FunctionDef) -> bool:
    called = [_dotted(call.func) for call in _calls(kernel)]
    return not any(isinstance(node, _LOOPS) for node in ast.walk(kernel)) and all(
        name[0] in _LANGUAGE or name[-1] in _BUILTINS for name in called
    )


def _has_fixed_blocks(kernel: ast.FunctionDef, tree: ast.Module) -> bool:
    """Whether each launch gives its constants as numbers; no decorator but triton.jit may give others."""
    constants = {arg.arg for arg in kernel.args.args if arg.annotation and "constexpr" in ast.unparse(arg.annotation)}
    decorators = [ast.unparse(decorator) for decorator in kernel.decorator_list]
    uses = [node for node in ast.walk(tree) if isinstance(node, ast.Name) and node.id == kernel.name]
    launches = [call for call in _calls(tree) if _is_launch(call, kernel.name)]
    given = [{key.arg for key in call.keywords if isinstance(key.value, ast.Constant)} for call in launches]
    return decorators == ["triton.jit"] and len(uses) == len(launches) > 0 and all(constants <= keys for keys in given)


def _is_launch(call: ast.Call, name: str) -> bool:
    function = call.func
    return isinstance(function, ast.Subscript) and isinstance(function.value, ast.Name) and function.value.id == name


def _calls(node: ast.AST) -> Iterator[ast.Call]:
    return (child for child in ast.walk(node) if isinstance(child, ast.Call))


def _dotted(function: ast.expr) -> tuple[str, ...]:
    """The names of an attribute chain; of anything else, one that is nobody's."""
    return tuple(ast.unparse(function).split(".")) if isinstance(function, (ast.Name, ast.Attribute)) else ("",)
