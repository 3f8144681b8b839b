"""From counts to microseconds: a roofline of a named GPU, with launch costs, the L2 cache, latency and idle SMs.

The constants were fitted to 160 timings on one H200 (torch 2.11, triton 3.6, cold L2, 2026-11): element-wise kernels
of 0.3 to 540 MB with blocks of 32 to 65536, 60 eager operators on 64M elements, matrix products of 512 to 4096.
Eager factors, instruction costs and overlap were then read off 414 submissions to 120 generated tasks, timed there. The
free constants were chosen on half of these tasks: modelled speed-ups rank with Spearman's rho 0.99 (other half: 0.97)
and are off by 2 % at the median (benchmarks/simulated_vs_gpu.py). Kernels whose long chains of transcendental functions
spill registers come out up to 1.7 times too fast, gathers from tables larger than the L2 cache 1.2 to 1.4 times.

Launch costs of the host are separate: with `dataclasses.replace(gpu, aten_host_us=1.0, triton_host_us=1.0)` the times
are the device's alone.
"""

from __future__ import annotations

import dataclasses
import functools
import math
from collections.abc import Sequence
from dataclasses import dataclass

from drkernel.judge.boundary import tf32
from drkernel.judge.boundary.aten import MOMENTS, OUTER, SCANS, SOFTMAXES, SORTS, TRAINING
from drkernel.judge.boundary.op_trace import Grid, OpTrace, Row
from drkernel.judge.boundary.sequences import RECURRENT
from drkernel.judge.devices.simulated.accesses import (
    accesses_of,
    filled_share,
    growth_of_products,
    growth_of_shared,
    is_told,
)
from drkernel.judge.devices.simulated.gpus import Gpu
from drkernel.judge.devices.simulated.programs import Programs, grids, programs, shares_the_data
from drkernel.judge.devices.simulated.rescale import Scale
from drkernel.types import KernelTime, Precision

RAMP_US, RAMP = 6.0, 0.1
"""A kernel reaches its bandwidth only after a while: up to a tenth of its time, at most this long."""

TRITON_DOT = {"byte": 0.75, "half": 0.75, "tf32": 0.21, "tf32x3": 0.49, "fp32": 0.85, "fp64": 0.3}
K_MAJOR_DOT = TRITON_DOT | {"tf32": 0.67, "tf32x3": 0.56, "fp32": 0.45}
"""What a plain tl.dot loop reaches of cuBLAS; the second where both factors lie along the summed dimension. The fastest
instructions for TF32 want that of the right one; a loop in fp32 loads such a factor less well."""
FULL_TILE = {"tf32": 16384, "tf32x3": 16384}
K_MAJOR_FULL_TILE = FULL_TILE | {"tf32x3": 8192}
SMALL_TILES = 0.4
"""Results of fewer elements are slower by their proportion to this power: they load more for what they compute."""
TILES_PER_SM = 2
"""Programs with products in TF32 that an SM needs at once to hide their latency."""
CONVOLUTION = 0.88
"""What cuDNN's convolutions in fp32 reach of cuBLAS, with many channels."""

SHORT_INNER, SHORT_WINDOW = 12, 40
"""Products over K terms take as long as over K + this many: tiles have to be filled before the first one. The second
for convolutions in fp32, and for loops of tl.dot, which load several tiles ahead."""

TILE_REUSE = 1.8
"""Product kernels share tiles between SMs in time: their repeated loads are served this much faster than others."""

FASTER_THAN_DATA = 1.25
"""Products whose growth is within this factor of the growth of the data (depthwise ones) are priced like other work."""

ACCESS_NS = 110.0
"""Time that one load or store adds to its program: latency, as far as the compiler cannot hide it."""

SERIAL, FEW_SERIAL = 0.52, 0.67
"""Memory and arithmetic overlap: together they take the longer of their times, or this proportion of their sum; the
second where an SM has few programs, of which one could compute while another one waits."""
LARGE_BLOCK = 2048
"""Larger blocks need so many registers that few programs fit on an SM."""

L1_BYTES = 96 * 1024
"""What an SM keeps for its programs; the rest of the cache is shared memory."""

PROGRAM_BANDWIDTH = 45e9
PROGRAMS_PER_SM = 12
SPILLING_BLOCK, SPILLING_FACTOR = 32768, 4.0
"""Blocks above this many elements live in local memory."""

