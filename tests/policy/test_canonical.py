"""The canonical form says what a task computes, however it is written; answers to it are answers to the task."""

import ast

import pytest
import torch

from drkernel.coldstart.answers.lines import by_lines
from drkernel.coldstart.solutions import solutions
from drkernel.judge import Judge
from drkernel.policy.canonical import canonical
from drkernel.policy.prompts import CanonicalPrompts, load_prompts
from drkernel.policy.tokenizer import train_tokenizer
from drkernel.tasks import generate, load_tasks
from drkernel.types import Task
from tests.policy.forms import form_of, source_of

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

class Scale(nn.Module):
    def __init__(self, factor):
        super().__init__()
        self.factor = factor

    def forward(self, x):
        return self.factor * x

class Model(nn.Module):
    """Scales after a convolution."""
    def __init__(self, n_feat: int, scale: float = 0.5) -> None:
        super(Model, self).__init__()
        # a comment
        conv = nn.Conv2d(n_feat, n_feat, kernel_size=(3, 3))
        self.layers = nn.ModuleList([conv, nn.ReLU(inplace=True), Scale(scale)])

    def forward(self, image: torch.Tensor) -> torch.Tensor:
        """Args: image"""
        for layer in self.layers:
            image = layer(image)
        return image.contiguous()

def get_init_inputs():
    return [CHANNELS]

def get_inputs():
    image = torch.randn((8, CHANNELS, H, W))
    return [image]
