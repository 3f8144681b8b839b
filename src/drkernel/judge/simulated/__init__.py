"""The pipeline of a GPU judge on a machine without a GPU: Triton's interpreter counts, a roofline model keeps the time.

install(cuda_shim=False)            # once, before the first kernel is defined
with record() as ledger:            # counts Triton launches and ATen operators
    model(*inputs)
price(ledger, GPUS["H200"], scale_of(task))
"""

from __future__ import annotations

from .device import WORK_BUDGET, install, record
from .ledger import Ledger, Row, Traffic
from .roofline import GPUS, Gpu, floor_microseconds, price
from .scale import Scale, scale_of

__all__ = [
    "GPUS",
    "WORK_BUDGET",
    "Gpu",
    "Ledger",
    "Row",
    "Scale",
    "Traffic",
    "floor_microseconds",
    "install",
    "price",
    "record",
    "scale_of",
]
