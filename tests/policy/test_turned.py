"""A `forward` that takes an operand as it was before it was turned is given the turned one."""

import pytest

from drkernel.policy.canonical import canonical
from tests.policy.forms import source_of

ANSWER = """\
@triton.jit
def kernel(x_ptr, y_ptr, o_ptr, M, N, K, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr):
    r = tl.program_id(0) * BLOCK_M + tl.arange(0, BLOCK_M)[:, None]
    c = tl.program_id(1) * BLOCK_N + tl.arange(0, BLOCK_N)[None, :]
    v = tl.zeros((BLOCK_M, BLOCK_N), tl.float32)
    for t in range(0, K, BLOCK_K):
        j = t + tl.arange(0, BLOCK_K)
        a = tl.load(x_ptr + r * K + j[None, :], mask=(r < M) & (j[None, :] < K), other=0.0)
        b = tl.load(y_ptr + j[:, None] * N + c, mask=(j[:, None] < K) & (c < N), other=0.0)
        v = tl.dot(a, b, v)
    tl.store(o_ptr + r * N + c, v, mask=(r < M) & (c < N))
def forward(self, in0, in1):
    in0 = in0.contiguous()
    in1 = in1.contiguous()
    M, K = in0.shape
    N = in1.shape[1]
    {made} = in0.new_empty((M, N))
    kernel[triton.cdiv(M, 64), triton.cdiv(N, 64)](in0, in1, {made}, M, N, K, BLOCK_M=64, BLOCK_N=64, BLOCK_K=32)
    return {made}
"""
RIGHT_TURNED = ["t0 = torch.permute(in1, (1, 0))", "t0 = t0.contiguous()", "N = t0.shape[1]"]
LEFT_TURNED = ["t0 = torch.permute(in0, (1, 0))", "t0 = t0.contiguous()", "M, K = t0.shape"]
SIZES = {
    "neither": ("x @ y", "48, 32", "32, 96", ["N = in1.shape[1]"]),
    "right": ("x @ y.t()", "48, 32", "96, 32", RIGHT_TURNED),
    "left": ("x.t() @ y", "32, 48", "32, 96", LEFT_TURNED),
    "both": ("x.t() @ y.t()", "32, 48", "96, 32", [*LEFT_TURNED, "N = t1.shape[1]"]),
}


@pytest.mark.parametrize("name", SIZES)
def test_what_is_given_has_the_size_that_the_result_needs(name):
    body, left, right, lines = SIZES[name]
    form = canonical(source_of(f"return {body}", f"torch.randn({left}), torch.randn({right})"))
    result = form.text.rpartition("return ")[2].strip()
    forward = form.submission(ANSWER.format(made=result)).rpartition("def forward")[2]
    assert [line for line in lines if line not in forward] == []
    assert ("permute" in forward) == (name != "neither")


def test_what_turns_the_other_operand_is_given_both_turned():
    """It computes `in0.t() @ in1` for `in0 @ in1.t()`."""
    form = canonical(source_of("return x @ y.t()", "torch.randn(48, 32), torch.randn(96, 32)"))
    answer = (
        ANSWER.format(made="t1").replace("M, K = in0", "K, M = in0").replace("r * K + j[None, :]", "j[None, :] * M + r")
    )
    forward = form.submission(answer).rpartition("def forward")[2]
    assert "in0 = in0.transpose(-1, -2).contiguous()" in forward and "N = t0.shape[1]" in forward


def test_what_knows_of_the_order_stays():
    """It reads the operand as it lies, so its size is right."""
    form = canonical(source_of("return x @ y.t()", "torch.randn(48, 32), torch.randn(96, 32)"))
    answer = ANSWER.format(made="t1").replace("in1.shape[1]", "in1.shape[0]").replace("j[:, None] * N + c", "c * K + j")
    assert "permute" not in form.submission(answer)
