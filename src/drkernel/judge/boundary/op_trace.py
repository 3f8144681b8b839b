"""What one forward did: a row per Triton kernel or ATen operator, with how much it read, wrote and computed."""

from __future__ import annotations

import dataclasses
import json
from dataclasses import dataclass, field
from typing import Annotated, Any, Literal

import msgspec

Math = Literal["fp32", "tf32", "tf32x3", "half", "byte", "fp64"]

MAX_JSON = 4_000_000
"""Characters of a trace as JSON."""
STORES_UNKNOWN = 2.0**62
"""See Row.stored."""
MAX_TENSORS = 64
"""Entries of Row.tensors, and of Row.grids."""
WORK = ("accesses", "lanes", "operations")
"""What programs do: loads and stores, lanes of them, and instructions and operations of products, with all lanes."""


@dataclass
class Traffic:
    """What the calls of a row moved to or from tensors of one size, in bytes."""

    numel: int
    """Elements of the tensor; with it the traffic is scaled from the small task to the full one."""
    unique: int
    """Distinct bytes: what DRAM must deliver or take at least once."""
    total: int
    """Bytes of every access, isolated ones as whole sectors of 32 bytes: what the L2 cache has to serve."""
    stored: bool = False


@dataclass
class Grid:
    """Launches of a kernel that are alike."""

    programs: int
    """Of each of them."""
    stored: int
    """Elements of the largest tensor that each of them stores to; of those that add to one another, reads, too."""
    loops: bool
    """Whether their programs need several blocks to get through one of the tensors."""
    launches: int = 1
    idle: int = 0
    """Of the programs, those that access nothing."""
    share: float = 0.0
    """Of all stores, those of the busiest program, where it makes far more than others; else 0."""
    work: tuple[float, float, float] = (0.0, 0.0, 0.0)
    """What the programs of each do, by WORK."""
    uneven: tuple[float, float, float] = (1.0, 1.0, 1.0)
    """How many times as much as the mean of those that work the busiest program does, where that is far more."""
    light: tuple[float, float, float] = (0.0, 0.0, 0.0)
    """Of `work`, what programs do that do far less than the busiest one."""
    touched: int = 0
    """Elements of the tensor of which each of them moves the most distinct bytes; 0 where that is not known."""


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
    """Of tl.dot (its unmasked proportion) and of library products: 2 per multiply-add."""
    arithmetic: float = 0.0
    """Instructions: results of element-wise operations, elements that enter reductions; slow ones count several."""
    output_numel: int = 0
    math: Math = "fp32"
    """Arithmetic of the products: fp32 (CUDA cores), tf32, tf32x3 (three for one), half (tensor cores), byte (int8
    and fp8) or fp64."""
    block: int = 0
    """Elements of the largest block that a program loads or stores; ATen: length of the dimension it works along."""
    accesses: int = 0
    """Loads, stores and atomics, of all programs; ATen: elements whose addresses are computed one by one."""
    tensors: list[Traffic] = field(default_factory=list)
    reused: float = 0.0
    """Loaded bytes of which the same program had loaded the sectors before."""
    reach: float = 0.0
    """Sum over these bytes of the bytes that the program moved in between: what a cache had to hold to serve them."""
    lanes: float = 0.0
    """Of a Triton kernel's loads and stores, those that are not masked."""
    exchanges: float = 0.0
    """Of a Triton kernel, reductions and scans of all programs: what follows waits for the threads of its program."""
    warps: int = 0
    """Of a Triton kernel's program, the fewest of its launches; 0 where that is not known."""
    issued: float = 0.0
    """Of a Triton kernel, instructions that its programs issue, each for a whole block, however many lanes it has."""
    blocks: float = 0.0
    """Of a Triton kernel's programs, loads and stores: each as many as would be if all had as many lanes as the largest
    ones, so that one of a single number, or of a block that is masked but for one, counts little."""
    contention: int = 0
    """Atomic operations of one launch at the address that has most."""

    moved: float = 0.0
    """Bytes that the programs of a launch without data load and store, each as many as the one that moves least."""
    stored: float = 0.0
    """Bytes that the programs of launches without data store at most; STORES_UNKNOWN or more where only data tell."""
    stored_lanes: float = 0.0
    """The same with masked lanes, where data decide nothing but masks."""
    grids: list[Grid] = field(default_factory=list)
    """Of the launches of a Triton kernel, where a device tells them apart."""
    tile: int = 0
    """Elements of the smallest result of a tl.dot; 0 without one."""
    k_major: bool = False
    """Whether the factors of each tl.dot lie in memory along the dimension that is summed."""
    dense_flops: float = 0.0
    """Of tl.dot with all its lanes: a small task fills few of a tile's. ATen: see windows.lanes."""
    dense_arithmetic: float = 0.0
    """Of a Triton kernel, `arithmetic` with all lanes, the masked ones, too."""
    full_grid: float = 0.0
    """Programs of a launch at the sizes that count; 0 where that is not known. Not sent."""
    full_grids: list[float] = field(default_factory=list)
    """The same of each of `grids`, where the dry run has as many kinds; not sent."""
    full_calls: float = 0.0
    """Calls there; 0 where that is not known. Not sent."""
    full_largest: float = 0.0
    """Elements of the largest tensor that a launch is given there; 0 where that is not known. Not sent."""
    full_arithmetic: float = 0.0
    """As `arithmetic` there, of which some of the programs tell; 0 where that is not known. Not sent."""
    full_flops: float = 0.0
    """As `flops` there, likewise."""
    full_accesses: float = 0.0
    """As `accesses` there, likewise."""
    full_exchanges: float = 0.0
    """As `exchanges` there, likewise."""
    full_lanes: float = 0.0
    """As `lanes` there, likewise."""
    full_issued: float = 0.0
    """As `issued` there, likewise."""
    full_blocks: float = 0.0
    """As `blocks` there, likewise."""
    full_moved: float = 0.0
    """As `moved`; not sent."""
    is_smaller: bool = False
    """Whether numbers of its source, so that of its blocks, too, may have been made smaller; not sent."""
    loop_free: bool = False
    """Whether a program is known to do one block's work, whatever the size; not sent."""
    steady: bool = False
    """Whether a program is known to do as many steps whatever numbers it loads; not sent."""
    even: bool = False
    """Whether all programs of a launch are known to do the same steps, whatever numbers they load; not sent."""
    needless: float = 0.0
    """Of `flops`, those of products with a diagonal matrix, where a reference was recorded with data; not sent."""

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

    def add_grid(self, added: Grid) -> None:
        """Adds a launch to those that are like it; of more than MAX_TENSORS kinds, to the last, whose launches then all
        have as few programs and are as uneven as any of them."""
        for grid in self.grids:
            if dataclasses.replace(grid, launches=1) == added:
                grid.launches += 1
                return
        if len(self.grids) < MAX_TENSORS:
            self.grids.append(added)
            return
        last = self.grids[-1]
        last.launches += 1
        work = [mean + (new - mean) / last.launches for mean, new in zip(last.work, added.work, strict=True)]
        last.work = work[0], work[1], work[2]
        last.programs, last.share = min(last.programs, added.programs), max(last.share, added.share)
        last.uneven = max(last.uneven, added.uneven, key=max)


