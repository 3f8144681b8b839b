"""P7: a right output is right to the task's precision. Tensors of real sizes, without a judge."""

from __future__ import annotations

import math
from types import SimpleNamespace

import pytest
import torch

from drkernel.judge.boundary.shared_tensors import repeats
from drkernel.judge.trusted.comparison.block_tolerance import LeafTolerance
from drkernel.judge.trusted.comparison.tolerance import Expected
from drkernel.judge.trusted.outputs import OutputTensor
from drkernel.judge.trusted.rounding import formats
from drkernel.judge.trusted.rounding.rounding import Noise
from tests.judge.expectations import expected, right

DRAW = torch.Generator().manual_seed(0)
POSITIVE = torch.rand(64, 2048, generator=DRAW), torch.rand(2048, 96, generator=DRAW)
SIGNED = torch.randn(64, 2048, generator=DRAW), torch.randn(2048, 96, generator=DRAW)
LONG = torch.rand(2**24, generator=DRAW)
ROWS = torch.randn(32, 8192, generator=DRAW)


def tf32(x: torch.Tensor) -> torch.Tensor:
    return formats._to_bits(x, 13)


def split(a: torch.Tensor, b: torch.Tensor, low=tf32) -> torch.Tensor:
    """A product of two pieces each, without the product of the low ones."""
    high_a, high_b = low(a), low(b)
    return (a - high_a) @ high_b + high_a @ (b - high_b) + high_a @ high_b


