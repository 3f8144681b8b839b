"""Noise: errors as an honest kernel has them, in every operator."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from drkernel.judge.trusted.rounding import widened
from drkernel.judge.trusted.rounding.rounding import EPS, Noise
from drkernel.judge.trusted.rounding.whole_numbers import MayBeWhole, later_if_possible


def test_noise_leaves_whole_numbers_masks_and_infinities_alone():
    noise = Noise("ieee", 0)
    whole = torch.arange(10.0)
    assert torch.equal(noise.around(whole), whole) and not torch.equal(noise.around(whole / 3), whole / 3)
    with noise:
        masked = (torch.rand(4, 4) - 0.5).masked_fill(torch.eye(4) > 0, -torch.inf) + 1.0
        assert torch.softmax(masked, -1).isfinite().all()


def test_no_element_has_small_noise_by_chance():
    x = torch.rand(2**16, generator=torch.Generator().manual_seed(1), dtype=torch.float64) + 0.5
    with Noise("ieee", 0):
        noisy = x * 1.5
    noise = (noisy / (x * 1.5) - 1.0).abs() / EPS
    assert noise.min() > 0.24 and noise.max() < 1.61
    assert noise.square().mean().sqrt() == pytest.approx(1.0, rel=0.02)


class Operators(TorchDispatchMode):
    """Notes the names of all that run."""

    def __init__(self):
        super().__init__()
        self.names = set()

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        self.names.add(func.overloadpacket.__name__)
        return func(*args, **(kwargs or {}))


def test_noise_copies_no_number_from_the_host():
    x = torch.rand(64, 64)
    with Operators() as seen, Noise("ieee", 0) as noise:
        torch.nn.functional.mish(x * 1.5).mean()
        noise.around(x)
    assert "uniform_" in seen.names and not seen.names & {"lift_fresh", "_to_copy", "copy_"}


def test_neighbours_that_cancel_err_as_neighbours_do():
    x = torch.zeros(1, 1, 8, 8, dtype=torch.float64)
    x[:, :, 4, 3], x[:, :, 4, 4] = 30.0, -10.0
    up = lambda x: torch.nn.functional.interpolate(x, scale_factor=2, mode="bilinear")
    exact, size = up(x), up(x.abs())
    with Noise("ieee", 0):
        noisy = up(x)
    assert exact[0, 0, 8, 8] == 0.0 and size[0, 0, 8, 8] > 10
    assert ((noisy - exact).abs() >= 0.2 * EPS * size).all()


@pytest.mark.parametrize("lerp", [torch.lerp, lambda start, end, weight: start.clone().lerp_(end, weight)])
def test_ends_that_cancel_leave_their_errors(lerp):
    start, end = torch.full((64,), 99.0, dtype=torch.float64), torch.full((64,), -1.0, dtype=torch.float64)
    with Noise("ieee", 0):
        noisy = lerp(start, end, 0.99)
    assert (noisy.abs() >= 0.2 * EPS * 0.99).all() and noisy.abs().max() < 400 * EPS


def test_what_a_reference_asks_for_in_fp32_meets_its_weights_in_fp64():
    weight, x = torch.randn(8, 8, dtype=torch.float64), torch.randn(4, 8, dtype=torch.float64)
    with widened.run(torch.float64, Noise("ieee", 0)):
        found = x.float() @ weight + torch.ones(8, dtype=torch.float32).sum(dtype=torch.float32)
    assert found.dtype == torch.float64
    assert ((found - x @ weight - 8).abs() < 100 * EPS).all()
    torch.manual_seed(0)
    with widened.run(torch.float64, None):
        drawn = torch.rand(8, dtype=torch.float32)
    torch.manual_seed(0)
    assert torch.equal(drawn, torch.rand(8, dtype=torch.float32))
    assert torch.get_default_dtype() == torch.float32


@pytest.mark.parametrize("name", ["var", "std", "var_mean", "std_mean"])
@pytest.mark.parametrize(
    "arguments",
    [{}, {"dim": 1}, {"dim": (0, 1), "keepdim": True}, {"dim": 1, "unbiased": False}, {"dim": 0, "correction": 3}],
)
def test_moments_are_disturbed_and_no_more(name, arguments):
    x = torch.randn(32, 100, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    right = getattr(torch, name)(x, **arguments)
    with Noise("ieee", 0):
        noisy = getattr(torch, name)(x, **arguments)
    for one, other in zip(*((v,) if isinstance(v, torch.Tensor) else v for v in (right, noisy)), strict=True):
        assert (
            one.shape == other.shape
            and not torch.equal(one, other)
            and torch.allclose(one, other, rtol=1e-4, atol=1e-5)
        )


def counts(x):
    return (x > 0).to(x.dtype).sum(-1, keepdim=True) * 0.3 + x


FUNCTIONS = {
    "mish": lambda x: torch.nn.functional.mish(x * 1.5).mean(-1),
    "norm": lambda x: torch.nn.functional.layer_norm(x @ x.T, (len(x),)),
    "softmax": lambda x: torch.softmax(x, -1).cumsum(0),
    "strided": lambda x: (x.T * 3.0).T + 0.1,
    "largest": lambda x: (x * 0.3).max(-1),
    "many": lambda x: torch.stack([(x * (0.1 * k)).sum() for k in range(1, 100)]),
    "single": lambda x: x[0, 0] * 0.7 + x.mean(),
    "counts": counts,
}


def noisy(function, x, later):
    noise = Noise("ieee", 5, whole_later=later)
    with noise:
        found = function(x)
    noise.settle()
    return found if isinstance(found, tuple) else (found,)


@pytest.mark.parametrize("name", FUNCTIONS)
def test_who_looks_for_whole_numbers_later_finds_the_same(name):
    x = torch.randn(48, 64, generator=torch.Generator().manual_seed(2))
    model, asked = SimpleNamespace(copies={"exact": 1}, has_counts=False), []

    def run(later):
        asked.append(later)
        model.copies["noisy"] = later
        return noisy(FUNCTIONS[name], x, later)

    found = later_if_possible(run, model)
    assert all(map(torch.equal, found, noisy(FUNCTIONS[name], x, False)))
    assert asked == ([True, False] if name == "counts" else [True]) and model.has_counts == (name == "counts")
    assert model.copies == {"exact": 1, "noisy": asked[-1]}
    assert all(map(torch.equal, found, later_if_possible(run, model))) and asked[-1] == (name != "counts")


def test_whole_numbers_are_looked_for_before_they_become_indices():
    table, seen = torch.rand(8, generator=torch.Generator().manual_seed(3)), []

    def gathers(x):
        places = (x > -9.0).sum(-1).to(x.dtype) * 1.0 - 1.0  # 7, and with noise perhaps 6 or 8
        seen.append(places)
        index = places.long()
        seen.append(index)
        return table[index]

    x = torch.rand(64, 8, generator=torch.Generator().manual_seed(4))
    with pytest.raises(MayBeWhole):
        noisy(gathers, x, True)
    assert len(seen) == 1
    assert torch.equal(noisy(gathers, x, False)[0], table[7:].expand(64))


def test_sums_by_places_err_as_their_terms_are_large_and_not_as_they_cancel():
    x = torch.linspace(-1.0, 1.0, 2**14, dtype=torch.float64)
    lengths, places = torch.tensor([2**14]), torch.zeros(2**14, dtype=torch.int64)
    for spread in (
        lambda: torch.segment_reduce(x, "mean", lengths=lengths),
        lambda: torch.zeros(1, dtype=torch.float64).index_add(0, places, x) / 2**14,
        lambda: torch.zeros(1, dtype=torch.float64).scatter_add(0, places, x) / 2**14,
    ):
        with Noise("ieee", 0):
            noisy = spread()
        assert 0.1 * EPS < float((noisy - spread()).abs().max()) < 10 * EPS
