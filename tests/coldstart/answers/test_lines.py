"""Answers from a task's lines: which one kernel computes, how it goes through its tensors, and that it is right."""

import pytest

from drkernel.coldstart.answers.lines import by_lines
from drkernel.judge import Judge
from drkernel.tasks import generate
from tests.coldstart.answers.written import IMAGES, ROWS, TABLE, answer, task


def test_a_kernel_has_the_lines_of_the_reference():
    """From their operands to the value that something else needs, in their order and under their names; it says them
    before."""
    found = answer(task("return torch.softmax(F.relu(torch.roll(x, 1, 0)) + y, dim=-1)", TABLE))
    assert found == (
        "'t1 = F.relu(t0); t2 = t1 + in1; t3 = F.softmax(t2, dim=1)'\n"
        "@triton.jit\n"
        "def kernel1(t0_ptr, in1_ptr, o_ptr, N, BLOCK: tl.constexpr):\n"
        "    row = tl.program_id(0)\n"
        "    j = tl.arange(0, BLOCK)\n"
        "    m = j < N\n"
        "    i = row * N + j\n"
        "    t0 = tl.load(t0_ptr + i, mask=m)\n"
        "    in1 = tl.load(in1_ptr + i, mask=m)\n"
        "    t1 = tl.maximum(t0, 0.0)\n"
        "    t2 = t1 + in1\n"
        "    u3 = tl.max(tl.where(m, t2, float('-inf')), 0)\n"
        "    w3 = tl.exp(t2 - u3)\n"
        "    v3 = tl.sum(tl.where(m, w3, 0.0), 0)\n"
        "    t3 = w3 / v3\n"
        "    tl.store(o_ptr + i, t3, mask=m)\n"
        "def f1(t0, in1):\n"
        "    t0 = t0.contiguous()\n"
        "    in1 = in1.contiguous()\n"
        "    o = torch.empty_like(t0)\n"
        "    N = t0.shape[1]\n"
        "    kernel1[t0.numel() // N,](t0, in1, o, N, BLOCK=triton.next_power_of_2(N), num_warps=8)\n"
        "    return o\n"
        "def forward(self, in0, in1):\n"
        "    t3 = f1(t0, in1)\n"
        "    return t3\n"
    )


def test_a_value_that_something_else_needs_ends_a_kernel():
    found = answer(task("x = F.relu(x)\n        y = torch.tanh(x)\n        return torch.stack((x, y))", TABLE))
    assert "t0 = f1(in0)" in found and "t1 = f2(t0)" in found


def test_a_value_that_only_the_kernel_needs_twice_does_not():
    found = answer(task("x = x - x.amax(-1, keepdim=True)\n        return x * torch.sigmoid(x)", TABLE))
    assert "    t3 = f1(in0)\n    return t3\n" in found


def test_the_same_lines_elsewhere_share_a_kernel():
    forward = "x = F.silu(self.a(x)) * y\n        return F.silu(self.b(x)) * y"
    twice = task(forward, TABLE, "nn.Linear(4096, 4096)", "nn.Linear(4096, 4096)")
    assert answer(twice).count("@triton.jit") == answer(twice).count("= f1(") == 1
    assert "t2 = f1(in0, in1, self.a.weight, self.a.bias)" in by_lines(twice)
    assert "t5 = f1(t2, in1, self.b.weight, self.b.bias)" in by_lines(twice)


def test_a_part_alone_has_its_own_length():
    """Beside another value it has half of the tensor's length; alone it may have one more or less."""
    found = answer(task("x, z = x.chunk(2, dim=1)\n        return x * F.relu(z)", IMAGES))
    assert "h = in0.narrow(1, 0, in0.shape[1] // 2)" in found and "i % Q + Q" in found
    found = answer(task("x, z = x.chunk(2, dim=1)\n        return torch.tanh(F.relu(z)), x", IMAGES))
    assert "h = in0.chunk(2, 1)[1]" in found and "i % Q + P - Q" in found


def test_a_number_of_groups_that_follows_from_the_channels_is_worked_out():
    found = answer(task("x = F.relu(x)\n        return F.relu(F.group_norm(x, x.shape[1] // 4))", IMAGES))
    assert "G = in0.shape[1] // 4" in found and "t2 = f1(in0)" in found


