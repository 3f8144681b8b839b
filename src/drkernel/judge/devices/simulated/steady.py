"""Which kernels do as many steps whatever numbers they load, as their source shows.

Such kernels do without data what they do with data: what some of their programs say of the published size is so.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping, Set

from drkernel.judge.devices.simulated.bound_names import LANGUAGE, bound_names
from drkernel.judge.devices.simulated.one_step import is_one_step

_NUMBERS = {
    "range", "min", "max", "tl.range", "tl.static_range", "tl.cdiv", "triton.cdiv", "tl.program_id", "tl.num_programs",
    "tl.minimum", "tl.maximum",
}  # fmt: skip
"""Functions that make of numbers that are no data others that are none."""
_PLACES = _NUMBERS | {"tl.arange"}
"""Those that make places of elements, along one dimension."""
_ALIKE = _NUMBERS - {"tl.program_id"}
"""Those that make numbers that all programs of a launch have."""
_KNOWN = {*LANGUAGE, "range", "min", "max", "float"}
_METHODS = {
    "to", "load", "store", "reshape", "trans", "view", "permute", "expand_dims", "broadcast_to", "cast", "sum", "max",
    "min", "exp", "log", "sqrt", "abs", "atomic_add", "gather", "split",
}  # fmt: skip
"""Of blocks and descriptors: none calls a kernel."""
_PLAIN = (ast.BinOp, ast.UnaryOp, ast.BoolOp, ast.Compare, ast.IfExp, ast.operator, ast.unaryop, ast.boolop, ast.cmpop)
_PARTS = (*_PLAIN, ast.Constant, ast.Tuple, ast.expr_context)
_STRANGE = (ast.comprehension, ast.Lambda, ast.Try, ast.With, ast.Match, ast.Global, ast.Nonlocal, ast.AsyncFor)


def kernels(source: str, strictly: bool = False, evenly: bool = False) -> frozenset[str]:
    """Names of the source's kernels, if no loop and no condition of any of them depends on what it loads; else none.
    None, too, where the source is too deep for a look at it.

    Args:
        strictly: a condition outside of all loops may not depend on it either, though it guards no more than a small
            step (`one_step`): the last program that finishes adds up what the others have.
        evenly: strictly, and none may depend on a program's place in the grid either: all programs do the same steps.
    """
    try:
        tree = ast.parse(source)
        functions = {node.name: node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef) and _is_jit(node)}
        bound = bound_names(tree)
        is_clear = all(bound[name] == 1 for name in functions) and not bound.keys() & _KNOWN
        places = None if strictly or evenly else _Steps(functions, None, _PLACES)
        steps = _Steps(functions, places, _ALIKE if evenly else _NUMBERS)
        return frozenset(functions) if is_clear and steps.are_plain() else frozenset()
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return frozenset()


def _is_jit(node: ast.FunctionDef) -> bool:
    return any("jit" in ast.unparse(decorator) for decorator in node.decorator_list)


class _Steps:
    """Which names of kernels may depend on data: by function and name.

    Args:
        places: the same of names that hold places in a tensor, where data may decide about a small step; None where
            they may not.
        numbers: functions that make of numbers that are no data others that are none.
    """

    def __init__(self, functions: dict[str, ast.FunctionDef], places: _Steps | None, numbers: Set[str]):
        self._functions, self._places, self._numbers = functions, places, numbers
        self._data: set[tuple[str, str]] = set()
        while self._spread():
            pass

    def are_plain(self) -> bool:
        """Whether nothing that decides what is done next depends on data."""
        for name, function in self._functions.items():
            once = [node for node in function.body if self._is_one_step(name, node)]
            for node in ast.walk(function):
                if isinstance(node, _STRANGE) or (isinstance(node, ast.FunctionDef) and node is not function):
                    return False
                decides = node.iter if isinstance(node, ast.For) else None
                decides = node.test if isinstance(node, (ast.While, ast.If, ast.IfExp, ast.Assert)) else decides
                decides = _first_part(node) or decides
                if decides is not None and node not in once and not self._is_plain(name, decides):
                    return False
                if isinstance(node, ast.Call) and not self._is_known(node):
                    return False
        return True

    def _is_one_step(self, name: str, node: ast.stmt) -> bool:
        places = self._places
        return places is not None and is_one_step(node, lambda value: places._is_plain(name, value))

    def _is_known(self, call: ast.Call) -> bool:
        """Whether it is to a kernel, to Triton's language, to a method of a block, or makes numbers of numbers."""
        name = ast.unparse(call.func)
        if isinstance(call.func, ast.Attribute):
            return name.partition(".")[0] in LANGUAGE or call.func.attr in _METHODS
        return name in self._functions or name in _NUMBERS or name == "float"

    def _spread(self) -> bool:
        """Whether one more name depends on data."""
        before = len(self._data)
        for name, function in self._functions.items():
            for node in ast.walk(function):
                for target, value in _bound(node):
                    if not self._is_plain(name, value):
                        self._data |= {(name, part.id) for part in ast.walk(target) if isinstance(part, ast.Name)}
                if isinstance(node, ast.If) and not self._is_plain(name, node.test):
                    parts = (part for statement in (*node.body, *node.orelse) for part in ast.walk(statement))
                    bound = (part for part in parts if isinstance(part, ast.Name) and isinstance(part.ctx, ast.Store))
                    self._data |= {(name, part.id) for part in bound}
                if isinstance(node, ast.Call) and (called := self._functions.get(ast.unparse(node.func))):
                    self._data |= {(called.name, given) for given in self._given(name, node, called)}
                for combine in _handed_on(node, self._functions):
                    self._data |= {(combine.name, parameter) for parameter in _parameters(combine)}
        return len(self._data) > before

    def _given(self, name: str, call: ast.Call, called: ast.FunctionDef) -> Iterator[str]:
        """The parameters that are given data."""
        parameters = _parameters(called)
        if any(isinstance(value, ast.Starred) for value in call.args) or any(key.arg is None for key in call.keywords):
            yield from parameters
        for parameter, value in zip(parameters, call.args, strict=False):
            if not self._is_plain(name, value):
                yield parameter
        yield from (key.arg for key in call.keywords if key.arg and not self._is_plain(name, key.value))

    def _is_plain(self, name: str, value: ast.expr) -> bool:
        match value:
            case ast.Name(id):
                return (name, id) not in self._data
            case ast.Call(ast.Attribute(own, "to"), _, []):
                return self._is_plain(name, own)
            case ast.Call(function, given, keys):
                parts = [*given, *(key.value for key in keys)]
                return ast.unparse(function) in self._numbers and all(self._is_plain(name, part) for part in parts)
            case ast.Attribute():
                return ast.unparse(value).startswith("tl.")
        children = list(ast.iter_child_nodes(value))
        return isinstance(value, _PARTS) and all(
            self._is_plain(name, child) if isinstance(child, ast.expr) else isinstance(child, _PARTS)
            for child in children
        )


