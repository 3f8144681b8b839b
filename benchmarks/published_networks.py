"""Chains around a convolution or a product, recurrent networks and attention, at the sizes that KernelBench publishes.

The answers leave products and convolutions to the library and do the rest in one Triton pass.
"""

from __future__ import annotations

from typing import Any

from published_parts import Entry, answer, entry, task

EPILOGUE = """
@triton.jit
def epilogue(x_ptr, b_ptr, y_ptr, n, channels, plane, BLOCK: tl.constexpr):
    i = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + i, mask=i < n)
    b = @BIAS@
    tl.store(y_ptr + i, @EXPRESSION@, mask=i < n)
"""
EPILOGUE_FORWARD = """
x = self.{layer}(x).contiguous()
y = torch.empty_like(x)
n, plane = x.numel(), x[0, 0].numel()
epilogue[(triton.cdiv(n, 1024),)](x, {bias}, y, n, x.shape[1], plane, BLOCK=1024)
return y
"""
BIAS = "tl.load(b_ptr + i // plane % channels, mask=i < n)"

LINEAR = (
    "in_features, out_features",
    "self.linear = nn.Linear(in_features, out_features)",
    "torch.randn(batch_size, in_features)",
)
CONV = (
    "in_channels, out_channels, kernel_size",
    "self.conv = nn.Conv2d(in_channels, out_channels, kernel_size)",
    "torch.randn(batch_size, in_channels, height, width)",
)
CONV3 = (CONV[0], CONV[1].replace("2d", "3d"), "torch.randn(batch_size, in_channels, depth, height, width)")
UP = (CONV[0], "self.conv = nn.ConvTranspose2d(in_channels, out_channels, kernel_size, stride=2, padding=1)", CONV[2])
SMALL_LINEAR = {"batch_size": 5, "in_features": 33, "out_features": 70}
BIASED = "\nself.bias = nn.Parameter(torch.randn(out_channels, 1, 1))"
EIGHT = "batch_size = 1024\nin_features = 8192\nout_features = 8192"
IMAGES = "batch_size = 128\nin_channels = 64\nout_channels = 128\nheight = width = 128\nkernel_size = 3"
PLANES = "batch_size = 64\nin_channels = 32\nout_channels = 64\nheight, width = 256, 256\nkernel_size = 3"

CHAINS: tuple[tuple[Any, ...], ...] = (
    # name, GiB, constants, layer, further parameters, reference behind the layer, Triton, what is changed, small sizes
    (
        "linear_scale_gelu", 0.0625, EIGHT, LINEAR, "", "nn.functional.gelu(x * 0.5)",
        "0.25 * x * (1.0 + tl.math.erf(x * 0.35355339059327373))", ("0.25", "0.26"), SMALL_LINEAR,
    ),
    (
        "linear_four_gib_of_weights", 0.03125, "batch_size = 128\nin_features = 32768\nout_features = 32768",
        LINEAR, "", "x * torch.sigmoid(x) * 2.0",
        "x * tl.sigmoid(x) * 2.0", ("* 2.0, mask", "* 1.98, mask"), SMALL_LINEAR,
    ),
    (
        "linear_subtract_mish", 0.0625, EIGHT, LINEAR, "", "nn.functional.mish((x - 0.2) * 3.0)",
        "(x - 0.2) * 3.0 * (1.0 - 2.0 / (1.0 + (1.0 + tl.exp(tl.minimum((x - 0.2) * 3.0, 30.0))) * "
        "(1.0 + tl.exp(tl.minimum((x - 0.2) * 3.0, 30.0)))))", ("0.2", "0.21"), SMALL_LINEAR,
    ),
    (
        "conv2d_relu_bias", 1.469, IMAGES, CONV, BIASED, "torch.relu(x) + self.bias", "tl.maximum(x, 0.0) + b",
        ("0.0)", "-0.01)"), {},
    ),
    (
        "conv2d_hardswish_relu", 1.5, PLANES, CONV, "", "torch.relu(nn.functional.hardswish(x))",
        "tl.maximum(x, 0.0) * tl.minimum(x + 3.0, 6.0) / 6.0", ("/ 6.0", "/ 6.1"), {},
    ),
    (
        "conv2d_tanh_scale_bias", 1.5, PLANES, CONV, BIASED, "torch.tanh(x) * 2.0 + self.bias",
        "(2.0 * tl.sigmoid(2.0 * x) - 1.0) * 2.0 + b", ("+ b", "+ 0.98 * b"), {},
    ),
    (
        "conv3d_scale_sigmoid", 0.5,
        "batch_size = 128\nin_channels = 3\nout_channels = 16\ndepth, height, width = 16, 64, 64\nkernel_size = 3",
        CONV3, BIASED.replace("1, 1)", "1, 1, 1)"), "torch.sigmoid(torch.tanh(x * 2.0) * self.bias)",
        "tl.sigmoid((2.0 * tl.sigmoid(4.0 * x) - 1.0) * b)", ("4.0 * x", "3.9 * x"), {},
    ),
    (
        "transposed_conv2d_bias_clamp", 0.6172,
        "batch_size = 128\nin_channels = 64\nout_channels = 64\nheight = width = 64\nkernel_size = 3", UP, BIASED,
        "torch.clamp(torch.clamp(x + self.bias, min=0.0, max=1.0) * 2.0, min=0.0, max=1.0) / 2.0",
        "tl.minimum(tl.minimum(tl.maximum(x + b, 0.0), 1.0) * 2.0, 1.0) / 2.0", ("/ 2.0", "/ 1.9"), {},
    ),
)  # fmt: skip

