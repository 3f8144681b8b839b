"""Products of a task's lines as tiles: which lines one kernel computes, when it pays, and that it is right."""

import pytest

from drkernel.coldstart.answers.further import any_step_of
from drkernel.coldstart.answers.known import Known
from drkernel.coldstart.answers.lines import by_lines
from drkernel.coldstart.answers.tiles import tiles
from drkernel.judge import Judge
from drkernel.policy.canonical import canonical
from tests.coldstart.answers.written import IMAGES, TABLE, answer, task

LINEAR = "nn.Linear(4096, 4096)"


def made(of):
    """What each product's kernel makes, and with how many lines behind it."""
    told = canonical(of.source).told
    known = Known.of(told)
    steps = [step for line in told.lines if (step := any_step_of(line, known))]
    return {found.makes: len(found.steps) for found in tiles(told.lines, steps, known)}


def test_a_product_takes_the_point_wise_lines_behind_it():
    of = task("return F.relu(self.a(x) * 2.0) + y", TABLE, LINEAR)
    assert "t3 = f1(in0, in1, self.a.weight, self.a.bias)" in by_lines(of)
    loop = (
        "    for s in range(0, K, 32):\n"
        "        j = s + tl.arange(0, 32)\n"
        "        x = tl.load(in0_ptr + r * K + j[None, :], mask=(r < M) & (j[None, :] < K), other=0.0)\n"
        "        y = tl.load(p0_ptr + c * K + j[:, None], mask=(c < N) & (j[:, None] < K), other=0.0)\n"
        "        a = tl.dot(x, y, a, input_precision='tf32x3')\n"
        "    m = (r < M) & (c < N)\n"
        "    i = r * N + c\n"
        "    in1 = tl.load(in1_ptr + i, mask=m)\n"
        "    p1 = tl.load(p1_ptr + c, mask=c < N)\n"
        "    t0 = a + p1\n"
        "    t1 = t0 * 2.0\n"
        "    t2 = tl.maximum(t1, 0.0)\n"
        "    t3 = t2 + in1\n"
        "    tl.store(o_ptr + i, t3, mask=m)\n"
    )
    assert loop in answer(of)


def test_a_right_factor_that_does_not_lie_along_what_is_summed_is_turned():
    assert "in1 = in1.transpose(-1, -2).contiguous()" in answer(task("return torch.relu(x @ y)", TABLE))


@pytest.mark.parametrize(
    ("forward", "expected"),
    [
        ("x = self.a(x)\n        return x, F.relu(x)", {"t0": 0}),  # the product is needed elsewhere
        ("return F.softmax(F.relu(self.a(x)), -1)", {"t1": 1}),  # a row lies in several tiles
        ("return F.relu(x @ y) + y", {"t1": 1}),  # y is turned: its element lies elsewhere
        ("return (self.a(x).half() * 2.0).relu()", {"t0": 0}),  # tiles compute float32
    ],
)
def test_what_a_tile_does_not_have_is_left_to_other_kernels(forward, expected):
    assert made(task(forward, TABLE, LINEAR)) == expected


@pytest.mark.parametrize(
    ("forward", "shape", "module"),
    [
        ("return self.a(x)", "64, 256", "nn.Linear(256, 256)"),  # few tiles
        ("return self.a(x)", "8192, 100", "nn.Linear(100, 3000)"),  # short rows, loaded element by element
        ("return self.a(x)", IMAGES, "nn.Conv2d(32, 32, 3, groups=32)"),
        ("return self.a(x)", IMAGES, "nn.ConvTranspose2d(32, 32, 3)"),
        ("return self.a(x)", IMAGES, "nn.ConvTranspose2d(32, 32, 4, 2, 1, groups=2)"),
        ("return self.a(x.half())", TABLE, "nn.Linear(4096, 4096).half()"),
    ],
)
def test_where_the_library_is_faster_it_keeps_the_product(forward, shape, module):
    assert not made(task(forward, shape, module))


