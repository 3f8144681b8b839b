"""Which kernels have blocks of fixed sizes and no loop that grows with the data, as their source shows.

A small run with one program does not tell whether more of them would share its work. A program of such a kernel does no
more than a block's work, however large its tensors are: what is more is the work of other programs. A loop over a
number that is written there (the places of a window) may read; what it stores would be several blocks.
"""

from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Container, Iterator, Sequence

from drkernel.judge.devices.simulated.bound_names import LANGUAGE, bound_names

_BUILTINS = {"min", "max", "float", "int", "abs"}
_LOOPS = (ast.For, ast.While, ast.comprehension)
_RANGES = {"range", "tl.range", "tl.static_range"}
_LITERAL = (ast.Constant, ast.BinOp, ast.UnaryOp, ast.operator, ast.unaryop)
_WRITES = ("store", "atomic")


def kernels(source: str, several: bool = False) -> frozenset[str]:
    """Names of kernels without loops that call nothing but Triton's language, and are always launched by this name,
    with numbers for their constants. None where the source is too deep for a look at it.

    Args:
        several: programs may store several blocks, in a loop over a number that is written.
    """
    try:
        tree = ast.parse(source)
        return frozenset(_kernels(tree, several))
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return frozenset()


def _kernels(tree: ast.Module, several: bool) -> Iterator[str]:
    functions = [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)]
    defined = bound_names(tree)
    uses = Counter(node.id for node in ast.walk(tree) if isinstance(node, ast.Name))
    launches: dict[str, list[ast.Call]] = {}
    for call in _calls(tree):
        if isinstance(call.func, ast.Subscript) and isinstance(call.func.value, ast.Name):
            launches.setdefault(call.func.value.id, []).append(call)
    for node in functions:
        calls = launches.get(node.name, [])
        is_only_launched = defined[node.name] == 1 and uses[node.name] == len(calls) > 0
        if is_only_launched and _has_no_loop(node, defined, several) and _has_fixed_blocks(node, calls):
            yield node.name


def _has_no_loop(kernel: ast.FunctionDef, defined: Container[str], several: bool) -> bool:
    """Whether it calls Triton's language and built-in functions only, none of which the source defines anew."""
    loops = [node for node in ast.walk(kernel) if isinstance(node, _LOOPS)]
    stored = {node.id for node in ast.walk(kernel) if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)}
    known = [loop for loop in loops if _is_fixed(loop, defined, _constants(kernel) - stored, several)]
    ranges = [loop.iter.func for loop in known if isinstance(loop, ast.For) and isinstance(loop.iter, ast.Call)]
    called = [_dotted(call.func) for call in _calls(kernel) if call.func not in ranges]
    return len(known) == len(loops) and all(
        (name[0] in LANGUAGE or (name[0] in _BUILTINS and len(name) == 1)) and name[0] not in defined for name in called
    )


def _is_fixed(loop: ast.AST, defined: Container[str], constants: Container[str], several: bool) -> bool:
    """Whether it goes over a range of literal numbers and constants, and writes nothing, unless it may."""
    is_number = lambda node: (
        isinstance(node, (*_LITERAL, ast.Load)) or (isinstance(node, ast.Name) and node.id in constants)
    )
    match loop:
        case ast.For(iter=ast.Call(function, numbers, [])) if ast.unparse(function) in _RANGES:
            literal = all(is_number(node) for number in numbers for node in ast.walk(number))
            names = [name for call in _calls(loop) for name in _dotted(call.func)]
            writes = any(name.startswith(_WRITES) for name in names)
            return literal and (several or not writes) and "range" not in defined
    return False


def _has_fixed_blocks(kernel: ast.FunctionDef, launches: Sequence[ast.Call]) -> bool:
    """Whether each launch gives its constants as numbers, but for those that conditions alone read; no decorator but
    triton.jit may give others."""
    constants = _constants(kernel) & _read_elsewhere(kernel)
    decorators = [ast.unparse(decorator) for decorator in kernel.decorator_list]
    given = [{key.arg for key in call.keywords if isinstance(key.value, ast.Constant)} for call in launches]
    return decorators == ["triton.jit"] and all(constants <= keys for keys in given)


def _read_elsewhere(kernel: ast.FunctionDef) -> set[str]:
    """The names that something else reads than a condition."""
    tests = [node.test for node in ast.walk(kernel) if isinstance(node, (ast.If, ast.IfExp))]
    conditions = {id(node) for test in tests for node in ast.walk(test)}
    body = [node for statement in kernel.body for node in ast.walk(statement)]
    return {node.id for node in body if isinstance(node, ast.Name) and id(node) not in conditions}


def _constants(kernel: ast.FunctionDef) -> set[str]:
    return {arg.arg for arg in kernel.args.args if arg.annotation and "constexpr" in ast.unparse(arg.annotation)}


def _calls(node: ast.AST) -> Iterator[ast.Call]:
    return (child for child in ast.walk(node) if isinstance(child, ast.Call))


def _dotted(function: ast.expr) -> tuple[str, ...]:
    """The names of an attribute chain; of anything else, one that is nobody's."""
    return tuple(ast.unparse(function).split(".")) if isinstance(function, (ast.Name, ast.Attribute)) else ("",)
