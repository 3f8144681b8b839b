"""An answer in canonical form says what it changes; the reference's own lines follow from the names that it reads."""

import pytest
import torch

from drkernel.coldstart.answers.lines import by_lines
from drkernel.policy.canonical import canonical
from drkernel.policy.canonical.edits import lines_of
from drkernel.tasks import generate
from drkernel.tasks.module import Reference
from drkernel.types import Task
from tests.policy.test_canonical import outputs, shrunk

TASK = """
import torch
import torch.nn as nn
import torch.nn.functional as F

class Model(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.first, self.second = nn.Linear(width, width), nn.Linear(width, width)
        self.heads = heads

    def forward(self, x):
        y = F.gelu(self.first(x)) + x
        b, s, c = y.shape
        y = y.view(b, s, self.heads, c // self.heads).transpose(1, 2)
        y = (y @ y.transpose(2, 3)) / (c // self.heads) ** 0.5
        return torch.tanh(self.second(x)) * y.mean()

def get_inputs():
    return [torch.randn(4, 16, 32)]

def get_init_inputs():
    return [32, 2]
"""
FORM = canonical(TASK)


def written(answer: str) -> str:
    """The methods of the submission that an answer stands for."""
    source = FORM.submission(f"def forward(self, in0):\n{answer}")
    return source[source.index("    def forward") :]


def shortened(forward: str) -> str:
    """What is left of a `forward` that somebody wrote."""
    answer = FORM.completion(f"class ModelNew(nn.Module):\n    def forward(self, x):\n{forward}")
    return answer.partition("\n")[2]


def test_a_value_of_the_reference_is_computed_where_it_is_read():
    assert written("    t2 = f(t0, in0)\n    return torch.tanh(t2)\n") == (
        "    def forward(self, in0):\n"
        "        t0 = self.first(in0)\n"
        "        t2 = f(t0, in0)\n"
        "        return torch.tanh(t2)\n"
    )


def test_a_value_is_computed_once_and_not_at_all_where_the_answer_sets_it():
    source = written("    o = g(t1)\n    t2 = h(t1, o)\n    return t2\n")
    assert source.count("self.first(in0)") == source.count("F.gelu") == 1
    assert " + in0" not in source and "self.second" not in source


def test_sizes_are_those_of_the_inputs():
    text = written("    return t7\n")
    assert "unflatten(2, (self.heads, -1))" in text and "/ t4.shape[-1] ** 0.5" in text


FACTORS = """
import torch
import torch.nn as nn
import torch.nn.functional as F

class Model(nn.Module):
    def __init__(self, width=64):
        super().__init__()
        self.layer, self.scale = nn.Linear(width, 48), width**-0.5

    def forward(self, x, lengths):
        {forward}

def get_inputs():
    return [torch.randn(8, 20, 64), torch.randint(1, 20, (8,))]

def get_init_inputs():
    return []
"""


@pytest.mark.parametrize(
    ("forward", "line"),
    [
        ("return x @ x.mT * self.scale", "t1 * in0.shape[-1] ** -0.5"),
        ("return (x @ x.mT).half().float() / x.shape[2] ** 0.5", "t3 / in0.shape[-1] ** 0.5"),
        ("return x @ x.mT * 0.125", "t1 * 0.125"),  # written as it is, so that no size decides it
        ("return x @ x.mT / 8.0", "t1 / 8.0"),
        ("return torch.sigmoid(x * 8)", "in0 * 8.0"),
        ("return x / (x.shape[1] * x.shape[2]) ** 0.5", "in0 / (in0.shape[1] * in0.shape[2]) ** 0.5"),
        ("x = self.layer(x)\n        return x + torch.arange(48)", "torch.arange(end=t0.shape[-1])"),
        ("return x[:, :-1].narrow(1, 0, x.shape[1] - 2)", "length=t0.shape[1] - 1"),
        ("return x[:, :-1].narrow(1, 0, 18)", "length=18"),
        ("x = x @ x.mT / x.shape[2]\n        return x", "t1 / in0.shape[-1]"),
        ("return x * torch.arange(1, x.shape[1] + 1)[:, None]", "end=in0.shape[1] + 1"),
        ("return x[:, :1].repeat(1, x.shape[1], 2) + x.new_zeros(x.shape[0], 1, 128)", "repeats=(1, in0.shape[1], 2)"),
        ("return x[:, :1].repeat(1, x.shape[1], 2) + x.new_zeros(x.shape[0], 1, 128)", "size=(in0.shape[0], 1, 128)"),
        ("return F.conv1d(x, self.layer.weight[:20, None, :3], groups=20)", "groups=in0.shape[1]"),
        ("return x.reshape(8, 4, 5, 8, 8).transpose(2, 3).reshape(8, 4 * 8, 5 * 8)", "t1.shape[1] * t1.shape[2], -1"),
        ("return x.unfold(1, 3, 1)", "in0.unfold(dimension=1, size=3, step=1)"),
    ],
)
def test_numbers_that_follow_from_sizes_are_written_as_sizes(forward, line):
    lines = [one.text for one in canonical(FACTORS.format(forward=forward)).told.lines]
    assert any(line in one for one in lines), lines