ROW_SUM = """
@triton.jit
def sigmoid_sum(x_ptr, y_ptr, width, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    total = tl.zeros((BLOCK,), tl.float32)
    for start in range(0, width, BLOCK):
        i = start + tl.arange(0, BLOCK)
        x = tl.load(x_ptr + row * width + i, mask=i < width)
        total += tl.where(i < width, tl.sigmoid(x), 0.0)
    tl.store(y_ptr + row, tl.sum(total, axis=0))
"""
ROW_SUM_FORWARD = """
x = self.linear(x)
y = torch.empty((x.shape[0], 1), device=x.device)
sigmoid_sum[(x.shape[0],)](x, y, x.shape[1], BLOCK=1024)
return y
"""
GROUPS = """
@triton.jit
def group_norm_leaky(x_ptr, w_ptr, b_ptr, y_ptr, groups, size, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    i = tl.arange(0, BLOCK)
    x = tl.load(x_ptr + row * size + i, mask=i < size, other=0.0)
    x = tl.where(i < size, x - tl.sum(x, axis=0) / size, 0.0)
    x = x * tl.rsqrt(tl.sum(x * x, axis=0) / size + 1e-5)
    place = row % groups * size + i
    x = x * tl.load(w_ptr + place, mask=i < size) + tl.load(b_ptr + place, mask=i < size)
    tl.store(y_ptr + row * size + i, tl.where(x > 0.0, x, 0.01 * x), mask=i < size)
"""
GROUPS_FORWARD = """
x = self.linear(x)
y = torch.empty_like(x)
groups = self.norm.num_groups
size = x.shape[1] // groups
block = triton.next_power_of_2(size)
group_norm_leaky[(x.shape[0] * groups,)](x, self.norm.weight, self.norm.bias, y, groups, size, BLOCK=block)
return y
"""
CHANNEL_MIN = """
@triton.jit
def channel_min(x_ptr, y_ptr, channels, plane, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    image = tl.program_id(1).to(tl.int64)
    a = tl.full((BLOCK,), float("inf"), tl.float32)
    for c in range(0, channels):
        a = tl.minimum(a, tl.load(x_ptr + (image * channels + c) * plane + i, mask=i < plane, other=0.0))
    tl.store(y_ptr + image * plane + i, 2.0 * tl.sigmoid(2.0 * a) - 1.0, mask=i < plane)
"""
CHANNEL_MIN_FORWARD = """
x = self.conv(x).contiguous()
n, channels, height, width = x.shape
y = torch.empty((n, 1, height, width), device=x.device)
channel_min[(triton.cdiv(height * width, 128), n)](x, y, channels, height * width, BLOCK=128)
return y
"""

