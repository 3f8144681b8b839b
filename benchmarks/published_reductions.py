"""Tasks that reduce, at the sizes that KernelBench publishes: over one dimension, over windows, to one loss."""

from __future__ import annotations

from published_parts import Entry, answer, entry, task

REDUCE = """
@triton.jit
def reduce_kernel(x_ptr, y_ptr, size, inner, BLOCK: tl.constexpr):
    outer = tl.program_id(1).to(tl.int64)
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    a = tl.full((BLOCK,), @START@, tl.float32)
    place = tl.zeros((BLOCK,), tl.int64)
    for s in range(0, size):
        x = tl.load(x_ptr + (outer * size + s) * inner + i, mask=i < inner, other=0.0)
@STEP@
    tl.store(y_ptr + outer * inner + i, @RESULT@, mask=i < inner)
"""
REDUCE_FORWARD = """
x = x.contiguous()
outer, size, inner = x.shape
y = torch.empty({shape}, device=x.device, dtype={dtype})
reduce_kernel[(triton.cdiv(inner, 128), outer)](x, y, size, inner, BLOCK=128)
return y
"""
CUBE = "batch_size = 128\ndim1 = 4096\ndim2 = 4095\nreduce_dim = 1"
"""8 GiB."""
SMALL_CUBE = {"batch_size": 2, "dim1": 70, "dim2": 131}
PLUS, LARGER, SMALLER = "a += x", "a = tl.maximum(a, x)", "a = tl.minimum(a, x)"
ARGUMENT = "place = tl.where(x {sign} a, s, place)\na = {choice}(a, x)"
FROM_ONE = ("for s in range(0, size)", "for s in range(1, size)")

REDUCTIONS = (
    # name, reference, start, step, result, keeps the dimension, how it is changed
    ("sum", "torch.sum(x, dim=self.dim, keepdim=True)", "0.0", PLUS, "a", True, FROM_ONE),
    ("mean", "torch.mean(x, dim=self.dim)", "0.0", PLUS, "a / size", False, ("a / size", "a / (size + 1)")),
    ("max", "torch.max(x, dim=self.dim)[0]", "float('-inf')", LARGER, "a", False, FROM_ONE),
    ("min", "torch.min(x, dim=self.dim).values", "float('inf')", SMALLER, "a", False, FROM_ONE),
    ("prod", "torch.prod(x, dim=self.dim)", "1.0", "a *= x", "a", False, FROM_ONE),
    (
        "argmax", "torch.argmax(x, dim=self.dim)", "float('-inf')",
        ARGUMENT.format(sign=">", choice="tl.maximum"), "place", False, FROM_ONE,
    ),
    (
        "argmin", "torch.argmin(x, dim=self.dim)", "float('inf')",
        ARGUMENT.format(sign="<", choice="tl.minimum"), "place", False, FROM_ONE,
    ),
)  # fmt: skip

