"""Tasks of one input and one output at the sizes that KernelBench publishes: element by element and by row."""

from __future__ import annotations

from published_parts import Entry, answer, entry, task

MAP = """
@triton.jit
def map_kernel(x_ptr, y_ptr, n, BLOCK: tl.constexpr):
    i = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + i, mask=i < n)
    y = @EXPRESSION@
    tl.store(y_ptr + i, y, mask=i < n)
"""
PRECISE = {  # helpers that are exact where exp(x) - 1 and log(1 + x) cancel
    "expm1": """
@triton.jit
def expm1(x):
    series = 1.0 + x * 0.125
    for k in tl.static_range(7, 1, -1):
        series = 1.0 + x * series / k
    return tl.where(x > -0.5, x * series, tl.exp(x) - 1.0)
""",
    "log1p": """
@triton.jit
def log1p(x):
    u = 1.0 + x
    exact = u == 1.0
    return tl.where(exact, x, tl.log(u) * (x / tl.where(exact, 1.0, u - 1.0)))
""",
}
MAP_FORWARD = """
x = x.contiguous()
y = torch.empty_like(x)
map_kernel[(triton.cdiv(x.numel(), 2048),)](x, y, x.numel(), BLOCK=2048)
return y
"""

ELEMENTS = (
    # name, reference, Triton, what is changed
    ("relu", "torch.relu(x)", "tl.maximum(x, 0.0)", ("0.0)", "-0.1)")),
    (
        "leaky_relu",
        "nn.functional.leaky_relu(x, negative_slope=0.01)",
        "tl.where(x > 0.0, x, 0.01 * x)",
        ("0.01", "0.1"),
    ),
    ("sigmoid", "torch.sigmoid(x)", "tl.sigmoid(x)", ("tl.sigmoid(x)", "tl.sigmoid(1.01 * x)")),
    ("swish", "x * torch.sigmoid(x)", "x * tl.sigmoid(x)", ("tl.sigmoid(x)", "tl.sigmoid(1.02 * x)")),
    (
        "tanh",
        "torch.tanh(x)",
        "tl.where(tl.abs(x) < 0.2, x * (1.0 - x * x * (0.33333333 - x * x * (0.13333333 - x * x * 0.053968254))), "
        "tl.where(x < 0.0, -1.0, 1.0) * (1.0 - 2.0 / (1.0 + tl.exp(2.0 * tl.abs(x)))))",
        ("exp(2.0 *", "exp(2.02 *"),
    ),
    (
        "hardtanh",
        "nn.functional.hardtanh(x, min_val=-1.0, max_val=1.0)",
        "tl.minimum(tl.maximum(x, -1.0), 1.0)",
        ("-1.0)", "-1.1)"),
    ),
    (
        "elu",
        "nn.functional.elu(x, alpha=1.0)",
        "tl.where(x > 0.0, x, expm1(tl.minimum(x, 0.0)))",
        ("expm1(tl", "1.01 * expm1(tl"),
    ),
    (
        "selu",
        "torch.selu(x)",
        "1.0507009873554805 * tl.where(x > 0.0, x, 1.6732632423543772 * expm1(tl.minimum(x, 0.0)))",
        ("1.6732632423543772", "1.5"),
    ),
    (
        "softplus",
        "nn.functional.softplus(x)",
        "tl.maximum(x, 0.0) + log1p(tl.exp(-tl.abs(x)))",
        ("+ log1p", "+ 0.99 * log1p"),
    ),
    ("softsign", "x / (1 + torch.abs(x))", "x / (1.0 + tl.abs(x))", ("(1.0 +", "(1.01 +")),
    (
        "gelu",
        "nn.functional.gelu(x)",
        "0.5 * x * (1.0 + tl.math.erf(x * 0.7071067811865476))",
        ("0.7071067811865476", "0.72"),
    ),
    (
        "gelu_by_hand",
        "0.5 * x * (1.0 + torch.tanh(math.sqrt(2.0 / math.pi) * (x + 0.044715 * torch.pow(x, 3.0))))",
        "x * tl.sigmoid(1.5957691216057308 * (x + 0.044715 * x * x * x))",
        ("0.044715", "0.05"),
    ),
)

