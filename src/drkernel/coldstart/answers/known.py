"""What a canonical form says of its values: shapes, dtypes, and which are parts of others."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from drkernel.policy.canonical.told import Line, Told

Shapes = Mapping[str, tuple[int, ...]]


@dataclass(frozen=True)
class Part:
    """One of the equal parts of a tensor along a dimension."""

    whole: str
    """The tensor's name."""
    dim: int
    number: int
    place: int


@dataclass(frozen=True)
class Known:
    """What a form says of its values."""

    shapes: Shapes
    dtypes: Mapping[str, str]
    """Of those that are not float32."""
    parts: Mapping[str, Part]
    """Values that are parts of others."""
    halves: Mapping[str, tuple[str, str]] = field(default_factory=dict)
    """Names for the halves that a line joins (`F.glu`), by what it makes."""

    @classmethod
    def of(cls, told: Told) -> Known:
        parts = {name: part for line in told.lines for name, part in _chunks(line, told.shapes)}
        halves: dict[str, tuple[str, str]] = {}
        dtypes = dict(told.dtypes)
        for made, whole, dim in _joined_halves(told):
            halves[made] = (f"a{made[1:]}", f"b{made[1:]}")
            parts |= {name: Part(whole, dim, 2, place) for place, name in enumerate(halves[made])}
            dtypes |= dict.fromkeys(halves[made], dtypes[whole]) if whole in dtypes else {}
        return cls(told.shapes, dtypes, parts, halves)

    def is_float(self, name: str) -> bool:
        return self.dtypes.get(name, "float") not in ("int", "bool")


def _chunks(line: Line, shapes: Shapes) -> Iterator[tuple[str, Part]]:
    """The values that `torch.chunk` makes, as parts."""
    match ast.parse(line.text).body[0]:
        case ast.Assign([ast.Tuple(made)], ast.Call(call, [ast.Name(whole), ast.Constant(int() as number)], [word])):
            dim = dims_of(ast.unparse(word.value), len(shapes.get(whole, ())))
            if ast.unparse(call) == "torch.chunk" and dim and shapes[whole][dim[0]] % number == 0:
                for place, target in enumerate(made):
                    yield ast.unparse(target), Part(whole, dim[0], number, place)


def _joined_halves(told: Told) -> Iterator[tuple[str, str, int]]:
    """What `F.glu` makes, the tensor whose halves it joins, the dimension."""
    for line in told.lines:
        match ast.parse(line.text).body[0]:
            case ast.Assign([ast.Name(made)], ast.Call(call, [ast.Name(whole)], words)) if whole in told.shapes:
                if ast.unparse(call) == "F.glu":
                    dim = ast.literal_eval(words[0].value) if words else -1
                    yield made, whole, dim % len(told.shapes[whole])


def words_of(keywords: Iterable[ast.keyword]) -> dict[str, str]:
    """The named arguments of a call, as they are written."""
    return {str(word.arg): ast.unparse(word.value) for word in keywords}


def dims_of(text: str, rank: int) -> tuple[int, int] | None:
    """First and last of dimensions that lie side by side."""
    try:
        given = ast.literal_eval(text)
    except (SyntaxError, ValueError):
        return None
    dims = sorted(d % rank for d in (given if isinstance(given, tuple | list) else (given,))) if rank else []
    return (dims[0], dims[-1]) if dims and dims == list(range(dims[0], dims[-1] + 1)) else None