def test_a_policy_reads_a_factor_as_the_size_that_it_follows_from():
    text = canonical(FACTORS.format(forward="return x @ x.mT * self.scale")).text
    assert "t2 = t1 * in0.shape[-1] ** -0.5\n" in text


@pytest.mark.parametrize("answer", ["    return (\n", "    return own(in0)\n", "    t0 = own(in0)\n    return t0\n"])
def test_an_answer_that_reads_no_value_of_the_reference_stays_as_it_is(answer):
    assert written(answer) == f"    def forward(self, in0):\n{answer}".replace("\n    ", "\n        ")


def test_lines_that_compute_what_the_reference_computes_are_left_out():
    assert (
        shortened(
            "        h = self.first(x)\n        h = F.gelu(h)\n"
            "        o = torch.empty_like(h)\n        k[1,](h, x, o)\n        return o\n"
        )
        == "    t11 = torch.empty_like(t1)\n    k[1,](t1, in0, t11)\n    return t11\n"
    )


def test_what_a_kernel_makes_is_told_by_the_module_that_takes_it():
    source = TASK.replace("return torch.tanh(self.second(x)) * y.mean()", "return self.second(F.gelu(self.first(x)))")
    answer = canonical(source).completion(
        "class ModelNew(nn.Module):\n    def forward(self, x):\n        x = self.first(x)\n        o = own(x)\n"
        "        return self.second(o)\n"
    )
    assert answer == "def forward(self, in0):\n    t1 = own(t0)\n    return t2\n"


def test_a_name_of_the_reference_stands_for_one_value():
    """`x` is set to something else, and so is what holds `t0`."""
    answer = shortened("        x = own(x)\n        return x * self.first.weight\n")
    assert answer == "    in_0 = own(in0)\n    return in_0 * self.m0.weight\n"
    answer = shortened(
        "        h = self.first(x)\n        g = h * 3\n        h = own(g)\n        return F.gelu(h) + g\n"
    )
    assert answer == "    g = t0 * 3\n    h = own(g)\n    return F.gelu(h) + g\n"


def test_a_form_that_changes_a_tensor_in_place_is_repeated_whole():
    source = TASK.replace("y = F.gelu(self.first(x)) + x", "y = F.gelu(self.first(x)) + x\n        y[:, 0] = 0")
    assert canonical(source).told.lines == []
    text = canonical(source).submission("def forward(self, in0):\n    return t3\n")
    assert text.endswith("    def forward(self, in0):\n        return t3\n")


def test_a_line_that_is_no_python_leaves_no_lines():
    assert lines_of(["t0 = f(in0, <lambda>)", "return t0"], ["t0 = f(in0, <lambda>)", "return t0"]) == []


@pytest.mark.slow
def test_a_submission_and_what_is_left_of_it_are_the_same():
    """Over generated tasks: what an answer stands for is shortened to the same answer."""
    for task in generate("train", 60, 5, generator="graphs"):
        source, form = by_lines(task), canonical(task.source)
        if source:
            answer = form.completion(source)
            assert form.completion(form.submission(answer)) == answer


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(3))
def test_the_name_of_the_result_stands_for_the_reference_at_any_size(seed):
    """The form is of the task's own sizes; what follows from it runs at the small ones."""
    wrong = []
    for task in generate("train", 50, 20 + seed, generator="graphs"):
        form = canonical(task.source)
        if not form.told.lines:
            continue
        head, *_, last = form.text.splitlines()
        whole = Task(task.id, form.submission(f"{head}\n{last}\n"), small=task.small)
        ours, expected = outputs(shrunk(whole), shrunk(task))
        same = torch.allclose(ours, expected, rtol=1e-4, atol=1e-5, equal_nan=True)
        wrong += [] if same else [task.id]
    assert len(wrong) <= 1, "a size that stands for another than was guessed"