ROWS = """
@triton.jit
def row_kernel(x_ptr, y_ptr, length, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    x_ptr += row * length
    y_ptr += row * length
    a = tl.full((BLOCK,), @START@, tl.float32)
    b = tl.zeros((BLOCK,), tl.float32)
    for start in range(0, length, BLOCK):
        i = start + tl.arange(0, BLOCK)
        x = tl.load(x_ptr + i, mask=i < length, other=@OTHER@)
@GATHER@
@FINISH@
    for start in range(0, length, BLOCK):
        i = start + tl.arange(0, BLOCK)
        x = tl.load(x_ptr + i, mask=i < length, other=0.0)
        tl.store(y_ptr + i, @APPLY@, mask=i < length)
"""
ROWS_FORWARD = """
x = x.contiguous()
y = torch.empty_like(x)
row_kernel[({rows},)](x, y, x.numel() // ({rows}), BLOCK=2048, num_warps=8)
return y
"""

SOFTMAX = {
    "start": "-1e30",
    "other": "-1e30",
    "gather": """
        larger = tl.maximum(a, x)
        b = b * tl.exp(a - larger) + tl.where(i < length, tl.exp(x - larger), 0.0)
        a = larger""",
    "finish": """
    top = tl.max(a, axis=0)
    total = tl.sum(b * tl.exp(a - top), axis=0)""",
}
MOMENTS = {
    "start": "0.0",
    "other": "0.0",
    "gather": "        a += x",
    "finish": """
    mean = tl.sum(a, axis=0) / length
    for start in range(0, length, BLOCK):
        i = start + tl.arange(0, BLOCK)
        x = tl.where(i < length, tl.load(x_ptr + i, mask=i < length, other=0.0) - mean, 0.0)
        b += x * x
    scale = tl.rsqrt(tl.sum(b, axis=0) / length + 1e-5)""",
    "apply": "(x - mean) * scale",
}
L1 = {
    "start": "0.0",
    "other": "0.0",
    "gather": "        a += tl.abs(x)",
    "finish": "    scale = length / tl.sum(a, axis=0)",
    "apply": "x * scale",
}
L2 = {
    "start": "0.0",
    "other": "0.0",
    "gather": "        a += x * x",
    "finish": "    scale = tl.rsqrt(tl.sum(a, axis=0))",
    "apply": "x * scale",
}

WIDE = "batch_size = 32768\ndim = 65535"
"""8 + 8 GiB."""
SMALL_WIDE = {"batch_size": 3, "dim": 4101}
PLANES = "batch_size = 112\nfeatures = 64\ndim1 = 512\ndim2 = 512"
"""7 + 7 GiB."""
SMALL_PLANES = {"batch_size": 2, "features": 8, "dim1": 7, "dim2": 9}
PLANE_INPUTS = "torch.randn(batch_size, features, dim1, dim2)"

CHANNEL_RMS = """
@triton.jit
def channel_rms(x_ptr, y_ptr, channels, inner, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    base = tl.program_id(1).to(tl.int64) * channels * inner
    total = tl.zeros((BLOCK,), tl.float32)
    for c in range(0, channels):
        x = tl.load(x_ptr + base + c * inner + i, mask=i < inner, other=0.0)
        total += x * x
    scale = tl.rsqrt(total / channels + 1e-5)
    for c in range(0, channels):
        x = tl.load(x_ptr + base + c * inner + i, mask=i < inner, other=0.0)
        tl.store(y_ptr + base + c * inner + i, x * scale, mask=i < inner)
"""
CHANNEL_RMS_FORWARD = """
x = x.contiguous()
y = torch.empty_like(x)
inner = x[0, 0].numel()
channel_rms[(triton.cdiv(inner, 256), x.shape[0])](x, y, x.shape[1], inner, BLOCK=256)
return y
"""