def site_of(kernel: Any) -> str:
    """Where a Triton kernel is defined: `function_name:first line`, decorators included."""
    return f"{kernel.fn.__name__}:{kernel.fn.__code__.co_firstlineno}"


@dataclass
class OpTrace:
    """The rows of one forward, in the order in which each appeared first."""

    rows: list[Row] = field(default_factory=list)
    full: OpTrace | None = None
    """What the host code calls on tensors of the sizes that count, where that is known; without data. Not sent."""
    read: str = ""
    """Of a run without data: what its host code reads of tensors, `numbers`, `answers` or nothing. Not sent."""
    unknown: str = ""
    """Why what the host code calls at the sizes that count is not known. Not sent."""

    @property
    def launches_triton(self) -> bool:
        """Whether a Triton kernel was launched, with a grid that is not empty."""
        return any(row.triton and row.programs for row in self.rows)

    def to_json(self) -> str:
        rows = [
            [
                *(getattr(row, key) for key in _FIELDS),
                [[t.numel, t.unique, t.total, t.stored] for t in row.tensors],
                [list(dataclasses.astuple(grid)) for grid in row.grids],
            ]
            for row in self.rows
        ]
        return json.dumps(rows, separators=(",", ":"))

    @classmethod
    def from_json(cls, text: str, max_rows: int = 10_000) -> OpTrace:
        """Parses what an untrusted process sent.

        Raises:
            ValueError: a field is missing, has another type or an impossible size, or the trace is too long.
        """
        if len(text) > MAX_JSON:
            raise ValueError(f"trace: {len(text)} characters, at most {MAX_JSON} expected")
        try:
            rows = msgspec.json.decode(text, type=list[_RowMessage])
        except (msgspec.DecodeError, RecursionError, UnicodeError) as error:
            raise ValueError(f"trace: {error}") from None
        if len(rows) > max_rows:
            raise ValueError(f"trace: {len(rows)} rows, at most {max_rows} expected")
        return cls([_row(message) for message in rows])


