"""The canonical form says what a task computes, however it is written; answers to it are answers to the task."""

import ast
import textwrap

import pytest

from drkernel.coldstart.solutions import solutions
from drkernel.judge import Judge
from drkernel.policy.canonical import canonical
from drkernel.policy.canonical.inputs import described
from drkernel.policy.prompts import CanonicalPrompts, load_prompts
from drkernel.policy.tokenizer import train_tokenizer
from drkernel.tasks import generate, load_tasks
from drkernel.types import Task

PLAIN = """
import torch
import torch.nn as nn

class Model(nn.Module):
    def __init__(self, width, gain=0.5):
        super().__init__()
        self.conv = nn.Conv2d(width, width, 3)
        self.gain = gain

    def forward(self, x):
        return torch.relu(self.conv(x)) * self.gain

def get_inputs():
    return [torch.randn(8, 16, 32, 32)]

def get_init_inputs():
    return [16]
"""
OTHERWISE = '''
from torch import nn
import torch
H = W = 32
CHANNELS = 8 * 2  # channels

class Model(nn.Module):
    """Scales after a convolution."""
    def __init__(self, n_feat: int, scale: float = 0.5) -> None:
        super(Model, self).__init__()
        # a comment
        self.layer = nn.Conv2d(n_feat, n_feat, 3)
        self.scale = scale

    def forward(self, image: torch.Tensor) -> torch.Tensor:
        """Args: image"""
        image = self.layer(image)
        activated = torch.relu(image)
        return activated * self.scale

def get_init_inputs():
    return [CHANNELS]

def get_inputs():
    image = torch.randn((8, CHANNELS, H, W))
    return [image]
'''
FORM = """\
class Model:
    def __init__(self, c0):
        self.m0 = nn.Conv2d(c0, c0, 3)
        self.m1 = 0.5
    def forward(self, in0):  # in0: (8, 16, 32, 32)
        t0 = self.m0(in0)  # m0: nn.Conv2d(16, 16, 3)
        t1 = torch.relu(t0)
        t2 = t1 * self.m1  # m1: 0.5
        return t2
"""


def model(body: str, inputs: str = "torch.randn(4, 8)", start: str = "") -> str:
    """The text of a task's forward in canonical form, without its head."""
    init = textwrap.indent(textwrap.dedent(start), " " * 8)
    source = f"import torch\nimport torch.nn as nn\nimport torch.nn.functional as F\n{HELPERS}class Model(nn.Module):\n"
    source += f"    def __init__(self):\n        super().__init__()\n{init}\n" if start else ""
    source += f"    def forward(self, x):\n{textwrap.indent(textwrap.dedent(body), ' ' * 8)}\n"
    found = canonical(
        source + f"def get_inputs():\n    return [{inputs}]\ndef get_init_inputs():\n    return []\n"
    ).text
    return textwrap.dedent(found.rpartition("def forward")[2].partition("\n")[2])


HELPERS = """
class Block(nn.Module):
    def __init__(self, n):
        super().__init__()
        self.fc = nn.Linear(n, n)
    def forward(self, y):
        return F.gelu(self.fc(y))
"""


def test_the_same_task_has_one_form_however_it_is_written():
    assert canonical(PLAIN).text == canonical(OTHERWISE).text == FORM


def test_each_line_has_one_operator():
    assert model("y = x + 1\nreturn torch.cat([y, torch.exp(-y)], dim=1).mean()") == (
        "t0 = in0 + 1\nt1 = -t0\nt2 = torch.exp(t1)\nt3 = torch.cat([t0, t2], dim=1)\nt4 = t3.mean()\nreturn t4\n"
    )


def test_what_is_made_of_shapes_stands_where_it_is_used():
    assert model("b = x.size(0)\nreturn x.view(b, 2, x.shape[1] // 2)") == (
        "t0 = in0.view(in0.size(0), 2, in0.shape[1] // 2)\nreturn t0\n"
    )


def test_modules_of_modules_are_written_out():
    found = model(
        "return self.b(self.s(x))", start="self.s = nn.Sequential(nn.Linear(8, 4), nn.ReLU())\nself.b = Block(4)"
    )
    assert found == (
        "t0 = self.m0[0](in0)  # m0[0]: nn.Linear(8, 4)\nt1 = self.m0[1](t0)  # m0[1]: nn.ReLU()\n"
        "t2 = self.m1.m2(t1)  # m1.m2: nn.Linear(4, 4)\nt3 = F.gelu(t2)\nreturn t3\n"
    )


def test_loops_stay_and_what_they_change_keeps_its_name():
    found = model("for k in range(x.size(0)):\n    x = x[k] * 2\nreturn x")
    assert found == "v1 = in0\nfor v0 in range(v1.size(0)):\n    t0 = v1[v0]\n    v1 = t0 * 2\nreturn v1\n"


