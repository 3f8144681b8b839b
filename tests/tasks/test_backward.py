"""The backward pass of a task is a task: the same constructor and weights, and autograd's gradients as outputs."""

from __future__ import annotations

import dataclasses
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from torch import nn

from drkernel.tasks import load_tasks, read_task
from drkernel.tasks.backward import backward, backward_passes, main
from drkernel.tasks.module import Reference
from drkernel.types import DrKernelError, Task

SOURCE = """import torch
import torch.nn as nn

ROWS, WIDTH = 6, 4


class Model(nn.Module):
    def __init__(self, width{more}):
        super(Model, self).__init__()
        self.linear = nn.Linear(width, 3)

    def forward(self, {arguments}):
        {body}


def get_inputs():
    return [{inputs}]


def get_init_inputs():
    return {init}
"""


def task(
    body="return self.linear(x)", arguments="x", inputs="torch.randn(ROWS, WIDTH)", init="[WIDTH]", more=""
) -> Task:
    source = SOURCE.format(body=body, arguments=arguments, inputs=inputs, init=init, more=more)
    return Task("some/task", source, split="test", level=2, precision="tf32")


def test_the_task_is_read_as_people_write_backward_passes():
    assert backward(task()).source.partition("return [WIDTH]\n")[2] == (
        """

class Model(ForwardModel):
    def forward(self, x, grad_output):
        with torch.enable_grad():
            x = x.detach().requires_grad_()
            output = super().forward(x)
            return torch.autograd.grad(output, (x, *self.parameters()), grad_output)


def get_inputs():
    inputs = get_forward_inputs()
    with torch.device("meta"):  # for the shape alone
        model = ForwardModel(*get_init_inputs())
        output = model(*(x.to("meta") if torch.is_tensor(x) else x for x in inputs))
    return [*inputs, torch.randn(output.shape)]
"""
    )


def test_all_else_is_the_tasks():
    made = backward(task())
    assert made.id == "some/task/backward" and made.info["forward"] == "some/task"
    assert (made.split, made.level, made.precision) == ("test", 2, "tf32")
    assert Reference(made).constants == Reference(task()).constants
    assert {name for name, _ in Reference(made).model(0).named_parameters()} == {"linear.weight", "linear.bias"}


FORMS = {
    "one output": task(),
    "two arguments": task(
        "return x * self.linear(x).sum() + y", "x, y", "torch.randn(ROWS, WIDTH), torch.randn(WIDTH)"
    ),
    "an index": task(
        "return self.linear(x)[rows]", "x, rows", "torch.randn(ROWS, WIDTH), torch.randint(0, ROWS, (9,))"
    ),
    "two outputs": task("y = self.linear(x)\n        return y, y.exp()"),
    "an output of whole numbers": task("return self.linear(x).max(1)"),
    "an unused argument": task("return self.linear(x)", "x, y=None", "torch.randn(ROWS, WIDTH), torch.randn(3)"),
    "an argument named as a weight": task(
        "return self.linear(x) * bias", "x, bias", "torch.randn(6, 4), torch.randn(3)"
    ),
    "a frozen weight": task("self.linear.bias.requires_grad_(False)\n        return self.linear(x)"),
    "an unused weight": task("return x @ self.linear.weight.t()"),
    "no weight is used": task("return x.exp()"),
    "a scalar": task("return self.linear(x).square().mean()"),
    "keywords": task(init='[[], {"width": WIDTH}]'),
    "any arguments": task("return self.linear(given[0])", "*given"),
    "a number": task("return self.linear(x) * by", "x, by", "torch.randn(ROWS, WIDTH), 3"),
    "16 bits": task("return self.linear(x).half()"),
    "batch norm": task("return nn.functional.batch_norm(self.linear(x), None, None, training=True)"),
}


@pytest.mark.parametrize("form", FORMS)
def test_its_outputs_are_the_gradients(form):
    forward, found = Reference(FORMS[form]), Reference(backward(FORMS[form]))
    model, given = found.model(0), found.inputs(1)
    plain, inputs = forward.model(0), forward.inputs(1)
    inputs = [x.requires_grad_() if torch.is_tensor(x) and x.is_floating_point() else x for x in inputs]
    outputs = plain(*inputs)
    outputs = [outputs] if torch.is_tensor(outputs) else list(outputs)
    outputs = [output for output in outputs if output.requires_grad]
    torch.autograd.backward(outputs, given[len(inputs) :])
    leaves = [x for x in inputs if torch.is_tensor(x)] + list(plain.parameters())
    want = [leaf.grad for leaf in leaves if leaf.grad is not None]
    got = found.forward(model, given)
    got = [got] if torch.is_tensor(got) else list(got)
    assert len(got) == len(want) > 0
    for one, other in zip(got, want, strict=True):
        assert torch.equal(one, other)