IMAGE, SEQUENCE, VOLUME = "64, 64, 64, 64", "64, 64, 4096", "16, 64, 16, 32, 32"
ODD, COLOURS = "64, 40, 31, 63", "64, 3, 128, 128"
CONV = "nn.Conv2d(64, 128, 3)"
KINDS = {
    "rows": ("return F.gelu(self.a(x))", "16, 512, 1024", ["nn.Linear(1024, 2048)"], "M = in0.numel() // K"),
    "no bias": ("return self.a(x) * y", TABLE, ["nn.Linear(4096, 4096, bias=False)"], "t0 = a\n"),
    "a parameter": ("return torch.tanh(x @ self.a)", TABLE, ["nn.Parameter(torch.randn(4096, 2048))"], "p0 = p0.tr"),
    "two inputs": ("return (x @ y) / 50.0 - 1.0", TABLE, [], "in1 = in1.transpose(-1, -2)"),
    "a matrix each": ("return x @ y.transpose(1, 2) / x.shape[-1] ** 0.5", "64, 512, 512", [], "b = tl.program_id(2)"),
    "a number a row": ("return self.a(x) * torch.sigmoid(y.mean(1, keepdim=True))", TABLE, [LINEAR], "r, mask=r < M"),
    "images": ("return F.relu(self.a(x))", IMAGE, ["nn.Conv2d(64, 128, 3, padding=1)"], "yH = xH + t // 3 - 1"),
    "oblong": ("return self.a(x) + 1.0", IMAGE, ["nn.Conv2d(64, 128, (3, 5))"], "yW = xW + t % 5"),
    "dilation": ("return F.silu(self.a(x))", IMAGE, ["nn.Conv2d(64, 128, 3, dilation=(1, 2))"], "t % 3 * 2"),
    "one place": ("return F.relu6(self.a(x))", IMAGE, ["nn.Conv2d(64, 256, 1)"], "yH = xH\n"),
    "a number a channel": ("return self.a(x) * self.b", IMAGE, [CONV, "nn.Parameter(torch.rand(128, 1, 1))"], "p2"),
    "statistics": ("return self.b(self.a(x)).relu()", IMAGE, [CONV, "nn.BatchNorm2d(128)"], "p3_ptr"),
    "sequences": ("return F.gelu(self.a(x))", SEQUENCE, ["nn.Conv1d(64, 128, 9, 2, 4)"], "b = r // OW\n"),
    "volumes": ("return F.relu(self.a(x))", VOLUME, ["nn.Conv3d(64, 64, 3)"], "yD = xD + t // (3 * 3)\n"),
    "same": ("return F.relu(self.a(x))", IMAGE, ["nn.Conv2d(64, 128, 3, padding='same')"], "yH = xH + t // 3 - 1"),
    "many columns": ("return F.relu(self.a(x))", IMAGE, ["nn.Conv2d(64, 256, 3)"], "BN=128, num_warps=8"),
    "colours": ("return F.mish(self.a(x)) + 1.0", COLOURS, ["nn.Conv2d(3, 32, 3)"], "k = (j // (3 * 3) * H + j // 3"),
    "colours, padded": ("return F.mish(self.a(x)) + 1.0", COLOURS, ["nn.Conv2d(3, 64, 5, 1, 2)"], "(2, 2, 2, 2)"),
    "few channels": (
        "return F.gelu(self.a(x))", "64, 40, 64, 64", ["nn.Conv2d(40, 128, (1, 5), padding=(0, 1))"], "(1, 1, 0, 0)"
    ),
    "few channels, one place": ("return F.gelu(self.a(x))", ODD, ["nn.Conv2d(40, 128, 1)"], "k = j * H * W"),
    "few channels, sequences": (
        "return F.gelu(self.a(x))", "64, 8, 8192", ["nn.Conv1d(8, 64, 5, dilation=2)"], "k = j // 5 * W + j % 5 * 2"
    ),
    "few channels, volumes": (
        "return F.gelu(self.a(x))", "16, 8, 24, 48, 48", ["nn.Conv3d(8, 32, 3)"], "j // (3 * 3 * 3)"
    ),
    "transposed": ("return F.relu(self.a(x))", IMAGE, ["nn.ConvTranspose2d(64, 64, 3)"], "yH = xH - t // 3"),
    "transposed, padded": (
        "return F.relu(self.a(x))", VOLUME, ["nn.ConvTranspose3d(64, 64, 3, padding=1, dilation=(1, 2, 1))"], "+ 1 - t"
    ),
    "strides": ("return F.relu(self.a(x))", IMAGE, ["nn.ConvTranspose2d(64, 64, 4, 2, 1)"], "nW = tl.cdiv(4 - aW, 2)"),
    "strides, odd": ("return self.a(x)", ODD, ["nn.ConvTranspose2d(40, 48, 3, 2, 1, 1)"], "aW = (zW + 1) % 2"),
    "a stride": (
        "return self.a(x)", ODD, ["nn.ConvTranspose2d(40, 48, (3, 5), (1, 3), (1, 2), dilation=(2, 1))"], "kH * 2"
    ),
    "a stride longer than the window": ("return self.a(x)", IMAGE, ["nn.ConvTranspose2d(64, 48, 2, 3)"], "* 3 + zW"),
    "strides in sequences": (
        "return self.a(x)", SEQUENCE, ["nn.ConvTranspose1d(64, 64, 16, 8, 4, bias=False)"], "tl.program_id(2)\n"
    ),
    "the least of all channels": ("return self.a(x).amin(1, keepdim=True) + y.mean()", IMAGE, [CONV], "+ r, "),
    "a mean of all channels": (
        "return self.a(x).relu().mean(1) * 2.0", IMAGE, ["nn.Conv2d(64, 100, 3)"], "return o.squeeze(1)"
    ),
    "one channel": ("return F.relu(self.a(x)) + 1.0", "64, 64, 128, 128", ["nn.Conv2d(64, 1, 3)"], "+ i, t2, mask=m)"),
    "a softmax over channels": (
        "return torch.sigmoid(F.softmax(self.a(x), 1) * 2.0)", IMAGE, ["nn.ConvTranspose2d(64, 48, 4, 2, 1)"],
        "w1 = tl.exp(t0 - u1)",
    ),
    "a sum of all channels, strides": (
        "return torch.logsumexp(self.a(x), 1, keepdim=True) - 1.0", "16, 32, 8, 31, 32",
        ["nn.ConvTranspose3d(32, 24, 3, 2, 1, 1)"], "tl.store(o_ptr + ((b * OD + xD) * OH + xH) * OW + xW, t2",
    ),
    "what belongs to all channels": (
        "return self.a(x) * y.mean(1, keepdim=True)", IMAGE, ["nn.Conv2d(64, 128, 3, padding=1)"], "+ r, mask=r < M)"
    ),
    "groups": ("return F.relu(self.a(x)) * 2.0", IMAGE, ["nn.Conv2d(64, 256, 3, 2, 1, groups=2)"], "(t * 2 + g) * N"),
    "groups of few channels": ("return self.a(x).tanh()", IMAGE, ["nn.Conv2d(64, 128, 3, groups=4)"], "(g * N + c)"),
    "groups, one place": ("return self.a(x)", IMAGE, ["nn.Conv2d(64, 256, 1, groups=2, bias=False)"], "+ g) * N + c)"),
    "a product and a bias": (
        "return torch.addmm(self.a, x, self.b).relu()", TABLE,
        ["nn.Parameter(torch.randn(4096))", "nn.Parameter(torch.randn(4096, 4096))"], "t0 = a + p",
    ),
    "strides in volumes": ("return self.a(x)", "16, 32, 8, 31, 32", ["nn.ConvTranspose3d(32, 64, 3, 2, 1, 1)"], "nD"),
}  # fmt: skip


