"""What an input is, in short: `(16, 3, 224, 224)`, `int < 1000 (128,)`, `tril (512, 512)`."""

from __future__ import annotations

import ast
from dataclasses import dataclass, replace

from drkernel.policy.canonical.values import Unknown, evaluated, is_literal

_DRAWN = {"rand", "randn", "zeros", "ones", "empty", "normal"}
_SAME = {
    *("abs", "abs_", "neg", "exp", "log", "sigmoid", "tanh", "relu", "softmax", "log_softmax", "normalize", "sign"),
    *(
        "clamp",
        "clamp_min",
        "clone",
        "contiguous",
        "detach",
        "requires_grad_",
        "cuda",
        "add",
        "sub",
        "mul",
        "div",
        "sqrt",
    ),
}
"""Functions and methods whose result is of the same shape and type as what they are given."""
_CASTS = {"float": "", "half": "float16", "bfloat16": "bfloat16", "bool": "bool", "long": "int", "int": "int"}
_SHAPED = {"tril", "triu"}
_TYPES = {"float16", "bfloat16", "float64", "bool"}


@dataclass(frozen=True)
class _Tensor:
    shape: tuple[int, ...]
    kind: str = ""
    limit: str = ""
    structure: str = ""

    def __str__(self) -> str:
        words = (self.structure, self.kind, f"< {self.limit}" if self.limit else "", str(self.shape))
        return " ".join(word for word in words if word)


def described(node: ast.expr) -> str:
    """An expression of `get_inputs`, in short where it is known what it makes; else as it is."""
    try:
        return str(_tensor(node))
    except Unknown:
        return ast.unparse(node)


def _tensor(node: ast.expr) -> _Tensor:
    match node:
        case ast.Attribute(value=value, attr="T" | "mT"):
            found = _tensor(value)
            return replace(found, shape=found.shape[::-1]) if len(found.shape) == 2 else _refused()
        case ast.UnaryOp(operand=operand):
            return _tensor(operand)
        case ast.BinOp(left=left, right=right):
            if is_literal(left) or is_literal(right):
                return _tensor(right if is_literal(left) else left)
            first, second = _tensor(left), _tensor(right)
            return first if first.shape == second.shape else _refused()
        case ast.Compare(left=left):
            return replace(_tensor(left), kind="bool", limit="")
        case ast.Call(func=ast.Attribute(value=ast.Name(id="torch" | "F"), attr=name)):
            return _called(name, node)
        case ast.Call(func=ast.Attribute(value=value, attr=name)):
            return _method(name, _tensor(value), node)
    raise Unknown


def _refused() -> _Tensor:
    raise Unknown


def _called(name: str, node: ast.Call) -> _Tensor:
    if name in _DRAWN:
        return _Tensor(_shape(node.args), _kind(node))
    if name == "randint":
        bounds = [argument for argument in node.args if isinstance(argument, ast.Constant)]
        return _Tensor(
            _shape(node.args[len(bounds) :]), _kind(node) or "int", str(evaluated(bounds[-1])) if bounds else ""
        )
    if name in _SAME | _SHAPED and node.args:
        return _method(name, _tensor(node.args[0]), node)
    raise Unknown


def _method(name: str, found: _Tensor, node: ast.Call) -> _Tensor:
    if name in _SHAPED:
        return replace(found, structure=name)
    if name in _CASTS:
        return replace(found, kind=_CASTS[name], limit=found.limit if _CASTS[name] == "int" else "")
    if name == "to" and (kind := _type(node.args[0]) if node.args else _kind(node)):
        return replace(found, kind=kind, limit="")
    if name in _SAME:
        return found
    raise Unknown


def _shape(arguments: list[ast.expr]) -> tuple[int, ...]:
    values = list(evaluated(ast.Tuple(list(arguments))))
    if len(values) == 1 and isinstance(values[0], tuple | list):
        values = list(values[0])
    if not all(isinstance(value, int) for value in values):
        raise Unknown
    return tuple(values)


def _kind(node: ast.Call) -> str:
    return next((_type(word.value) for word in node.keywords if word.arg == "dtype"), "")


def _type(node: ast.expr) -> str:
    name = node.attr if isinstance(node, ast.Attribute) else ""
    return name if name in _TYPES else "int" if name.startswith("int") or name == "long" else ""
