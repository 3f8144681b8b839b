"""A call that does not use what the reference's lines use is left out, found without running it."""

import ast
import math

import pytest

from drkernel.policy.canonical import canonical
from drkernel.policy.canonical.host import tensor
from drkernel.policy.canonical.kept_numbers import has_numbers
from drkernel.policy.canonical.reach import reach
from drkernel.policy.canonical.stands import reads_beyond, stands
from tests.policy.forms import source_of

POINTWISE = """\
@triton.jit
def kernel1(t0_ptr, o_ptr, T, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    t0 = tl.load(t0_ptr + i, mask=i < T)
    tl.store(o_ptr + i, {value}, mask=i < T)
def f1(t0):
    o = torch.empty_like(t0)
    kernel1[triton.cdiv(o.numel(), 1024),](t0, o, o.numel(), BLOCK=1024)
    return o
"""
PRODUCT = """\
@triton.jit
def kernel2(in0_ptr, p0_ptr, o_ptr, M, N, C, BM: tl.constexpr, BN: tl.constexpr):
    r = tl.program_id(0) * BM + tl.arange(0, BM)[:, None]
    c = tl.program_id(1) * BN + tl.arange(0, BN)[None, :]
    a = tl.zeros((BM, BN), tl.float32)
    for s in range({taps} * tl.cdiv(C, 32)):
        t = s // tl.cdiv(C, 32)
        j = s % tl.cdiv(C, 32) * 32 + tl.arange(0, 32)
        x = tl.load(in0_ptr + (r // 4 * C + j[None, :]) * 6 + r % 4 + t, mask=(r < M) & (j[None, :] < C), other=0.0)
        y = tl.load(p0_ptr + (t * N + c) * C + j[:, None], mask=(c < N) & (j[:, None] < C), other=0.0)
        a = tl.dot(x, y, a)
    m = (r < M) & (c < N)
    tl.store(o_ptr + (r // 4 * N + c) * 4 + r % 4, a, mask=m)
def f2(in0, p0):
    p0 = p0.permute(2, 0, 1).contiguous()
    N = p0.shape[1]
    o = in0.new_empty((in0.shape[0], N, in0.shape[2] - 3 + 1))
    M = o.numel() // N
    kernel2[triton.cdiv(M, 128), {columns}](in0, p0, o, M, N, in0.shape[1], BM=128, BN=32)
    return o
"""


def can_stand(form, kernels: str, line: str) -> bool:
    functions = functions_of(kernels)
    made, _, call = line.partition(" = ")
    return stands(made, ast.parse(call, mode="eval").body, functions, form.told)


NUMBERS = {
    "a slope": ("F.leaky_relu(x, 0.3)", "tl.where(t0 > 0, t0, t0 * {})", "0.3", "0.01"),
    "a factor, inverted": ("x / 4.0", "t0 * {}", "0.25", "0.5"),
    "what is left of one": ("torch.lerp(x, x, 0.7)", "t0 * {}", "0.30", "0.2"),
    "a bound": ("torch.clamp(x, -1.5, 2.5)", "tl.minimum(tl.maximum(t0, -1.5), {})", "2.5", "3.5"),
    "the place of a value": ("torch.kthvalue(x, 5)[0]", "tl.sort(t0)[{}]", "5", "4"),
}


@pytest.mark.parametrize("name", NUMBERS)
def test_kernels_have_the_numbers_of_the_lines_that_they_stand_for(name):
    expression, value, *numbers = NUMBERS[name]
    lines = canonical(source_of(f"return {expression}")).told.lines[:-1]
    kernels = [functions_of(POINTWISE.format(value=value.format(number))) for number in numbers]
    assert [has_numbers(lines, "f1", functions) for functions in kernels] == [True, False]


def test_numbers_that_follow_from_sizes_may_be_said_in_other_ways():
    form = canonical(source_of("return F.layer_norm(F.relu(x), (8,))"))
    assert can_stand(form, POINTWISE.format(value="t0"), "t1 = f1(t0)")


CONV = source_of(
    "return torch.relu(self.conv(x))", "torch.randn(2, 64, 6)", "self.conv = nn.Conv1d(64, 40, 3, bias=False)"
)


@pytest.mark.parametrize(
    ("taps", "columns", "is_right"),
    [("3", "triton.cdiv(N, 32)", True), ("1", "triton.cdiv(N, 32)", False), ("3", "1", False)],
    ids=["all", "one tap of three", "one block of columns of two"],
)
def test_kernels_read_all_of_a_weight_and_write_all_of_a_result(taps, columns, is_right):
    assert (
        can_stand(canonical(CONV), PRODUCT.format(taps=taps, columns=columns), "t0 = f2(in0, self.m0.weight)")
        is is_right
    )