'''
FORM = """\
def forward(self, in0):  # in0: (8, 16, 32, 32)
    t0 = self.m0(in0)  # F.conv2d(weight (16, 16, 3, 3), bias); (8, 16, 30, 30)
    t1 = F.relu(t0)
    t2 = t1 * 0.5
    return t2
"""
ANSWER = """\
@triton.jit
def kernel(x_ptr):
    pass
def forward(self, in0):
    return t0 * 0.5
"""


def test_the_same_task_has_one_form_however_it_is_written():
    assert canonical(PLAIN).text == canonical(OTHERWISE).text == FORM


@pytest.mark.parametrize(
    ("spellings", "line"),
    [
        (("F.relu(x)", "torch.relu(x)", "x.relu()", "nn.ReLU()(x)", "x.clone().relu_()"), "t0 = F.relu(in0)"),
        (("x + 1", "1 + x", "torch.add(x, 1.0)", "x.add(1)"), "t0 = in0 + 1.0"),
        (("x - 2", "torch.sub(x, 2)", "torch.subtract(x, 2.0)"), "t0 = in0 - 2.0"),
        (("2 / x", "torch.div(2.0, x)"), "t0 = 2.0 / in0"),
        (("x.sum(-1)", "torch.sum(x, dim=1)", "torch.sum(x, (1,))"), "t0 = torch.sum(in0, dim=1)  # in0: (4, 8); (4,)"),
        (("x.max(1)[0]", "torch.max(x, -1).values", "x.amax(1)"), "t0 = torch.amax(in0, dim=1)  # in0: (4, 8); (4,)"),
        (("F.softmax(x, -1)", "x.softmax(1)", "nn.Softmax(dim=1)(x)"), "t0 = F.softmax(in0, dim=1)"),
        (("x.clamp(min=0)", "torch.clamp_min(x, 0.0)"), "t0 = torch.clamp(in0, min=0.0)"),
        (("x.T", "x.t()", "x.mT", "x.transpose(0, 1)", "x.permute(1, 0)"), "t0 = torch.permute(in0, (1, 0))"),
        (("x.view(-1)", "x.flatten()", "torch.reshape(x, (32,))"), "t0 = torch.flatten(in0, 0)"),
        (("x[:, None]", "x.unsqueeze(1)", "x.view(4, 1, 8)"), "t0 = torch.unsqueeze(in0, 1)"),
        (("x.view(4, 2, 4)", "x.reshape(-1, 2, 4)", "x.unflatten(1, (2, 4))"), "t0 = in0.unflatten(1, (2, 4))"),
        (("x.chunk(2, 1)[0]", "x.split(4, dim=-1)[0]"), "t0, _ = torch.chunk(in0, 2, dim=1)  # in0: (4, 8); (4, 4)"),
        (("x[:, 2:4]", "x.clone()[:, 2:4]"), "t0 = in0[:, 2:4]  # in0: (4, 8); (4, 2)"),
        (("F.gelu(x)", "nn.GELU()(x)", "F.gelu(x, approximate='none')"), "t0 = F.gelu(in0)"),
        (("x.norm(dim=1)", "torch.linalg.vector_norm(x, dim=1)"), "t0 = torch.norm(in0, dim=1)  # in0: (4, 8); (4,)"),
    ],
)
def test_one_function_has_one_spelling(spellings, line):
    for spelling in spellings:
        assert form_of(f"return {spelling}") == [line]


def test_what_changes_nothing_is_not_told():
    body = (
        "x = F.dropout(x, 0.5, self.training).contiguous().to(torch.float32)\nx.size(0)\nunused = x * 2\nreturn x.exp()"
    )
    assert form_of(body) == ["t0 = torch.exp(in0)"]


def test_loops_branches_and_helpers_take_their_course():
    body = "for k in range(2):\n    x = self.b(x)\nif x.shape[0] == 4:\n    x = x + k\nreturn x"
    assert form_of(body, start="self.b = Block(8)") == [
        "t0 = self.m0(in0)  # F.linear(weight (8, 8), bias)",
        "t1 = F.gelu(t0)",
        "t2 = self.m0(t1)  # F.linear(weight (8, 8), bias)",
        "t3 = F.gelu(t2)",
        "t4 = t3 + 1.0",
    ]


def test_what_a_module_holds_is_numbered_in_the_order_in_which_it_is_used():
    start = (
        "self.b = nn.Parameter(torch.ones(8))\nself.l = nn.ModuleList([nn.Linear(8, 8), nn.Linear(8, 3, bias=False)])"
    )
    assert form_of("return self.l[1](x / self.b)", start=start) == [
        "t0 = in0 / self.m0  # in0: (4, 8); m0: (8,)",
        "t1 = self.m1(t0)  # F.linear(weight (3, 8)); (4, 3)",
    ]


def test_shapes_that_differ_are_told_where_they_meet():
    body = "y = x.mean(1, keepdim=True).sqrt()\nreturn x.view(4, 2, 4).transpose(1, 2).flatten(1) - y"
    assert form_of(body) == [
        "t0 = torch.mean(in0, dim=1, keepdim=True)  # in0: (4, 8); (4, 1)",
        "t1 = torch.sqrt(t0)",
        "t2 = in0.unflatten(1, (2, 4))",
        "t3 = torch.permute(t2, (0, 2, 1))",
        "t4 = torch.flatten(t3, 1)",
        "t5 = t4 - t1  # t4: (4, 8); t1: (4, 1)",
    ]


def test_whole_numbers_that_a_module_holds_are_told():
    found = canonical(source_of("return x.view(-1, self.heads, 4)", start="self.heads = 2")).text
    assert found.startswith("def forward(self, in0):  # in0: (4, 8); n0: 2\n")


def test_assignments_to_elements_keep_their_place():
    assert form_of("y = x * 2\ny[:, 0] = x[:, 1]\nreturn y + 1") == [
        "t0 = in0 * 2.0",
        "t1 = in0[:, 1]  # in0: (4, 8); (4,)",
        "t0[:, 0] = t1",
        "t2 = t0 + 1.0",
    ]


@pytest.mark.parametrize(
    "body", ["for k in range(4200):\n    x = x + k\nreturn x", "return x[x > 0]", "return x.item()"]
)
def test_a_task_that_cannot_be_told_keeps_its_source(body):
    source = source_of(body)
    found = canonical(source)
    assert found.text == source and found.frame is not None
    assert "def forward(self, x): return x" in (found.submission("def forward(self, x): return x") or "")


def test_running_a_task_leaves_no_trace():
    before = torch.random.get_rng_state()
    canonical(PLAIN.replace("class Model", "torch.manual_seed(3)\ntorch.set_default_dtype(torch.float64)\nclass Model"))
    assert torch.equal(before, torch.random.get_rng_state()) and torch.get_default_dtype() is torch.float32


def test_an_answer_has_kernels_and_forward_in_canonical_names():
    submission = OTHERWISE.replace("class Model(", "@triton.jit\ndef kernel(x_ptr):\n    pass\nclass ModelNew(")
    submission = submission.replace("for layer in self.layers:", "x = self.layers[0](image)").partition("def get_init")[
        0
    ]
    submission = submission.replace(
        "            image = layer(image)\n        return image.contiguous()", "        return x * 0.5"
    )
    assert canonical(OTHERWISE).completion(submission) == ANSWER


def test_a_submission_keeps_the_constructor_of_the_source():
    found = canonical(OTHERWISE).submission(ANSWER, "ModelNew")
    assert "t0 = self.layers[0](in0)" in found and "CHANNELS = 8 * 2" in found
    assert "def get_inputs" not in found and "super(Model" not in found
    assert canonical(OTHERWISE).completion(found) == ANSWER
    assert canonical(OTHERWISE).submission("x = 1\n") is None


def test_a_policy_reads_six_digits_of_a_number_and_its_submission_has_all():
    """Six are too few for an answer in float32: an error of 2e-6."""
    form = canonical(PLAIN.replace("* self.gain", "/ 2 ** 0.5"))
    assert "t2 = t1 / 1.41421\n" in form.text
    answer = "def kernel(x):\n    return x / 1.41421\ndef forward(self, in0):\n    return t1 / 1.41421\n"
    found = form.submission(answer)
    assert found.count("/ 1.4142135623730951\n") == 2 and "1.41421\n" not in found
    assert form.completion(found) == answer


def test_a_size_that_hides_an_import_is_left_out_unless_the_module_reads_it():
    for constructor, kept in (("F", True), ("8", False)):
        source = OTHERWISE.replace("CHANNELS = 8 * 2", "CHANNELS = 8 * 2\nF = 16")
        source = source.replace(
            "super(Model, self).__init__()", f"super().__init__()\n        self.rank = {constructor}"
        )
        assert ("F = 16" in canonical(source).submission(ANSWER, "ModelNew")) is kept


@pytest.mark.parametrize("source", ["not python (", "x = 1\n", ""])
def test_what_has_no_form_stays_as_it_is(source):
    found = canonical(source)
    assert found.text == source and found.completion("class ModelNew: pass") == "class ModelNew: pass"
    assert found.submission("class ModelNew: pass") == "class ModelNew: pass"


def shrunk(task: Task) -> str:
    """The source with its small sizes."""
    tree = ast.parse(task.source)
    for statement in tree.body:
        match statement:
            case ast.Assign(targets=[ast.Name(id=name)]) | ast.AnnAssign(target=ast.Name(id=name)) if (
                name in task.small
            ):
                statement.value = ast.Constant(task.small[name])
            case ast.Assign(targets=[ast.Tuple(elts=names)], value=ast.Tuple(elts=values) as given):
                pairs = zip(names, values, strict=True)
                given.elts = [ast.Constant(task.small[n.id]) if n.id in task.small else v for n, v in pairs]
    return ast.unparse(ast.fix_missing_locations(tree))


def outputs(submission: str, source: str) -> tuple[torch.Tensor, torch.Tensor]:
    """What a submission and its reference compute, in evaluation mode, with the same weights and inputs."""
    reference: dict = {"__name__": "task"}
    ours: dict = {}
    exec(source, reference)
    exec(submission, ours)
    given = reference["get_init_inputs"]()
    named = len(given) == 2 and isinstance(given[1], dict)
    model, copy = ((cls(**given[1]) if named else cls(*given)).eval() for cls in (reference["Model"], ours["ModelNew"]))
    copy.load_state_dict(model.state_dict())
    inputs = reference["get_inputs"]()
    with torch.no_grad():
        return copy(*inputs), model(*inputs)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(4))
def test_the_form_computes_what_the_task_computes(seed):
    for task in generate("train", 40, 70 + seed, generator="graphs"):
        source = shrunk(task)
        form = canonical(source)
        ours, expected = outputs(form.submission(form.text), source)
        torch.testing.assert_close(ours, expected, rtol=1e-4, atol=1e-5, equal_nan=True)


@pytest.mark.slow
def test_every_task_that_there_is_has_a_form():
    tasks = [*generate("train", 60, 3, generator="graphs"), *generate("train", 40, 3, generator="operators")]
    untold = [t.id for t in load_tasks("handwritten", split="all") if canonical(t.source).text == t.source]
    assert len(untold) <= 8, untold
    for task in tasks:
        text = canonical(task.source).text
        assert text.startswith("def forward(self, in0") and '"""' not in text
        ast.parse(text)


@pytest.mark.slow
def test_answers_are_right_as_submissions():
    with Judge(device="simulated", workers=1, secret=b"a secret of the tests") as judge:
        pending = []
        for task in generate("train", 8, 41, generator="graphs"):
            right = [s.source for s in solutions(task, 0, plain=True) if s.kind in ("fused", "partial")]
            for source in [*right, *filter(None, [by_lines(task)])]:
                form = canonical(task.source)
                pending.append(judge.submit(task, form.submission(form.completion(source))))
        assert {future.result().status for future in pending} == {"ok"}


def test_a_task_of_another_name_is_answered_by_its_name():
    tokenizer = train_tokenizer([FORM])
    prompts, task = load_prompts("canonical", tokenizer), Task("t", PLAIN.replace("Model", "Net"), entry_point="Net")
    assert CanonicalPrompts.opening(task) == FORM
    assert "class NetNew(nn.Module)" in (prompts.extract(ANSWER, task) or "")
    assert CanonicalPrompts.completion_text(
        "class NetNew(nn.Module):\n    def forward(self, x):\n        return x\n", task
    ) == ("def forward(self, in0):\n    return in0\n")


def test_prompts_say_the_precision_too():
    assert CanonicalPrompts.opening(Task("t", PLAIN, precision="tf32")) == FORM + "# precision: tf32\n"
