"""Hints tell Triton's compiler the truth, or what cannot make it load several elements at once."""

import pytest

from drkernel.policy.canonical.tuning import tuned

KERNEL = """\
@triton.jit
def kernel1(x0_ptr, p0_ptr, o_ptr, M, N, C, H, OH, W, OW, BM: tl.constexpr, BN: tl.constexpr):
    r = tl.program_id(0) * BM + tl.arange(0, BM)[:, None]
    c = tl.program_id(1) * BN + tl.arange(0, BN)[None, :]
    xW = r % OW
    b = r // OW
    a = tl.zeros((BM, BN), tl.float32)
    for s in range(3 * tl.cdiv(C, 32)):
        t = s // tl.cdiv(C, 32)
        j = s % tl.cdiv(C, 32) * 32 + tl.arange(0, 32)
        yW = {moved}
        x = tl.load(x0_ptr + (b * C + j[None, :]) * W + yW, mask=(r < M) & (j[None, :] < C), other=0.0)
        y = tl.load(p0_ptr + (t * N + c) * C + j[:, None], mask=(c < N) & (j[:, None] < C), other=0.0)
        a = tl.dot(x, y, a, input_precision='tf32x3')
    m = (r < M) & (c < N)
    i = (b * N + c) * OW + xW
    tl.store(o_ptr + i, a, mask=m)
def f1(x0, p0):
    kernel1[triton.cdiv(M, 128), triton.cdiv(N, 32)](x0, p0, o, M, N, C, H, OH, W, OW, BM=128, BN=32, num_warps=4)
    return o
"""
FLAT = """\
@triton.jit
def kernel2(x0_ptr, p0_ptr, o_ptr, M, N, C, K, W, OW, BM: tl.constexpr, BN: tl.constexpr):
    r = tl.program_id(0) * BM + tl.arange(0, BM)[:, None]
    i = b * C * W + {moved}
    for s in range(0, K, 16):
        j = s + tl.arange(0, 16)
        k = j // 4 * W + j % 4
        x = tl.load(x0_ptr + i + k[None, :], mask=(r < M) & (j[None, :] < C * 4), other=0.0)
    i = (b * N + c) * OW + xW
    tl.store(o_ptr + i, a, mask=m)
"""
STORED = "    i = tl.max_contiguous((b * N + c) * OW + xW, [BM, 1])\n    tl.store(o_ptr + i"


@pytest.mark.parametrize("moved", ["xW", "xW + t % 3 - 1", "xW * 2 + t % 3 - 1", "(xW + 2 - t) // 3", "xW + 1 - t"])
def test_a_tile_of_places_says_that_its_rows_lie_side_by_side(moved: str):
    text = tuned(KERNEL.format(moved=moved))
    assert "x = tl.load(x0_ptr + tl.max_contiguous((b * C + j[None, :]) * W + yW, [BM, 1]), mask=(r < M)" in text
    assert STORED in text and tuned(text) == text
    compile(text, "kernel", "exec")


@pytest.mark.parametrize("moved", ["xW * 2", "xW * 4 - 4"])
def test_a_compiler_does_not_take_elements_that_are_apart_for_neighbours(moved: str):
    text = tuned(KERNEL.format(moved=moved))
    assert "tl.max_contiguous((b * C + j[None, :]) * W + yW + tl.program_id(2), [BM, 1])" in text and STORED in text
    grouped = tuned(KERNEL.format(moved=moved).replace("    b = r", "    g = tl.program_id(2)\n    b = r"))
    assert "x0_ptr + (b * C" in grouped and STORED in grouped


@pytest.mark.parametrize(("moved", "told"), [("xW", "i + k[None, :]"), ("xW * 2", "i + k[None, :] + tl.program_id(2)")])
def test_so_it_is_where_the_window_lies_beside_the_channels(moved: str, told: str):
    text = tuned(FLAT.format(moved=moved))
    assert f"tl.max_contiguous({told}, [BM, 1])" in text
    assert f"i = b * C * W + {moved}\n" in text and STORED in text


def test_a_function_of_several_lines_has_wider_tiles_where_there_are_more_columns():
    text, wide = KERNEL.format(moved="xW"), "triton.cdiv(N, 64 if N > 32 else 32)"
    twice = tuned(text, "t0 = f1(in0, self.m0.weight)\nt1 = f1(t0, self.m1.weight)")
    assert wide in twice and "BN=64 if N > 32 else 32, num_warps=4" in twice
    assert wide not in tuned(text, "t0 = f1(in0, self.m0.weight)")


def test_other_kernels_stay_as_they_are():
    text = "@triton.jit\ndef kernel1(x_ptr, o_ptr):\n    i = tl.arange(0, 64)\n    tl.store(o_ptr + i, i)\n"
    assert tuned(text) == text