FAR_MORE, BESIDE_PRODUCTS = 2.5, 0.25
"""How many times the instructions that a kernel is taken to have at full size some of its programs may have there, as
they are few, and a small task masks more lanes. Instructions per operation of tl.dot that addresses and masks may take:
what loops of tl.dot reach was measured with these."""

SINGLE = 1.42
"""How much longer element-wise operators take that address each element singly, see Row.accesses."""

EAGER: dict[str, tuple[int, float]] = {
    "native_layer_norm": (1, 1.4), "native_group_norm": (3, 3.1),
    "native_batch_norm": (1, 1.45), "_native_batch_norm_legit_no_training": (1, 1.45),
    "native_batch_norm" + TRAINING: (2, 4.0), "sum": (1, 1.07), "mean": (1, 1.07), "amax": (1, 1.07), "amin": (1, 1.07),
    "prod": (1, 1.07), "linalg_vector_norm": (1, 1.07), "max": (1, 1.9), "min": (1, 1.9), "argmax": (1, 1.9),
    "argmin": (1, 1.9), "logsumexp": (7, 7.8), "mse_loss": (2, 2.05), "smooth_l1_loss": (2, 2.05),
    "huber_loss": (2, 2.05), "binary_cross_entropy": (2, 2.05),
    "binary_cross_entropy_with_logits": (8, 6.4), "rms_norm": (1, 1.13), "tril": (1, 1.35), "triu": (1, 1.35),
    "flip": (1, 1.4), "roll": (1, 2.4),
    "gather": (1, 1.8), "topk": (3, 14.0), "_local_scalar_dense": (2, 1.0),
    **dict.fromkeys(MOMENTS, (1, 2.1)), **dict.fromkeys(SORTS, (6, 19.0)), **dict.fromkeys(SCANS, (1, 2.25)),
    **{name + OUTER: (1, 20.0) for name in SCANS}, **{name + OUTER: (1, 2 * SINGLE) for name in SOFTMAXES},
}  # fmt: skip
"""How eager CUDA runs an operator: (kernels, time over what its inputs and outputs alone would take), else (1, 1.0).
What one algorithm does has one price, whatever its name: of the sorts, `sort` was measured; of the scans, sums.

A softmax along another dimension than the last was not measured. PyTorch's kernel (cunn_SpatialSoftMaxForward) reads
its input three times and writes once, neighbours by neighbours: twice the traffic, with each element addressed singly.
"""

LONG_ROW, LONG_FACTORS = 2048, {"_softmax": 1.65, "_log_softmax": 1.45}
"""Rows longer than this fill a block of 1024 threads, of which few fit on an SM."""

POOL_OUTPUT = 170
"""Instructions that eager pooling spends on the place of each output, before it loads its window."""

ONE_BLOCK, NORM_ROW = 8e9, 4e9
"""Bytes per second of nll_loss, which runs as one block, and of each row of a layer norm, which is one block."""

ATTENTION, HALF_ATTENTION, SPLIT = 0.6, 0.79, 2048
"""What eager fp32 attention reaches of cuBLAS, and in 16 bits (not measured here: FlashAttention's 600 TFLOP/s); of
longer sums, parts have blocks of their own where there are few."""


def for_precision(gpu: Gpu, precision: Precision) -> Gpu:
    """The GPU, on which eager products of fp32 are those of TF32 where the task's precision allows that."""
    return dataclasses.replace(gpu, eager_fp32="tf32") if tf32.allowed_by(precision) else gpu


@dataclass(frozen=True)
class ByHand:
    """Kernels that compute products without tl.dot, whose work grows like the products and not like their data."""

    sites: frozenset[str] = frozenset()
    growth: float = 1.0
    """Of these products, full / small."""

    def of(self, row: Row) -> float:
        """The growth of a kernel's products; 0 where it computes none by hand."""
        return self.growth if row.triton and row.site in self.sites and not row.flops else 0.0


NO_PRODUCTS = ByHand()
_SAME = Scale()


@dataclass(frozen=True)
class Roofline:
    """The cost model of a GPU (`trusted.attribution.CostModel`) for runs that `scale` takes to full size."""

    gpu: Gpu
    scale: Scale

    def kernel_times(self, trace: OpTrace, products: ByHand = NO_PRODUCTS) -> tuple[KernelTime, ...]:
        return estimate_times(trace, self.gpu, self.scale, products)

    def work_us(self, row: Row) -> float:
        return sum(time.microseconds for time in estimate_times(OpTrace([row]), self._without_launches, self.scale))

    def min_time_us(self, input_bytes: int, output_bytes: int) -> float:
        return min_time_us(self.gpu, self.scale, input_bytes, output_bytes)

    @functools.cached_property
    def _without_launches(self) -> Gpu:
        return dataclasses.replace(self.gpu, kernel_us=0.0, aten_host_us=0.0, triton_host_us=0.0)


