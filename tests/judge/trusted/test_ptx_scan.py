"""Which precisions a kernel multiplies in, from the PTX that Triton makes of it without a GPU."""

from __future__ import annotations

import pytest
import triton
import triton.language as tl
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource

from drkernel.judge.trusted import ptx_scan


@triton.jit
def product(a_ptr, b_ptr, c_ptr, PRECISION: tl.constexpr, FORMAT: tl.constexpr):
    i = tl.arange(0, 64)
    place = i[:, None] * 64 + i[None, :]
    a, b = tl.load(a_ptr + place).to(FORMAT), tl.load(b_ptr + place).to(FORMAT)
    tl.store(c_ptr + place, tl.dot(a, b, input_precision=PRECISION))


@triton.jit
def summed(a_ptr, b_ptr, c_ptr):
    i = tl.arange(0, 64)
    place = i[:, None] * 64 + i[None, :]
    a, b = tl.load(a_ptr + place), tl.load(b_ptr + place)
    tl.store(c_ptr + place, tl.sum(a[:, :, None] * b[None, :, :], 1))


def compiled(kernel, arch: int, *constants) -> frozenset[str]:
    signature = dict.fromkeys(("a_ptr", "b_ptr", "c_ptr"), "*fp32")
    signature |= dict.fromkeys(kernel.arg_names[3:], "constexpr")
    source = ASTSource(kernel, signature, {(3 + k,): value for k, value in enumerate(constants)})
    return ptx_scan.products(triton.compile(source, target=GPUTarget("cuda", arch, 32)).asm["ptx"].encode())


@pytest.mark.slow
@pytest.mark.parametrize("arch", [80, 90])
@pytest.mark.parametrize(
    ("precision", "dtype", "found"),
    [
        ("ieee", tl.float32, set()),
        ("tf32", tl.float32, {"TF32"}),
        ("tf32x3", tl.float32, {"TF32"}),
        ("bf16x3", tl.float32, {"bf16"}),
        ("ieee", tl.float16, {"fp16"}),
        ("ieee", tl.bfloat16, {"bf16"}),
    ],
)
def test_the_formats_of_factors_are_found(arch, precision, dtype, found):
    assert compiled(product, arch, precision, dtype) == found


@pytest.mark.slow
def test_triton_makes_a_tf32_product_of_a_sum_of_products():
    assert compiled(summed, 90) == {"TF32"}


def test_instructions_of_several_generations_are_known():
    ptx = b"""wgmma.mma_async.sync.aligned.m64n64k32.f32.e4m3.e5m2 {...
    mma.sync.aligned.m16n8k32.row.col.s32.s8.s8.s32 {...
    tcgen05.mma.cta_group::1.kind::tf32 [...
    fma.rn.f32 %f1, %f2, %f3, %f4; cvt.rna.tf32.f32 %r1, %f1; // comment
    """
    assert ptx_scan.products(ptx) == {"fp8", "int8", "TF32"}
    assert not ptx_scan.products(b"fma.rn.f32 %f1; cvt.rn.bf16.f32 %h1, %f1; .visible .entry mma_kernel(")


@pytest.mark.parametrize(
    ("precision", "halves", "left"),
    [
        ("ieee", False, {"TF32", "bf16", "int8"}),
        ("ieee", True, {"int8"}),
        ("tf32", False, {"bf16", "int8"}),
        ("low", False, {"int8"}),
    ],
)
def test_what_is_forbidden_depends_on_the_precision_and_on_the_data(precision, halves, left):
    assert ptx_scan.forbidden(frozenset({"TF32", "bf16", "int8"}), precision, halves) == left


def test_findings_lie_beside_the_kernels_until_they_are_taken(tmp_path):
    ptx_scan.write(frozenset({"TF32"}), tmp_path)
    assert ptx_scan.take(tmp_path) == {"TF32"}
    assert ptx_scan.take(tmp_path) == frozenset() and not list(tmp_path.iterdir())
    assert "input_precision='ieee'" in ptx_scan.hint(frozenset({"TF32"}))
