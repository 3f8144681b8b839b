"""What a price must contain at least, by what the reference does.

The counts of a submission come from its own process. So they are held against two things that the examiner knows: which
bytes an honest forward moves, and which products of the reference no longer happen in ATen. judge/PROPERTIES.md, P11.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Sequence

from torch import Tensor

from drkernel.judge.boundary.aten import GATHERS
from drkernel.judge.boundary.op_trace import OpTrace, Row
from drkernel.judge.devices.limits import Limits, limit_us
from drkernel.judge.devices.simulated.gpus import Gpu
from drkernel.judge.devices.simulated.rescale import Scale
from drkernel.judge.devices.simulated.roofline import ByHand
from drkernel.judge.devices.simulated.traffic import stream_s
from drkernel.judge.trusted import attribution
from drkernel.judge.trusted.least_work import LeastWork
from drkernel.types import KernelTime, Precision

_LEAST_BY_HAND = 0.25
"""Instructions per multiply-add of the missing products, below which kernels do something else instead of them."""
_MOST_MASKED = 2.0
"""Times the operations on data, that tiles may stand for: a library counts the padding of a small image, too."""


def products_by_hand(reference: OpTrace, trace: OpTrace, scale: Scale) -> ByHand:
    """The kernels that compute the reference's missing products without tl.dot: those with the most arithmetic."""
    missing, full = _missing(reference, trace, scale)
    left = missing - sum(
        max(row.flops, min(row.dense_flops, _MOST_MASKED * row.flops)) for row in trace.rows if row.triton
    )
    rows = sorted((row for row in trace.rows if row.triton and not row.flops), key=lambda row: -row.arithmetic)
    if left <= 0 or sum(row.arithmetic for row in rows) < _LEAST_BY_HAND * left / 2:
        return ByHand()
    sites = set()
    for row in rows:
        if left > 0:
            sites.add(row.site)
            left -= 2 * row.arithmetic
    return ByHand(frozenset(sites), full / missing)


def _missing(reference: OpTrace, trace: OpTrace, scale: Scale) -> tuple[float, float]:
    """Operations of the reference's products that ATen no longer does, at the small and at the full size.

    Those with a diagonal matrix need not happen: one multiplication for each output does. Who leaves them to ATen pays
    for them, which is more than other products would be held at, so that nothing is won by doing them.
    """

    def total(rows: Iterable[Row]) -> tuple[float, float]:
        products = [(row, row.flops - row.needless) for row in rows if _multiplies(row)]
        return sum(flops for _, flops in products), sum(flops * scale.of_products(row) for row, flops in products)

    (small, full), (left, left_full) = total(reference.rows), total(trace.rows)
    return max(0.0, small - left), max(0.0, full - left_full)


def _multiplies(row: Row) -> bool:
    """Whether it is an operator with products. What gathers rows may add them up, which is work of the loads."""
    return bool(row.flops) and not row.triton and row.name not in GATHERS


def least_us(
    reference: OpTrace,
    trace: OpTrace,
    gpu: Gpu,
    scale: Scale,
    precision: Precision,
    inputs: Sequence,
    outputs: Sequence,
) -> float:
    """Microseconds that no honest forward is faster than in this model of a GPU.

    Args:
        inputs, outputs: all tensors, at the small size.
    """
    whole = OpTrace(
        [row for row in reference.rows if row.name not in GATHERS]
    )  # which elements these read is not known
    read = sum(
        scale.of_tensor(t.numel()) * attribution.bytes_read(whole, [(t.numel(), t.numel() * t.element_size())])
        for t in inputs
    )
    written = sum(scale.of_tensor(t.numel()) * t.numel() * t.element_size() for t in outputs)
    rates = [_rate(row, gpu, precision) for row in reference.rows if _multiplies(row)]
    products = _missing(reference, trace, scale)[1] / max(rates) if rates else 0.0
    return 1e6 * max(stream_s(read + written, 1, gpu), products) + gpu.kernel_us


def sheet_us(reference: OpTrace, least: LeastWork | None, limits: Limits, scale: Scale, precision: Precision) -> float:
    """Microseconds that the data sheet allows at the published size, as `evidence["roofline"]` has them, but for
    products with a diagonal matrix; 0 where the least work is not known.

    Counts and what takes them to full size have no part in it: no mistake of theirs leads below it.
    """
    if least is None:
        return 0.0
    moving, computing = limit_us(least, limits, precision)
    products = [(row.flops * scale.of_products(row), row.needless / row.flops) for row in reference.rows if row.flops]
    needless = sum(flops * share for flops, share in products) / (sum(flops for flops, _ in products) or 1.0)
    return max(moving, computing * (1.0 - needless))


def _rate(row: Row, gpu: Gpu, precision: Precision) -> float:
    """The fastest arithmetic for a product that is right: three TF32 products make one in fp32."""
    if row.math != "fp32":
        return gpu.flops[row.math]
    allowed = {"ieee": gpu.flops["tf32x3"], "tf32": gpu.flops["tf32"], "low": gpu.flops["half"]}
    return max(gpu.flops["fp32"], allowed[precision])


def raised(times: Sequence[KernelTime], least: float) -> tuple[KernelTime, ...]:
    """The times, in proportion, such that their sum is not below the least."""
    total = sum(time.microseconds for time in times)
    if not 0 < total < least:
        return tuple(times)
    return tuple(dataclasses.replace(time, microseconds=time.microseconds * least / total) for time in times)


def tensors(leaves: Iterable[tuple[str, object]]) -> list[Tensor]:
    return [value for _, value in leaves if isinstance(value, Tensor)]
