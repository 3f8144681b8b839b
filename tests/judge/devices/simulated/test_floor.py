"""No price is below what the reference's bytes and products allow, whatever a submission says that it did."""

import dataclasses

import pytest
import torch

from drkernel.judge.boundary import aten
from drkernel.judge.boundary.op_trace import OpTrace, Row, Traffic
from drkernel.judge.devices.limits import LIMITS, roofline
from drkernel.judge.devices.simulated import floor
from drkernel.judge.devices.simulated.gpus import GPUS
from drkernel.judge.devices.simulated.rescale import Scale
from drkernel.judge.devices.simulated.roofline import estimate_times
from drkernel.judge.devices.simulated.traffic import stream_s
from drkernel.judge.trusted.least_work import LeastWork

H200 = GPUS["H200"]
SMALL, FULL = 2.0 * 64**3, 2.0 * 4096**3
SCALE = Scale(bytes=4096, flops=FULL / SMALL, numel={4096: 4096})
INPUTS, OUTPUTS = [torch.empty(64, 64), torch.empty(64, 64)], [torch.empty(64, 64)]
TENSORS = [Traffic(4096, 2 * 4 * 4096, 2 * 4 * 4096), Traffic(4096, 4 * 4096, 4 * 4096, True)]
REFERENCE = OpTrace([Row("mm", "mm", False, 1, flops=SMALL, output_numel=4096, tensors=TENSORS)])


def kernel(**fields):
    return OpTrace([Row("k", "k:1", True, 1, 4, tensors=TENSORS, **fields)])


def total(times):
    return sum(time.microseconds for time in times)


def least(trace, precision="ieee"):
    return floor.least_us(REFERENCE, trace, H200, SCALE, precision, INPUTS, OUTPUTS)


def test_a_trace_that_says_too_little_is_priced_at_the_least_that_the_products_take():
    forged = OpTrace([Row("k", "k:1", True, 1, 1)])
    times = floor.raised(estimate_times(forged, H200, SCALE), least(forged))
    assert total(times) == pytest.approx(1e6 * FULL / (H200.flops["tf32"] / 3), rel=0.01)


def test_the_least_depends_on_the_arithmetic_that_the_precision_allows():
    assert least(kernel()) > 2.9 * least(kernel(), "tf32") > 1.5 * least(kernel(), "low")


def test_products_that_stay_with_aten_are_in_its_own_price():
    left = OpTrace([*REFERENCE.rows, *kernel().rows])
    assert least(left) == pytest.approx(1e6 * stream_s(3 * 4 * 4096**2, 1, H200) + H200.kernel_us, rel=0.01)


def test_an_honest_price_is_not_raised():
    dots = kernel(flops=SMALL, block=1024, accesses=16)
    times = estimate_times(dots, H200, SCALE)
    assert floor.raised(times, least(dots)) == times
    copy = OpTrace([Row("relu", "relu", False, 1, tensors=TENSORS)])
    times = estimate_times(OpTrace([Row("k", "k:1", True, 1, 4000, tensors=TENSORS)]), H200, SCALE)
    assert floor.raised(times, floor.least_us(copy, copy, H200, SCALE, "ieee", INPUTS, OUTPUTS)) == times


def test_products_by_hand_grow_like_the_products():
    by_hand = kernel(arithmetic=1.5 * SMALL, block=1024, accesses=16)
    found = floor.products_by_hand(REFERENCE, by_hand, SCALE)
    assert found.sites == {"k:1"} and found.growth == FULL / SMALL
    times, naive = estimate_times(by_hand, H200, SCALE, found), estimate_times(by_hand, H200, SCALE)
    assert total(times) > 1e6 * FULL / H200.flops["fp32"] > 2 * total(naive)


def test_kernels_beside_the_products_grow_like_their_data():
    epilogue = Row("e", "e:1", True, 1, 4, arithmetic=4096 * 3, tensors=TENSORS)
    with_dot = OpTrace([*kernel(flops=SMALL).rows, epilogue])
    assert not floor.products_by_hand(REFERENCE, with_dot, SCALE).sites
    by_hand = OpTrace([*kernel(arithmetic=1.5 * SMALL).rows, epilogue])
    assert floor.products_by_hand(REFERENCE, by_hand, SCALE).sites == {"k:1"}