def test_a_weight_that_is_given_is_read():
    kernels = PRODUCT.format(taps="3", columns="triton.cdiv(N, 32)").replace(
        "tl.load(p0_ptr + (t", "tl.load(in0_ptr + (t"
    )
    assert not can_stand(canonical(CONV), kernels, "t0 = f2(in0, self.m0.weight)")


def test_a_part_of_a_table_may_be_all_that_is_read():
    form = canonical(source_of("return x * self.table[:4]", start="self.table = nn.Parameter(torch.ones(64, 8))"))
    kernels = """\
@triton.jit
def kernel1(in0_ptr, p0_ptr, o_ptr, T, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(o_ptr + i, tl.load(in0_ptr + i, mask=i < T) * tl.load(p0_ptr + i, mask=i < T), mask=i < T)
def f1(in0, p0):
    o = torch.empty_like(in0)
    kernel1[triton.cdiv(o.numel(), 1024),](in0, p0, o, o.numel(), BLOCK=1024)
    return o
"""
    assert can_stand(form, kernels, "t1 = f1(in0, self.m0)")


REACHED = {
    "a mask": ("i = tl.program_id(0) * 8 + tl.arange(0, 8)", "a_ptr + i, mask=i < 20", 19),
    "programs": ("i = tl.program_id(0) * 8 + tl.arange(0, 8)", "a_ptr + i", 23),
    "rows and columns": ("i = tl.program_id(0)", "a_ptr + i * 6 + tl.arange(0, 4)", 15),
    "what is left of a division": ("i = tl.arange(0, 16)", "a_ptr + i // 4 * 10 + i % 4", 33),
    "a choice": ("i = tl.where(tl.arange(0, 4) > 2, 5, tl.arange(0, 4))", "a_ptr + i", 5),
    "a place that is loaded": ("i = tl.load(b_ptr)", "a_ptr + i", math.inf),
    "a pointer that was moved": ("p = a_ptr + 4", "p + 1", math.inf),
    "a number that grows": ("i = 0\n    for k in range(3):\n        i = i + 4", "a_ptr + i", math.inf),
}


@pytest.mark.parametrize("name", REACHED)
def test_how_far_a_kernel_reads(name):
    before, place, last = REACHED[name]
    kernel = f"def kernel(a_ptr, b_ptr):\n    {before}\n    x = tl.load({place})\n    tl.store(b_ptr + 2, x)\n"
    functions = functions_of(kernel + "def f(a, b):\n    kernel[3,](a, b)\n    return b\n")
    found = reach(functions["f"], functions, [tensor((64,)), tensor((64,))])
    assert (found.read["a"], found.written["b"]) == (last, 2)
    assert found.written["a"] == -1


PAST = {
    "a number for each row": ("r", "r < M", False),
    "a number for each column": ("c", "c < N", True),
    "a mask that says more": ("r", "(r < M) & (r % 8 == 0)", True),
    "a place that was computed": ("r // 8", "r < M", True),
}


@pytest.mark.parametrize("name", PAST)
def test_no_kernel_reads_beyond_a_tensor(name):
    """One number for each column of (64, 8); what may be right stays."""
    place, mask, is_right = PAST[name]
    form = canonical(source_of("return x + self.gain", "torch.randn(64, 8)", "self.gain = nn.Parameter(torch.ones(8))"))
    kernels = f"""\
@triton.jit
def kernel1(in0_ptr, p0_ptr, o_ptr, M, N, BM: tl.constexpr, BN: tl.constexpr):
    r = tl.program_id(0) * BM + tl.arange(0, BM)[:, None]
    c = tl.program_id(1) * BN + tl.arange(0, BN)[None, :]
    m = (r < M) & (c < N)
    p0 = tl.load(p0_ptr + {place}, mask={mask})
    tl.store(o_ptr + (r * N + c), tl.load(in0_ptr + (r * N + c), mask=m) + p0, mask=m)
def f1(in0, p0):
    o = torch.empty_like(in0)
    kernel1[triton.cdiv(in0.shape[0], 16), 1](in0, p0, o, in0.shape[0], in0.shape[1], BM=16, BN=8)
    return o
"""
    assert can_stand(form, kernels, "t0 = f1(in0, self.m0)")
    call = ast.parse("f1(in0, self.m0)", mode="eval").body
    assert reads_beyond(call, functions_of(kernels), form.told) is not is_right


def functions_of(source: str) -> dict[str, ast.FunctionDef]:
    return {node.name: node for node in ast.parse(source).body}