POOL = """
@triton.jit
def pool_kernel(
    x_ptr, y_ptr, n, D, H, W, OD, OH, OW, stride, padding, dilation,
    KD: tl.constexpr, KH: tl.constexpr, KW: tl.constexpr, PAD_D: tl.constexpr, PAD_H: tl.constexpr, BLOCK: tl.constexpr,
):
    o = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    q = o % OW
    p = (o // OW) % OH
    d = (o // OW // OH) % OD
    plane = o // OW // OH // OD
    a = tl.full((BLOCK,), @START@, tl.float32)
    for kd in range(0, KD):
        z = d * stride * PAD_D + (1 - PAD_D) * d + kd * dilation - padding * PAD_D
        for kh in range(0, KH):
            y = p * stride * PAD_H + (1 - PAD_H) * p + kh * dilation - padding * PAD_H
            for kw in range(0, KW):
                x = q * stride + kw * dilation - padding
                inside = (o < n) & (z >= 0) & (z < D) & (y >= 0) & (y < H) & (x >= 0) & (x < W)
                value = tl.load(x_ptr + ((plane * D + z) * H + y) * W + x, mask=inside, other=@START@)
                a = @STEP@
    tl.store(y_ptr + o, @RESULT@, mask=o < n)
"""
POOL_FORWARD = """
x = x.contiguous()
k, stride, padding, dilation = self.window
dims = {dims}
out = [(size + 2 * padding - dilation * (k - 1) - 1) // stride + 1 for size in x.shape[2:]]
y = torch.empty((*x.shape[:2], *out), device=x.device, dtype=x.dtype)
D, H, W = (1,) * (3 - dims) + tuple(x.shape[2:])
OD, OH, OW = (1,) * (3 - dims) + tuple(out)
n = y.numel()
pool_kernel[(triton.cdiv(n, 256),)](
    x, y, n, D, H, W, OD, OH, OW, stride, padding, dilation,
    KD=k if dims == 3 else 1, KH=k if dims > 1 else 1, KW=k, PAD_D=int(dims == 3), PAD_H=int(dims > 1), BLOCK=256,
)
return y
"""
POOLS = (
    # name, dimensions, kernel size, stride, padding, dilation, channels and sizes, GiB of inputs and outputs
    ("max_pool1d", 1, 8, 1, 4, 3, ("64, 192", ("65536",)), 6.0),
    ("max_pool2d", 2, 4, 1, 1, 1, ("32, 64", ("512", "512")), 4.0),
    ("max_pool3d", 3, 3, 2, 1, 1, ("16, 32", ("128", "128", "256")), 9.0),
    ("average_pool1d", 1, 8, 4, 2, 1, ("128, 128", ("65536 * 2",)), 10.0),
    ("average_pool2d", 2, 11, 11, 0, 1, ("16, 64", ("2048", "2048")), 16.1),
    ("average_pool3d", 3, 3, 2, 1, 1, ("16, 32", ("128", "128", "256")), 9.0),
)

LOSS = """
@triton.jit
def loss_parts(a_ptr, b_ptr, part_ptr, n, width, BLOCK: tl.constexpr):
    i = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    a = tl.load(a_ptr + i, mask=i < n, other=0.0)
    b = tl.load(b_ptr + @SECOND@, mask=i < n, other=@OTHER@)
    value = @VALUE@
    tl.store(part_ptr + tl.program_id(0), tl.sum(tl.where(i < n, value, 0.0), axis=0))
"""
ROW_LOSS = """
@triton.jit
def loss_parts(a_ptr, b_ptr, part_ptr, width, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    a_ptr += row * width
@FIRST@
    for start in range(0, width, BLOCK):
        i = start + tl.arange(0, BLOCK)
        a = tl.load(a_ptr + i, mask=i < width, other=@OTHER@)
@GATHER@
    tl.store(part_ptr + row, @VALUE@)
"""
TOTAL = """


@triton.jit
def total_kernel(part_ptr, y_ptr, n, factor, BLOCK: tl.constexpr):
    a = tl.zeros((BLOCK,), tl.float32)
    for start in range(0, n, BLOCK):
        i = start + tl.arange(0, BLOCK)
        a += tl.load(part_ptr + i, mask=i < n, other=0.0)
    tl.store(y_ptr, tl.sum(a, axis=0) * factor)
"""
LOSS_FORWARD = """
a, b = a.contiguous(), b.contiguous()
n = a.numel()
blocks = triton.cdiv(n, 8192)
parts = torch.empty(blocks, device=a.device)
y = torch.empty((), device=a.device)
loss_parts[(blocks,)](a, b, parts, n, a.shape[1], BLOCK=8192, num_warps=8)
total_kernel[(1,)](parts, y, blocks, 1.0 / {count}, BLOCK=1024)
return y
"""
ROW_LOSS_FORWARD = """
a, b = a.contiguous(), b.contiguous()
rows = a.shape[0]
parts = torch.empty(rows, device=a.device)
y = torch.empty((), device=a.device)
loss_parts[(rows,)](a, b, parts, a.shape[1], BLOCK=1024)
total_kernel[(1,)](parts, y, rows, 1.0 / rows, BLOCK=1024)
return y
"""
CROSS_ENTROPY = {
    "first": """
    top = tl.full((BLOCK,), -1e30, tl.float32)
    total = tl.zeros((BLOCK,), tl.float32)
    target = tl.load(a_ptr + tl.load(b_ptr + row))""",
    "other": "-1e30",
    "gather": """
        larger = tl.maximum(top, a)
        total = total * tl.exp(top - larger) + tl.where(i < width, tl.exp(a - larger), 0.0)
        top = larger""",
    "value": "tl.max(top, 0) + tl.log(tl.sum(total * tl.exp(top - tl.max(top, 0)), 0)) - target",
}
INVERSE = """
@triton.jit
def inverse(square):
    return tl.rsqrt(tl.maximum(square, 1e-16))

"""
COSINE = {
    "first": """
    b_ptr += row * width
    ab = tl.zeros((BLOCK,), tl.float32)
    aa = tl.zeros((BLOCK,), tl.float32)
    bb = tl.zeros((BLOCK,), tl.float32)""",
    "other": "0.0",
    "gather": """
        b = tl.load(b_ptr + i, mask=i < width, other=0.0)
        ab += a * b
        aa += a * a
        bb += b * b""",
    "value": "1.0 - tl.sum(ab, 0) * inverse(tl.sum(aa, 0)) * inverse(tl.sum(bb, 0))",
}
PAIR = "batch_size = 32768\ninput_shape = (32768,)"
"""4 + 4 GiB."""
SMALL_PAIR = {"batch_size": 5, "input_shape": "(3001,)"}
PAIR_INPUTS = "torch.rand(batch_size, *input_shape), torch.rand(batch_size, *input_shape)"
APART_INPUTS = "torch.randn(batch_size, *input_shape), 0.5 * torch.randn(batch_size, *input_shape)"
CLASSES = "batch_size = 32768\nnum_classes = 4096"


