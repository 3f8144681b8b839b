"""How much of a GPU's limit is reached: never a guess, and at most all of it."""

from __future__ import annotations

import pytest

from drkernel.judge.devices.limits import LIMITS, limit_us, limits_of, roofline
from drkernel.judge.devices.simulated.gpus import GPUS
from drkernel.judge.trusted.least_work import LeastWork

H200 = LIMITS["NVIDIA H200"]
COPY = LeastWork(48 * 10**9)
PRODUCT = LeastWork(10**6, {"fp32": 495e12})


def test_bytes_take_as_long_as_the_memory_needs_for_them():
    assert limit_us(COPY, H200, "ieee") == (pytest.approx(10_000), 0.0)
    facts = roofline(COPY, H200, "ieee", 25_000.0)
    assert (facts["share"], facts["by"], facts["bytes"], facts["flops"]) == (0.4, "bytes", 48 * 10**9, 0)


@pytest.mark.parametrize(("precision", "seconds"), [("ieee", 3), ("tf32", 1), ("low", 495 / 989)])
def test_products_take_as_long_as_the_fastest_arithmetic_that_is_right(precision, seconds):
    assert limit_us(PRODUCT, H200, precision)[1] == pytest.approx(1e6 * seconds)
    assert roofline(PRODUCT, H200, precision, 4e6)["by"] == "operations"


def test_fp32_is_done_without_tensor_cores_where_three_products_of_tf32_take_longer():
    l40s = LIMITS["NVIDIA L40S"]
    assert limit_us(PRODUCT, l40s, "ieee")[1] == pytest.approx(1e6 * 495 / 91.6)


def test_halves_are_as_fast_whatever_the_precision_says():
    work = LeastWork(0, {"half": 989e12})
    assert limit_us(work, H200, "ieee")[1] == limit_us(work, H200, "low")[1] == pytest.approx(1e6)


def test_nothing_is_guessed():
    assert limits_of("NVIDIA H200", (9, 0)) == H200
    for name, capability in (
        ("NVIDIA H200 MIG 1g.18gb", (9, 0)), ("NVIDIA GH200 480GB", (9, 0)), ("NVIDIA H200", (8, 0)), ("", (0, 0)),
    ):  # fmt: skip
        assert limits_of(name, capability) is None
    unknown, dataless = roofline(COPY, None, "ieee", 1.0), roofline(None, H200, "ieee", 1.0)
    assert (unknown["share"], unknown["limit_us"], unknown["bytes"]) == (None, None, 48 * 10**9)
    assert (dataless["share"], dataless["bytes"]) == (None, None)
    assert roofline(COPY, H200, "ieee", 0.0)["share"] is None


def test_more_than_all_of_it_is_said_as_it_is():
    assert roofline(COPY, H200, "ieee", 5_000.0)["share"] == 2.0


@pytest.mark.parametrize("gpu", GPUS.values(), ids=GPUS)
def test_the_simulated_gpus_stay_below_the_limits_that_they_are_held_against(gpu):
    limits = LIMITS[gpu.sheet]
    assert gpu.bandwidth < gpu.peak_bandwidth == pytest.approx(limits.bandwidth, rel=0.01)
    assert all(rate < limits.flops[math] for math, rate in gpu.flops.items())


@pytest.mark.parametrize("limits", LIMITS.values(), ids=LIMITS)
def test_the_table_is_in_order(limits):
    assert 1e11 < limits.bandwidth < 1e13
    flops = limits.flops
    assert flops["half"] > flops["tf32"] >= flops["fp32"] >= flops["fp64"] > 1e12
    assert 1.9 < flops["half"] / flops["tf32"] < 2.1, "without sparsity, like the others"
