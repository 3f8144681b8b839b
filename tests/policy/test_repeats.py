"""A call of an answer holds for every block of the reference that is like the one it stands for."""

import pytest

from drkernel.coldstart.answers.lines import by_lines
from drkernel.policy.canonical import canonical
from drkernel.policy.canonical.form import MOST_LINES, SHOWN
from drkernel.tasks import generate
from drkernel.types import Task

NETWORK = """
import torch
import torch.nn as nn
import torch.nn.functional as F

class Block(nn.Module):
    def __init__(self, width, padding):
        super().__init__()
        self.conv, self.norm = nn.Conv2d(width, width, 3, padding=padding), nn.BatchNorm2d(width)

    def forward(self, x):
        return F.relu(self.norm(self.conv(x)))

class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.blocks = nn.ModuleList([Block(8, 1) for _ in range({blocks})])

    def forward(self, x):
        for block in self.blocks:
            x = {step}
        return x.mean(dim=(2, 3))

def get_inputs():
    return [torch.randn(4, 8, 16, 16)]

def get_init_inputs():
    return []
"""
F1 = "def f1(t0, p0):\n    return t0\n"
F2 = "def f1(t0, p0, p1):\n    return t0\n"


def network(step="block(x)", blocks=3):
    return NETWORK.format(step=step, blocks=blocks)


def forward(source, *lines, functions=F1):
    """The statements of the submission that an answer stands for."""
    body = "\n".join(f"    {line}" for line in lines)
    written = canonical(source).submission(f"{functions}def forward(self, in0):\n{body}\n")
    return [line.strip() for line in written.partition("def forward")[2].splitlines()[1:]]


def test_a_call_stands_for_all_blocks_that_are_alike():
    written = forward(network(), "t2 = f1(t0, self.m1.weight)", "return t9")
    calls = [line for line in written if "f1" in line]
    assert calls == [
        "t2 = f1(t0, self.blocks[0].norm.weight)",
        "t5 = f1(t3, self.blocks[1].norm.weight)",
        "t8 = f1(t6, self.blocks[2].norm.weight)",
    ]
    assert not any("relu" in line for line in written)


def test_a_line_that_the_answer_has_itself_stays():
    written = forward(network(), "t2 = f1(t0, self.m1.weight)", "t5 = F.relu(t4)", "return t9")
    assert "t5 = F.relu(t4)" in written and sum("f1" in line for line in written) == 2


@pytest.mark.parametrize(
    ("step", "calls"),
    [
        ("block(x) * 0.25", 3),
        ("block(x) * (0.5 if block is self.blocks[1] else 0.25)", 2),
        ("F.gelu(block(x)) if block is self.blocks[1] else block(x) * 0.25", 2),
        ("block(x) * (0.25 if block is self.blocks[0] else x.amax())", 1),
    ],
)
def test_another_number_or_function_is_not_alike(step, calls):
    source = network(step)
    written = forward(source, "t3 = f1(t2)", canonical(source).told.lines[-1].text)
    assert sum("f1" in line for line in written) == calls


def test_blocks_that_hold_the_same_number_each_are_alike():
    taken = "self.norm(x).unflatten(1, (self.heads, -1)).relu().flatten(1, 2)"
    source = network().replace("F.relu(self.norm(self.conv(x)))", taken)
    source = source.replace("        self.conv,", "        self.heads = width // 2\n        self.conv,")
    written = forward(source, "t2 = f1(t0)", canonical(source).told.lines[-1].text)
    assert sum("f1" in line for line in written) == 3


def test_a_call_of_two_values_is_no_call_of_a_value_and_a_parameter():
    source = network("x + self.blocks[0].norm.weight[:, None, None] if block is self.blocks[0] else block(x) + x")
    form = canonical(source)
    added = [line for line in form.told.lines if " + " in line.text]
    written = forward(source, f"{added[-1].makes[0]} = f1(t5, t2)", form.told.lines[-1].text)
    assert sum("f1" in line for line in written) == 1


def test_windows_of_another_size_do_not_follow():
    source = network().replace("nn.Conv2d(width, width, 3, padding=padding)", "nn.Conv2d(width, width, 3)")
    source = source.replace("[Block", "[nn.Conv2d(8, 8, 1)] + [Block")
    written = forward(source, "t1 = f1(t0, self.m1.weight, self.m1.bias)", "return t10", functions=F2)
    assert sum("f1" in line for line in written) == 3, "a convolution of 1 x 1 is none of 3 x 3"


def test_of_a_long_program_a_policy_reads_the_beginning():
    form = canonical(network(blocks=30))
    lines = form.text.splitlines()
    assert len(form.told.lines) == 92 and len(lines) == 1 + SHOWN + 2
    assert lines[-2:] == ["    ...", "    return t90"]
    written = forward(network(blocks=30), "t2 = f1(t0, self.m1.weight)", "return t90")
    assert sum("f1" in line for line in written) == 30, "what an answer changes, it changes everywhere"
    assert "..." not in canonical(network(blocks=(MOST_LINES - 2) // 3)).text


@pytest.mark.slow
@pytest.mark.parametrize("generator", ["graphs", "programs_55"])
def test_answers_by_lines_come_back_as_they_were(generator):
    long = 0
    for task in [*generate("train", 40, 7, generator=generator), Task("long", network(blocks=30))]:
        if (submission := by_lines(task)) is None:
            continue
        form = canonical(task.source)
        answer = form.completion(submission)
        assert form.submission(answer).replace("(", "").replace(")", "") == submission.replace("(", "").replace(")", "")
        long += submission.count(" = f1(") > answer.count(" = f1(")
    assert long
