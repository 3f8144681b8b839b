"""What a submission cannot see of a task, its module constants, is the network's own where the network reads it."""

from __future__ import annotations

import ast

import pytest

from drkernel.tasks.own_sizes import with_own_sizes

TASK = """\
import math
import torch
from torch import nn
{top}
class Model(nn.Module):
    def __init__(self, width=WIDTH):
        super().__init__()
        self.width = {read}
    def forward(self, x):
        return x * self.width
def get_inputs():
    return [torch.rand(8, WIDTH)]
def get_init_inputs():
    return []
"""


def network(top: str, read: str) -> str:
    """What the constructor reads, as it is written afterwards."""
    found = with_own_sizes(TASK.format(top=top, read=read))
    return next(line for line in found.splitlines() if "self.width =" in line).partition(" = ")[2]


@pytest.mark.parametrize(
    ("top", "read", "own"),
    [
        ("WIDTH = 64", "WIDTH", "64"),
        ("HEADS, WIDTH = 4, 64", "(WIDTH // HEADS)", "(64 // 4)"),
        ("WIDTH: int = 64; HALF = WIDTH // 2", "HALF", "32"),
        ("WIDTH = 64; SCALE = 1 / math.sqrt(WIDTH)", "SCALE", "(1 / math.sqrt(64))"),
        ("WIDTH = 64; LAYERS = [WIDTH, 2 * WIDTH]", "LAYERS[0]", "[64, 2 * 64][0]"),
        ("WIDTH = 64; CONFIG = dict(width=WIDTH)", "CONFIG['width']", "(dict(width=64))['width']"),
        ("WIDTH = 64", "[width for width in range(WIDTH)]", "[width for width in range(64)]"),
    ],
)
def test_the_network_has_the_numbers_and_the_inputs_the_names(top, read, own):
    assert network(top, read) == own
    source = with_own_sizes(TASK.format(top=top, read=read))
    assert "torch.rand(8, WIDTH)" in source
    assert "width=64" in source
    assert source.count("\n") == TASK.format(top=top, read=read).count("\n")


@pytest.mark.parametrize(
    ("top", "read"),
    [
        ("WIDTH = 64; EPS = 1e-5", "EPS"),  # no size
        ("WIDTH = 64; MASK = torch.ones(WIDTH)", "MASK"),  # made once, not at each call
        ("WIDTH = 64; DEPTH = 2\nDEPTH = 3", "DEPTH"),  # changes
        ("WIDTH = 64; LAYERS = [64]\nLAYERS.append(32)", "LAYERS"),
        ("WIDTH = 64; LAYERS = [64]\nLAYERS[0] = 32", "LAYERS"),
        ("WIDTH = 64; DEPTH = 2\nDEPTH += 1", "DEPTH"),
        ("WIDTH = 64", "[WIDTH for WIDTH in range(4)]"),  # another name
        ("WIDTH = 64", "f'{WIDTH}'"),
        ("WIDTH = 64; float = int; SIZE = float(3)", "SIZE"),
    ],
)
def test_what_is_no_size_or_not_sure_stays_a_name(top, read):
    assert network(top, read) == read


def test_functions_that_make_inputs_keep_the_names():
    source = "N = 64\ndef rows():\n    return N\ndef half():\n    return N\ndef get_inputs():\n    return [rows()]\n"
    assert with_own_sizes(source) == source.replace("half():\n    return N", "half():\n    return 64")


def test_lines_and_everything_else_stay_as_they_are():
    source = TASK.format(top="WIDTH = 64  # é", read="WIDTH  # of rows")
    assert ast.unparse(ast.parse(with_own_sizes(source))) == ast.unparse(
        ast.parse(source.replace("width=WIDTH", "width=64").replace("= WIDTH  #", "= 64  #"))
    )
