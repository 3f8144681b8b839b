"""Formats that numpy lacks, beside PyTorch's."""

from __future__ import annotations

import numpy as np
import pytest
import torch
import triton
import triton.language as tl

from drkernel.judge.untrusted.simulated import numerics
from tests.judge.untrusted.simulated.launching import launch


@pytest.mark.parametrize("name", numerics.FP8)
def test_8_bit_floats_are_rounded_as_pytorch_rounds(name):
    table = torch.arange(256, dtype=torch.uint8).view(numerics.FP8[name]).float().numpy()
    assert np.array_equal(numerics.fp8_to_fp32(np.arange(256, dtype=np.uint8), name), table, equal_nan=True)
    near = np.sort(table[np.isfinite(table)])
    drawn = np.random.default_rng(0).standard_normal(10_000) * np.exp2(np.linspace(-20, 18, 10_000))
    values = np.concatenate([near, (near[1:] + near[:-1]) / 2, drawn, [1e6, -1e6, np.inf, -np.inf, np.nan, -0.0]])
    values = values.astype(np.float32)
    values = np.concatenate([values, *(np.nextafter(values, np.float32(end)) for end in (np.inf, -np.inf))])
    want = torch.from_numpy(values).to(numerics.FP8[name]).view(torch.uint8).numpy()
    assert np.array_equal(numerics.fp32_to_fp8(values, name), want)


@triton.jit
def quantize(x, out, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    tl.store(out + i, tl.load(x + i).to(out.dtype.element_ty))


def test_a_kernel_that_rounds_to_8_bits_calls_no_operator_of_pytorch():
    x, out = torch.randn(128), torch.empty(128, dtype=torch.float8_e4m3fn)
    row = launch(quantize, (1,), x, out, BLOCK=128)
    assert row.triton and row.name == "quantize"
    assert torch.equal(out.view(torch.uint8), x.to(torch.float8_e4m3fn).view(torch.uint8))