RNN = """
@triton.jit
def step_kernel(a_ptr, b_ptr, out_ptr, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(a_ptr + i, mask=i < n) + tl.load(b_ptr + i, mask=i < n)
    tl.store(out_ptr + i, 2.0 * tl.sigmoid(2.0 * x) - 1.0, mask=i < n)
"""
RNN_SETUP = """input_size, hidden_size
self.hidden_size = hidden_size
self.inner = nn.Linear(input_size, hidden_size)
self.recurrent = nn.Linear(hidden_size, hidden_size, bias=False)
"""
RNN_REFERENCE = """
h = torch.zeros(x.size(1), self.hidden_size, device=x.device)
outputs = []
for t in range(x.size(0)):
    h = torch.tanh(self.inner(x[t]) + self.recurrent(h))
    outputs.append(h)
return torch.stack(outputs, dim=0)
"""
RNN_FORWARD = """
steps = self.inner(x)
y = torch.empty_like(steps)
h = torch.zeros_like(steps[0])
n = h.numel()
for t in range(x.shape[0]):
    step_kernel[(triton.cdiv(n, 256),)](steps[t], self.recurrent(h), y[t], n, BLOCK=256)
    h = y[t]
return y
"""
GRU = """
@triton.jit
def gate_kernel(a_ptr, b_ptr, h_ptr, out_ptr, n, width, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = i < n
    place = i // width * 3 * width + i % width
    r = tl.sigmoid(tl.load(a_ptr + place, mask=mask) + tl.load(b_ptr + place, mask=mask))
    z = tl.sigmoid(tl.load(a_ptr + place + width, mask=mask) + tl.load(b_ptr + place + width, mask=mask))
    c = tl.load(a_ptr + place + 2 * width, mask=mask) + r * tl.load(b_ptr + place + 2 * width, mask=mask)
    c = 2.0 * tl.sigmoid(2.0 * c) - 1.0
    tl.store(out_ptr + i, (1.0 - z) * c + z * tl.load(h_ptr + i, mask=mask), mask=mask)
"""
GRU_SETUP = RNN_SETUP.replace("size, hidden_size)\nself.rec", "size, 3 * hidden_size)\nself.rec").replace(
    "hidden_size, bias", "3 * hidden_size, bias"
)
GRU_REFERENCE = """
h = h0
for t in range(x.size(0)):
    a_r, a_z, a_c = self.inner(x[t]).chunk(3, dim=1)
    b_r, b_z, b_c = self.recurrent(h).chunk(3, dim=1)
    z = torch.sigmoid(a_z + b_z)
    h = (1 - z) * torch.tanh(a_c + torch.sigmoid(a_r + b_r) * b_c) + z * h
return h
"""
GRU_FORWARD = """
steps = self.inner(x)
h = h0.contiguous()
n = h.numel()
for t in range(x.shape[0]):
    new = torch.empty_like(h)
    gate_kernel[(triton.cdiv(n, 256),)](steps[t], self.recurrent(h), h, new, n, h.shape[1], BLOCK=256)
    h = new
return h
"""

SCORES = """
@triton.jit
def softmax_rows(x_ptr, y_ptr, length, factor, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    i = tl.arange(0, BLOCK)
    x = tl.load(x_ptr + row * length + i, mask=i < length, other=float("-inf")) * factor
    x = @MASKED@
    e = tl.exp(x - tl.max(x, axis=0))
    tl.store(y_ptr + row * length + i, e / tl.sum(e, axis=0), mask=i < length)
"""
SOFTMAX = """
scores = torch.matmul(q, k.transpose(-2, -1))
weights = torch.empty_like(scores)
length = scores.shape[-1]
rows = scores.numel() // length
factor = q.shape[-1] ** -0.5
softmax_rows[(rows,)](scores, weights, length, factor, BLOCK=triton.next_power_of_2(length))
"""
CAUSAL_SETUP = """n_embd, n_head
self.c_attn = nn.Linear(n_embd, 3 * n_embd)
self.c_proj = nn.Linear(n_embd, n_embd)
self.n_head = n_head
"""
HEADS = """
B, T, C = x.size()
q, k, v = (part.view(B, T, self.n_head, C // self.n_head).transpose(1, 2) for part in self.c_attn(x).split(C, dim=2))
"""
CAUSAL_REFERENCE = (
    HEADS
    + """
att = (q @ k.transpose(-2, -1)) * (1.0 / math.sqrt(k.size(-1)))
mask = torch.tril(torch.ones(T, T, device=x.device)).view(1, 1, T, T)
att = torch.softmax(att.masked_fill(mask == 0, float("-inf")), dim=-1)
return self.c_proj((att @ v).transpose(1, 2).contiguous().view(B, T, C))
"""
)


def chains() -> list[Entry]:
    made = []
    for name, gib, constants, (parameters, layer, inputs), further, tail, triton, change, small in CHAINS:
        attribute = layer[5:].partition(" =")[0]
        setup = f"{parameters}\n{layer}{further}"
        source = task(constants, f"x = self.{attribute}(x)\nreturn {tail}", inputs, init=parameters, setup=setup)
        forward = EPILOGUE_FORWARD.format(layer=attribute, bias="self.bias" if further else "x")
        honest = answer(EPILOGUE, forward, setup=setup, bias=BIAS if further else "0.0", expression=triton)
        made.append(entry(name, 2, gib, source, honest, change, **(small or small_images(constants))))
    return made


def small_images(constants: str) -> dict[str, object]:
    """Small sizes of a chain around a convolution, however its file writes height and width."""
    first = {"batch_size": 2, "in_channels": 3, "out_channels": 6}
    for names, value in (("depth, height, width", "5, 9, 11"), ("height, width", "9, 11"), ("height", "width = 9")):
        if f"{names} = " in constants:
            return first | {names: value}
    raise ValueError(constants)