_Name = Annotated[str, msgspec.Meta(min_length=1, max_length=200)]
_Count = Annotated[int, msgspec.Meta(ge=0, le=2**63 - 1)]
_Amount = Annotated[float, msgspec.Meta(ge=0, lt=2.0**63)]
_Share = Annotated[float, msgspec.Meta(ge=0, le=1)]
_Times = Annotated[float, msgspec.Meta(ge=1, lt=2.0**63)]
_Work = tuple[_Amount, _Amount, _Amount]
_Uneven = tuple[_Times, _Times, _Times]
_TrafficMessage = tuple[_Count, _Count, _Count, bool]
_FIELD_TYPES: dict[str, Any] = {
    "name": _Name,
    "site": _Name,
    "triton": bool,
    "calls": _Count,
    "programs": _Count,
    "flops": _Amount,
    "arithmetic": _Amount,
    "output_numel": _Count,
    "math": Math,
    "tile": _Count,
    "k_major": bool,
    "dense_flops": _Amount,
    "dense_arithmetic": _Amount,
    "block": _Count,
    "accesses": _Count,
    "reused": _Amount,
    "reach": _Amount,
    "lanes": _Amount,
    "exchanges": _Amount,
    "warps": _Count,
    "issued": _Amount,
    "blocks": _Amount,
    "contention": _Count,
    "moved": _Amount,
    "stored": _Amount,
    "stored_lanes": _Amount,
}
_FIELDS = tuple(_FIELD_TYPES)
_TensorsMessage = Annotated[list[_TrafficMessage], msgspec.Meta(max_length=MAX_TENSORS)]
_GridsMessage = Annotated[
    list[tuple[_Count, _Count, bool, _Count, _Count, _Share, _Work, _Uneven, _Work, _Count]],
    msgspec.Meta(max_length=MAX_TENSORS),
]
_RowMessage: Any = tuple[(*_FIELD_TYPES.values(), _TensorsMessage, _GridsMessage)]  # type: ignore[misc]
"""A row as JSON: its fields in this order, then its tensors and its grids."""


def _row(message: tuple) -> Row:
    *values, tensors, grids = message
    fields = dict(zip(_FIELDS, values, strict=True))
    return Row(**fields, tensors=[Traffic(*tensor) for tensor in tensors], grids=[Grid(*grid) for grid in grids])