def indented(lines: str) -> str:
    return "\n".join("        " + line for line in lines.splitlines())


def reductions() -> list[Entry]:
    made = []
    for name, reference, start, step, result, keeps, change in REDUCTIONS:
        inputs = "torch.randn(batch_size, dim1, dim2)"
        inputs = f"1.0 + 0.01 * {inputs}" if name == "prod" else inputs
        setup = "dim: int\nself.dim = dim"
        source = task(CUBE, reference, inputs, init="reduce_dim", setup=setup)
        shape, dtype = (
            "(outer, 1, inner)" if keeps else "(outer, inner)",
            "torch.int64" if result == "place" else "x.dtype",
        )
        forward = REDUCE_FORWARD.format(shape=shape, dtype=dtype)
        honest = answer(REDUCE, forward, setup=setup, start=start, step=indented(step), result=result)
        made.append(entry(f"{name}_over_a_dimension", 1, 8.0, source, honest, change, **SMALL_CUBE))
    return made


def pools() -> list[Entry]:
    made = []
    for name, dims, kernel, stride, padding, dilation, (planes, sizes), gib in POOLS:
        most = name.startswith("max")
        batch, channels = planes.split(", ")
        names = ("length",) if dims == 1 else ("dim1", "dim2", "dim3")[:dims]
        sized = "\n".join(f"{one} = {size}" for one, size in zip(names, sizes, strict=True))
        constants = f"batch_size = {batch}\nchannels = {channels}\n{sized}\n"
        constants += f"kernel_size = {kernel}\nstride = {stride}\npadding = {padding}" + (
            f"\ndilation = {dilation}" if most else ""
        )
        init = "kernel_size, stride, padding" + (", dilation" if most else "")
        if most:
            layer = f"self.pool = nn.MaxPool{dims}d(kernel_size, stride=stride, padding=padding, dilation=dilation)"
        else:
            layer = f"self.pool = nn.AvgPool{dims}d(kernel_size=kernel_size, stride=stride, padding=padding)"
        inputs = f"x = torch.randn(batch_size, channels, {', '.join(names)})\nreturn [x]"
        source = task(constants, "self.pool(x)", inputs, init=init, setup=f"{init}\n{layer}")
        window = f"self.window = (kernel_size, stride, padding, {'dilation' if most else 1})"
        words = {
            "start": 'float("-inf")' if most else "0.0",
            "step": "tl.maximum(a, value)" if most else "a + value",
            "result": "a" if most else "a / (KD * KH * KW)",
        }
        honest = answer(POOL, POOL_FORWARD.format(dims=dims), setup=f"{init}\n{window}", **words)
        small = {"batch_size": 2, "channels": 3} | {one: 25 + place for place, one in enumerate(names)}
        made.append(entry(name, 1, gib, source, honest, ("range(0, KW)", "range(0, KW - 1)"), **small))
    return made


