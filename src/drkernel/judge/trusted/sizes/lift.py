"""A task's source with its sizes as module constants, which can then be varied.

Sizes are written in many places: as expressions (`M = 1024 * 2`), in lists, tuples and dicts, as numbers inside
`get_inputs` and `get_init_inputs`, or inside the network. Lines keep their numbers, but for one line that may be added.

A submission has sizes inside the network of its own. Where the network's become smaller, `with_small_sizes` makes the
same numbers smaller in the submission.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Mapping

from drkernel.tasks.sources import INPUTS, replaced, value_of
from drkernel.types import Task

_MIN_SIZE, _MIN_BATCH = 16, 4
"""Smaller numbers are taken for something else than sizes, or than batches."""
_OF_INPUTS, _OF_NETWORK = "SIZE_", "WIDTH_"
"""What the names of new constants begin with."""
_NO_SIZES = ("num_warps", "num_stages", "num_ctas", "maxnreg")
"""Keyword arguments of a kernel's launch that are no sizes."""


def lift(source: str, expressions: bool = True) -> str:
    """The source with the sizes of inputs and constructor arguments as module constants.

    Numbers of at least 16 in `get_inputs`, `get_init_inputs`, and in the lists, tuples and dicts of module constants
    get a constant each. Equal numbers share it, since they usually are the same size.

    Args:
        expressions: whether expressions of numbers become one number: `M = 1024 * 2` is `M = 2048` then. Expressions
            with names stay as they are: they follow their names.
    """
    body = ast.parse(source).body
    changes: dict[ast.expr, str] = {}
    sizes: dict[str, int] = {}
    for statement in body:
        for node in _assigned(statement):
            if expressions and isinstance(node, ast.BinOp) and (value := value_of(node)) is not None:
                changes[node] = repr(value)
        for root in _holding_sizes(statement):
            for node, value in _sizes(root, expressions):
                changes[node] = f"{_OF_INPUTS}{value}"
                sizes[changes[node]] = value
    return _rewritten(source, body, changes, sizes)


def lift_batches(source: str) -> str:
    """The source with small batches as module constants: numbers of at least 4 with which a shape in `get_inputs`
    begins, that is a call, or a tuple or list in it."""
    body = ast.parse(source).body
    first = [shape[0] for root in body if _draws_inputs(root) for node in ast.walk(root) if (shape := _shape(node))]
    numbers = {node: value for node in first if type(value := getattr(node, "value", None)) is int}
    sizes = {node: value for node, value in numbers.items() if _MIN_BATCH <= value < _MIN_SIZE}
    changes: dict[ast.expr, str] = {node: f"{_OF_INPUTS}{value}" for node, value in sizes.items()}
    return _rewritten(source, body, changes, {changes[node]: value for node, value in sizes.items()})


def lift_network(source: str) -> str:
    """The source, which `lift` has changed, with the sizes inside the network as module constants, too.

    These are the numbers of at least 16 in classes and in functions beside `get_inputs` and `get_init_inputs`. Of an
    expression (`512 * 7 * 7`) each number counts alone, so that what is not a size stays.
    """
    body = ast.parse(source).body
    sizes = {node: value for root in _network(body) for node, value in _literals(root) if value >= _MIN_SIZE}
    changes = {node: f"{_OF_NETWORK}{value}" for node, value in sizes.items()}
    return _rewritten(source, body, changes, {changes[node]: value for node, value in sizes.items()})


def network_sizes(source: str) -> dict[str, int]:
    """The constants that `lift_network` has put into the network, with their values as published."""
    names = {name.id for statement in ast.parse(source).body for name in _names(statement)}
    return {name: int(name[len(_OF_NETWORK) :]) for name in names if re.fullmatch(rf"{_OF_NETWORK}\d+", name)}


def with_small_sizes(submission: str, task: Task) -> str:
    """A submission whose numbers are made smaller as those inside the task's network are; unchanged if none are."""
    if not task.small or _OF_NETWORK not in task.source:
        return submission
    sizes = {value: task.small[name] for name, value in network_sizes(task.source).items() if name in task.small}
    return _with_numbers(submission, sizes) if sizes else submission


def _with_numbers(source: str, numbers: Mapping[int, int]) -> str:
    """The source with other numbers in place of some, but for options of launches; as it is where it does not parse."""
    try:
        tree = ast.parse(source)
    except (SyntaxError, ValueError, RecursionError):
        return source
    options = {id(k.value) for k in ast.walk(tree) if isinstance(k, ast.keyword) and k.arg in _NO_SIZES}
    found = {node: value for node, value in _literals(tree) if id(node) not in options}
    return replaced(source, {node: repr(numbers[value]) for node, value in found.items() if value in numbers})


