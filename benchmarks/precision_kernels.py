"""Twelve tasks with products in fp32, each with an answer that multiplies in fp32, in TF32 or in bf16."""

from __future__ import annotations

from dataclasses import dataclass

FORMS = ("ieee", "tf32", "bf16")
"""What an answer multiplies in."""
DOT = {
    "ieee": 'tl.dot({a}, {b}, {acc}input_precision="ieee")',
    "tf32": 'tl.dot({a}, {b}, {acc}input_precision="tf32")',
    "bf16": "tl.dot({a}.to(tl.bfloat16), {b}.to(tl.bfloat16){end})",
}
BLOCKS = {"ieee": (64, 64, 32, 4), "tf32": (128, 128, 32, 8), "bf16": (128, 128, 32, 8)}
"""Rows, columns, inner block and warps of a product's program."""
SMALL_BLOCKS = (32, 32, 32, 4)
"""The same on the simulated device, whose tasks are so small that larger blocks would be one program."""
HEAD = """import torch
import torch.nn as nn
import torch.nn.functional as F
"""
TRITON = "import triton\nimport triton.language as tl\n"


@dataclass(frozen=True)
class Kernel:
    """One task and the parts of its answer."""

    name: str
    sizes: dict[str, int]
    inputs: str
    """What get_inputs returns, in the names of `sizes`."""
    forward: str
    """The expression of the reference, over `arguments`."""
    arguments: str
    triton: str
    """The kernels; DOT(a, b) and DOT(a, b, acc) stand for a product in the form."""
    answer: str
    """The statements of ModelNew.forward; LIBRARY(expression) is a product of PyTorch in the form."""
    modules: str = ""
    """The statement of both constructors, after `super().__init__()`."""

    @property
    def library(self) -> bool:
        """Whether PyTorch computes the product."""
        return "LIBRARY" in self.answer

    def task(self) -> str:
        """The source of the task."""
        sizes = "".join(f"{name} = {size}\n" for name, size in self.sizes.items())
        body = f"    def forward(self, {self.arguments}):\n        return {self.forward}\n"
        ends = f"def get_inputs():\n    return [{self.inputs}]\n\n\ndef get_init_inputs():\n    return {self._init()}\n"
        return f"{HEAD}\n{sizes}\n\n{self._class('Model')}{body}\n\n{ends}"

    def submission(self, form: str, device: str) -> str:
        """The source of the answer in a form, for a device of the judge."""
        flags = "torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = True\n"
        lines = "".join(f"        {line}\n" for line in _library(self.answer, form).strip().splitlines())
        body = f"    def forward(self, {self.arguments}):\n{lines}"
        rows, columns, inner, warps = SMALL_BLOCKS if device == "simulated" else BLOCKS[form]
        blocks = f"BM, BN, BK, WARPS = {rows}, {columns}, {inner}, {warps}\n"
        head = HEAD + TRITON + (flags if self.library and form == "tf32" else "")
        return f"{head}\n{blocks}\n{_dots(self.triton, form)}\n\n{self._class('ModelNew')}{body}"

    def _init(self) -> str:
        return f"[{', '.join(name for name in self.sizes if name in ('K', 'N', 'C', 'O'))}]" if self.modules else "[]"

    def _class(self, name: str) -> str:
        if not self.modules:
            return f"class {name}(nn.Module):\n"
        arguments = self._init().strip("[]").lower()
        init = f"    def __init__(self, {arguments}):\n        super().__init__()\n        {self.modules}\n\n"
        return f"class {name}(nn.Module):\n{init}"


def _dots(source: str, form: str) -> str:
    """The source with products in a form."""
    for acc in ("acc", "score"):
        source = source.replace(f"DOT(a, b, {acc})", DOT[form].format(a="a", b="b", acc=f"{acc}, ", end=f", {acc}"))
    return source.replace("DOT(a, b)", DOT[form].format(a="a", b="b", acc="", end=""))