PARTS = """
@triton.jit
def part_sums(x_ptr, part_ptr, length, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    a = tl.zeros((BLOCK,), tl.float32)
    b = tl.zeros((BLOCK,), tl.float32)
    for start in range(0, length, BLOCK):
        i = start + tl.arange(0, BLOCK)
        x = tl.load(x_ptr + row * length + i, mask=i < length, other=0.0)
        a += x
        b += x * x
    tl.store(part_ptr + row * 2, tl.sum(a, axis=0))
    tl.store(part_ptr + row * 2 + 1, tl.sum(b, axis=0))
"""
FROBENIUS = (
    PARTS
    + """

@triton.jit
def scale_by_norm(x_ptr, norm_ptr, y_ptr, n, BLOCK: tl.constexpr):
    i = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + i, mask=i < n)
    tl.store(y_ptr + i, x / tl.load(norm_ptr), mask=i < n)
"""
)
FROBENIUS_FORWARD = """
x = x.contiguous()
y = torch.empty_like(x)
rows = x.shape[0] * x.shape[1]
parts = torch.empty(rows, 2, device=x.device)
part_sums[(rows,)](x, parts, x.numel() // rows, BLOCK=1024)
norm = parts[:, 1].sum().sqrt()
scale_by_norm[(triton.cdiv(x.numel(), 2048),)](x, norm, y, x.numel(), BLOCK=2048)
return y
"""
BATCH_NORM = (
    PARTS
    + """

@triton.jit
def normalise(x_ptr, mean_ptr, var_ptr, y_ptr, channels, plane, eps, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    mean = tl.load(mean_ptr + row % channels)
    scale = tl.rsqrt(tl.load(var_ptr + row % channels) + eps)
    for start in range(0, plane, BLOCK):
        i = start + tl.arange(0, BLOCK)
        x = tl.load(x_ptr + row * plane + i, mask=i < plane)
        tl.store(y_ptr + row * plane + i, (x - mean) * scale, mask=i < plane)
"""
)
BATCH_NORM_FORWARD = """
x = x.contiguous()
y = torch.empty_like(x)
n, c, plane = x.shape[0], x.shape[1], x[0, 0].numel()
mean, var = self.bn.running_mean, self.bn.running_var
if self.bn.training:
    parts = torch.empty(n, c, 2, device=x.device)
    part_sums[(n * c,)](x, parts, plane, BLOCK=1024)
    mean, square = (parts.double().sum(0) / (n * plane)).unbind(1)
    var = square - mean * mean
    self.bn.running_mean.lerp_(mean.float(), 0.1)
    self.bn.running_var.lerp_((var * (n * plane / (n * plane - 1))).float(), 0.1)
    self.bn.num_batches_tracked.add_(1)
    mean, var = mean.float().contiguous(), var.float().contiguous()
normalise[(n * c,)](x, mean, var, y, c, plane, self.bn.eps, BLOCK=1024)
return y
"""


def elements() -> list[Entry]:
    made = []
    for name, reference, triton, change in ELEMENTS:
        source = task("batch_size = 4096\ndim = 393216", reference, "torch.randn(batch_size, dim)")
        if "math." in reference:
            source = f"import math\n\n{source}"
        helpers = "".join(f"{text}\n" for helper, text in PRECISE.items() if f"{helper}(" in triton)
        honest = answer(helpers + MAP, MAP_FORWARD, expression=triton)
        made.append(entry(name, 1, 12.0, source, honest, change, batch_size=3, dim=1111))
    return made