def estimate_times(trace: OpTrace, gpu: Gpu, scale: Scale, products: ByHand = NO_PRODUCTS) -> tuple[KernelTime, ...]:
    """Modelled time of every row of one forward at full size, longest first, in microseconds.

    Kernels run one after the other. Where the device would wait for the host to launch them, the wait is divided among
    the rows in proportion to their launch costs.
    """
    parts = _parts(trace, gpu, scale)
    device = [_triton_us(row, gpu, of, products.of(row)) if row.triton else _aten_us(row, gpu, of) for row, of in parts]
    host = [_calls(row, of) * (gpu.triton_host_us if row.triton else gpu.aten_host_us) for row, of in parts]
    wait = max(0.0, sum(host) - sum(device)) / (sum(host) or 1.0)
    times = [
        KernelTime(row.site if row.triton else row.name, round(_calls(row, of)), busy + wait * launch, row.triton)
        for (row, of), busy, launch in zip(parts, device, host, strict=True)
    ]
    return tuple(sorted(times, key=lambda t: -t.microseconds))


def _parts(trace: OpTrace, gpu: Gpu, scale: Scale) -> list[tuple[Row, Scale]]:
    """The rows that have a price, and what takes each to full size.

    A dry run adds the kernels that it alone has, of which the launches are known. Of an operator it replaces the calls
    where those at full size take longer than those of the small run would.
    """
    unknown = sum(row.calls for row in trace.rows if row.triton and not row.full_calls)
    calls = lambda row: row.full_calls or row.calls * scale.of_calls(row, unknown if row.triton else 0)
    found = _by_site([dataclasses.replace(row, full_calls=calls(row)) for row in trace.rows], scale)
    aten_us = lambda parts: sum(_aten_us(row, gpu, of) for row, of in parts if not row.triton)
    for site, parts in _by_site(trace.full.rows if trace.full else [], _SAME).items():
        if site not in found or aten_us(found[site]) < aten_us(parts):
            found[site] = parts
    return [part for parts in found.values() for part in parts]


def _by_site(rows: Sequence[Row], scale: Scale) -> dict[str, list[tuple[Row, Scale]]]:
    found: dict[str, list[tuple[Row, Scale]]] = {}
    for row in rows:
        found.setdefault(row.site, []).append((row, scale.within(row)))
    return found


def _calls(row: Row, scale: Scale) -> float:
    """At full size: as the submission says, but no fewer than were seen; else as those of the reference grow. Copies to
    the host are priced by elements (`interpreter.COPIED_AT_ONCE`)."""
    if row.name == "_local_scalar_dense":
        return math.ceil(row.calls * max((scale.of_tensor(tensor.numel) for tensor in row.tensors), default=1.0))
    return max(row.calls, row.full_calls or row.calls * scale.of_calls(row))


def _aten_us(row: Row, gpu: Gpu, scale: Scale) -> float:
    kernels, factor = EAGER.get(row.name, (1, SINGLE if row.accesses else 1.0))
    if row.block * scale.extents.get(row.block, 1.0) > LONG_ROW:
        factor = LONG_FACTORS.get(row.name, factor)
    unique, total = _traffic(row, scale)
    outputs = row.output_numel * scale.of_tensor(row.output_numel)
    if row.name == "topk" and 2 * outputs > max((t.numel * scale.of_tensor(t.numel) for t in row.tensors), default=0.0):
        kernels, factor = EAGER["sort"]
    products, short = row.flops * scale.of_products(row), SHORT_INNER
    parts = products / 2 / max(1.0, outputs * row.calls) / SPLIT if "convolution" not in row.name else 1.0
    tiles = outputs / 64**2 * (1 / max(row.calls, 1) if row.name in RECURRENT else max(1.0, parts))
    arithmetic = gpu.eager_fp32 if row.math == "fp32" else row.math
    attention = HALF_ATTENTION if arithmetic == "half" else ATTENTION
    rate = gpu.flops[arithmetic] * (attention if "attention" in row.name else min(1.0, max(0.25, tiles / gpu.sms)))
    if arithmetic == "fp32" and "convolution" in row.name:
        rate, short = rate * CONVOLUTION, SHORT_WINDOW
        products = max(products, row.dense_flops * scale.of_dense(row))
    work = (products + 2 * short * outputs * bool(products)) / rate
    work += row.calls * outputs * POOL_OUTPUT / gpu.vector_ops if "pool" in row.name else 0.0
    memory = max(stream_s(unique, row.calls, gpu), total / gpu.l2_bandwidth) * factor
    memory += unique / ONE_BLOCK if row.name == "nll_loss_forward" else 0.0
    if row.name == "native_layer_norm":
        memory = max(memory, unique * row.block * scale.extents.get(row.block, 1.0) / max(outputs, 1.0) / NORM_ROW)
    return 1e6 * (memory + work) + kernels * _calls(row, scale) * gpu.kernel_us


