"""P7, of integers: only those may differ whose value rounding decides. Tensors of real sizes, without a judge."""

from __future__ import annotations

import torch

from drkernel.judge.trusted.outputs import OutputTensor
from drkernel.judge.trusted.rounding import formats
from tests.judge.expectations import expected, right

DRAW = torch.Generator().manual_seed(0)


def test_a_few_integers_may_lie_where_rounding_decides():
    values = torch.randint(0, 100, (1000, 1000), generator=DRAW)
    found = expected(lambda x: x * 1, values)
    moved = lambda number: OutputTensor(
        values.view(-1).index_add(0, torch.arange(number), torch.ones(number).long()).view(1000, 1000)
    )
    assert found.check(moved(0)) is None and found.check(moved(4)) is None
    assert found.check(moved(5)).reason == "wrong_values"
    few = expected(lambda x: x * 1, values[:10])
    assert few.check(OutputTensor(values[:10] + 0)) is None and few.check(OutputTensor(values[1:11])) is not None


def test_eight_bits_of_a_norm_may_flip_where_noise_flips_them():
    x = torch.randn(1021, 1021, generator=DRAW)

    def quantise(x):
        y = x * torch.rsqrt(x.square().mean(1, keepdim=True) + 1e-6)
        return torch.round(y / (y.abs().amax(1, keepdim=True) / 127)).to(torch.int8)

    found = expected(quantise, x)
    near = lambda error: quantise(x * (1 + error * torch.randn(x.shape, generator=DRAW)))
    assert right(found, near(4e-7))  # as approximate square roots and divisions of a GPU
    assert not right(found, near(1e-5)) and not right(found, quantise(formats._to_bits(x, 13)))


def test_a_tie_that_rounding_decides_may_go_either_way():
    """Few rows of a product have two largest elements. Runs with noise may agree by chance."""
    x, w = (torch.randn(1024, 512, generator=DRAW) for _ in range(2))
    w[7] = w[3] * (1 + 2.0**-24)
    x[5] = w[3]
    largest = lambda x, w: (x @ w.mT).argmax(1)
    found = expected(largest, x, w, runs=1)
    given = largest(x, w)
    other = given.clone()
    other[5] = 3 if given[5] == 7 else 7
    assert {int(given[5]), int(other[5])} == {3, 7}
    assert right(found, given) and right(found, other)
    elsewhere = given.clone()
    elsewhere[6] = (given[6] + 1) % 1024
    assert not right(found, elsewhere) and not right(found, largest(*(formats._to_bits(t, 16) for t in (x, w))))