@pytest.mark.parametrize(
    "forward",
    [
        "return torch.cummax(x, dim=1)[0]",  # no such step
        "return x.unflatten(2, (16, 16)) + y.unflatten(2, (16, 16))[:, :, :1]",  # no formula for where the operand lies
    ],
)
def test_lines_that_no_kernel_computes_have_none(forward):
    assert answer(task(forward, ROWS)) == ""


KINDS = {
    "few programs": (task("return x.sum((0, 1))", ROWS), "for t in range(0, N, BLOCK):"),
    "blocks": (task("return F.gelu(x) * y + 1.0", ROWS), "m = i < T"),
    "one channel": (task("return F.relu(self.a(x))", IMAGES, "nn.BatchNorm2d(32)"), "c = p % C"),
    "small channels": (task("return F.relu(self.a(x))", "64, 32, 7, 7", "nn.BatchNorm2d(32)"), "i // HW % C"),
    "a gate a channel": (task("return x * torch.sigmoid(y.mean((2, 3), keepdim=True))", IMAGES), "t1 = tl.sigmoid(t0)"),
    "a map of all channels": (
        task("return x * torch.sigmoid(y.median(1, keepdim=True)[0]) + y.median(0)[0]", IMAGES),
        "p // C * HW + j",
    ),
    "a row of all samples": (
        task("return F.relu(x + self.a)", ROWS, "nn.Parameter(torch.randn(128, 256))"),
        "i % (C * HW)",
    ),
    "small maps": (
        task("return x * y.median(1, keepdim=True)[0] + y.median(0)[0].median(0)[0]", "64, 32, 7, 7"),
        "i // HW // C * HW + i % HW",
    ),
    "last dimension": (task("return F.mish(x * self.a)", ROWS, "nn.Parameter(torch.randn(256))"), "i % N"),
    "rows": (task("return F.log_softmax(x * y, dim=1)", TABLE), "row = tl.program_id(0)\n"),
    "a value a row along the rows of a square": (
        task("s = torch.rsqrt(x.abs().sum(1))\n        return s[:, None] * x * s", TABLE),
        "i % N",
    ),
    "short rows": (task("return F.normalize(x, dim=2) * y", ROWS), "ROWS: tl.constexpr"),
    "long rows": (task("return F.relu(F.softmax(x + y, dim=1))", "128, 32768"), "for t in range(0, N, BLOCK):"),
    "all but the batch": (
        task("return F.silu(self.a(x))", "128, 32, 8, 8", "nn.LayerNorm((32, 8, 8))"),
        "N = in0[0].numel()",
    ),
    "groups": (task("return F.silu(self.a(x))", IMAGES, "nn.GroupNorm(8, 32)"), "row % G * (C // G) + j // HW"),
    "instances": (task("return F.relu(self.a(x))", IMAGES, "nn.InstanceNorm2d(32, affine=True)"), "row % C"),
    "columns": (task("return torch.logsumexp(x + y, dim=1)", IMAGES), "COLS: tl.constexpr"),
    "long rows, read once": (task("return (x * y).sum(1)", "128, 32768"), "triton.next_power_of_2(N), num_warps=32"),
    "long columns": (task("return x.std(1) * 2.0", "16, 1024, 512"), "a = tl.full((BLOCK, COLS), 0.0, tl.float32)"),
    "by hand": (task("return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-6)", ROWS), "1.0 / tl.sqrt("),
    "windows": (
        task("return F.max_pool2d(F.relu(self.a(x)), 3, 2, 1) - 1.0", IMAGES, "nn.BatchNorm2d(32)"),
        "(yH >= 0) & (yH < H)",
    ),
    "windows without padding": (task("return F.avg_pool1d(x * y, 4, 2)", ROWS), "t1 = u1 / 4"),
    "halves": (task("x, y = x.chunk(2, dim=1)\n        return x * F.silu(y)", IMAGES), "i // Q * P + i % Q + Q"),
    "a half alone": (
        task("return torch.tanh(F.relu(x.chunk(2, 1)[0])), torch.sigmoid(y.chunk(2, 1)[1]) * 2.0", IMAGES),
        "i % Q + P - Q",
    ),
    "groups without a weight": (
        task("return F.silu(self.a(x))", IMAGES, "nn.GroupNorm(8, 32, affine=False)"),
        "self.m0.num_groups)",
    ),
    "groups by channels": (task("return F.group_norm(x, x.shape[1] // 4) * y", IMAGES), "in0.shape[1] // 4"),
    "a triangle": (
        task(
            "x = x @ y.mT / y.shape[-1] ** 0.5\n"
            "        m = torch.ones(x.shape[1:], dtype=torch.bool, device=x.device).triu(1)\n"
            "        return x.masked_fill(m, float('-inf')).softmax(-1)",
            ROWS,
        ),
        "f1(t1, t4, in0.shape[-1] ** 0.5)",
    ),
    "lengths": (
        task(
            "m = torch.arange(x.shape[2], device=x.device) < y[:, :1, :1].abs() * 99 + 1\n"
            "        return torch.where(m, x, -1e4).softmax(-1)",
            ROWS,
        ),
        "row // R * N + j",
    ),
    "truth values": (task("x = x / 2.0\n        return torch.where(x > 0, x, 0.1 * x)", ROWS), "tl.where(t1, t0, t2)"),
    "slopes": (task("return self.b(self.a(x))", IMAGES, "nn.PReLU(32)", "nn.PReLU()"), "tl.load(p1_ptr)"),
    "running sums": (task("return torch.cumsum(F.relu(x), dim=2) * y", ROWS), "tl.cumsum(t0, 1)"),
    "places": (task("return (x * x).argmin(dim=2)", ROWS), "dtype=torch.long"),
    "the first dimension": (task("return F.relu(x).sum(0)", "128, 16384"), "I = in0[0].numel()"),
    "two operands": (task("return F.cosine_similarity(x, y * 2.0, dim=2)", ROWS), "v1 = tl.sum("),
    "16 bits": (task("return (x.half() * 2.0).relu()", ROWS), "mask=m).to(tl.float32)"),
    "gated halves": (task("return F.softmax(F.glu(x), dim=-1)", ROWS), "t0 = a0 * tl.sigmoid(b0)"),
    "gated halves of 16 bits": (task("return F.glu(x.half(), dim=1).relu()", IMAGES), "i % Q + Q, mask=m).to(tl."),
    "roots of squares": (task("return F.lp_pool1d(x, 2, 4, 2) + 1.0", ROWS), "t0 = tl.sqrt(u0)"),
    "sums in windows": (task("return F.lp_pool2d(F.relu(x), 1, 3, 2) * 2.0", IMAGES), "for rW in tl.static_range(3):"),
    "what lies in the tensor": (
        task("return F.avg_pool2d(x, 3, 2, 1, count_include_pad=False) * 2.0", IMAGES),
        "t0 = u0 / v0",
    ),
    "windows that round up": (
        task("return F.max_pool2d(x, 3, 2, 1, ceil_mode=True) + F.avg_pool2d(y, 2, 2, ceil_mode=True)", "4, 8, 33, 33"),
        "triton.cdiv(in0.shape[2] + 2 * 1 - 3, 2) + 1",
    ),
    "a window a channel": (
        task("return F.relu(self.a(F.relu(x))) * 2.0", IMAGES, "nn.Conv2d(32, 32, 3, 2, 1, groups=32)"),
        "tl.load(p0_ptr + (p % C * 3 + rH) * 3 + rW)",
    ),
    "a window a channel, as many as elements": (
        task("return F.relu(self.a(F.relu(x)))", IMAGES, "nn.Conv2d(32, 32, 3, padding=1, groups=32)"),
        "t0 = tl.maximum(in0, 0.0)\n            a = a + tl.where(",
    ),
    "a window beside what it goes over": (
        task("x = F.relu(x)\n        return x + self.a(x)", IMAGES, "nn.AvgPool2d(3, 1, 1)"),
        "t2 = t0 + t1",
    ),
    "a window a channel of volumes": (
        task("return self.a(x) + 1.0", "8, 16, 8, 12, 12", "nn.Conv3d(16, 16, (3, 2, 1), groups=16, bias=False)"),
        "(jD + yH) * W",
    ),
    "logits": (
        task("return F.binary_cross_entropy_with_logits(x, torch.sigmoid(y), reduction='none') * y", IMAGES),
        "tl.log(1.0 + tl.exp(-tl.abs(in0)))",
    ),
    "a steep slope": (task("return F.softplus(x * y, beta=2.5)", ROWS), "w1 = t0 * 2.5"),
    "two slopes": (task("return F.huber_loss(x, y, delta=0.7, reduction='none').sum(-1)", ROWS), "0.7 * (w0 - "),
    "classes": (task("return F.cross_entropy(x, y.argmax(1), label_smoothing=0.1)", TABLE), "return o.mean()"),
    "a class a row": (
        task("return F.cross_entropy(x, y.argmax(1), reduction='none') * 2.0", "128, 32768"),
        "tl.where(j == t0, in0, 0.0)",
    ),
    "a vector": (task("return (x * y) @ self.a", TABLE, "nn.Parameter(torch.randn(4096))"), "tl.where(m, t0 * p0"),
    "a vector a matrix": (
        task("return torch.bmm(x, y[:, 0].unsqueeze(-1)).squeeze(-1)", ROWS),
        "row // R * N + j",
    ),
    "letters": (task("return torch.einsum('bsd,bd->bs', x, y[:, 0])", ROWS), "row // R * N + j"),
    "letters without a sum": (
        task("return torch.einsum('bsd,d->bsd', x, self.a) * y", ROWS, "nn.Parameter(torch.randn(256))"),
        "t0 = in0 * p0",
    ),
    "letters of a product": (
        task("return torch.einsum('bsd,de->bse', x, self.a)", "64, 128, 272", "nn.Parameter(torch.randn(272, 512))"),
        "t0 = f1(in0, self.m0)",
    ),
    "a product of odd rows": (task("return self.a(x)", "8192, 1000", "nn.Linear(1000, 3000)"), "F.pad(in0, (0, -"),
    "a product of short odd rows": (task("return self.a(x)", "8192, 24", "nn.Linear(24, 4096)"), "F.pad(in0, (0, -"),
    "a product that is no faster": (task("return self.a(x)", "8192, 64", "nn.Linear(64, 4096)"), "tl.dot("),
    "running sums of long rows": (task("return torch.cumsum(x * y, -1)", "64, 40000"), "t1 = c + tl.cumsum(t0, 0)"),
    "running products down columns": (
        task("return torch.cumprod(x, 1)", "64, 1000, 256"),
        "t0 = c * tl.cumprod(in0, 0)",
    ),
    "the first of the largest": (task("return torch.argmax(x * y, 1)", "64, 1000, 256"), "better = x > a"),
    "the first of the smallest": (task("return torch.argmin(x + y, 1)", "64, 40000"), "better = x < a"),
    "an input that nobody reads": (task("return torch.argmax(x, 1)", "4096, 8192"), "tl.argmax("),
    "one loss": (task("return F.smooth_l1_loss(x, y, beta=0.5)", TABLE), "return o.sum() / T"),
    "one divergence": (
        task("return F.kl_div(torch.log_softmax(x, 1), y.softmax(1), reduction='batchmean')", TABLE),
        "return o.sum() / B",
    ),
    "one sum": (task("return (x - y).square().sum()", IMAGES), "return o.sum()"),
    "one largest": (task("return (x * y).max()", IMAGES), "return o.amax()"),
    "one norm": (task("return x / x.norm()", IMAGES), "return o.sum().sqrt()"),
    "triplets": (task("return F.triplet_margin_loss(x, y, x.roll(1, 0), margin=0.5)", TABLE), "+ 0.5, 0.0)"),
    "products down columns": (
        task("return torch.prod(x * 0.2 + 1.0, dim=1, keepdim=True)", "64, 64, 1024"),
        "tl.reduce(",
    ),
    "products of short rows": (task("return (x * 0.2 + 1.0).prod(-1) * 2.0", ROWS), "times, keep_dims=True)"),
    "products of long columns": (task("return (x * 0.02 + 1.0).prod(1)", "16, 1024, 512"), "a = a * tl.where(m,"),
    "triplets by the nearer side": (
        task("return F.triplet_margin_loss(x, y, x.roll(1, 0), swap=True)", TABLE),
        "tl.minimum(v1, w1)",
    ),
    "a list's parameter": (
        task("return F.relu(x * self.a[0])", TABLE, "nn.ParameterList([torch.randn(4096)])"),
        "p0 = tl.load(p0_ptr",
    ),
    "operands of the kernel alone": (
        task(
            "x = self.a(x)\n        return torch.sigmoid(x) * y + (1.0 - torch.sigmoid(x)) * (1.0 - y)",
            TABLE,
            "nn.ReLU()",
        ),
        "= 1.0 - in1",
    ),
    "attention": (task("return F.scaled_dot_product_attention(x, y, x)", "4, 8, 300, 64"), "f1(in0, in1)"),
    "causal attention of narrow heads": (
        task("return F.scaled_dot_product_attention(x, y, y, is_causal=True)", "16, 256, 24"),
        "(c < N) & (c <= r)",
    ),
    "means": (
        task("return self.a(x + y).flatten(1) * 2.0", IMAGES, "nn.AdaptiveAvgPool2d(1)"),
        "new_empty(in0.shape[:2])",
    ),
}