def test_a_weight_that_only_training_uses_is_left_out():
    of = task("return self.linear(x) if self.training else x @ self.linear.weight.t()")
    assert '(x, self.get_parameter("linear.weight"))' in backward(of).source


def test_a_forward_may_make_tensors():
    made = Reference(backward(task("return self.linear(x + torch.eye(ROWS, WIDTH))")))
    assert len(made.forward(made.model(0), made.inputs(0))) == 3


def test_a_source_without_the_name_torch_gets_it():
    of = dataclasses.replace(task(), source="from torch import nn, randn\n" + task(inputs="randn(ROWS, WIDTH)").source)
    plain = of.source.replace("import torch\nimport torch.nn as nn\n", "")
    of = dataclasses.replace(of, source=f"from __future__ import annotations\n{plain}")
    made = Reference(backward(of))
    assert len(made.forward(made.model(0), made.inputs(0))) == 3


@pytest.mark.parametrize(
    ("of", "words"),
    [
        (task("return self.linear(x).argmax(1)"), "task some/task: no output has a gradient"),
        (task("return x[x > 0]"), "task some/task: .*nonzero"),
        (task("return x / 0 + undefined"), "task some/task: .*name 'undefined' is not defined"),
    ],
)
def test_what_has_no_backward_pass_says_why(of, words):
    with pytest.raises(DrKernelError, match=words):
        backward(of)


def test_of_several_tasks_those_without_one_are_told_and_left_out():
    none, told = dataclasses.replace(task("return x.argmax(1)"), id="none"), []
    assert [made.id for made in backward_passes([none, task()], told.append)] == ["some/task/backward"]
    assert told == ["tasks.backward: left out: task none: no output has a gradient"]
    with pytest.raises(DrKernelError, match="none of 1 tasks has a backward pass; task none: no output"):
        backward_passes([none], told.append)


@pytest.mark.slow
def test_of_the_handwritten_tasks_all_but_two_have_one():
    told: list[str] = []
    made = backward_passes(load_tasks("handwritten", split="all"), told.append)
    assert len(made) == 98 and all("arg" in line for line in told)


JUDGED = Path(__file__).parents[1] / "judge" / "tasks"
CONVERTED = [path for path in JUDGED.glob("backward_*.py") if (JUDGED / path.name.removeprefix("backward_")).exists()]


@pytest.mark.parametrize("path", CONVERTED, ids=lambda path: path.stem)
def test_the_judges_backward_tasks_are_those_of_its_tasks(path):
    assert backward(read_task(JUDGED / path.name.removeprefix("backward_"))).source == path.read_text()


@pytest.mark.slow
def test_a_task_file_is_converted_by_a_command(tmp_path):
    (tmp_path / "relu.py").write_text(task().source)
    command = [sys.executable, "-m", "drkernel.tasks.backward", str(tmp_path / "relu.py")]
    assert subprocess.run(command, capture_output=True, text=True, check=True).stdout == backward(task()).source


def test_nothing_of_a_references_gradients_stays():
    """A reference that lets gradients add up, as `y.backward()` does, says the same at each call."""
    body = "x.requires_grad_(True)\n        with torch.enable_grad():\n            self.linear(x).backward(g)"
    arguments, inputs = "x, g", "torch.randn(ROWS, WIDTH), torch.randn(ROWS, 3)"
    found = Reference(task(f"{body}\n        return x.grad, self.linear.weight.grad", arguments, inputs))
    model, given = found.model(0), found.inputs(0)
    first, second = found.forward(model, given), found.forward(model, given)
    assert all(torch.equal(one, other) for one, other in zip(first, second, strict=True))
    assert not any(x.requires_grad or x.grad is not None for x in given)
    assert all(isinstance(weight, nn.Parameter) and weight.grad is None for weight in model.parameters())
    lasting = Reference(task("with torch.enable_grad():\n            return self.linear(x)"))
    assert not lasting.forward(lasting.model(0), lasting.inputs(0)).requires_grad


def test_a_file_that_is_no_task_is_one_line(tmp_path, capsys):
    with pytest.raises(SystemExit) as ended:
        main([str(tmp_path / "none.py")])
    said = capsys.readouterr().err
    assert ended.value.code == 2 and said.startswith("error: task file ") and said.count("\n") == 1
