"""Sizes become module constants wherever a task writes them; a submission's follow those inside the network."""

from __future__ import annotations

import pytest

from drkernel.judge.trusted.sizes import lift
from drkernel.tasks.module import Reference
from drkernel.types import Task

TASK = """{top}
import torch
from torch import nn

class Model(nn.Module):
    {model}
    def forward(self, x):
        return self.fc(x)

def get_inputs():
    return [{inputs}]

def get_init_inputs():
    return [{init}]
"""
PLAIN = "def __init__(self):\n        super().__init__()\n        self.fc = nn.Linear(4096, 1024)"


def source(top: str = "", inputs: str = "torch.rand(8, 4096)", init: str = "", model: str = PLAIN) -> str:
    return TASK.format(top=top, inputs=inputs, init=init, model=model)


def constants(text: str) -> dict[str, int]:
    return Reference(Task("lifted", text)).constants


@pytest.mark.parametrize(
    ("written", "value"),
    [
        ("1024 * 2", 2048), ("1 << 14", 16384), ("2 ** 10", 1024), ("4096 // 3", 1365), ("512 + 1", 513),
        ("(64 - 1) * 8", 504), ("100 % 64", 36),
    ],
)  # fmt: skip
def test_an_expression_of_numbers_is_one_size(written, value):
    assert constants(lift.lift(source(f"M = {written}")))["M"] == value
    assert constants(lift.lift(source(f"M: int = {written}")))["M"] == value
    assert constants(lift.lift(source(f"N, M = 3, {written}"))) == {"N": 3, "M": value, "SIZE_4096": 4096}


def test_an_expression_of_names_follows_its_names():
    lifted = Task("t", lift.lift(source("M = 1024 * 2; K = 2 * M", "torch.rand(M, K)")))
    assert [t.shape for t in Reference(lifted, {"M": 8}).inputs(0)] == [(8, 16)]


@pytest.mark.parametrize("top", ["shape = (32, 4096)", "shape = [32, 2048 * 2]", "shape: tuple = (32, 4096)"])
def test_sizes_in_lists_and_tuples_have_a_constant_each(top):
    lifted = Task("t", lift.lift(source(top, "torch.rand(*shape)")))
    assert Reference(lifted).constants == {"SIZE_32": 32, "SIZE_4096": 4096}
    assert Reference(lifted, {"SIZE_32": 4}).inputs(0)[0].shape == (4, 4096)


def test_sizes_in_lists_that_are_assigned_together_have_a_constant_each():
    lifted = lift.lift(source("depth, sizes = 50, [64, 4096]", "torch.rand(8, 8)", model="pass"))
    assert constants(lifted) == {"depth": 50, "SIZE_64": 64, "SIZE_4096": 4096}


@pytest.mark.parametrize("top", ["sizes = [4096] * 16", "sizes = 16 * [4096]", "sizes = (64,) * 2 + (4096,)"])
def test_sizes_in_repeated_lists_have_a_constant_and_the_number_of_them_has_none(top):
    lifted = lift.lift(source(top, "torch.rand(8, 8)", model="pass"))
    assert constants(lifted) == ({"SIZE_4096": 4096, "SIZE_64": 64} if "64," in top else {"SIZE_4096": 4096})


@pytest.mark.parametrize("top", ["c = {'width': 4096, 64: 1}", "c = dict(width=4096)"])
def test_sizes_in_dicts_have_a_constant_each(top):
    assert constants(lift.lift(source(top, "torch.rand(c['width'])"))) == {"SIZE_4096": 4096}


def test_numbers_inside_get_inputs_and_get_init_inputs_share_a_constant_where_they_are_equal():
    lifted = Task("t", lift.lift(source("", "torch.rand(2, 64 * 64)", "4096, 3")))
    assert Reference(lifted, {"SIZE_4096": 32}).inputs(0)[0].shape == (2, 32)
    assert Reference(lifted, {"SIZE_4096": 32}).init_args() == ([32, 3], {})


