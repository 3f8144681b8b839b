"""Sizes for the interpreter: small, and such that kernels can still be what they are at full size."""

from pathlib import Path

import pytest

from drkernel.judge.trusted.sizes import same_calls, shrink, size_cost
from drkernel.tasks.backward import backward
from drkernel.tasks.module import Reference
from drkernel.types import DrKernelError, Task

ATTENTION = """
import torch
from torch import nn
B, H, S, D = 32, 16, 512, 64
class Model(nn.Module):
    def forward(self, q, k, v):
        return torch.nn.functional.scaled_dot_product_attention(q, k, v)
def get_inputs():
    return [torch.rand(B, H, S, D) for _ in range(3)]
def get_init_inputs():
    return []
"""


def test_rows_keep_the_sixteen_elements_that_products_of_blocks_need():
    small = shrink.fit(Task("attention", ATTENTION)).small
    assert small["D"] == 16
    assert small["B"] * small["H"] * small["S"] * small["D"] * 4 <= shrink.CHEAP.values


WIDTHS_DEPEND = """
import torch
from torch import nn
BATCH = 64
class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = nn.Linear(64 * 6 * 6, 128)
    def forward(self, x):
        return self.inner(torch.max_pool2d(x, 2).flatten(1))
def get_inputs():
    return [torch.rand(BATCH, 64, 13, 13)]
def get_init_inputs():
    return []
"""


def test_a_batch_becomes_small_where_the_network_depends_on_all_other_sizes():
    task = shrink.fit(Task("t", WIDTHS_DEPEND))
    assert task.small == {"BATCH": 4} and not size_cost.planned_cost(task, task.small).exceeds(shrink.OTHERS)


def test_gradients_are_counted_and_their_sizes_shrink():
    forward = Task("product", PRODUCT.format(sizes="M, K, N = 512, 1024, 2048", a="M, K", b="K, N"))
    made = backward(forward)
    products = lambda task: size_cost.planned_cost(task, {}).flops
    assert products(made) == 3 * products(forward)
    assert size_cost.planned_cost(made, shrink.fit(made).small).flops < shrink.CHEAP.flops


def test_a_source_that_is_no_python_is_named():
    with pytest.raises(DrKernelError, match=r"task broken: line 1, loading: SyntaxError"):
        shrink.fit(Task("broken", "def broken(:"))


def test_other_sizes_are_halved_alike():
    source = ATTENTION.replace("B, H, S, D = 32, 16, 512, 64", "B, H, S, D = 2, 2, 64, 64")
    assert shrink.fit(Task("attention", source)).small in ({}, {"S": 32, "D": 32})


def test_rows_of_tasks_without_products_are_halved_like_other_sizes_which_stay_in_order():
    source = ATTENTION.replace("torch.nn.functional.scaled_dot_product_attention(q, k, v)", "q + k + v")
    small = shrink.fit(Task("sum", source)).small
    assert small["H"] < small["B"] < small["D"] < small["S"] <= 32


PRODUCT = """
import torch
from torch import nn
{sizes}
class Model(nn.Module):
    def forward(self, a, b):
        return a @ b
def get_inputs():
    return [torch.rand({a}), torch.rand({b})]
def get_init_inputs():
    return []
"""
CHANNELS = """
import torch
from torch import nn
batch, side = 512, 64
class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d({channels}, {channels}, 3)
        self.fc = nn.Linear({channels} * 62 * 62, 1000)
    def forward(self, x):
        return self.fc(self.conv(x).flatten(1))
def get_inputs():
    return [torch.rand(batch, {channels}, side, side)]
def get_init_inputs():
    return []
"""


def product(sizes: str, a: str = "M, K", b: str = "K, N") -> Task:
    return Task("product", PRODUCT.format(sizes=sizes, a=a, b=b))


def inputs(task: Task) -> list[tuple[int, ...]]:
    return list(shrink.shapes_of(Reference(task, task.small).inputs(0)))


def test_expressions_are_sizes_where_nothing_else_can_be_shrunk():
    (m, k), (k2, n) = inputs(shrink.fit(product("M = 1024 * 2\nK = 1 << 14\nN = 2 * M")))
    assert k == k2 and m < 2048 and n == 2 * m


def test_expressions_stay_where_the_rest_is_small_enough():
    assert inputs(shrink.fit(product("M, N = 64, 64\nK = 2**10")))[0][1] == 2**10


