"""Operands that a `forward` takes as they were before the reference turned them.

    t0 = torch.permute(in1, (1, 0))      M, K = in0.shape                       <-- a completion takes `in1` for `t0`,
    t1 = in0 @ t0                        N = in1.shape[1]                           so it makes another size than `t1`
                                         t1 = in0.new_empty((M, N))                 has, and reads beyond `in1`
                                         kernel[...](in0, in1, t1, M, N, K)

Where a `forward` that launches kernels itself makes another size than the reference, and makes the right one of what
the reference's lines turned, it is given that. So it is where it takes an operand turned that the reference takes as it
is: the operand is turned before.
"""

from __future__ import annotations

import ast
import copy
from collections.abc import Iterator, Mapping, Sequence
from itertools import combinations

from drkernel.policy.canonical import host
from drkernel.policy.canonical.told import Told, names_in

_MOST = 4
"""Values that are tried together."""


def turned(body: Sequence[ast.stmt], told: Told) -> list[ast.stmt]:
    """The statements of a `forward`, with what the reference turned where they have the right size only with that."""
    if not any(isinstance(one, ast.Expr) for one in body) or _has_shape(body, told) is not False:
        return list(body)
    before = dict(_before(told))
    read, made = ({name for one in body for name in names_in(one, kind)} for kind in (ast.Load, ast.Store))
    others = [(old, new) for new, old in before.items() if old in read and not {new} & (read | made)]
    others += [(name, "") for name in sorted(read) if len(told.shapes.get(name, ())) > 1]
    for count in range(1, min(len(others), _MOST) + 1):
        for some in combinations(others, count):
            if len(dict(some)) == count:
                found = [_Turned(dict(some)).visit(copy.deepcopy(one)) for one in body]
                if _has_shape(found, told):
                    return [ast.fix_missing_locations(one) for one in found]
    return list(body)


def _before(told: Told) -> Iterator[tuple[str, str]]:
    """Values whose dimensions the reference turned, and what they were."""
    for line in told.lines:
        match ast.parse(line.text).body[0]:
            case ast.Assign([ast.Name(made)], ast.Call(function, [ast.Name(value), *_])):
                if ast.unparse(function) == "torch.permute":
                    yield made, value


def _has_shape(body: Sequence[ast.stmt], told: Told) -> bool | None:
    """Whether what a `forward` returns has the reference's shape; None where its source does not say."""
    match body[-1] if body else None:
        case ast.Return(ast.Name(result)) if result in told.shapes:
            values = [name for name in told.shapes if name.isidentifier() and name != result]
            arguments = ast.arguments([], [ast.arg(name) for name in values], None, [], [], None, [])
            function = ast.FunctionDef("forward", arguments, list(body), [])
            given = [host.tensor(told.shapes[name]) for name in values]
            try:
                found = host.returned(function, given)
            except host.Unknown:
                return None
            except host.Wrong:
                return False
            return getattr(found, "shape", None) == told.shapes[result]
    return None


class _Turned(ast.NodeTransformer):
    """Other names for some; an empty one stands for the value itself, turned where it is made contiguous."""

    def __init__(self, names: Mapping[str, str]):
        self._names = names

    def visit_Name(self, node: ast.Name) -> ast.AST:
        return ast.Name(self._names.get(node.id) or node.id, node.ctx)

    def visit_Call(self, node: ast.Call) -> ast.AST:
        match node:
            case ast.Call(ast.Attribute(ast.Name(name), "contiguous"), []) if self._names.get(name) == "":
                return ast.parse(f"{name}.transpose(-1, -2).contiguous()", mode="eval").body
        return self.generic_visit(node)