def test_what_is_no_whole_number_or_not_sure_stays_as_it_is():
    for top in (
        "x = 1 / 64",
        "x = 2 ** -1",
        "x = 1 // 0",
        "x = 1 << 4000",
        "x = f'{64}'",
        "x = 64.0 * 2",
        "x = y = None",
    ):
        assert lift.lift(source(top, "torch.rand(2)")) == source(top, "torch.rand(2)")


def test_lines_keep_their_numbers():
    text = source("M = 1024 * 2", "torch.rand(4096, 32)")
    assert len(lift.lift(text).splitlines()) == len(text.splitlines())
    assert len(lift.lift_network(text).splitlines()) == len(text.splitlines())


def test_a_constant_does_not_come_between_a_decorator_and_its_class():
    lifted = lift.lift('"""Text."""\n@str\nclass Model: ...\nshape = (32, 64)\n')
    assert lifted.splitlines()[1:] == [
        "SIZE_32 = 32; SIZE_64 = 64; ",
        "@str",
        "class Model: ...",
        "shape = (SIZE_32, SIZE_64)",
    ]


@pytest.mark.parametrize(
    "model",
    [
        PLAIN,
        "def __init__(self, width=4096, out=1024):\n        super().__init__()\n"
        "        self.fc = nn.Linear(width, out)",
        "def __init__(self, *, width=4096):\n        super().__init__()\n        self.out = 1024\n"
        "        self.fc = nn.Linear(width, self.out)",
        "widths = [4096, 1024]\n    def __init__(self):\n        super().__init__()\n"
        "        self.fc = nn.Linear(*self.widths)",
    ],
)
def test_sizes_inside_the_network_have_constants_of_their_own(model):
    lifted = Task("t", lift.lift_network(lift.lift(source(model=model))))
    small = Reference(lifted, {"SIZE_4096": 64, "WIDTH_4096": 64, "WIDTH_1024": 32})
    assert small.forward(small.model(0), small.inputs(0)).shape == (8, 32)
    assert lift.network_sizes(lifted.source) == {"WIDTH_1024": 1024, "WIDTH_4096": 4096}


def test_sizes_that_only_the_inputs_have_are_not_the_networks():
    lifted = lift.lift_network(lift.lift(source(inputs="torch.rand(512, 4096)")))
    assert "SIZE_512" in constants(lifted) and set(lift.network_sizes(lifted)) == {"WIDTH_4096", "WIDTH_1024"}


def test_a_submission_gets_the_small_sizes_of_the_network():
    task = Task("t", lift.lift_network(lift.lift(source())), small={"WIDTH_4096": 64, "WIDTH_1024": 32})
    theirs = "class ModelNew:\n    def f(self):\n        return nn.Linear(4096, 1024), g(4096 * 2, 512, num_warps=1024)"
    expected = theirs.replace("4096", "64").replace("(64, 1024)", "(64, 32)")
    assert lift.with_small_sizes(theirs, task) == expected


def test_a_submission_stays_as_it_is_where_the_network_does_or_where_it_does_not_parse():
    lifted = lift.lift(source())
    assert lift.with_small_sizes("x = 4096", Task("t", lifted, small={"SIZE_4096": 64})) == "x = 4096"
    network = Task("t", lift.lift_network(lifted), small={"WIDTH_1024": 64})
    assert lift.with_small_sizes("x = = 1024", network) == "x = = 1024"


def test_small_batches_are_the_numbers_with_which_shapes_of_inputs_begin():
    inputs = "torch.rand(8, 3, 14), torch.zeros((12, 5)), torch.rand(2, 9), torch.rand(n)"
    source = f"def get_inputs():\n    return [{inputs}]\n"
    lifted = lift.lift_batches(source + "def get_init_inputs():\n    return [8]\n")
    assert "torch.rand(SIZE_8, 3, 14), torch.zeros((SIZE_12, 5)), torch.rand(2, 9), torch.rand(n)" in lifted
    assert "SIZE_8 = 8; SIZE_12 = 12" in lifted and "return [8]" in lifted
