"""Device time of several ways to compute the same, taken in turn in one ordinary, trusted process."""

from __future__ import annotations

import itertools
import math
import statistics
import time
from collections.abc import Callable

import numpy
import torch
from torch import Tensor

from drkernel.tasks.module import Reference

PROBES = ("copy_us", "matmul_us")
_BUDGET_S, _NARROW, _FEWEST = 0.3, 0.01, 6
_MOST_CALLS, _BLOCK_US = 16, 800.0
_WARM_CYCLES, _SLEEP_CYCLES, _LONGEST_CYCLES = 20_000_000, 8_000_000, 200_000_000
"""Of about 2e9 a second."""
_PROBE_CALLS, _PROBE_GOES = 20, 5
_RESAMPLES = 400


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
    for _ in range(_PROBE_GOES):
        for name in PROBES:
            times, _ = _spans(kernels[name], _PROBE_CALLS, _SLEEP_CYCLES)
            medians[name].append(statistics.median(times))
    return {name: round(min(found), 3) for name, found in medians.items()}


def median_interval(times: list[float]) -> tuple[float, float]:
    """95 % interval of the median, from order statistics (the binomial's normal approximation).

    >>> median_interval([float(us) for us in range(101)])
    (40.0, 60.0)
    """
    ordered, middle, half = sorted(times), (len(times) - 1) / 2, 0.98 * math.sqrt(len(times))
    return ordered[max(0, math.floor(middle - half))], ordered[min(len(times) - 1, math.ceil(middle + half))]


def ratio_interval(one: numpy.ndarray, other: numpy.ndarray, seed: int) -> tuple[float, float]:
    """95 % bootstrap interval of median(one) / median(other)."""
    draw = numpy.random.default_rng(seed)

    def medians(times: numpy.ndarray) -> numpy.ndarray:
        picks = numpy.sort(draw.integers(len(times), size=(_RESAMPLES, len(times)), dtype=numpy.int32), axis=1)
        middle = picks[:, [(len(times) - 1) // 2, len(times) // 2]]
        return numpy.sort(times)[middle].mean(axis=1)

    low, high = numpy.quantile(medians(one) / medians(other), (0.025, 0.975))
    return float(low), float(high)


class Variant:
    """One way to run a task: how many calls of it make a block, and how long a sleep hides their launches."""

    def __init__(self, reference: Reference, module: Callable, tf32: bool, flush: Tensor):
        self._reference, self._module, self._tf32, self._flush = reference, module, tf32, flush
        self._calls, self._cycles = 2, 0

    def warm_up(self, inputs: list) -> None:
        """First calls, for which CUDA loads kernels, and the size of a block."""
        self.block(inputs)
        self._cycles = _SLEEP_CYCLES
        us = statistics.median(self.block(inputs))
        self._calls = max(1, min(_MOST_CALLS, round(_BLOCK_US / max(us, 1.0))))

    def block(self, inputs: list) -> list[float]:
        """Microseconds of each call of a block.

        Anew where the device woke up too early: after a longer sleep, with fewer calls because its queue may have been
        full. A forward that waits for the device can never be hidden and is timed as it is.
        """
        allow_tf32(self._tf32)
        while True:
            times, hidden = _spans(
                lambda: self._reference.forward(self._module, inputs), self._calls, self._cycles, self._flush
            )
            if hidden or self._cycles == 0:
                return times
            self._calls = max(1, self._calls // 2)
            self._cycles = 2 * self._cycles if self._cycles < _LONGEST_CYCLES else 0


def interleave(variants: dict[str, Variant], reference: Reference, seed: int) -> dict[str, list[float]]:
    """Blocks of all variants in turn, forwards and backwards, each round on fresh inputs."""
    for variant in variants.values():
        variant.warm_up(reference.inputs(seed))
    times: dict[str, list[float]] = {name: [] for name in variants}
    began = time.perf_counter()
    for number in itertools.count(1):
        inputs = reference.inputs(seed + number)
        for name in list(variants) if number % 2 else reversed(variants):
            times[name] += variants[name].block(inputs)
        late = time.perf_counter() - began > _BUDGET_S
        if number % 2 == 0 and (late or all(map(_is_narrow, times.values()))):
            return times
    raise AssertionError


def _is_narrow(times: list[float]) -> bool:
    low, high = median_interval(times)
    return len(times) >= _FEWEST and high - low <= 2 * _NARROW * statistics.median(times)


def _spans(
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


def allow_tf32(allow: bool) -> None:
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = allow