def reducing_chains() -> list[Entry]:
    setup = f"{LINEAR[0]}\n{LINEAR[1]}"
    reference = "x = torch.sigmoid(self.linear(x))\nreturn torch.sum(x, dim=1, keepdim=True)"
    made = [
        entry(
            "linear_sigmoid_sum", 2, 0.03125, task(EIGHT, reference, LINEAR[2], init=LINEAR[0], setup=setup),
            answer(ROW_SUM, ROW_SUM_FORWARD, setup=setup), ("tl.sigmoid(x)", "tl.sigmoid(1.1 * x)"), **SMALL_LINEAR,
        )
    ]  # fmt: skip
    init = "in_features, out_features, num_groups"
    setup = f"{init}\n{LINEAR[1]}\nself.norm = nn.GroupNorm(num_groups, out_features)"
    reference = "nn.functional.leaky_relu(self.norm(self.linear(x)), 0.01)"
    made.append(
        entry(
            "linear_group_norm", 2, 0.0625,
            task(f"{EIGHT}\nnum_groups = 512", reference, LINEAR[2], init=init, setup=setup),
            answer(GROUPS, GROUPS_FORWARD, setup=setup), ("0.01 * x", "0.05 * x"), **SMALL_LINEAR | {"num_groups": 7},
        )
    )  # fmt: skip
    setup = f"{CONV[0]}\n{CONV[1]}"
    reference = "x = torch.min(self.conv(x), dim=1, keepdim=True)[0]\nreturn torch.tanh(x)"
    made.append(
        entry(
            "conv2d_min_tanh", 2, 0.52, task(PLANES, reference, CONV[2], init=CONV[0], setup=setup),
            answer(CHANNEL_MIN, CHANNEL_MIN_FORWARD, setup=setup), ("range(0, channels)", "range(1, channels)"),
            **small_images(PLANES),
        )
    )  # fmt: skip
    return made


def networks() -> list[Entry]:
    sizes = "batch_size = 8\ninput_size = 1024\nhidden_size = 256\nsequence_length = 256"
    small = {"batch_size": 3, "input_size": 20, "hidden_size": 17, "sequence_length": 9}
    inputs, init = "torch.randn(sequence_length, batch_size, input_size)", "input_size, hidden_size"
    recurrent = entry(
        "recurrent_network", 3, 0.009766, task(sizes, RNN_REFERENCE, inputs, init=init, setup=RNN_SETUP),
        answer(RNN, RNN_FORWARD, setup=RNN_SETUP), ("h = y[t]", "h = 0.95 * y[t]"), **small,
    )  # fmt: skip
    inputs += ", torch.randn(batch_size, hidden_size)"
    source = task(
        sizes.replace("= 256\ns", "= 512\ns"), GRU_REFERENCE, inputs, init=init, setup=GRU_SETUP, arguments="x, h0"
    )
    gated = entry(
        "gated_recurrent_network", 3, 0.007843, source, answer(GRU, GRU_FORWARD, setup=GRU_SETUP, arguments="x, h0"),
        ("(1.0 - z) * c", "(1.01 - z) * c"), **small,
    )  # fmt: skip
    return [recurrent, gated, *attention()]


def attention() -> list[Entry]:
    sizes = "batch_size = 32\nnum_heads = 32\nsequence_length = 512\nembedding_dimension = 1024"
    one = "torch.randn(batch_size, num_heads, sequence_length, embedding_dimension)"
    reference = "nn.functional.scaled_dot_product_attention(q, k, v)"
    plain = entry(
        "attention", 1, 8.0, task(sizes, reference, ", ".join([one] * 3), arguments="q, k, v"),
        answer(SCORES, SOFTMAX + "return torch.matmul(weights, v)", arguments="q, k, v", masked="x"),
        ("-0.5", "-0.49"), batch_size=2, num_heads=2, sequence_length=19, embedding_dimension=33,
    )  # fmt: skip
    sizes = "batch_size = 128\nmax_seqlen = 512\nn_embd = 768\nn_head = 8"
    inputs = "torch.randn(batch_size, max_seqlen, n_embd)"
    source = task(sizes, CAUSAL_REFERENCE, inputs, init="n_embd, n_head", setup=CAUSAL_SETUP)
    output = "return self.c_proj((weights @ v).transpose(1, 2).contiguous().view(B, T, C))"
    masked = 'tl.where(i <= row % length, x, float("-inf"))'
    causal = entry(
        "causal_attention_block", 3, 0.375, f"import math\n\n{source}",
        answer(SCORES, HEADS + SOFTMAX + output, setup=CAUSAL_SETUP, masked=masked), ("i <= row", "i <= 1 + row"),
        batch_size=2, max_seqlen=19, n_embd=24, n_head=4,
    )  # fmt: skip
    return [plain, causal]


ENTRIES = (*chains(), *reducing_chains(), *networks())
