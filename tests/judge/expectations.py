"""What a function's outputs may be, as the judge sets it for a task; tensors of real sizes, without a judge."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import torch

from drkernel.judge.trusted.comparison.tolerance import Expected
from drkernel.judge.trusted.outputs import OutputTensor
from drkernel.judge.trusted.rounding import formats
from drkernel.judge.trusted.rounding.formats import Lowered
from drkernel.judge.trusted.rounding.rounding import Noise


def expected(function: Callable, *inputs: torch.Tensor, precision: Any = "ieee", runs: int = 4) -> Expected:
    """From so many runs with noise; eight more decide in doubt."""
    wide = [x.double() for x in inputs]
    products = []

    def noisy(seeds: range) -> Iterator[Any]:
        for seed in seeds:
            with Noise(precision, seed) as noise:
                yield function(*(noise.around(x) for x in wide))
            products.append(noise.products)

    usual, lowered = list(noisy(range(runs))), []
    if any(products) and all(x.dtype == torch.float32 for x in inputs):
        for name, lower in formats.LOWERINGS[precision].items():
            with Lowered(lower):
                lowered.append((name, function(*wide)))
    found = Expected(function(*wide), function(*inputs), usual, precision, lowered)
    found.set_more_noise(lambda: noisy(range(runs, runs + 8)))
    return found


def right(expected: Expected, value: torch.Tensor) -> bool:
    return expected.check(OutputTensor(value)) is None