PADDED = {"few channels"}
"""What pads the input first, by an operator that takes twice as long as a copy."""

LONG_SUM = ("return x.T @ y", "65536, 256")
SLOW = {
    "a long sum": LONG_SUM,
    "transposed groups": ("return self.a(x)", "2, 32, 12, 13", "nn.ConvTranspose2d(32, 48, 3, 2, 1, 1, groups=4)"),
    "a stride and a dilation": ("return self.a(x)", "3, 32, 61", "nn.ConvTranspose1d(32, 64, 3, 2, 4, dilation=3)"),
    "a sum of each channel": ("return self.a(x)", "2, 8, 15, 9", "nn.ConvTranspose2d(8, 8, 3, 2, 1, 1, groups=8)"),
    "odd channels": ("return self.a(x)", "3, 7, 61", "nn.ConvTranspose1d(7, 20, 5, 1, 0, dilation=3)"),
    "a stride and few channels": ("return self.a(x)", "4, 3, 500", "nn.Conv1d(3, 16, 5, stride=3, dilation=4)"),
    "small matrices": ("return torch.bmm(x, y.transpose(1, 2))", "16, 40, 24"),
}


def test_a_long_sum_of_few_tiles_is_what_several_programs_add():
    assert "for s in range(tl.program_id(2) * 32, K, 1024)" in answer(task(*LONG_SUM))


@pytest.fixture(scope="module")
def verdicts():
    with Judge(device="simulated", workers=1, secret=b"a secret of the tests") as judge:
        pending = {}
        every = {name: task(forward, shape, *modules) for name, (forward, shape, modules, _) in KINDS.items()}
        for name, of in (every | {name: task(*given) for name, given in SLOW.items()}).items():
            pending[name] = judge.submit(of, by_lines(of) or "")
        return {name: future.result() for name, future in pending.items()}


@pytest.mark.slow
@pytest.mark.xdist_group("tiles")  # one judge
@pytest.mark.parametrize("name", KINDS)
def test_every_kind_of_product_is_right_and_faster(name, verdicts):
    forward, shape, modules, mark = KINDS[name]
    assert mark in answer(task(forward, shape, *modules))
    assert verdicts[name].ok, verdicts[name].detail
    assert verdicts[name].speedup > (0.95 if name in PADDED else 1.1)


@pytest.mark.slow
@pytest.mark.xdist_group("tiles")  # one judge
@pytest.mark.parametrize("name", SLOW)
def test_where_nothing_else_can_be_a_kernel_a_slower_one_is_right(name, verdicts):
    assert verdicts[name].ok, verdicts[name].detail
    assert verdicts[name].coverage > 0.4
