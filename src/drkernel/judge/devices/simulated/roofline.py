"""From counts to microseconds: a roofline of a named GPU, with starts of kernels, the L2 cache, latency and idle SMs.

The constants were fitted to 160 timings on one H200 (torch 2.11, triton 3.6, cold L2, 2026-11): element-wise kernels
of 0.3 to 540 MB with blocks of 32 to 65536, 60 eager operators on 64M elements, matrix products of 512 to 4096.
Eager factors, instruction costs and overlap were then read off 414 submissions to 120 generated tasks, timed there. The
free constants were chosen on half of these tasks: modelled speed-ups rank with Spearman's rho 0.99 (other half: 0.97)
and are off by 2 % at the median (benchmarks/simulated_vs_gpu.py). Kernels whose long chains of transcendental functions
spill registers come out up to 1.7 times too fast, gathers from tables larger than the L2 cache 1.2 to 1.4 times.
"""

from __future__ import annotations

import dataclasses
import functools
import math
from collections.abc import Sequence
from dataclasses import dataclass

from drkernel.judge.boundary import tf32
from drkernel.judge.boundary.op_trace import Grid, OpTrace, Row
from drkernel.judge.devices.simulated.accesses import (
    accesses_of,
    filled_share,
    growth_of_products,
    growth_of_shared,
    instructs_alike,
    is_told,
)
from drkernel.judge.devices.simulated.eager import SHORT_LOOP, eager_us
from drkernel.judge.devices.simulated.gpus import Gpu
from drkernel.judge.devices.simulated.programs import Programs, grids, programs, shares_the_data
from drkernel.judge.devices.simulated.rescale import Scale
from drkernel.judge.devices.simulated.traffic import L1_BYTES, calls_of, largest, stream_s, traffic
from drkernel.types import KernelTime, Precision

TRITON_DOT = {"byte": 0.75, "half": 0.75, "tf32": 0.21, "tf32x3": 0.49, "fp32": 0.85, "fp64": 0.3}
K_MAJOR_DOT = TRITON_DOT | {"tf32": 0.67, "tf32x3": 0.56, "fp32": 0.45}
"""What a plain tl.dot loop reaches of cuBLAS; the second where both factors lie along the summed dimension. The fastest
instructions for TF32 want that of the right one; a loop in fp32 loads such a factor less well."""
FULL_TILE = {"tf32": 16384, "tf32x3": 16384, "fp32": 2816}
K_MAJOR_FULL_TILE = FULL_TILE | {"tf32x3": 8192, "fp32": 8192}
SMALL_TILES = 0.4
"""Results of fewer elements are slower by their proportion to this power: they load more for what they compute."""
TILES_PER_SM = 2
"""Programs with products in TF32 that an SM needs at once to hide their latency."""
TILE_REUSE = 1.8
"""Product kernels share tiles between SMs in time: their repeated loads are served this much faster than others."""

FASTER_THAN_DATA = 1.25
"""Products whose growth is within this factor of the growth of the data (depthwise ones) are priced like other work."""

ACCESS_NS = 110.0
"""Time that one load or store adds to its program: latency, as far as the compiler cannot hide it."""
EXCHANGE_NS = 60.0
"""Time that a reduction adds: five exchanges between the threads of a warp, one after the other, at 12 ns. Not
measured; between warps it is more."""

SERIAL, FEW_SERIAL = 0.52, 0.67
"""Memory and arithmetic overlap: together they take the longer of their times, or this proportion of their sum; the
second where an SM has few programs, of which one could compute while another one waits."""
LARGE_BLOCK = 2048
"""Larger blocks need so many registers that few programs fit on an SM."""

PROGRAM_BANDWIDTH = 45e9
PROGRAMS_PER_SM = 12
ATOMIC_NS = 1.75
"""Of each atomic operation at one address; measured for 2^10 to 2^20 programs and for 32 lanes of each."""
SPILLING_BLOCK, HELD_BY_WARP, SPILLING_FACTOR = 32768, 5440, 4.0
"""Blocks above this many elements live in local memory, and above so many for each warp: 170 of 255 registers of each
lane."""

FAR_MORE, BESIDE_PRODUCTS = 2.5, 0.25
"""How many times the instructions that a kernel is taken to have at full size some of its programs may have there, as
they are few, and a small task masks more lanes. Instructions per operation of tl.dot that addresses and masks may take:
what loops of tl.dot reach was measured with these."""


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
        return dataclasses.replace(self.gpu, kernel_us=0.0, start_us=0.0)


def estimate_times(trace: OpTrace, gpu: Gpu, scale: Scale, products: ByHand = NO_PRODUCTS) -> tuple[KernelTime, ...]:
    """Modelled time of every row of one forward at full size, longest first, in microseconds. Kernels run one after the
    other; what the first one takes to start is divided among all launches."""
    parts = _parts(trace, gpu, scale)
    start = gpu.start_us / (sum(calls_of(row, of) for row, of in parts) or 1.0)
    times = []
    for row, of in parts:
        us = _triton_us(row, gpu, of, products.of(row)) if row.triton else eager_us(row, gpu, of)
        launches = calls_of(row, of)
        times.append(
            KernelTime(row.site if row.triton else row.name, round(launches), us + start * launches, row.triton)
        )
    return tuple(sorted(times, key=lambda t: -t.microseconds))


