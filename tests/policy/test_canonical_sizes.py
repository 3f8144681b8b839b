"""The lines of a canonical form compute at other sizes what the task computes there."""

import pytest
import torch

from drkernel.policy.canonical import canonical
from tests.policy.test_canonical import outputs

FOLLOWING = {
    "a mean over a plane": ("b, c, h, w = x.shape\n        return x.flatten(2) @ x.flatten(2).mT / (c * h * w)", ""),
    "one by a mean's number": ("return (x * 2).sum((2, 3)) * (1 / (x.shape[2] * x.shape[3]))", ""),
    "a plane again": ("return torch.softmax(x.flatten(2), -1).view(x.shape).sum(2)", ""),
    "a plane of an earlier value": ("x = x[:, :, 1:, 2:]\n        return (x.flatten(2) + 1).view(x.shape).sum(2)", ""),
    "a constant plane": (
        "return self.a(x.mean((2, 3))).view(-1, self.n * 8, 3, 3)",
        "self.a = nn.Linear(n * 4, n * 72)",
    ),
    "a table as long as an input": (
        "return x * self.a[:x.shape[3]]",
        'self.register_buffer("a", torch.arange(n * 10 + 20) / 7)',
    ),
    "halves of the last dimension": ("n = x.shape[-1] // 2\n        return x[..., n:] - x[..., :n]", ""),
    "parts of an odd size": ("return torch.cat((x, x[:, :1]), 1).chunk(2, dim=1)", ""),
    "parts of almost equal sizes": ("return x.tensor_split(4, dim=3)", ""),
    "what a part leaves": ("return x.split([x.shape[1] - 3, 3], dim=1)", ""),
    "groups of three channels": (
        "x = torch.cat((x, x, x), 1)\n        return nn.functional.group_norm(x, x.shape[1] // 3)",
        "",
    ),
    "the module's groups": (
        "return nn.functional.group_norm(x, self.g)",
        "self.g = n * 4",
    ),
    "three parts of three heads": (
        "return self.a(x).view(*x.shape[:3], 3, self.heads, 2).cumsum(3)",
        "self.heads = n + 1; self.a = nn.Linear(n * 10, 6 * self.heads)",
    ),
    "what is cut to an input": (
        "return self.a(x)[:, :, :x.shape[2], :x.shape[3]] + x",
        "self.a = nn.ConvTranspose2d(n * 4, n * 4, 3)",
    ),
    "what is cut to an earlier value": (
        "x = torch.relu(x[:, :, 1:, 1:])\n        return self.a(x)[:, :, :x.shape[2], :x.shape[3]] + x",
        "self.a = nn.ConvTranspose2d(n * 4, n * 4, 3)",
    ),
    "the largest of a row": ("return nn.functional.max_pool1d(x.flatten(1, 2), x.shape[3])", ""),
    "the mean of a plane": ("return nn.functional.avg_pool2d(x, x.shape[2:])", ""),
    "a fourth root": ("return x * x.shape[-1] ** -0.25", ""),
    "a mask as large as an input, not as a table": (
        "y = self.a[:x.shape[3]]\n        return torch.ones(x.shape[3], x.shape[3]).triu(1) * x.sum() + y.sum()",
        'self.register_buffer("a", torch.arange(45.0))',
    ),
    "the largest of those that go to one place": (
        "places = torch.arange(x.shape[1], device=x.device) // 2\n        y = x.flatten(2).mean(2).mT\n        "
        "return y.scatter_reduce(0, places[:, None].expand_as(y), y * 2, reduce='amax')",
        "",
    ),
    "repeated heads": (
        "return x.repeat_interleave(self.heads // x.shape[1], dim=1)",
        "self.heads = n * n * 8",
    ),
}


@pytest.mark.parametrize("name", FOLLOWING)
def test_what_follows_from_sizes_does_at_others(name):
    """The lines of a task of one size are those of the task of another."""
    assert_alike(*FOLLOWING[name], base=2, other=5)