def _library(source: str, form: str) -> str:
    """The statements with PyTorch's products in a form: F.linear or F.conv2d of `x`, `w` and more."""
    factors = "x.bfloat16(), w.bfloat16()" if form == "bf16" else "x, w"
    back = ".float()" if form == "bf16" else ""
    for call, more in (("linear", ""), ("conv2d", ", padding=1")):
        source = source.replace(f"LIBRARY({call})", f"F.{call}({factors}{more}){back}")
    return source


PRODUCT = """
@triton.jit
def product_kernel(
    a_ptr, b_ptr, c_ptr, bias_ptr, r_ptr, M, N, K, a_batch, a_row, a_col, b_batch, b_row, b_col,
    EPILOGUE: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr,
):
    m = (tl.program_id(0) * BM + tl.arange(0, BM)).to(tl.int64)
    n = (tl.program_id(1) * BN + tl.arange(0, BN)).to(tl.int64)
    batch = tl.program_id(2).to(tl.int64)
    acc = tl.zeros((BM, BN), tl.float32)
    for start in range(0, K, BK):
        k = start + tl.arange(0, BK).to(tl.int64)
        a_where = batch * a_batch + m[:, None] * a_row + k[None, :] * a_col
        b_where = batch * b_batch + k[:, None] * b_row + n[None, :] * b_col
        a = tl.load(a_ptr + a_where, mask=(m[:, None] < M) & (k[None, :] < K), other=0.0)
        b = tl.load(b_ptr + b_where, mask=(k[:, None] < K) & (n[None, :] < N), other=0.0)
        acc = DOT(a, b, acc)
    inside = (m[:, None] < M) & (n[None, :] < N)
    where = (batch * M + m[:, None]) * N + n[None, :]
    if EPILOGUE > 0:
        acc += tl.load(bias_ptr + n, mask=n < N, other=0.0)[None, :]
    if EPILOGUE == 2:
        acc = 0.5 * acc * (1 + tl.erf(acc * 0.7071067811865476))
    if EPILOGUE == 3:
        acc = tl.maximum(acc, 0.0) + tl.load(r_ptr + where, mask=inside, other=0.0)
    tl.store(c_ptr + where, acc, mask=inside)


def product(a, b, bias=None, residual=None, epilogue=0):
    batch, M, K = a.shape
    N = b.shape[2]
    bias, residual = a if bias is None else bias, a if residual is None else residual
    c = torch.empty((batch, M, N), device=a.device, dtype=a.dtype)
    grid = (triton.cdiv(M, BM), triton.cdiv(N, BN), batch)
    product_kernel[grid](
        a, b, c, bias, residual, M, N, K, *a.stride(), *b.stride(),
        EPILOGUE=epilogue, BM=BM, BN=BN, BK=BK, num_warps=WARPS,
    )
    return c
"""
ATTENTION = """
@triton.jit
def attention_kernel(
    q_ptr, k_ptr, v_ptr, o_ptr, T, D, scale, CAUSAL: tl.constexpr, BT: tl.constexpr, BS: tl.constexpr, BD: tl.constexpr
):
    t = tl.program_id(0) * BT + tl.arange(0, BT)
    d = tl.arange(0, BD)
    base = tl.program_id(1).to(tl.int64) * T * D
    rows = (t[:, None] < T) & (d[None, :] < D)
    q = tl.load(q_ptr + base + t[:, None] * D + d[None, :], mask=rows, other=0.0)
    top = tl.full((BT,), -1e30, tl.float32)
    total = tl.zeros((BT,), tl.float32)
    acc = tl.zeros((BT, BD), tl.float32)
    for start in range(0, T, BS):
        s = start + tl.arange(0, BS)
        there = (s[:, None] < T) & (d[None, :] < D)
        key = tl.load(k_ptr + base + s[:, None] * D + d[None, :], mask=there, other=0.0)
        value = tl.load(v_ptr + base + s[:, None] * D + d[None, :], mask=there, other=0.0)
        a, b = q, tl.trans(key)
        score = DOT(a, b) * scale
        seen = s[None, :] < T
        if CAUSAL:
            seen = seen & (s[None, :] <= t[:, None])
        score = tl.where(seen, score, -1e30)
        new_top = tl.maximum(top, tl.max(score, 1))
        shrink = tl.exp(top - new_top)
        weight = tl.where(seen, tl.exp(score - new_top[:, None]), 0.0)
        total = total * shrink + tl.sum(weight, 1)
        acc = acc * shrink[:, None]
        a, b = weight, value
        acc = DOT(a, b, acc)
        top = new_top
    tl.store(o_ptr + base + t[:, None] * D + d[None, :], acc / total[:, None], mask=rows)


def attention(q, k, v, causal):
    q, k, v = q.contiguous(), k.contiguous(), v.contiguous()
    batch, T, D = q.shape
    o = torch.empty_like(q)
    attention_kernel[(triton.cdiv(T, 64), batch)](
        q, k, v, o, T, D, D**-0.5, CAUSAL=causal, BT=64, BS=32, BD=max(16, triton.next_power_of_2(D)), num_warps=4
    )
    return o
"""
CONVOLUTION = """
@triton.jit
def conv_kernel(
    x_ptr, w_ptr, bias_ptr, y_ptr, count, C, H, W, O, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr
):
    pixel = tl.program_id(0).to(tl.int64) * BM + tl.arange(0, BM)
    o = tl.program_id(1) * BN + tl.arange(0, BN)
    column, row, image = (pixel % W)[:, None], (pixel // W % H)[:, None], (pixel // (H * W))[:, None]
    acc = tl.zeros((BM, BN), tl.float32)
    for start in range(0, C * 9, BK):
        k = start + tl.arange(0, BK)
        y = row + (k // 3 % 3)[None, :] - 1
        x = column + (k % 3)[None, :] - 1
        inside = (y >= 0) & (y < H) & (x >= 0) & (x < W) & (pixel[:, None] < count) & (k[None, :] < C * 9)
        a = tl.load(x_ptr + ((image * C + (k // 9)[None, :]) * H + y) * W + x, mask=inside, other=0.0)
        b = tl.load(w_ptr + o[None, :] * (C * 9) + k[:, None], mask=(o[None, :] < O) & (k[:, None] < C * 9), other=0.0)
        acc = DOT(a, b, acc)
    acc = tl.maximum(acc + tl.load(bias_ptr + o, mask=o < O, other=0.0)[None, :], 0.0)
    where = ((image * O + o[None, :]) * H + row) * W + column
    tl.store(y_ptr + where, acc, mask=(pixel[:, None] < count) & (o[None, :] < O))
"""
EPILOGUE = """
@triton.jit
def epilogue_kernel(x_ptr, bias_ptr, y_ptr, numel, inner, channels, GELU: tl.constexpr, BLOCK: tl.constexpr):
    i = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    v = tl.load(x_ptr + i, mask=i < numel, other=0.0)
    v += tl.load(bias_ptr + i // inner % channels, mask=i < numel, other=0.0)
    if GELU:
        v = 0.5 * v * (1 + tl.erf(v * 0.7071067811865476))
    else:
        v = tl.maximum(v, 0.0)
    tl.store(y_ptr + i, v, mask=i < numel)


def epilogue(x, bias, inner, gelu):
    x = x.contiguous()
    y = torch.empty_like(x)
    epilogue_kernel[(triton.cdiv(x.numel(), 1024),)](
        x, bias, y, x.numel(), inner, bias.numel(), GELU=gelu, BLOCK=1024
    )
    return y
"""
PLAIN = "return product(a[None], b[None])[0]"
LAYER = "w = self.linear.weight\nreturn product(x[None], w.t()[None], {more})[0]"
LINEAR, CONV = "self.linear = nn.Linear(k, n)", "self.conv = nn.Conv2d(c, o, 3, padding=1)"
CONVOLVED = """
conv = self.conv
x = x.contiguous()
images, channels, H, W = x.shape
O, count = conv.weight.shape[0], images * H * W
y = torch.empty((images, O, H, W), device=x.device, dtype=x.dtype)
grid = (triton.cdiv(count, BM), triton.cdiv(O, BN))
conv_kernel[grid](
    x, conv.weight, conv.bias, y, count, channels, H, W, O, BM=BM, BN=BN, BK=BK, num_warps=WARPS
)
return y
"""
MATRICES, ROWS = "torch.randn(M, K), torch.randn(K, N)", "torch.randn(M, K)"
QKV, IMAGES = ", ".join(["torch.randn(B, T, D)"] * 3), "torch.randn(B, C, H, W)"
SCORES = "q @ k.transpose(1, 2) * q.shape[2]**-0.5"
MASKED = f"({SCORES}).masked_fill(torch.ones_like({SCORES}).triu(1) > 0, float('-inf'))"
BIAS, GELU, RESIDUAL = "self.linear.bias, None, 1", "self.linear.bias, None, 2", "self.linear.bias, r, 3"
COMPOSED = "w = self.linear.weight\nreturn epilogue(LIBRARY(linear), self.linear.bias, 1, True)"
BEHIND = "w = self.conv.weight\ny = LIBRARY(conv2d)\nreturn epilogue(y, self.conv.bias, y.shape[2] * y.shape[3], False)"

