"""Times several ways to run one task, in turn, in one ordinary process that executes no submission.

The baselines are measured so: eager, eager with TF32, torch.compile. All code is trusted, so that CUDA events decide.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable

import torch
from torch import Tensor, nn

from drkernel.judge.boundary import tf32
from drkernel.judge.devices.cuda.interleaving import (
    MIN_CALLS,
    NARROW,
    calls_in_a_block,
    median_interval,
    rounds,
)
from drkernel.tasks.module import Reference

PROBES = ("copy_us", "matmul_us")
_BUDGET_S = 0.3
_WARM_CYCLES, _SLEEP_CYCLES, _MAX_SLEEP_CYCLES = 20_000_000, 8_000_000, 200_000_000
"""Of about 2e9 a second."""
_PROBE_CALLS, _PROBE_REPEATS = 20, 5


def probe() -> dict[str, float]:
    """Microseconds of a copy of 256 MiB and of a product of two 4096 x 4096 matrices in bf16.

    Each is the median of 20 calls, the lowest of five such medians: what disturbs them only makes them slower.
    """
    random = torch.Generator("cuda").manual_seed(0)
    left, right = (
        torch.randn(4096, 4096, generator=random, device="cuda", dtype=torch.bfloat16).contiguous() for _ in range(2)
    )
    source = torch.zeros(2**28, dtype=torch.uint8, device="cuda")
    target, product = torch.empty_like(source), torch.empty_like(left)
    kernels = {"copy_us": lambda: target.copy_(source), "matmul_us": lambda: torch.mm(left, right, out=product)}
    torch.cuda._sleep(_WARM_CYCLES)  # an idle GPU clocks down
    medians: dict[str, list[float]] = {name: [] for name in PROBES}
    for _ in range(_PROBE_REPEATS):
        for name in PROBES:
            times, _ = _timed_calls(kernels[name], _PROBE_CALLS, _SLEEP_CYCLES)
            medians[name].append(statistics.median(times))
    return {name: round(min(found), 3) for name, found in medians.items()}


class Variant:
    """One way to run a task: how many calls of it make a block, and how long a sleep hides their launches.

    Args:
        module: what the reference's inputs are given to.
        tf32: whether it may round products to TF32.
        flush: what all variants read before each call; see interleaving.flush_buffer.
    """

    def __init__(self, reference: Reference, module: nn.Module, tf32: bool, flush: Tensor):
        self._reference, self._module, self._tf32, self._flush = reference, module, tf32, flush
        self._calls, self._cycles = 2, 0

    def warm_up(self, inputs: list) -> None:
        """First calls, for which CUDA loads kernels, and the size of a block."""
        self.block(inputs)
        self._cycles = _SLEEP_CYCLES
        us = statistics.median(self.block(inputs))
        self._calls = max(1, round(calls_in_a_block(us)))

    def block(self, inputs: list) -> list[float]:
        """Microseconds of each call of a block.

        A block is repeated where the device woke up before all calls were enqueued: after a longer sleep, and with
        fewer calls because its queue may have been full. A forward that waits for the device can never be enqueued
        ahead and is timed as it is.
        """
        tf32.allow(self._tf32)
        while True:
            times, hidden = _timed_calls(
                lambda: self._reference.forward(self._module, inputs), self._calls, self._cycles, self._flush
            )
            if hidden or self._cycles == 0:
                return times
            self._calls = max(1, self._calls // 2)
            self._cycles = 2 * self._cycles if self._cycles < _MAX_SLEEP_CYCLES else 0


def interleave(variants: dict[str, Variant], reference: Reference, seed: int) -> dict[str, list[float]]:
    """Microseconds of each call of all variants, from interleaved blocks (see the module `interleaving`)."""
    for variant in variants.values():
        variant.warm_up(reference.inputs(seed))
    times: dict[str, list[float]] = {name: [] for name in variants}
    began = time.perf_counter()
    for number, (names, even) in enumerate(rounds(list(variants)), 1):
        inputs = reference.inputs(seed + number)
        for name in names:
            times[name] += variants[name].block(inputs)
        time_is_up = time.perf_counter() - began > _BUDGET_S
        if even and (time_is_up or all(map(_is_narrow, times.values()))):
            break
    return times


def _is_narrow(times: list[float]) -> bool:
    low, high = median_interval(times)
    return len(times) >= MIN_CALLS and high - low <= 2 * NARROW * statistics.median(times)


def _timed_calls(
    call: Callable[[], object], calls: int, cycles: int, flush: Tensor | None = None
) -> tuple[list[float], bool]:
    """Microseconds of each of some calls, enqueued while the device sleeps; and whether it slept long enough.

    Args:
        flush: read before each call, so that nothing else is in the L2 cache.
    """
    woken = torch.cuda.Event()
    spans = [[torch.cuda.Event(enable_timing=True) for _ in range(2)] for _ in range(calls)]
    torch.cuda.synchronize()
    torch.cuda._sleep(cycles)
    woken.record()
    for start, end in spans:
        if flush is not None:
            flush.sum()
        start.record()
        call()
        end.record()
    hidden = not woken.query()
    torch.cuda.synchronize()
    return [1e3 * start.elapsed_time(end) for start, end in spans], hidden