def _parameters(function: ast.FunctionDef) -> list[str]:
    return [arg.arg for arg in (*function.args.posonlyargs, *function.args.args)]


def _handed_on(node: ast.AST, functions: Mapping[str, ast.FunctionDef]) -> Iterator[ast.FunctionDef]:
    """The functions that a call is given, as tl.reduce is: what they are called with is data."""
    if isinstance(node, ast.Call):
        parts = [part for value in (*node.args, *node.keywords) for part in ast.walk(value)]
        called = [part.func for part in parts if isinstance(part, ast.Call)]
        yield from (functions[n.id] for n in parts if isinstance(n, ast.Name) and n.id in functions and n not in called)


def _first_part(node: ast.AST) -> ast.expr | None:
    """Of a chain of conditions, what decides whether the rest of it is computed."""
    match node:
        case ast.BoolOp(values=values):
            return ast.Tuple(values[:-1], ast.Load())
        case ast.Compare(left, _, [*others, _]) if others:
            return ast.Tuple([left, *others], ast.Load())
    return None


def _bound(node: ast.AST) -> Iterator[tuple[ast.expr, ast.expr]]:
    """What is bound to what: of tuples, part by part."""
    match node:
        case ast.Assign(targets, value):
            for target in targets:
                if (
                    isinstance(target, ast.Tuple)
                    and isinstance(value, ast.Tuple)
                    and len(target.elts) == len(value.elts)
                ):
                    yield from zip(target.elts, value.elts, strict=True)
                else:
                    yield target, value
        case ast.AugAssign(target, _, value) | ast.AnnAssign(target, _, ast.expr() as value):
            yield target, value
        case ast.NamedExpr(target, value) | ast.For(target, value):
            yield target, value