def test_tiles_stand_for_what_they_mask_but_for_no_more_than_as_much_again():
    epilogue = Row("e", "e:1", True, 1, 4, arithmetic=4096 * 300, tensors=TENSORS)
    by_hand = lambda **dot: floor.products_by_hand(REFERENCE, OpTrace([*kernel(**dot).rows, epilogue]), SCALE).sites
    assert not by_hand(flops=SMALL * 0.6, dense_flops=SMALL * 4)
    assert by_hand(flops=SMALL * 0.6) == {"e:1"}
    assert by_hand(flops=SMALL * 0.1, dense_flops=SMALL * 4) == {"e:1"}


def test_a_kernel_that_needs_no_products_is_not_said_to_compute_them():
    diagonal = kernel(arithmetic=4096)
    assert not floor.products_by_hand(REFERENCE, diagonal, SCALE).sites


def recorded(forward, *inputs):
    aten.install()
    with aten.record() as trace:
        forward(*inputs)
    return trace


def test_a_product_with_a_diagonal_matrix_need_not_happen():
    x, d = torch.randn(64, 64), torch.randn(64)
    diagonal, dense = (recorded(torch.matmul, x, factor) for factor in (torch.diag(d), torch.randn(64, 64)))
    scaled = kernel(arithmetic=4096)

    def least_of(reference):
        return floor.least_us(reference, scaled, H200, SCALE, "ieee", [x, d], OUTPUTS)

    assert least_of(dense) > 10 * least_of(diagonal)
    assert least_of(diagonal) == pytest.approx(1e6 * stream_s(2 * 4 * 4096**2, 1, H200) + H200.kernel_us, rel=0.01)
    assert not floor.products_by_hand(diagonal, kernel(arithmetic=10.0 * SMALL), SCALE).sites


def test_other_zeros_in_a_factor_change_nothing():
    x = torch.randn(64, 64)
    factors = x.relu(), x.tril(), torch.zeros(64, 64), torch.diag(torch.ones(4)), x + torch.eye(64)
    for factor in factors:
        assert not any(row.needless for row in recorded(torch.matmul, x[:, : len(factor)], factor).rows)
    added = recorded(lambda: torch.addmm(torch.eye(64), x, x.clone()))
    assert not any(row.needless for row in added.rows)


def test_products_with_a_diagonal_matrix_that_aten_does_save_nothing_of_others():
    x, eye = torch.randn(64, 64), torch.eye(64)
    both = recorded(lambda: (x @ eye) @ x)
    left = OpTrace.from_json(OpTrace([*recorded(torch.matmul, x, eye).rows, *kernel().rows]).to_json())
    least = floor.least_us(both, left, H200, SCALE, "ieee", INPUTS, OUTPUTS)
    forged = total(estimate_times(left, H200, SCALE))
    assert forged > floor.least_us(both, kernel(), H200, SCALE, "ieee", INPUTS, OUTPUTS) > least


def test_no_mistake_of_counts_or_scales_leads_below_the_data_sheet():
    limits = LIMITS[H200.sheet]
    work = LeastWork(3 * 4 * 4096**2, {"fp32": FULL})
    bound = lambda trace: floor.sheet_us(trace, work, limits, SCALE, "ieee")
    assert bound(REFERENCE) == pytest.approx(1e6 * FULL / limits.flops["tf32x3"])
    times = floor.raised(estimate_times(kernel(), H200, Scale()), bound(REFERENCE))
    assert roofline(work, limits, "ieee", total(times))["share"] == 1
    diagonal = OpTrace([dataclasses.replace(REFERENCE.rows[0], needless=SMALL)])
    assert bound(diagonal) == pytest.approx(1e6 * work.bytes / limits.bandwidth), "such products need not happen"
    assert floor.sheet_us(REFERENCE, None, limits, SCALE, "ieee") == 0