def test_loops_over_modules_that_are_known_are_written_out():
    start = "self.l = nn.ModuleList([nn.Linear(8, 2 * k) for k in range(2)])"
    assert model("for layer in self.l:\n    x = layer(x)\nreturn x", start=start) == (
        "t0 = self.m0[0](in0)  # m0[0]: nn.Linear(8, 0)\nt1 = self.m0[1](t0)  # m0[1]: nn.Linear(8, 2)\nreturn t1\n"
    )


def test_branches_that_literals_decide_are_decided():
    found = model("if self.on:\n    x = x * 2\nelse:\n    x = x / 2\nreturn x", start="self.on = True")
    assert found == "t0 = in0 * 2\nreturn t0\n"
    start = "self.extra = nn.ReLU() if 1 > 2 else None\nself.f = nn.Linear(8, 8)"
    assert model("if self.extra is None:\n    x = self.f(x)\nreturn x", start=start).startswith("t0 = self.m1(in0)")


@pytest.mark.parametrize(
    ("expression", "said"),
    [
        ("torch.randn(4, 8)", "(4, 8)"),
        ("torch.rand(2, *(3, 4)) * 2 - 1", "(2, 3, 4)"),
        ("torch.randint(0, 10, (5,))", "int < 10 (5,)"),
        ("torch.randint(0, 2, (5, 6)).bool()", "bool (5, 6)"),
        ("torch.tril(torch.randn(4, 4))", "tril (4, 4)"),
        ("torch.randn(4, 8, dtype=torch.float16)", "float16 (4, 8)"),
        ("torch.randn(3, 4).T", "(4, 3)"),
        ("torch.linspace(0, 1, 8)", "torch.linspace(0, 1, 8)"),
    ],
)
def test_inputs_are_told_in_short_where_it_is_known_what_they_are(expression, said):
    assert described(ast.parse(expression, mode="eval").body) == said


def test_a_submission_follows_the_names_and_drops_what_nothing_fills():
    submission = PLAIN.partition("def get_inputs")[0].replace("class Model(", "class ModelNew(")
    written = canonical(PLAIN).written(submission)
    assert "def __init__(self, c0):" in written and "self.m1 = 0.5" in written
    assert "return torch.relu(self.m0(in0)) * self.m1" in written


def test_functions_of_libraries_and_tensors_keep_their_names():
    found = model("return self.relu(F.relu(x).exp())", start="self.relu = nn.ReLU()\nself.exp = 2")
    assert found.startswith("t0 = F.relu(in0)\nt1 = t0.exp()\nt2 = self.m0(t1)")


def test_constructors_that_are_called_by_name_keep_those_names():
    source = PLAIN.replace("return [16]", 'return [[], {"width": 16}]')
    assert "def __init__(self, width):" in canonical(source).text


@pytest.mark.parametrize("source", ["not python (", "x = 1\n", ""])
def test_what_has_no_form_stays_as_it_is(source):
    assert canonical(source).text == source and canonical(source).written("class ModelNew: pass") is not None


def test_every_task_that_there_is_has_a_form_without_a_name_of_its_own():
    tasks = [
        *generate("train", 60, 3, version=2),
        *generate("train", 40, 3, version=1),
        *load_tasks("handwritten", split="all"),
    ]
    for task in tasks:
        text = canonical(task.source).text
        assert text != task.source and '"""' not in text
        ast.parse(text)


@pytest.mark.slow
def test_submissions_in_canonical_names_are_right():
    tasks = generate("train", 8, 41, version=2)
    with Judge(device="simulated", workers=2) as judge:
        pending = [
            judge.submit(task, CanonicalPrompts.answer(solution.source, task))
            for task in tasks
            for solution in solutions(task, 0, plain=True)
            if solution.kind in ("fused", "partial")
        ]
        assert {future.result().status for future in pending} == {"ok"}


def test_a_task_of_another_name_is_answered_by_its_name():
    tokenizer = train_tokenizer([FORM])
    prompts, task = load_prompts("canonical", tokenizer), Task("t", PLAIN.replace("Model", "Net"), entry_point="Net")
    written = CanonicalPrompts.answer("class NetNew(nn.Module):\n    pass\n", task)
    assert CanonicalPrompts.opening(task) == FORM and "class ModelNew" in written
    assert "class NetNew" in (prompts.extract(written, task.answer_name) or "")


def test_prompts_say_the_precision_too():
    assert CanonicalPrompts.opening(Task("t", PLAIN, precision="tf32")) == FORM + "# precision: tf32\n"