def sequential(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """One term after the other, as a thread of a simple kernel adds them."""
    total = torch.zeros(a.shape[0], b.shape[1])
    for k in range(a.shape[1]):
        total += a[:, k : k + 1] * b[k]
    return total


@pytest.mark.parametrize("inputs", [POSITIVE, SIGNED], ids=["positive", "signed"])
@pytest.mark.parametrize(
    "product",
    [sequential, split, lambda a, b: sum(x @ y for x, y in zip(a.chunk(16, 1), b.chunk(16), strict=True))],
    ids=["sequential", "tf32x3", "split-K"],
)
def test_products_in_another_order_are_right(product, inputs):
    assert right(expected(torch.matmul, *inputs), product(*inputs))


@pytest.mark.parametrize("inputs", [POSITIVE, SIGNED], ids=["positive", "signed"])
@pytest.mark.parametrize(
    "product",
    [
        lambda a, b: tf32(a) @ tf32(b),
        lambda a, b: tf32(a[:, :1024]) @ tf32(b[:1024]) + a[:, 1024:] @ b[1024:],
        lambda a, b: split(a, b, lambda x: x.bfloat16().float()),
        lambda a, b: a.half().float() @ b.half().float(),
    ],
    ids=["tf32", "tf32 for half of K", "bf16x3", "fp16"],
)
def test_products_of_lower_precision_are_wrong_even_where_their_errors_cancel(product, inputs):
    problem = expected(torch.matmul, *inputs).check(OutputTensor(product(*inputs)))
    assert problem and problem.reason == "wrong_values"


def test_tf32_is_right_where_the_task_allows_it():
    a, b = SIGNED
    assert right(expected(torch.matmul, a, b, precision="tf32"), tf32(a) @ tf32(b))
    assert not right(expected(torch.matmul, a, b, precision="tf32"), a.bfloat16().float() @ b.bfloat16().float())
    assert right(expected(torch.matmul, a, b, precision="low"), a.bfloat16().float() @ b.bfloat16().float())


@pytest.mark.slow
def test_a_norm_over_millions_grants_nothing_to_what_comes_before_it():
    a, b = torch.randn(1024, 256, generator=DRAW), torch.randn(256, 1024, generator=DRAW)
    normalised = lambda a, b: (a @ b) / (a @ b).norm()
    low = tf32(a) @ tf32(b)
    assert right(expected(normalised, a, b), split(a, b) / split(a, b).norm())
    assert not right(expected(normalised, a, b), low / low.norm())


@pytest.mark.slow
def test_a_norm_of_a_sixteenth_of_the_data_is_wrong():
    x = LONG.view(4096, 4096)
    exact = expected(lambda x: x / x.square().sum(1).sum().sqrt(), x)  # torch's norm of so many errs by 5e-4 on a CPU
    assert right(exact, x / x.square().sum(0).sum().sqrt())
    assert not right(exact, x / (x[:256].norm() * 4))


@pytest.mark.slow
def test_a_scalar_may_be_added_up_in_any_order_but_not_over_three_quarters():
    exact = expected(torch.mean, LONG)
    partial = LONG.view(-1, 1024).sum(1)
    one_by_one = torch.tensor(partial.numpy().cumsum(dtype="float32")[-1])  # as 16384 atomic additions
    assert right(exact, one_by_one / 2**24)
    quarters = LONG.view(4, -1).double().mean(1)
    assert (
        sum(right(exact, ((quarters.sum() - quarter) / 3).float()) for quarter in quarters) <= 2
    )  # two are near the mean


@pytest.mark.slow
def test_terms_may_be_lost_that_are_tiny_beside_the_sum():
    """Atomic additions of blocks: beside 2^31 those below 64 are nothing, and those of 65 count as 128."""
    x = torch.full((2**22,), 2.0**21)
    x[2**14 :] = 65 / 128
    in_blocks = torch.tensor(x.view(-1, 128).sum(1).numpy().cumsum(dtype="float32")[-1])
    assert right(expected(torch.sum, x), in_blocks)
    assert not right(expected(torch.sum, x), in_blocks - 2.0**24)


def test_a_softmax_may_be_added_up_in_blocks_beside_one_large_value():
    x = torch.randn(4, 8192, generator=DRAW) - 20.0
    x[:, 5] = 0.0
    total = torch.ones(4)
    for block in x[:, 64:].exp().split(64, 1):
        total = total + block.sum(1)
    assert right(expected(lambda x: torch.softmax(x, 1), x), x.exp() / total[:, None])


def _layer_norm(x):
    return torch.nn.functional.layer_norm(x, x.shape[-1:])


@pytest.mark.parametrize("offset", [0.0, 16.0])
def test_a_layer_norm_may_be_computed_in_two_passes_or_by_welford(offset):
    x = ROWS + offset
    exact = expected(_layer_norm, x)
    centred = x - x.mean(-1, keepdim=True)
    assert right(exact, centred * torch.rsqrt(centred.square().mean(-1, keepdim=True) + 1e-5))
    mean, squares = torch.zeros(len(x)), torch.zeros(len(x))
    for k in range(x.shape[1]):
        delta = x[:, k] - mean
        mean += delta / (k + 1)
        squares += delta * (x[:, k] - mean)
    assert right(exact, (x - mean[:, None]) * torch.rsqrt(squares / x.shape[1] + 1e-5)[:, None])
    assert not right(exact, _layer_norm(tf32(x)))
    assert not right(exact, centred * torch.rsqrt(centred[:, ::8].square().mean(-1, keepdim=True) + 1e-5))


def test_an_online_softmax_is_right():
    x = 8 * ROWS
    top, total = torch.full((len(x), 1), -torch.inf), torch.zeros(len(x), 1)
    for part in x.split(512, 1):
        new = torch.maximum(top, part.amax(1, keepdim=True))
        total = total * torch.exp2((top - new) * 1.4426950408889634) + torch.exp(part - new).sum(1, keepdim=True)
        top = new
    assert right(expected(lambda x: torch.softmax(x, -1), x), torch.exp(x - top) / total)


def test_what_follows_a_sum_enlarges_what_is_granted_to_it():
    x = torch.rand(64, 2048, generator=DRAW) / 40
    steps = torch.zeros(64)
    for k in range(x.shape[1]):
        steps += x[:, k]
    assert right(expected(lambda x: torch.exp(x.sum(-1)), x), torch.exp(steps))


def bf16(*tensors):
    return [t.bfloat16() for t in tensors]


LINEAR = bf16(torch.randn(64, 4096, generator=DRAW), (torch.rand(256, 4096, generator=DRAW) - 0.5) / 32)
BIAS = ((torch.rand(256, generator=DRAW) - 0.5) / 32).bfloat16()


def linear(x, w, b):
    return x @ w.T + b if x.dtype == torch.float64 else (x.float() @ w.float().T + b.float()).to(x.dtype)


@pytest.mark.slow
def test_bf16_may_round_intermediates_but_not_leave_out_what_matters():
    x, w = LINEAR
    exact = expected(linear, x, w, BIAS)
    wide = x.float() @ w.float().T
    assert right(exact, (wide + BIAS).bfloat16())
    assert right(exact, wide.bfloat16() + BIAS)
    assert right(
        exact, sum(a.float() @ b.float().T for a, b in zip(x.chunk(8, 1), w.chunk(8, 1), strict=True)).bfloat16() + BIAS
    )
    assert not right(exact, wide.bfloat16())  # no bias
    scale = w.float().abs().amax(1, keepdim=True) / 127
    assert not right(exact, (x.float() @ ((w / scale).round() * scale).T + BIAS).bfloat16())  # int8 weights
    assert not right(exact, (x.float()[:, ::2] @ w.float()[:, ::2].T * 2 + BIAS).bfloat16())


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_statistics_of_an_eighth_are_wrong_in_16_bits(dtype):
    x = ROWS.to(dtype)
    norm = lambda x, some: x * torch.rsqrt(some.square().mean(-1, keepdim=True) + 1e-6)
    exact = expected(lambda x: norm(x, x) if x.dtype == torch.float64 else norm(x.float(), x.float()).to(dtype), x)
    assert right(exact, norm(x.float(), x.float()).to(dtype))
    assert not right(exact, norm(x.float(), x.float()[:, :1024]).to(dtype))


def test_counts_are_not_disturbed_so_that_comparisons_of_them_hold():
    x = torch.randint(0, 4, (32, 64), generator=DRAW).float()
    count = lambda x: ((x.cumsum(-1) + 1.0) == 20.0).to(x.dtype) + torch.floor(x * 2.0)
    exact = expected(count, x)
    assert exact.well_conditioned and not right(exact, count(x) + (torch.arange(64) == 5) * 0.01)


def test_a_sum_that_is_whole_by_chance_is_disturbed():
    """As in fp32 on a GPU: 490,879.99 is 490,880."""
    terms = torch.tensor([490879.5, 0.49])
    sums = set()
    for seed in range(8):
        with Noise("ieee", seed):
            sums.add(float(terms.sum()))
    assert float(terms.sum()) == 490880.0 and len(sums) > 1


def test_an_output_that_misses_terms_is_not_said_to_be_of_lower_precision():
    a, b = POSITIVE
    problem = expected(torch.matmul, a, b).check(OutputTensor(a[:, :1900] @ b[:1900]))
    assert problem and "right in" not in problem.text


def test_rows_of_their_own_size_have_tolerances_of_their_own():
    x = ROWS * torch.exp2(torch.linspace(-6, 6, len(ROWS)))[:, None]
    exact = expected(lambda x: x.sum(-1) * 1.5, x)
    assert right(exact, x.flip(1).sum(-1) * 1.5)
    wrong = x.sum(-1) * 1.5
    wrong[0] += 1e-3 * x[0].norm()  # nothing beside the last row
    assert not right(exact, wrong)


UNIT_VECTORS = torch.nn.functional.normalize(torch.randn(512, 64, generator=DRAW), dim=1)
ENERGIES = 1e12 * (1 + torch.rand(512, 1, generator=DRAW))
CAUSAL = torch.ones(64, 64, dtype=torch.bool).tril()
UNLIKE = {
    "an energy behind an embedding": (
        lambda x, w, e: torch.cat([x @ w, e * 1.1], 1),
        (UNIT_VECTORS, SIGNED[0][:, :96], ENERGIES),
        lambda y: torch.cat([torch.zeros_like(y[:, :-1]), y[:, -1:]], 1),
    ),
    "powers beside a gate": (
        lambda x, w: torch.cat([torch.sigmoid(x @ w), (30 * x) ** 8], 1),
        (UNIT_VECTORS, SIGNED[0][:, :96]),
        lambda y: torch.cat([torch.full_like(y[:, :96], 0.5), y[:, 96:]], 1),
    ),
    "a box in pixels beside three scores": (
        lambda x, w: torch.stack([1e6 * (2 + x), *(x * w[k, :64] for k in range(3))], -1).repeat(16, 1, 1),
        (UNIT_VECTORS, SIGNED[0][:, :96]),
        lambda y: torch.cat([y[..., :1], y[..., 1:] * 1.01], -1),
    ),
    "scores beside masked ones": (
        lambda x, w: torch.where(CAUSAL, x[:64] @ w.T[:64, :64], -1e9),
        (UNIT_VECTORS, SIGNED[0][:, :96]),
        lambda y: torch.where(y < -1e8, y, 0.0),
    ),
}
"""What is computed, from what, and an output of which the smaller part is wrong."""


@pytest.mark.parametrize("name", UNLIKE)
def test_large_numbers_grant_nothing_to_small_ones_in_their_row(name):
    function, inputs, wrong = UNLIKE[name]
    found = expected(function, *inputs, runs=1)
    value = function(*inputs)
    assert right(found, value) and not right(found, wrong(value))


def test_one_row_of_sixteen_has_bounds():
    """All its elements share one, which is no view of one number."""
    x = torch.rand(1, 16, generator=DRAW)
    assert right(expected(torch.exp, x), x.exp()) and not right(expected(torch.exp, x), x.exp() + 1e-3)


def test_few_rows_are_enough_to_know_unlike_columns():
    function, (x, w, e), _ = UNLIKE["an energy behind an embedding"]
    doubled = lambda x, w, e: function(x, w, e).repeat(1, 2000)
    found = expected(doubled, x[:2], w, e[:2], runs=1)
    value = doubled(x[:2], w, e[:2])
    assert right(found, value) and not right(found, value * torch.where(value.abs() > 1e6, 1.0, 0.0))


def test_few_outputs_are_not_refused_by_bounds_that_are_small_by_chance():
    """An element near zero has an error like others, but here its four known ones are small."""
    exact = torch.tensor([[1.0, -2.0, 3.0, 1e-3]] * 5, dtype=torch.float64)
    error = lambda last: 1e-6 * torch.tensor([1.0, -1.0, 1.0, last], dtype=torch.float64)
    once, again = (Expected(exact, exact.float(), [exact + error(0.05)] * 4) for _ in range(2))
    again.set_more_noise(lambda: [exact + error(last) for last in (0.1, 0.5)])
    assert not right(once, (exact + error(1.0)).float())
    assert right(again, (exact + error(1.0)).float())
    assert not right(again, (exact + error(5.0)).float())


def test_more_noise_is_not_asked_for_where_outputs_are_far():
    of = expected(lambda x: x.sum(1), ROWS)
    of.set_more_noise(lambda: pytest.fail("asked for"))
    assert right(of, ROWS.sum(1)) and not right(of, ROWS.sum(1) + 1.0)


def test_outputs_of_timed_calls_have_their_own_bounds_in_whatever_order_a_dict_has_them():
    small, large = torch.randn(64, 32, generator=DRAW), 1e6 * torch.randn(8, generator=DRAW)
    found = expected(lambda x, y: {"small": x * 3.0, "large": y * 3.0}, small, large)
    tolerance, values = found.tolerance(), {"small": small * 3.0, "large": large * 3.0}
    areas = lambda one: torch.cat([one["small"].reshape(-1), one["large"]]).view(torch.uint8)
    slots = [
        SimpleNamespace(dtype="float32", offset=0, nbytes=8192),
        SimpleNamespace(dtype="float32", offset=8192, nbytes=32),
    ]
    right_area, zeros = areas(values), areas(values | {"small": torch.zeros(64, 32)})
    assert tolerance.check(right_area, right_area, slots, slots, 0, 1) is None
    assert tolerance.check(right_area, areas(values | {"large": large * 3.0 + 0.1}), slots, slots, 0, 1) is None
    assert "differs by" in (tolerance.check(right_area, zeros, slots, slots, 0, 1) or "")


def test_timed_counts_may_differ_by_what_rounding_moves():
    count = torch.tensor([10_000_000, 40])
    timed = LeafTolerance(0.0, 0.0, 0.0, 0.0)
    assert timed.problem(count.view(1, -1), torch.tensor([[10_000_150, 40]]), 1) is None
    assert timed.problem(count.view(1, -1), torch.tensor([[10_001_000, 40]]), 1) is not None
    assert timed.problem(count.view(1, -1), torch.tensor([[10_000_000, 41]]), 1) is not None


def test_a_few_numbers_of_each_sample_have_bounds_of_their_own_when_timed():
    sizes = torch.tensor([1.0, 1.0, 1.0, 1e9])
    x = torch.randn(256, 4, generator=DRAW) * sizes
    timed = expected(lambda x: x * 3.0, x).tolerance().tensors["output"]
    right = (x * 3.0).view(1, -1)
    scores_left_out = torch.where(sizes == 1.0, 0.0, x * 3.0).view(1, -1)
    assert timed.problem(right, right, 1) is None
    assert timed.problem(right, scores_left_out, 1) is not None


def test_a_column_that_was_zero_for_all_inputs_before_is_bounded_as_any_element():
    draw = torch.Generator().manual_seed(0)  # few are alive in the column: another draw may have none
    x, weight = torch.rand(256, 4096, generator=draw), torch.rand(4096, 512, generator=draw)
    mean = x.mean(0) @ weight
    unit = torch.arange(512) == 3
    forward = lambda x, threshold: torch.relu(x @ weight.to(x.dtype) - mean - threshold * unit)
    timed = expected(lambda x: forward(x, 1000.0), x).tolerance().tensors["output"]
    dead, alive = forward(x, 1000.0), forward(x, 20.0)
    problem = lambda right, got: timed.problem(right.view(1, -1), got.view(1, -1), 1)
    error = 2e-5 * unit * (alive > 0)
    assert error.any() and not dead[:, 3].any()
    assert problem(alive, alive + error) is None
    assert problem(dead, dead + error) is not None
    assert problem(alive, dead) is not None


@pytest.mark.parametrize(
    ("tensor", "repeats_itself"),
    [
        (torch.zeros(8, 6), False),
        (torch.zeros(8, 6).mT[::2, 1:], False),
        (torch.zeros(8, 1).expand(8, 6), True),
        (torch.zeros(64).as_strided((8, 6), (1, 1)), True),
        (torch.zeros(64).as_strided((8, 6), (5, 1)), True),
        (torch.zeros(64).unfold(0, 4, 4), False),
        (torch.zeros(64).unfold(0, 4, 2), True),
        (torch.zeros(0, 6).expand(4, 0, 6), False),
    ],
)
def test_an_output_whose_elements_lie_at_one_place_is_known(tensor, repeats_itself):
    assert repeats(tensor) is repeats_itself


@pytest.mark.parametrize("factor", [0.1, 0.9, 1.0, 1.1, 3.0, 30.0, math.nan])
def test_columns_are_looked_at_where_the_narrowest_bound_does_not_decide(monkeypatch, factor):
    bounds = torch.tensor([1e-3, 1e-2, 1e-1], dtype=torch.float64)
    leaf = LeafTolerance(math.inf, 1.0, 1.0, 1.0, bounds)
    for column in range(3):
        right = torch.zeros(4, 15)
        got = right.clone()
        got[2, column + 3] = factor * 1e-2
        looked = leaf._problem_of_columns(right.reshape(-1), got.reshape(-1), 1.0)
        assert bool(leaf.problem(right, got, 4)) == bool(looked)
    monkeypatch.setattr(LeafTolerance, "_problem_of_columns", lambda *_: "looked")
    assert leaf.problem(right, right + 0.9e-3, 4) is None
    assert leaf.problem(right, right + 1.1e-3, 4) == "looked"


def test_a_timed_output_is_told_by_its_worst_element_or_by_all_errors_together():
    leaf, right = LeafTolerance(norm=1.0, max_error=0.5, reference_norm=10.0, reference_max=1.0), torch.ones(1, 100)
    assert leaf.problem(right, right + 0.09, 1) is None
    assert leaf.problem(right, right + 0.6, 1) == "an output differs by 0.6, at most 0.5 was expected"
    together = "the errors of an output are together 0.02 of it, at most 0.01 was expected"
    assert LeafTolerance(0.1, 0.5, 10.0, 1.0).problem(right, right + 0.02, 1) == together
