"""Which precisions a kernel multiplies in, from the PTX that Triton makes of it without a GPU."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from contextlib import nullcontext

import pytest
import torch

from drkernel.judge.trusted import ptx_scan
from drkernel.judge.trusted.outputs import OutputTensor
from drkernel.judge.trusted.verdicts import VerdictReached

SCRIPT = """
import json, sys
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

found = []
for arch, *constants in json.loads(sys.argv[1]):
    kernel = product if constants else summed
    signature = dict.fromkeys(("a_ptr", "b_ptr", "c_ptr"), "*fp32") | dict.fromkeys(kernel.arg_names[3:], "constexpr")
    values = [constants[0], getattr(tl, constants[1])] if constants else []
    source = ASTSource(kernel, signature, {(3 + k,): value for k, value in enumerate(values)})
    ptx = triton.compile(source, target=GPUTarget("cuda", arch, 32)).asm["ptx"]
    found.append(sorted(ptx_scan.products(ptx.encode())))
print(json.dumps(found))
"""
FORMATS = {
    ("ieee", "float32"): [],
    ("tf32", "float32"): ["TF32"],
    ("tf32x3", "float32"): ["TF32"],
    ("bf16x3", "float32"): ["bf16"],
    ("ieee", "float16"): ["fp16"],
    ("ieee", "bfloat16"): ["bf16"],
    (): ["TF32"],
}
"""By precision and dtype of a product; at last, the sum of a product that Triton makes a TF32 one."""


@pytest.mark.slow
def test_the_formats_of_factors_are_found(tmp_path):
    """In a process of its own, because Triton decides at its import whether kernels are interpreted."""
    paths = os.pathsep.join(path for path in sys.path if path)
    environment = os.environ | {"TRITON_INTERPRET": "0", "PYTHONPATH": paths, "TRITON_CACHE_DIR": str(tmp_path)}
    script = tmp_path / "script.py"
    script.write_text(SCRIPT)
    asked = [(arch, *constants) for arch in (80, 90) for constants in FORMATS]
    command = [sys.executable, str(script), json.dumps(asked)]
    answer = subprocess.run(command, env=environment, capture_output=True, text=True)
    assert answer.returncode == 0, answer.stderr
    assert json.loads(answer.stdout) == 2 * list(FORMATS.values())


def test_instructions_of_several_generations_are_known():
    ptx = b"""wgmma.mma_async.sync.aligned.m64n64k32.f32.e4m3.e5m2 {...
    mma.sync.aligned.m16n8k32.row.col.s32.s8.s8.s32 {...
    tcgen05.mma.cta_group::1.kind::tf32 [...
    fma.rn.f32 %f1, %f2, %f3, %f4; cvt.rna.tf32.f32 %r1, %f1; // comment
    """
    assert ptx_scan.products(ptx) == {"fp8", "int8", "TF32"}
    assert ptx_scan.products(b"mma /* */ .sync.aligned\n .m16n8k8.row.col.f32.tf32.tf32.f32 {...") == {"TF32"}
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


@pytest.mark.parametrize(
    ("forbidden", "numbers", "refused"),
    [
        ({"TF32"}, 1024, False),
        ({"bf16", "int8"}, 1024, False),
        ({"TF32"}, 1, True),
        ({"fp16"}, 1024, True),
        (set(), 1, False),
    ],
)
def test_products_whose_errors_no_values_show_are_refused(forbidden, numbers, refused):
    outputs = [OutputTensor(torch.zeros(numbers))]
    with pytest.raises(VerdictReached, match="which this task does not allow") if refused else nullcontext():
        ptx_scan.expect_allowed(frozenset(forbidden), outputs)


def test_a_loss_shows_no_errors_whatever_lies_beside_it():
    loss, maxima, places = torch.zeros(()), torch.zeros(1024), torch.zeros(3, dtype=torch.int64)
    with pytest.raises(VerdictReached, match="too few"):
        ptx_scan.expect_allowed(frozenset({"TF32"}), [OutputTensor(maxima), OutputTensor(loss)])
    ptx_scan.expect_allowed(frozenset({"TF32"}), [OutputTensor(maxima), OutputTensor(places)])


def test_whole_numbers_show_every_error():
    ptx_scan.expect_allowed(frozenset({"TF32"}), [OutputTensor(torch.zeros(8, 8, dtype=torch.int32))])