@pytest.mark.slow
def test_for_hidden_shapes_expressions_are_sizes_and_the_published_task_keeps_its_values():
    cost = shrink.Cost(2**16, 2**16, 1e9)
    base = shrink.fit(product("M = 1024 * 2\nK = 1 << 14\nN = 2 * M"), cost, cost, shrink.Cost(2**40, 2**40, 1e18))
    assert max(max(shape) for shape in inputs(base)) < 1024
    assert list(shrink.shapes_of(Reference(base).inputs(0))) == [(2048, 2**14), (2**14, 4096)]


def test_sizes_that_others_depend_on_stay_and_the_rest_is_lowered():
    ((batch, channels, side, _),) = inputs(shrink.fit(Task("net", CHANNELS.format(channels=3).replace("1000", "100"))))
    assert (channels, side) == (3, 64) and batch < 512


@pytest.mark.slow
def test_a_network_becomes_narrower_only_where_all_else_does_not_help():
    task = shrink.fit(Task("net", CHANNELS.format(channels=64)))
    ((_, channels, side, _),) = inputs(task)
    assert channels < 64 and side == 64
    assert task.small["WIDTH_64"] == channels


def test_truncated_normal_weights_do_not_keep_a_network_from_becoming_smaller():
    """How torch draws them depends on their values, which a dry run does not have."""
    drawn = CHANNELS.format(channels=64).replace("1000)", "1000); nn.init.trunc_normal_(self.fc.weight, std=0.02)")
    assert shrink.fit(Task("net", drawn)).small["WIDTH_64"] < 64


IMAGES = """
import torch
from torch import nn
class Model(nn.Module):
    def __init__(self, side):
        super().__init__()
        self.conv, self.fc = nn.Conv2d(3, 64, 3, padding=1), nn.Linear(64 * 28 * 28, 1000)
    def forward(self, x):
        return self.fc(nn.functional.avg_pool2d(self.conv(x), 8).flatten(1))
def get_inputs():
    return [torch.rand({batch}, 3, 224, 224)]
def get_init_inputs():
    return [224]
"""


@pytest.mark.slow
@pytest.mark.parametrize(("batch", "left"), [(64, 2), (8, 2)])
def test_images_that_stay_large_become_few(batch, left):
    """Two of them: each has as many numbers as a whole input else. A batch below 16 is a size only where it has to."""
    assert inputs(shrink.fit(Task("net", IMAGES.format(batch=batch)))) == [(left, 3, 224, 224)]


def test_a_network_is_never_narrower_for_hidden_shapes():
    cost = shrink.Cost(2**16, 2**16, 1e9)
    base = shrink.fit(Task("net", CHANNELS.format(channels=8)), cost, cost, shrink.Cost(2**40, 2**40, 1e18))
    assert "WIDTH" not in base.source


def test_an_error_says_how_much_is_left():
    with pytest.raises(
        DrKernelError, match=r"task net: its sizes cannot be shrunk .*: it still has \d+ values, \d+ weights"
    ):
        shrink.fit(Task("net", CHANNELS.format(channels=15).replace("1000", "99999")))


GROUPS = """
import torch
from torch import nn
rows, width, groups = 1024, 8192, 256
class Model(nn.Module):
    def __init__(self, width, groups):
        super().__init__()
        self.norm = nn.GroupNorm(groups, width)
    def forward(self, x):
        return self.norm(x)
def get_inputs():
    return [torch.rand(rows, width)]
def get_init_inputs():
    return [width, groups]
"""


def test_groups_that_become_single_elements_keep_their_proportion_in_other_sizes():
    task = Task("groups", GROUPS, small={"rows": 128, "width": 128, "groups": 128})
    other = next(shrink.others(task)).small
    assert other["width"] == 32 * other["groups"] and other["rows"] == 16


@pytest.mark.slow
def test_other_sizes_are_cheap_too_and_keep_the_widths_of_a_narrower_network():
    task = shrink.fit(Task("net", CHANNELS.format(channels=64)))
    for other in shrink.others(task, shrink.MOST):
        assert other.small["WIDTH_64"] == task.small["WIDTH_64"]
        assert not size_cost.cost_of(Reference(other, other.small)).exceeds(shrink.MOST)


