"""Sizes for the interpreter: small, and such that kernels can still be what they are at full size."""

from drkernel.judge.trusted import shrink
from drkernel.types import Task

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


def test_other_sizes_are_halved_alike():
    source = ATTENTION.replace("B, H, S, D = 32, 16, 512, 64", "B, H, S, D = 2, 2, 64, 64")
    assert shrink.fit(Task("attention", source)).small in ({}, {"S": 32, "D": 32})


def test_rows_of_tasks_without_products_are_halved_like_other_sizes():
    source = ATTENTION.replace("torch.nn.functional.scaled_dot_product_attention(q, k, v)", "q + k + v")
    assert set(shrink.fit(Task("sum", source)).small.values()) == {8}