def test_an_answer_in_the_reference_s_names_is_shortened_to_itself():
    """What kernels make keeps its name, also where another kernel takes it."""
    answer = "def forward(self, in0):\n    t1 = f(t0)\n    t2 = g(t1, in0)\n    return t11\n"
    source = FORM.submission(answer)
    assert source is not None
    assert FORM.completion(source) == answer


RESIZED = """
import torch
import torch.nn as nn
import torch.nn.functional as F

class Model(nn.Module):
    def __init__(self, width, parts):
        super().__init__()
        self.half, self.extra, self.window = width // 2, parts - width, 3

    def forward(self, x):
        {forward}

batch, width = 8, 48

def get_inputs():
    return [torch.randn(batch, width, 30, 20)]

def get_init_inputs():
    return [width, 67]
"""


@pytest.mark.parametrize(
    ("forward", "line"),
    [
        ("return x[:, : self.half]", ":in0.shape[1] // 2]"),
        ("return torch.narrow(x, 1, 0, x.shape[1] // 3)", "length=in0.shape[1] // 3"),
        ("return F.unfold(x, self.window).unflatten(2, (x.shape[2] - 2, -1))", "(in0.shape[2] - 2, -1)"),
        (
            "return F.pad(x, (0, 0, 0, 0, self.extra // 2, self.extra - self.extra // 2))",
            "self.n1 // 2, (self.n1 + 1) // 2",
        ),
        ("return F.interpolate(F.avg_pool2d(x, 2), size=x.shape[2:])", "size=(in0.shape[2], in0.shape[3])"),
        ("return x / (x.shape[2] * x.shape[3] - 1)", "in0 / (in0.shape[2] * in0.shape[3] - 1)"),
        ("return torch.split(x, (x.shape[1] - 16, 16), dim=1)[0]", "in0.shape[1] - 16, 16"),
        ("return (x * (-9.21034037 / x.shape[1])).exp()", "in0 * (-4.60517019 / self.n0)"),
    ],
)
def test_numbers_that_change_with_other_sizes_are_written_as_sizes(forward, line):
    lines = [one.text for one in canonical(RESIZED.format(forward=forward)).told.lines]
    assert any(line in one for one in lines), lines


BLOCKS = """
import torch
import torch.nn as nn

class Block(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads, self.fc = heads, nn.Linear(width, width)

    def forward(self, x):
        x = self.fc(x)
        return x + x.view(*x.shape[:2], self.heads, -1).softmax(3).flatten(2)

class Model(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.blocks = nn.Sequential(Block(width, heads), Block(width, heads))

    def forward(self, x):
        return self.blocks(x)

def get_inputs():
    return [torch.randn(5, 7, 24)]

def get_init_inputs():
    return [24, {heads}]
"""


def test_numbers_that_several_modules_hold_are_those_of_the_module_that_reads_them():
    form = canonical(BLOCKS.format(heads=3))
    assert "unflatten(2, (self.n1, -1))" in "".join(line.text for line in form.told.lines)
    last = form.told.lines[-1].text
    ours, expected = outputs(form.submission(f"{form.text.splitlines()[0]}\n    {last}\n"), BLOCKS.format(heads=2))
    torch.testing.assert_close(ours, expected)


@pytest.mark.parametrize(
    ("base", "start", "read"),
    [
        ("nn.Sequential", "super().__init__(nn.Linear(8, 8), nn.Sequential(nn.ReLU(), nn.Linear(8, 4)))", "self[1][1]"),
        ("Base", "super().__init__(width=8)", "self.fc"),
    ],
)
def test_a_submission_inherits_what_the_task_inherits(base, start, read):
    given = "class Base(nn.Module):\n    def __init__(self, width):\n        super().__init__()\n"
    given += "        self.fc = nn.Linear(width, 4)\n    def forward(self, x):\n        return self.fc(x.relu())\n"
    source = (
        f"import torch\nimport torch.nn as nn\n{given}class Model({base}):\n    def __init__(self):\n        {start}\n"
    )
    source += "def get_inputs():\n    return [torch.randn(4, 8)]\ndef get_init_inputs():\n    return []\n"
    form = canonical(source)
    submission = form.submission(form.text)
    assert f"class ModelNew({base})" in submission and f"{read}(t" in submission
    torch.manual_seed(0)
    reference = Reference(Task("t", source))
    model, (x,) = reference.model(0), reference.inputs(0)
    other = Reference(Task("s", submission + source[source.index("def get_inputs") :], "ModelNew")).model(0)
    other.load_state_dict(model.state_dict())
    assert torch.equal(other(x), model(x))