def test_an_encoder_of_torch_is_counted_operator_by_operator():
    source = PRODUCT.replace("a @ b", "self.layer(a)").replace(
        "def forward",
        "def __init__(self):\n        super().__init__()"
        "\n        self.layer = nn.TransformerEncoder(nn.TransformerEncoderLayer(64, 4, 128, batch_first=True), 2)\n"
        "    def forward",
    )
    source = source.format(sizes="B, T = 8, 128", a="B, T, 64", b="1")
    cost = size_cost.planned_cost(Task("encoder", source), {})
    assert cost.flops >= 2 * 8 * 128 * 2 * (4 * 64 * 64 + 2 * 64 * 128)


GIVEN = """
import torch
from torch import nn
class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.latents = nn.Parameter(torch.randn(1, 32, 64))
        self.attention = nn.MultiheadAttention(64, 4, batch_first=True)
    def forward(self, x):
        return self.attention(self.latents, x[:1], x[:1])[0] + nn.CosineSimilarity(-1)(x, x.flip(1)).sum()
def get_inputs():
    return [torch.randn(64, 512, 64, requires_grad=True)]
def get_init_inputs():
    return []
"""


def test_parameters_and_inputs_that_need_gradients_may_be_given_to_modules():
    """Latents that attend, prototypes that are compared: torch's counter asks for the function of their gradients."""
    assert size_cost.cost_of(Reference(Task("latents", GIVEN))).flops > 1e6
    assert shrink.fit(Task("latents", GIVEN)).source


GATED = """
import torch
from torch import nn
C, SIDE = {channels}, 56
class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv, self.down, self.up = nn.Conv2d(C, C, 4, 2), nn.Linear(C, C // 16), nn.Linear(C // 16, C)
    def forward(self, x, noise):
        gate = torch.sigmoid(self.up(torch.relu(self.down(x.mean((2, 3))))))
        return self.conv(x * gate[:, :, None, None]) + noise
def get_inputs():
    return [torch.randn(8, C, SIDE, SIDE), torch.randn(8, C, 27, 27)]
def get_init_inputs():
    return []
"""


@pytest.mark.parametrize("channels", [96, 320])
def test_no_operator_does_at_small_sizes_what_it_does_not_at_the_published_ones(channels):
    """A width that a network divides stays, and what is added to an image has its size."""
    task = Task("gated", GATED.format(channels=channels))
    small = shrink.fit(task)
    reference = Reference(small, small.small)
    x, noise = reference.inputs(0)
    model = reference.model(0)
    assert same_calls.are_same(reference) and x.numel() < 8 * channels * 56 * 56
    assert model.down.weight.numel() and model.conv(x).shape == noise.shape
    assert not same_calls.are_same(Reference(task, {"C": 8, "SIDE": 56})), "a linear layer of no width"
    assert not same_calls.are_same(Reference(task, {"C": channels, "SIDE": 4})), "an image of one pixel"


def test_indices_of_bags_are_few_since_a_program_goes_through_them_one_by_one():
    source = (Path(__file__).parents[2] / "tasks" / "embedding_bag.py").read_text()
    task = shrink.fit(Task("bags", source))
    assert Reference(task, task.small).inputs(0)[0].numel() <= 512


def test_a_batch_of_two_images_has_three_at_a_hidden_shape():
    """Else a kernel that is right for the first two alone would pass."""
    first = next(shrink.hidden_shapes({"batch": 2, "side": 64}, ["batch", "side"], 0, {"batch": 10, "side": 224}))
    assert first["batch"] == 3
    as_published = next(shrink.hidden_shapes({"pair": 2, "side": 64}, ["pair", "side"], 0, {"pair": 2, "side": 224}))
    assert as_published["pair"] == 2


GROUPED = """
import torch
import torch.nn as nn
batch, channels, out, height, width = 16, 64, 48, 256, 224
class Model(nn.Module):
    def __init__(self, channels, out, window, stride):
        super().__init__()
        self.conv = nn.ConvTranspose2d(channels, out, window, stride=stride, padding=1, groups=4)
    def forward(self, x):
        return self.conv(x)
def get_inputs():
    return [torch.randn(batch, channels, height, width)]
def get_init_inputs():
    return [channels, out, (3, 4), (2, 2)]
"""


def test_what_is_halved_alike_and_not_cheap_is_lowered_further():
    """Channels in groups of four stop at 12, and an image would stop with them."""
    task = shrink.fit(Task("grouped", GROUPED))
    cost = size_cost.cost_of(Reference(task, task.small))
    assert cost.values <= shrink.CHEAP.values and Reference(task, task.small).constants["out"] == 12
