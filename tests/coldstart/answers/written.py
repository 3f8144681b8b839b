"""Tasks that a test writes, and what a policy would answer by lines."""

from drkernel.coldstart.answers.lines import by_lines
from drkernel.policy.canonical import canonical
from drkernel.types import Task

TASK = """
import torch
import torch.nn as nn
import torch.nn.functional as F

class Model(nn.Module):
    def __init__(self):
        super().__init__()
{modules}

    def forward(self, x, y):
        {forward}

def get_inputs():
    return [torch.randn({shape}), torch.randn({shape})]

def get_init_inputs():
    return []
"""
IMAGES, ROWS, TABLE = "16, 32, 64, 64", "16, 128, 256", "4096, 4096"


def task(forward: str, shape: str, *modules: str) -> Task:
    lines = (
        "\n".join(f"        self.{name} = {made}" for name, made in zip("abc", modules, strict=False)) or "        pass"
    )
    return Task("written", TASK.format(forward=forward, shape=shape, modules=lines))


def answer(of: Task) -> str:
    """What a policy would write; empty where there is no answer."""
    source = by_lines(of)
    return canonical(of.source).completion(source) if source else ""