def stream_s(size: float, calls: int, gpu: Gpu) -> float:
    """Seconds that DRAM takes to move these bytes, in this many kernels."""
    seconds = size / gpu.bandwidth
    return seconds + min(RAMP * seconds, RAMP_US * 1e-6 * calls)


def _triton_us(row: Row, gpu: Gpu, scale: Scale, by_hand: float) -> float:
    """`by_hand`: see ByHand.of."""
    unique, _ = _traffic(row, scale)
    growth = unique / row.bytes_unique if row.bytes_unique else scale.bytes
    by_hand = by_hand if by_hand > FASTER_THAN_DATA * growth else 0.0
    products = growth_of_products(row, scale) if row.flops else by_hand
    unique, total = _traffic(row, scale, products)
    operations = row.arithmetic * growth + row.flops * products
    found = programs(row, scale, (row.accesses * growth, row.lanes * growth, operations))
    guessed, known = found.fewest, shares_the_data(row, scale)
    if known:
        found = Programs(min(guessed, row.full_grid), *[row.full_grid] * 3)
    fewest, most = found.fewest, found.operations
    together, moving = (min(number, gpu.sms * PROGRAMS_PER_SM) for number in (found.accesses, found.lanes))
    filled = min(1.0, most / gpu.sms)
    smaller = row.tile / _tile(row, scale) if products and row.tile else 1.0
    smaller_sides = (smaller * filled_share(row) if products else 1.0) ** 0.5
    total = unique + (total - unique) * smaller_sides  # a tile of four times the elements loads half for each of them
    total -= 0.0 if products else _l1_hits(row, growth, found.lanes if row.full_grid else fewest, scale)
    growth = growth if products else max(growth, growth_of_shared(row, scale, guessed))
    accesses = accesses_of(row, unique, smaller, growth, products, guessed, fewest if known else None)
    memory = max(
        stream_s(unique, row.calls, gpu),
        total / gpu.l2_bandwidth / (TILE_REUSE if products else 1.0),
        accesses * ACCESS_NS * 1e-9 / together + unique / PROGRAM_BANDWIDTH / moving,
    )
    block, padding = _block(row, fewest, scale)
    grown, told = row.arithmetic * (by_hand or growth * padding), not products and is_told(row, unique)
    work = _arithmetic(row, grown, told) / gpu.vector_ops / filled
    if products and row.flops:
        stored = max((t.numel * scale.of_tensor(t.numel) for t in row.tensors if t.stored), default=0.0)
        filling = 2 * SHORT_WINDOW * stored * _calls(row, scale)
        work += (max(row.flops * products, _dense(row, scale, products)) + filling) / _dot_rate(row, gpu, scale, most)
    few = block > LARGE_BLOCK or together < gpu.sms * PROGRAMS_PER_SM
    busy = max(memory, work, (FEW_SERIAL if few else SERIAL) * (memory + work))
    busy *= SPILLING_FACTOR if row.block > SPILLING_BLOCK else 1.0
    launches = _calls(row, scale)
    all_programs = launches * fewest
    if row.full_grid:  # what a loop of launches goes through grows as the loop does
        seen = row.calls * (min(fewest, row.full_grid) if told and launches <= row.calls else fewest)
        all_programs = max(seen, launches * min(fewest, row.full_grid))
    return 1e6 * max(busy, all_programs * gpu.program_ns * 1e-9) + launches * gpu.kernel_us


