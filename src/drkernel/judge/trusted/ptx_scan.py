"""Which precisions a kernel multiplies in, read from the matrix instructions of its PTX, which ptxas then assembles, or
from the trace of the simulated device.

Three products of TF32 and six of bf16 are as good as fp32, so values decide on these: what the scan finds asks for
further cases (`plans.special_plans`), and why values are wrong is found out from the values (`lowering.explained`). Two
things are refused though all values are right, since nothing in the values would tell them (`expect_allowed`): products
of formats from which nobody makes fp32, and any that a task forbids in front of outputs too few to know errors by.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

from torch import Tensor

from drkernel.judge.boundary.op_trace import Math, OpTrace
from drkernel.judge.trusted.comparison.lowering import ADVICE, FEW
from drkernel.judge.trusted.outputs import OutputTensor, is_float, leaves
from drkernel.judge.trusted.verdicts import VerdictReached
from drkernel.types import Precision

_INSTRUCTION = re.compile(rb"\b(?:wgmma\.mma_async|(?:wmma\.)?mma|tcgen05\.mma)\.[\w.:]+")
_COMMENT, _BLANK = re.compile(rb"/\*.*?\*/|//[^\n]*", re.DOTALL), re.compile(rb"\s+(?=\.)")
"""What may lie between the parts of an instruction in inline assembly."""
_FORMATS = {
    b"tf32": "TF32", b"bf16": "bf16", b"f16": "fp16", b"e4m3": "fp8", b"e5m2": "fp8", b"s8": "int8", b"u8": "int8",
    b"e2m1": "fp4", b"f8f6f4": "fp8", b"mxf8f6f4": "fp8", b"mxf4": "fp4", b"mxf4nvf4": "fp4",
}  # fmt: skip
_ALLOWED: dict[Precision, frozenset[str]] = {
    "ieee": frozenset(),
    "tf32": frozenset({"TF32"}),
    "low": frozenset({"TF32", "bf16", "fp16", "16 bits"}),
}
_IN_PIECES = frozenset({"TF32", "bf16", "16 bits", "int8"})
"""Formats of which kernels add up several products for one of fp32, and that of whole numbers, which are exact."""
_TRACED: dict[Math, str] = {"tf32": "TF32", "half": "16 bits", "byte": "16 bits"}
_FILE = "products.json"


def products(ptx: bytes) -> frozenset[str]:
    """The formats of the factors of matrix instructions: `TF32`, `bf16`, `fp16`, `fp8`, `int8`, `fp4`."""
    found = set()
    for instruction in set(_INSTRUCTION.findall(_BLANK.sub(b"", _COMMENT.sub(b"", ptx)))):
        parts = re.split(rb"[.:]", instruction)
        found |= {_FORMATS[part] for part in parts if part in _FORMATS}
    return frozenset(found)


def traced(trace: OpTrace) -> frozenset[str]:
    """The same of a call on the simulated device, which has no PTX: `TF32`, `16 bits`."""
    return frozenset(_TRACED[row.math] for row in trace.rows if row.triton and row.math in _TRACED)


def forbidden(found: frozenset[str], precision: Precision, halves: bool) -> frozenset[str]:
    """Those that the task does not allow.

    Args:
        halves: whether the task has values of 16 bits, so that products of 16 bits may be exact.
    """
    allowed = _ALLOWED[precision] | (_ALLOWED["low"] if halves else frozenset())
    return found - allowed


def expect_allowed(forbidden: frozenset[str], outputs: Any) -> None:
    """Refuses products whose error no values show.

    Args:
        forbidden: the formats that kernels multiply in and that the task does not allow.
        outputs: right ones, a tree whose tensors are `OutputTensor`.

    Raises:
        VerdictReached: it is refused.
    """
    found = [leaf.value if isinstance(leaf, OutputTensor) else leaf for _, leaf in leaves(outputs)]
    sizes = [value.numel() if isinstance(value, Tensor) else 1 for value in found if is_float(value)]
    few = min(sizes, default=FEW) < FEW  # whole numbers show every error
    names = sorted(forbidden if few else forbidden - _IN_PIECES)
    if names:
        why = "outputs are too few to show its errors" if few else "fp32 is not made of it"
        detail = f"a kernel multiplies in {names[0]}, which this task does not allow ({why}); it asks for "
        raise VerdictReached("incorrect", "wrong_values", detail + ADVICE.get(names[0], "factors in fp32"))


def write(found: frozenset[str], folder: Path) -> None:
    """Notes the formats beside compiled kernels."""
    (folder / _FILE).write_text(json.dumps(sorted(found)))


def take(folder: Path) -> frozenset[str]:
    """Reads and removes what `write` noted; nothing where it noted nothing."""
    path = folder / _FILE
    if not path.exists():
        return frozenset()
    found = frozenset(json.loads(path.read_text()))
    path.unlink()
    return found