KERNELS = (
    Kernel("square", {"M": 2048, "K": 2048, "N": 2048}, MATRICES, "a @ b", "a, b", PRODUCT, PLAIN),
    Kernel("tall", {"M": 32768, "K": 512, "N": 128}, MATRICES, "a @ b", "a, b", PRODUCT, PLAIN),
    Kernel("long", {"M": 512, "K": 8192, "N": 512}, MATRICES, "a @ b", "a, b", PRODUCT, PLAIN),
    Kernel(
        "batched", {"B": 32, "M": 512, "K": 256, "N": 512}, "torch.randn(B, M, K), torch.randn(B, K, N)", "a @ b",
        "a, b", PRODUCT, "return product(a, b)",
    ),
    Kernel(
        "linear", {"M": 8192, "K": 1024, "N": 1024}, ROWS, "self.linear(x)", "x", PRODUCT,
        LAYER.format(more=BIAS), LINEAR,
    ),
    Kernel(
        "linear_gelu", {"M": 8192, "K": 1024, "N": 1024}, ROWS, "F.gelu(self.linear(x))", "x", PRODUCT,
        LAYER.format(more=GELU), LINEAR,
    ),
    Kernel(
        "linear_relu_residual", {"M": 8192, "K": 512, "N": 1024}, f"{ROWS}, torch.randn(M, N)",
        "torch.relu(self.linear(x)) + r", "x, r", PRODUCT, LAYER.format(more=RESIDUAL), LINEAR,
    ),
    Kernel(
        "attention", {"B": 64, "T": 512, "D": 64}, QKV, f"torch.softmax({SCORES}, 2) @ v", "q, k, v", ATTENTION,
        "return attention(q, k, v, False)",
    ),
    Kernel(
        "causal_attention", {"B": 64, "T": 512, "D": 64}, QKV, f"torch.softmax({MASKED}, 2) @ v", "q, k, v", ATTENTION,
        "return attention(q, k, v, True)",
    ),
    Kernel(
        "conv_implicit", {"B": 16, "C": 64, "O": 128, "H": 56, "W": 56}, IMAGES, "torch.relu(self.conv(x))", "x",
        CONVOLUTION, CONVOLVED, CONV,
    ),
    Kernel(
        "conv_behind_cudnn", {"B": 16, "C": 64, "O": 128, "H": 56, "W": 56}, IMAGES, "torch.relu(self.conv(x))", "x",
        EPILOGUE, BEHIND, CONV,
    ),
    Kernel(
        "linear_behind_cublas", {"M": 8192, "K": 1024, "N": 1024}, ROWS, "F.gelu(self.linear(x))", "x", EPILOGUE,
        COMPOSED, LINEAR,
    ),
)  # fmt: skip