def _arithmetic(row: Row, grown: float, is_told: bool) -> float:
    """Instructions at full size: those of the small run, which have `grown`, unless programs at full size do far more,
    or far less where they tell how many steps they do (`is_told`).

    A program may do more than it has data: a comparison of all numbers of a row, or a loop over them. It may do less:
    of a fixed number of programs each adds up its lanes once, however much data it goes through.
    """
    told = row.full_arithmetic if row.full_arithmetic > BESIDE_PRODUCTS * row.full_flops else 0.0
    return told if told > FAR_MORE * grown or (is_told and 0 < told * FAR_MORE < grown) else grown


def _dot_rate(row: Row, gpu: Gpu, scale: Scale, programs: float) -> float:
    """Operations per second of a loop of tl.dot."""
    share = (K_MAJOR_DOT if row.k_major else TRITON_DOT)[row.math]
    if row.math in FULL_TILE:
        full = (K_MAJOR_FULL_TILE if row.k_major else FULL_TILE)[row.math]
        share *= min(1.0, _tile(row, scale) / full) ** SMALL_TILES
        programs /= TILES_PER_SM
    return gpu.flops[row.math] * share * min(1.0, programs / gpu.sms)


def _dense(row: Row, scale: Scale, products: float) -> float:
    """Operations of all lanes at full size, where sums are as long as in the small run; 0 where they may be longer, or
    where tiles may be larger."""
    stored = max(row.grids, key=lambda grid: grid.stored, default=Grid(0, 0, False)).stored
    growth = scale.of_tensor(stored)
    is_known = row.full_grid * row.tile >= stored * growth > 0 and math.isclose(products, growth, rel_tol=0.01)
    return row.dense_flops * row.full_grid * _calls(row, scale) / row.programs if is_known else 0.0


def _tile(row: Row, scale: Scale) -> float:
    """Elements of a program's tile at full size."""
    if not row.is_smaller or not row.full_grid:
        return row.tile
    stored = max(grid.stored * scale.of_tensor(grid.stored) for grid in grids(row))
    return max(row.tile, max(stored, scale.made_by(row)) / row.full_grid)


def _traffic(row: Row, scale: Scale, products: float = 0.0) -> tuple[float, float]:
    """Distinct and total bytes at full size; `products` is what the kernel's products grow by, if it has any.

    What a kernel loads again grows like its products where it has any, else like its data; but what fits the L1 cache
    is loaded once.
    """
    unique = sum(t.unique * scale.of_tensor(t.numel) for t in row.tensors)
    total = unique
    growth = products or unique / (row.bytes_unique or 1)
    for tensor in row.tensors:
        again, size = tensor.total - tensor.unique, tensor.unique * scale.of_tensor(tensor.numel)
        total += again * (growth if row.triton and size > L1_BYTES else scale.of_tensor(tensor.numel))
    return unique, total


def _l1_hits(row: Row, growth: float, programs: float, scale: Scale) -> float:
    """Bytes at full size that a program loads again and finds in the L1 cache.

    The cache is shared by the programs of an SM; the more each of them moves before it comes back, the less is left.
    """
    if not row.reused:
        return 0.0
    moved = row.reach / row.reused * max(1.0, growth * row.programs / (row.calls * programs))
    again = sum(t.total - t.unique for t in row.tensors if t.unique * scale.of_tensor(t.numel) > L1_BYTES)
    return min(row.reused, again) * growth * L1_BYTES / (L1_BYTES + moved * PROGRAMS_PER_SM)


def _block(row: Row, programs: float, scale: Scale) -> tuple[int, float]:
    """Elements of a block at full size, and variants over elements.

    A block that is the next power of two of a program's row in the small task is taken to grow with the row.
    """
    elements = max((t.numel for t in row.tensors), default=0)
    before, after = elements * row.calls / max(row.programs, 1), elements * scale.of_tensor(elements) / programs
    is_row = before in scale.extents and row.block == _power_of_two(before)
    if not is_row or after <= before or after > SPILLING_BLOCK:
        return row.block, 1.0
    return _power_of_two(after), _power_of_two(after) / after


def _power_of_two(number: float) -> int:
    return 1 << (math.ceil(number) - 1).bit_length()


def min_time_us(gpu: Gpu, scale: Scale, inputs_bytes: int, outputs_bytes: int) -> float:
    """No honest forward is faster: its inputs read once and its outputs written once, at the data sheet's bandwidth.

    Args:
        inputs_bytes, outputs_bytes: of the small run; `scale` takes them to full size.
    """
    moved = (inputs_bytes + outputs_bytes) * scale.bytes
    return 1e6 * moved / (gpu.peak_bandwidth if moved > gpu.l2_bytes else 2 * gpu.l2_bandwidth)