@pytest.fixture(scope="module")
def judge():
    with Judge(device="simulated", workers=1, secret=b"a secret of the tests") as judge:
        yield judge


@pytest.fixture(scope="module")
def verdicts(judge):
    pending = {name: judge.submit(task, by_lines(task) or "") for name, (task, _) in KINDS.items()}
    return {name: future.result() for name, future in pending.items()}


@pytest.mark.slow
@pytest.mark.xdist_group("lines")  # one judge
@pytest.mark.parametrize("name", KINDS)
def test_every_way_through_a_tensor_is_right(name, verdicts):
    of, mark = KINDS[name]
    assert mark in answer(of)
    assert verdicts[name].ok, verdicts[name].detail


LINEAR = "nn.Linear(4096, 4096)"


def test_no_line_is_said_that_a_later_call_makes_superfluous():
    """The first call would stand for the second product, too, if what contains that were not said."""
    forward = "x = self.a(x)\n        z = self.b(torch.sort(x)[0])\n        return torch.sort(x + F.relu(z))[0]"
    said = answer(task(forward, TABLE, LINEAR, LINEAR)).partition("def forward")[2]
    assert "t0 = f1(in0, self.m0.weight, self.m0.bias)" in said and "= f2(" in said and "self.m1(" not in said


def test_a_convolution_that_has_a_kernel_of_its_own_is_not_computed_by_another():
    modules = ["nn.Conv2d(3, 64, 3)", "nn.Conv2d(64, 128, 3)"]
    of = task("return F.relu(self.b(F.relu(self.a(x))))", "32, 3, 64, 64", *modules)
    assert "f2(t1, self.b.weight" in by_lines(of) and "BN=128" not in by_lines(of).partition("f2(")[0]


@pytest.mark.slow
@pytest.mark.xdist_group("lines")
def test_answers_to_generated_networks_are_right(judge):
    tasks = generate("train", 24, 43, generator="graphs", families=["wild_images", "wild_rows", "convnet", "mlp"])
    pending = [judge.submit(task, source) for task in tasks if (source := by_lines(task))]
    assert {future.result().status for future in pending} == {"ok"} and len(pending) > 12


def test_a_network_whose_last_lines_no_policy_reads_has_an_answer():
    """Other kernels would save more in these; those that it has compute what is alike."""
    blocks = "for k in range(0, 18, 2):\n            x = F.gelu(self.a[k + 1](F.gelu(self.a[k](x)))) + x\n"
    of = task(f"{blocks}        return x", "1000, 50", "nn.ModuleList([nn.Linear(50, 50) for _ in range(18)])")
    assert "t44 = f2(t42, t39)" in (by_lines(of) or "")