HELD = {
    "a part of a root": ("return x / self.a", "self.a = n ** 0.5 / 2"),
    "an odd half": ("return x.sum(1) - self.a", "self.a = n / 2"),
    "what a module inside holds": (
        "return self.a(x) * self.a.m",
        "self.a = nn.ReLU(); self.b = B(n); self.a.m = self.b.m",
    ),
    "an argument by name": ("return nn.functional.leaky_relu(x, self.b.m)", "self.b = B(n)"),
    "a factor and a bound": ("return (x * self.a).clamp(max=self.b.m)", "self.a = 1 / (n + 1.5); self.b = B(n)"),
    "sizes in a tuple": (
        "return nn.functional.adaptive_max_pool2d(x, self.a)",
        "self.a = (n * 3, n + 2)",
    ),
    "a module without tensors": ("return self.a(x) * 2", "self.a = nn.AdaptiveMaxPool2d((n + 1, 2))"),
    "modules without tensors, one in the other": (
        "return self.a(x)[:, :, 1:]",
        "self.a = nn.Sequential(nn.PixelUnshuffle(n), nn.AvgPool2d(2, n // 3 + 1))",
    ),
}


@pytest.mark.parametrize("name", HELD)
def test_numbers_that_a_module_holds_are_the_modules_at_other_sizes(name):
    assert_alike(*HELD[name], base=8, other=5)


def test_a_policy_reads_the_value_of_a_number_that_a_module_holds():
    form = canonical(written_for(8, "return x / self.a", "self.a = n ** 0.5 / 2"))
    assert "t0 = in0 / 1.41421" in form.text and "r0" not in form.text


def test_a_policy_does_not_read_that_a_module_without_tensors_is_one():
    form = canonical(written_for(8, "return self.a(x)", "self.a = nn.PixelUnshuffle(n)"))
    assert "t0 = F.pixel_unshuffle(in0, downscale_factor=8)" in form.text
    assert form.told.lines[0].text == "t0 = self.u0(in0)"


def test_a_module_that_changes_its_argument_is_not_called_for_the_line():
    form = canonical(written_for(8, "return self.a(x)", "self.a = nn.LeakyReLU(0.2, inplace=True)"))
    assert form.told.lines[0].text == "t0 = F.leaky_relu(in0, negative_slope=0.2)"


def test_a_dropout_that_works_keeps_its_probability():
    form = canonical(written_for(8, "return nn.functional.dropout(x, 0.125, training=True)", ""))
    assert "t0 = F.dropout(in0, training=True)" in form.text, "which a policy reads"
    assert form.told.lines[0].text == "t0 = F.dropout(in0, p=0.125, training=True)"


def assert_alike(forward: str, module: str, base: int, other: int) -> None:
    """The lines of a task of one size compute what the task of the other size computes."""
    form = canonical(written_for(base, forward, module))
    answer = f"{form.text.splitlines()[0]}\n    {form.told.lines[-1].text}\n"
    torch.testing.assert_close(*outputs(form.submission(answer), written_for(other, forward, module)))


def written_for(n: int, forward: str, module: str) -> str:
    return (
        "import torch\nimport torch.nn as nn\n\n\n"
        "class B(nn.Module):\n    def __init__(self, n):\n"
        "        super().__init__()\n        self.m = 3 / (n + 0.5)\n\n\n"
        "class Model(nn.Module):\n"
        f"    def __init__(self, n):\n        super().__init__()\n"
        f"        self.n = n\n        {module or 'pass'}\n\n"
        f"    def forward(self, x):\n        {forward}\n\n\n"
        f"def get_inputs():\n    return [torch.randn({n}, 4 * {n}, 6 * {n}, 10 * {n})]\n\n\n"
        f"def get_init_inputs():\n    return [{n}]\n"
    )
