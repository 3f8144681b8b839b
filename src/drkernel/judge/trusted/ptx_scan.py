"""Which precisions a kernel multiplies in, read from its PTX: that of matrix instructions, which ptxas then assembles.

The scan alone refuses nothing. Three products of TF32 are as good as fp32, and a kernel may multiply in bf16 what does
not reach an output. What it finds asks for a further case (`plans.special_plans`). Why values are wrong is found out
from the values (`lowering.explained`).
"""

from __future__ import annotations

import json
import re
from pathlib import Path

from drkernel.types import Precision

_INSTRUCTION = re.compile(rb"\b(?:wgmma\.mma_async|(?:wmma\.)?mma|tcgen05\.mma)\.[\w.:]+")
_FORMATS = {
    b"tf32": "TF32", b"bf16": "bf16", b"f16": "fp16", b"e4m3": "fp8", b"e5m2": "fp8", b"s8": "int8", b"u8": "int8",
    b"e2m1": "fp4", b"f8f6f4": "fp8", b"mxf8f6f4": "fp8", b"mxf4": "fp4", b"mxf4nvf4": "fp4",
}  # fmt: skip
_ALLOWED: dict[Precision, frozenset[str]] = {
    "ieee": frozenset(),
    "tf32": frozenset({"TF32"}),
    "low": frozenset({"TF32", "bf16", "fp16"}),
}
_FILE = "products.json"


def products(ptx: bytes) -> frozenset[str]:
    """The formats of the factors of matrix instructions: `TF32`, `bf16`, `fp16`, `fp8`, `int8`, `fp4`."""
    found = set()
    for instruction in set(_INSTRUCTION.findall(ptx)):
        parts = re.split(rb"[.:]", instruction)
        found |= {_FORMATS[part] for part in parts if part in _FORMATS}
    return frozenset(found)


def forbidden(found: frozenset[str], precision: Precision, halves: bool) -> frozenset[str]:
    """Those that the task does not allow.

    Args:
        halves: whether inputs or weights of the task have 16 bits, so that products of 16 bits are exact.
    """
    allowed = _ALLOWED[precision] | (_ALLOWED["low"] if halves else frozenset())
    return found - allowed


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
