"""What one forward did on the simulated device: a row per Triton kernel or ATen operator, with the tensors touched."""

from __future__ import annotations

import json
import math
from dataclasses import dataclass, field
from typing import Any, Literal

Math = Literal["fp32", "tf32", "half", "fp64"]
MATHS = ("fp32", "tf32", "half", "fp64")

MAX_JSON = 4_000_000
MAX_NAME = 200
MAX_TENSORS = 64
MAX_COUNT = 2**63


@dataclass
class Traffic:
    """What one call of a row moved to and from one tensor storage, in bytes."""

    numel: int
    """Elements of the tensor; with it the traffic is scaled from the small task to the full one."""
    unique: int
    """Distinct bytes: what DRAM must deliver or take at least once."""
    total: int
    """Bytes of every access, isolated ones as whole sectors of 32 bytes: what the L2 cache has to serve."""
    stored: bool = False


@dataclass
class Row:
    """All launches of one kernel (or calls of one operator on tensors of one size) in a forward."""

    name: str
    site: str
    """`function_name:first line` of a Triton kernel, decorators included; the operator's name for ATen."""
    triton: bool
    calls: int = 0
    programs: int = 0
    """Programs of all launches; 0 for ATen operators and empty grids."""
    flops: float = 0.0
    """tl.dot (its unmasked share) and library products, 2 per multiply-add."""
    arithmetic: float = 0.0
    """Instructions: results of element-wise operations, elements that enter reductions; dear ones count several."""
    output_numel: int = 0
    math: Math = "fp32"
    """Arithmetic of the products: fp32 (CUDA cores), tf32, half (tensor cores) or fp64."""
    block: int = 0
    """Elements of the largest block that a program loads or stores; ATen: length of the dimension it works along."""
    accesses: int = 0
    """Loads, stores and atomics, of all programs; ATen: elements that are addressed one by one, see SINGLE."""
    tensors: list[Traffic] = field(default_factory=list)
    reused: float = 0.0
    """Loaded bytes of which the same program had loaded the sectors before."""
    reach: float = 0.0
    """Sum over these bytes of the bytes that the program moved in between: what a cache had to hold to serve them."""

    @property
    def bytes_unique(self) -> int:
        return sum(t.unique for t in self.tensors)

    @property
    def bytes_total(self) -> int:
        return sum(t.total for t in self.tensors)

    def add_traffic(self, numel: int, unique: int, total: int, stored: bool) -> None:
        """Adds to the entry of tensors of the same size; what exceeds MAX_TENSORS sizes joins the last entry."""
        for entry in self.tensors:
            if entry.numel == numel and entry.stored == stored:
                entry.unique += unique
                entry.total += total
                return
        if len(self.tensors) == MAX_TENSORS:
            self.tensors[-1].unique += unique
            self.tensors[-1].total += total
        else:
            self.tensors.append(Traffic(numel, unique, total, stored))


def site_of(kernel: Any) -> str:
    """Where a Triton kernel is defined: `function_name:first line`, decorators included."""
    return f"{kernel.fn.__name__}:{kernel.fn.__code__.co_firstlineno}"


@dataclass
class OpTrace:
    rows: list[Row] = field(default_factory=list)

    def to_json(self) -> str:
        rows = [
            [*(getattr(r, key) for key in _ROW), [[t.numel, t.unique, t.total, t.stored] for t in r.tensors]]
            for r in self.rows
        ]
        return json.dumps(rows, separators=(",", ":"))

    @classmethod
    def from_json(cls, text: str, max_rows: int = 10_000) -> OpTrace:
        """Parses what an untrusted process sent. ValueError unless every field has its type and a sane size."""
        if len(text) > MAX_JSON:
            raise ValueError(f"trace: {len(text)} characters, at most {MAX_JSON} expected")
        try:
            data = json.loads(text, parse_constant=_refuse)
        except RecursionError:
            raise ValueError("trace: nested too deeply") from None
        rows = _list(data, "rows", max_rows)
        return cls([_row(_list(row, "row", len(_ROW) + 1)) for row in rows])


_ROW: dict[str, type] = {
    "name": str,
    "site": str,
    "triton": bool,
    "calls": int,
    "programs": int,
    "flops": float,
    "arithmetic": float,
    "output_numel": int,
    "math": str,
    "block": int,
    "accesses": int,
    "reused": float,
    "reach": float,
}


def _refuse(constant: str) -> None:
    raise ValueError(f"trace: {constant} is no number")


def _list(value: Any, what: str, limit: int) -> list:
    if type(value) is not list or len(value) > limit:
        raise ValueError(f"trace: {what} must be a list of at most {limit} entries")
    return value


def _value(value: Any, kind: type, key: str) -> Any:
    if kind is float and type(value) is int:
        kind = int
    if type(value) is not kind:
        raise ValueError(f"trace: {key} must be {kind.__name__}, found {type(value).__name__}")
    if kind is str and not 0 < len(value) <= MAX_NAME:
        raise ValueError(f"trace: {key} must have 1 to {MAX_NAME} characters, found {len(value)}")
    if kind in (int, float) and not (math.isfinite(value) and 0 <= value < MAX_COUNT):
        raise ValueError(f"trace: {key} must be a finite number of at least 0, found {value}")
    return value


def _row(data: list) -> Row:
    if len(data) != len(_ROW) + 1:
        raise ValueError(f"trace: a row has {len(_ROW) + 1} fields, found {len(data)}")
    values = {key: _value(value, kind, key) for (key, kind), value in zip(_ROW.items(), data, strict=False)}
    if values["math"] not in MATHS:
        raise ValueError(f"trace: math must be one of {MATHS}, found {values['math']!r}")
    kinds = {"numel": int, "unique": int, "total": int, "stored": bool}
    tensors = []
    for entry in _list(data[-1], "tensors", MAX_TENSORS):
        if len(_list(entry, "tensor", 4)) != 4:
            raise ValueError(f"trace: a tensor has 4 fields, found {len(entry)}")
        tensors.append(Traffic(*(_value(v, kind, key) for (key, kind), v in zip(kinds.items(), entry, strict=True))))
    return Row(**values, tensors=tensors)
