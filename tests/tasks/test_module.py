import pytest
import torch

from drkernel.tasks.module import Reference
from drkernel.types import DrKernelError, Task

SOURCE = """
import torch
import torch.nn as nn

ROWS, COLS = 3, -4
WIDTH: int = 5
DOUBLE = 2 * WIDTH
FLAG = True
RATE = 0.5


class Model(nn.Module):
    def __init__(self, width, bias=True):
        super().__init__()
        self.linear = nn.Linear(width, 2, bias=bias)

    def forward(self, x):
        return self.linear(x)


def get_inputs():
    return [torch.randn(ROWS, WIDTH)]


def get_init_inputs():
    return [WIDTH]
"""


def reference(source: str = SOURCE, **constants: int) -> Reference:
    return Reference(Task("some/task", source), constants)


def test_constants_are_the_int_literals_of_the_module_and_overrides_reach_everything_derived():
    assert reference().constants == {"ROWS": 3, "COLS": -4, "WIDTH": 5}
    changed = reference(WIDTH=7, ROWS=6)
    assert changed.constants == {"ROWS": 6, "COLS": -4, "WIDTH": 7}
    assert changed.inputs(0)[0].shape == (6, 7)
    assert changed.init_args() == ([7], {})
    assert changed._namespace["DOUBLE"] == 14


def test_the_same_seed_gives_the_same_weights_and_inputs_and_another_does_not():
    first, second = reference(), reference()
    assert torch.equal(first.model(1).linear.weight, second.model(1).linear.weight)
    assert not torch.equal(first.model(1).linear.weight, first.model(2).linear.weight)
    assert torch.equal(first.inputs(1)[0], second.inputs(1)[0])
    assert not torch.equal(first.inputs(1)[0], first.inputs(2)[0])


def test_two_references_share_no_state():
    first, second = reference(), reference()
    first._namespace["ROWS"] = 100
    assert second.inputs(0)[0].shape == (3, 5)


@pytest.mark.parametrize(
    ("returned", "expected"),
    [
        ("[5]", ([5], {})),
        ('[[], {"width": 5, "bias": False}]', ([], {"width": 5, "bias": False})),
        ("[5, {}]", ([5, {}], {})),
        ("[]", ([], {})),
    ],
)
def test_keyword_arguments_follow_kernelbench(returned, expected):
    assert reference(SOURCE.replace("return [WIDTH]", f"return {returned}")).init_args() == expected


def test_keyword_arguments_reach_the_constructor():
    model = reference(SOURCE.replace("return [WIDTH]", 'return [[], {"width": 5, "bias": False}]')).model(0)
    assert model.linear.bias is None


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("class Model(", "class Model((", r"some/task: line 12, loading: SyntaxError"),
        ("RATE = 0.5", "RATE = 1 / 0", r"some/task: line 9, loading: ZeroDivisionError"),
        ("def get_inputs", "def inputs", r"some/task: the source does not define 'get_inputs'"),
        ("torch.randn(ROWS, WIDTH)", "torch.randn(COLS)", r"some/task: line 22, get_inputs: RuntimeError"),
        ("self.linear(x)", "self.linear(x).nothing", r"some/task: line 18, forward: AttributeError"),
        ("nn.Linear(width, 2, bias=bias)", "nn.Linear(width)", r"some/task: line 15, Model: TypeError"),
    ],
)
def test_errors_of_the_file_name_the_task_the_line_and_the_error_in_one_line(old, new, message):
    assert old in SOURCE
    with pytest.raises(DrKernelError, match=message) as raised:
        broken = reference(SOURCE.replace(old, new))
        broken.forward(broken.model(0), broken.inputs(0))
    assert "\n" not in str(raised.value)


def test_an_unknown_constant_is_refused():
    with pytest.raises(DrKernelError, match="no module-level int constant 'DEPTH'"):
        reference(DEPTH=3)