def losses() -> list[Entry]:
    elements = (
        ("mse_loss", "torch.mean((a - b) ** 2)", APART_INPUTS, "(a - b) * (a - b)",
         ("1.0 / n", "1.01 / n")),
        (
            "huber_loss", "nn.functional.smooth_l1_loss(a, b)", APART_INPUTS,
            "tl.where(tl.abs(a - b) < 1.0, 0.5 * (a - b) * (a - b), tl.abs(a - b) - 0.5)", ("- 0.5)", "- 0.4)"),
        ),
        (
            "kl_divergence", "nn.functional.kl_div(torch.log(a), b, reduction='batchmean')",
            ", ".join(["torch.rand(batch_size, *input_shape).softmax(dim=-1)"] * 2),
            "b * (tl.log(b) - tl.log(tl.where(i < n, a, 1.0)))", ("b * (tl.log(b)", "b * (1.01 * tl.log(b)"),
        ),
    )  # fmt: skip
    made = []
    for name, reference, inputs, value, change in elements:
        source = task(PAIR, reference, inputs, arguments="a, b")
        forward = LOSS_FORWARD.format(count="a.shape[0]" if "batchmean" in reference else "n")
        other = "1.0" if "log" in value else "0.0"
        honest = answer(LOSS + TOTAL, forward, arguments="a, b", second="i", value=value, other=other)
        made.append(entry(name, 1, 8.0, source, honest, change, **SMALL_PAIR))
    inputs = "torch.randn(batch_size, *input_shape), torch.randint(0, 2, (batch_size, 1)).float() * 2 - 1"
    source = task(PAIR, "torch.mean(torch.clamp(1 - a * b, min=0))", inputs, arguments="a, b")
    value = "tl.maximum(1.0 - a * b, 0.0)"
    words = {"second": "i // width", "value": value, "other": "0.0"}
    honest = answer(LOSS + TOTAL, LOSS_FORWARD.format(count="n"), arguments="a, b", **words)
    made.append(entry("hinge_loss", 1, 4.0, source, honest, ("0.0)\n    tl.store", "0.1)\n    tl.store"), **SMALL_PAIR))
    inputs = "torch.randn(batch_size, num_classes), torch.randint(0, num_classes, (batch_size,))"
    source = task(CLASSES, "nn.functional.cross_entropy(a, b)", inputs, arguments="a, b")
    honest = answer(ROW_LOSS + TOTAL, ROW_LOSS_FORWARD, arguments="a, b", **CROSS_ENTROPY)
    small = {"batch_size": 5, "num_classes": 1500}
    made.append(entry("cross_entropy", 1, 0.5, source, honest, ("- target", "- 0.9 * target"), **small))
    reference = "cosine = nn.functional.cosine_similarity(a, b, dim=1)\nreturn torch.mean(1 - cosine)"
    source = task(PAIR, reference, PAIR_INPUTS, arguments="a, b")
    honest = answer(INVERSE + ROW_LOSS + TOTAL, ROW_LOSS_FORWARD, arguments="a, b", **COSINE)
    made.append(
        entry(
            "cosine_loss", 1, 8.0, source, honest, ("1.0 - tl.sum(ab, 0)", "1.0 - 0.98 * tl.sum(ab, 0)"), **SMALL_PAIR
        )
    )
    return made


ENTRIES = (*reductions(), *pools(), *losses())