def _sizes(root: ast.AST, expressions: bool) -> Iterator[tuple[ast.expr, int]]:
    """The numbers below a node that are sizes; of expressions the outermost."""
    if isinstance(root, ast.JoinedStr):
        return
    if isinstance(root, ast.Constant) or (
        expressions and isinstance(root, ast.expr) and root.lineno == root.end_lineno
    ):
        value = value_of(root)
        if value is not None and value >= _MIN_SIZE:
            yield root, value
        if value is not None:
            return
    for child in ast.iter_child_nodes(root):
        yield from _sizes(child, expressions)


def _literals(root: ast.AST) -> Iterator[tuple[ast.expr, int]]:
    """The whole numbers below a node with their values, not those inside of f-strings."""
    if isinstance(root, ast.JoinedStr):
        return
    if isinstance(root, ast.Constant) and type(root.value) is int:
        yield root, root.value
    for child in ast.iter_child_nodes(root):
        yield from _literals(child)


def _network(body: list[ast.stmt]) -> list[ast.stmt]:
    kinds = (ast.ClassDef, ast.FunctionDef)
    return [statement for statement in body if isinstance(statement, kinds) and statement.name not in INPUTS]


def _draws_inputs(statement: ast.stmt) -> bool:
    return isinstance(statement, ast.FunctionDef) and statement.name == INPUTS[0]


def _shape(node: ast.AST) -> list[ast.expr]:
    """What may be the sizes of a tensor."""
    return node.args if isinstance(node, ast.Call) else node.elts if isinstance(node, (ast.Tuple, ast.List)) else []


def _names(statement: ast.stmt) -> list[ast.Name]:
    targets = statement.targets if isinstance(statement, ast.Assign) else [getattr(statement, "target", None)]
    return [target for target in targets if isinstance(target, ast.Name)]


def _assigned(statement: ast.stmt) -> list[ast.expr]:
    """What a statement assigns to names: one value, or those of several names at once."""
    if not isinstance(statement, (ast.Assign, ast.AnnAssign)) or statement.value is None:
        return []
    targets = statement.targets if isinstance(statement, ast.Assign) else [statement.target]
    value = statement.value
    values = value.elts if isinstance(targets[0], ast.Tuple) and isinstance(value, ast.Tuple) else [value]
    return [value for value in values if value.lineno == value.end_lineno]


def _holding_sizes(statement: ast.stmt) -> list[ast.AST]:
    """The parts of a statement whose numbers are sizes."""
    if isinstance(statement, ast.FunctionDef):
        return [statement] if statement.name in INPUTS else []
    if isinstance(statement, ast.Assign) and isinstance(statement.targets[0], ast.Tuple):
        values = statement.value.elts if isinstance(statement.value, ast.Tuple) else []
        return [each for value in values for each in _lists(value)]
    if not _names(statement) or not isinstance(statement, (ast.Assign, ast.AnnAssign)):
        return []
    match statement.value:
        case ast.Tuple() | ast.List():
            return [statement.value]
        case ast.BinOp():
            return _lists(statement.value)
        case ast.Dict(values=values):
            return list(values)
        case ast.Call(func=ast.Name(id="dict"), keywords=keywords):
            return [keyword.value for keyword in keywords]
    return []


def _lists(node: ast.expr) -> list[ast.AST]:
    """The lists and tuples of a repetition or a sum: `[64] * 2 + [128]`. How often they are repeated is no size."""
    if isinstance(node, ast.BinOp):
        return _lists(node.left) + _lists(node.right)
    return [node] if isinstance(node, (ast.Tuple, ast.List)) else []


def _rewritten(source: str, body: list[ast.stmt], changes: Mapping[ast.expr, str], sizes: dict[str, int]) -> str:
    """The source with changed expressions, and these constants in front."""
    source = replaced(source, changes)
    if not sizes:
        return source
    lines = source.encode().splitlines(keepends=True)
    first = next(node for node in body if not _must_stay_first(node))
    constants = "".join(f"{name} = {value!r}; " for name, value in sizes.items())
    if not isinstance(first, (ast.Assign, ast.AnnAssign, ast.Expr, ast.Import, ast.ImportFrom)):
        constants += "\n"
    line = min([first.lineno, *(node.lineno for node in getattr(first, "decorator_list", []))])
    lines[line - 1] = constants.encode() + lines[line - 1]
    return b"".join(lines).decode()


def _must_stay_first(node: ast.stmt) -> bool:
    """Whether a statement must stay first: the docstring and __future__ imports."""
    if isinstance(node, ast.ImportFrom):
        return node.module == "__future__"
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
