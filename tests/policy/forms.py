"""Canonical forms of tasks that a test writes."""

import textwrap

from drkernel.policy.canonical import canonical

HELPERS = """
class Block(nn.Module):
    def __init__(self, n):
        super().__init__()
        self.fc = nn.Linear(n, n)
    def forward(self, y):
        return F.gelu(self.fc(y))
"""


def source_of(body: str, inputs: str = "torch.randn(4, 8)", start: str = "") -> str:
    init = textwrap.indent(textwrap.dedent(start), " " * 8)
    source = f"import torch\nimport torch.nn as nn\nimport torch.nn.functional as F\n{HELPERS}class Model(nn.Module):\n"
    source += f"    def __init__(self):\n        super().__init__()\n{init}\n" if start else ""
    source += f"    def forward(self, x, y=None):\n{textwrap.indent(textwrap.dedent(body), ' ' * 8)}\n"
    return source + f"def get_inputs():\n    return [{inputs}]\ndef get_init_inputs():\n    return []\n"


def form_of(body: str, inputs: str = "torch.randn(4, 8)", start: str = "") -> list[str]:
    """The lines of a task's canonical form, without the first and the last one."""
    head, *lines = canonical(source_of(body, inputs, start)).text.splitlines()
    assert head.startswith("def forward(self, in0"), head
    return [line.strip() for line in lines[:-1]]