def rows() -> list[Entry]:
    log_softmax = SOFTMAX | {"apply": "x - top - tl.log(total)"}
    softmax = SOFTMAX | {"apply": "tl.exp(x - top) / total"}
    table = (
        ("softmax", "torch.softmax(x, dim=1)", softmax, ("/ total", "/ (total + 1.0)")),
        ("log_softmax", "nn.functional.log_softmax(x, dim=-1)", log_softmax, ("- tl.log", "- 0.999 * tl.log")),
        ("layer_norm", "nn.functional.layer_norm(x, (x.shape[-1],))", MOMENTS, ("(x - mean) * scale", "x * scale")),
        (
            "l1_norm",
            "x / torch.mean(torch.abs(x), dim=1, keepdim=True)",
            L1,
            ("length / tl.sum", "1.01 * length / tl.sum"),
        ),
        ("l2_norm", "x / torch.norm(x, p=2, dim=1, keepdim=True)", L2, ("a += x * x", "a += tl.abs(x)")),
    )
    made = []
    for name, reference, words, change in table:
        shift = " + 0.5" if name == "layer_norm" else ""
        source = task(WIDE, reference, f"torch.randn(batch_size, dim){shift}")
        honest = answer(ROWS, ROWS_FORWARD.format(rows="x.shape[0]"), **words)
        made.append(entry(name, 1, 16.0, source, honest, change, **SMALL_WIDE))
    return made


def norms() -> list[Entry]:
    instance = task(
        PLANES, "self.norm(x)", PLANE_INPUTS + " * 2.0 + 0.5", init="features",
        setup="num_features: int\nself.norm = nn.InstanceNorm2d(num_features=num_features)",
    )  # fmt: skip
    group = task(
        PLANES + "\nnum_groups = 8", "self.gn(x)", PLANE_INPUTS + " + 0.5", init="features, num_groups",
        setup="num_features, num_groups\n"
        "self.gn = nn.GroupNorm(num_groups=num_groups, num_channels=num_features, affine=False)",
    )  # fmt: skip
    rms = task(
        PLANES, "rms = torch.sqrt(torch.mean(x ** 2, dim=1, keepdim=True) + self.eps)\nreturn x / rms", PLANE_INPUTS,
        init="features", setup="num_features, eps=1e-5\nself.num_features = num_features\nself.eps = eps",
    )  # fmt: skip
    batch = task(
        PLANES, "self.bn(x)", PLANE_INPUTS + " + 0.5", init="features",
        setup="num_features\nself.bn = nn.BatchNorm2d(num_features, affine=False)",
    )  # fmt: skip
    frobenius = task(PLANES, "norm = torch.norm(x, p='fro')\nreturn x / norm", PLANE_INPUTS)
    moments = ROWS_FORWARD.format(rows="x.shape[0] * x.shape[1]")
    groups = ROWS_FORWARD.format(rows="x.shape[0] * self.groups")
    answers = (
        ("instance_norm", instance, answer(ROWS, moments, setup="features\nself.features = features", **MOMENTS)),
        ("group_norm", group, answer(ROWS, groups, setup="features, groups\nself.groups = groups", **MOMENTS)),
        ("channel_rms_norm", rms, answer(CHANNEL_RMS, CHANNEL_RMS_FORWARD, setup="features\nself.features = features")),
        (
            "batch_norm",
            batch,
            answer(BATCH_NORM, BATCH_NORM_FORWARD, setup="c\nself.bn = nn.BatchNorm2d(c, affine=False)"),
        ),
        ("frobenius_norm", frobenius, answer(FROBENIUS, FROBENIUS_FORWARD)),
    )
    changes = {
        "channel_rms_norm": ("total / channels", "total / (channels + 1)"),
        "frobenius_norm": (".sum().sqrt()", "[1:].sum().sqrt() * 1.001"),
    }
    made = []
    for name, source, honest in answers:
        change = changes.get(name, ("(x - mean) * scale", "x * scale"))
        small = SMALL_PLANES | ({"num_groups": 4} if name == "group_norm" else {})
        made.append(entry(name, 1, 14.0, source, honest, change, **small))
    return made


ENTRIES = (*elements(), *rows(), *norms())