def _parts(trace: OpTrace, gpu: Gpu, scale: Scale) -> list[tuple[Row, Scale]]:
    """The rows that have a price, and what takes each to full size.

    A dry run adds the kernels that it alone has, of which the launches are known. Of an operator it replaces the calls
    where those at full size take longer than those of the small run would.
    """
    unknown = sum(row.calls for row in trace.rows if row.triton and not row.full_calls)
    calls = lambda row: row.full_calls or row.calls * scale.of_calls(row, unknown if row.triton else 0)
    found = _by_site([dataclasses.replace(row, full_calls=calls(row)) for row in trace.rows], scale)
    aten_us = lambda parts: sum(eager_us(row, gpu, of) for row, of in parts if not row.triton)
    for site, parts in _by_site(trace.full.rows if trace.full else [], _SAME).items():
        if site not in found or aten_us(found[site]) < aten_us(parts):
            found[site] = parts
    return [part for parts in found.values() for part in parts]


def _by_site(rows: Sequence[Row], scale: Scale) -> dict[str, list[tuple[Row, Scale]]]:
    found: dict[str, list[tuple[Row, Scale]]] = {}
    for row in rows:
        found.setdefault(row.site, []).append((row, scale.within(row)))
    return found


def _triton_us(row: Row, gpu: Gpu, scale: Scale, by_hand: float) -> float:
    """`by_hand`: see ByHand.of."""
    unique, _ = traffic(row, scale)
    growth = unique / row.bytes_unique if row.bytes_unique else scale.bytes
    by_hand = by_hand if by_hand > FASTER_THAN_DATA * growth else 0.0
    products = growth_of_products(row, scale) if row.flops else by_hand
    unique, total = traffic(row, scale, products)
    operations = row.arithmetic * growth + row.flops * products
    found = programs(row, scale, (row.accesses * growth, row.lanes * growth, operations))
    guessed, known = found.fewest, shares_the_data(row, scale)
    if known:
        found = Programs(row.full_grid if row.even else min(guessed, row.full_grid), *[row.full_grid] * 3)
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
        (accesses * ACCESS_NS + _exchanges(row, scale, fewest) * EXCHANGE_NS) * 1e-9 / together
        + unique / PROGRAM_BANDWIDTH / moving,
    )
    block, padding = _block(row, fewest, scale)
    grown, told = row.arithmetic * (by_hand or growth * padding), not products and is_told(row, unique)
    work = _arithmetic(row, grown, told and instructs_alike(row)) / gpu.vector_ops / filled
    if products and row.flops:
        stored = largest((tensor for tensor in row.tensors if tensor.stored), scale)
        filling = 2 * SHORT_LOOP * stored * calls_of(row, scale)
        work += (max(row.flops * products, _dense(row, scale, products)) + filling) / _dot_rate(row, gpu, scale, most)
    few = block > LARGE_BLOCK or together < gpu.sms * PROGRAMS_PER_SM
    busy = max(memory, work, (FEW_SERIAL if few else SERIAL) * (memory + work))
    held = min(SPILLING_BLOCK, HELD_BY_WARP * row.warps) if row.warps else SPILLING_BLOCK
    busy *= SPILLING_FACTOR if max(block, row.block) > held else 1.0
    launches = calls_of(row, scale)
    all_programs = launches * fewest
    if row.full_grid:  # what a loop of launches goes through grows as the loop does
        seen = row.calls * (min(fewest, row.full_grid) if told and launches <= row.calls else fewest)
        all_programs = max(seen, launches * min(fewest, row.full_grid))
    contended = launches * _contention(row, growth, row.full_grid or fewest, scale)
    return (
        1e6 * max(busy, all_programs * gpu.program_ns * 1e-9, contended * ATOMIC_NS * 1e-9) + launches * gpu.kernel_us
    )


def _exchanges(row: Row, scale: Scale, fewest: float) -> float:
    """Reductions of all programs at full size: of each, those of the small run, or more where the dry run says so."""
    programs = calls_of(row, scale) * (row.full_grid or fewest)
    return max(row.exchanges * programs / max(row.programs, 1), row.full_exchanges)


def _contention(row: Row, growth: float, programs: float, scale: Scale) -> float:
    """Atomic operations of a launch at one address, at full size: they grow as the programs do, or as the data do where
    a program makes several, and are divided among the elements of an output that grows."""
    of_a_launch = row.programs / max(row.calls, 1)
    grown = programs / max(of_a_launch, 1.0) if row.contention <= of_a_launch else growth
    return row.contention * max(1.0, grown / scale.of_tensor(row.output_numel))


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
        share *= min(1.0, (_tile(row, scale) or full) / full) ** SMALL_TILES
    if row.math in ("tf32", "tf32x3"):
        programs /= TILES_PER_SM
    return gpu.flops[row.math] * share * min(1.0, programs / gpu.sms)


def _dense(row: Row, scale: Scale, products: float) -> float:
    """Operations of all lanes at full size, where sums are as long as in the small run; 0 where they may be longer, or
    where tiles may be larger."""
    stored = max(row.grids, key=lambda grid: grid.stored, default=Grid(0, 0, False)).stored
    growth = scale.of_tensor(stored)
    is_known = row.full_grid * row.tile >= stored * growth > 0 and math.isclose(products, growth, rel_tol=0.01)
    return row.dense_flops * row.full_grid * calls_of(row, scale) / row.programs if is_known else 0.0


def _tile(row: Row, scale: Scale) -> float:
    """Elements of a program's tile at full size."""
    if not row.is_smaller or not row.full_grid:
        return row.tile
    stored = max(grid.stored * scale.of_tensor(grid.stored) for grid in grids(row))
    return max(row.tile, max(stored, scale.made_by(row)) / row.full_grid)


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
