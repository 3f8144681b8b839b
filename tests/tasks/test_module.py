import random
import subprocess
import sys

import numpy as np
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


SEEDS = {
    "torch": ("", "torch.manual_seed(42)", "torch.randn(9)"),
    "torch, imported": ("from torch import manual_seed", "manual_seed(42)", "torch.rand(9)"),
    "torch's generator": ("", "g = torch.Generator().manual_seed(42)", "torch.randn(9, generator=g)"),
    "torch's generator, not seeded": ("", "g = torch.Generator()", "torch.randperm(999, generator=g)"),
    "torch's generator, made before": ("g = torch.Generator().manual_seed(42)", "pass", "torch.randn(9, generator=g)"),
    "random": ("import random", "random.seed(42)", "torch.tensor([random.random()])"),
    "random, not seeded": ("import random", "pass", "torch.tensor([random.random()])"),
    "random.Random": ("from random import Random", "r = Random(42)", "torch.tensor([r.random()])"),
    "random.Random, made before": ("from random import Random\nr = Random(4)", "pass", "torch.tensor([r.random()])"),
    "numpy": ("import numpy as np", "np.random.seed(42)", "torch.from_numpy(np.random.randn(9))"),
    "numpy, not seeded": ("import numpy as np", "pass", "torch.from_numpy(np.random.randn(9))"),
    "numpy, imported": ("from numpy.random import seed, rand", "seed(42)", "torch.from_numpy(rand(9))"),
    "default_rng": ("from numpy.random import default_rng", "r = default_rng(42)", "torch.from_numpy(r.random(9))"),
    "default_rng, not seeded": ("import numpy as np", "r = np.random.default_rng()", "torch.tensor(r.random(9))"),
    "default_rng, made before": (
        "import numpy as np\nr = np.random.default_rng(4)",
        "pass",
        "torch.tensor(r.random(9))",
    ),
    "RandomState": ("import numpy as np", "r = np.random.RandomState(42)", "torch.tensor(r.rand(9))"),
    "RandomState, seeded again": (
        "import numpy as np\nr = np.random.RandomState(0)",
        "r.seed(4)",
        "torch.tensor(r.rand(9))",
    ),
    "bit generators": (
        "import numpy as np",
        "r = np.random.Generator(np.random.Philox(key=42))",
        "torch.tensor(r.random(9))",
    ),
}
"""By what draws the numbers: what a task does when it is loaded, what seed it sets, and an input."""


def seeded(kind: str) -> Reference:
    loaded, seeding, drawn = SEEDS[kind]
    returned = f"{seeding}\n    first = {drawn}\n    {seeding}\n    return [first, {drawn}]"
    return reference(SOURCE.replace("return [torch.randn(ROWS, WIDTH)]", returned) + loaded)


@pytest.mark.parametrize("kind", SEEDS)
def test_inputs_follow_from_the_seed_whatever_seeds_a_task_sets(kind):
    first, other = seeded(kind), seeded(kind)
    inputs = [first.inputs(1), first.inputs(2), first.inputs(1), other.inputs(1)]
    assert not torch.equal(inputs[0][0], inputs[1][0])
    assert torch.equal(inputs[0][0], inputs[2][0]) and torch.equal(inputs[0][1], inputs[2][1])
    assert torch.equal(inputs[0][0], inputs[3][0])


@pytest.mark.parametrize("kind", [kind for kind in SEEDS if "not seeded" not in kind and "made before" not in kind])
def test_a_seed_that_is_set_twice_gives_the_same_numbers_twice(kind):
    first, second = seeded(kind).inputs(3)
    assert torch.equal(first, second)


def test_a_state_that_is_set_again_gives_the_same_numbers_again():
    returned = "state = torch.get_rng_state(); a = torch.rand(9); torch.set_rng_state(state); return [a, torch.rand(9)]"
    first, second = reference(SOURCE.replace("return [torch.randn(ROWS, WIDTH)]", returned)).inputs(3)
    assert torch.equal(first, second)


def test_drawing_inputs_leaves_the_generators_of_others_as_they_are():
    made = seeded("numpy")
    before = random.getstate(), np.random.get_state()[1].tolist(), np.random.default_rng, random.Random
    made.inputs(1)
    assert before == (random.getstate(), np.random.get_state()[1].tolist(), np.random.default_rng, random.Random)


def test_a_task_that_sets_no_seed_draws_what_torch_draws_from_the_seed():
    torch.manual_seed(5)
    expected = torch.randn(3, 5)
    assert torch.equal(reference().inputs(5)[0], expected)


def test_a_default_device_holds_for_what_a_library_replaces_while_it_is_first_used():
    """transformers has its own torch.linspace while it loads a model on the meta device."""
    code = """
import drkernel.tasks.module
import torch
from transformers.initialization import meta_device_safe_creation_ops
with meta_device_safe_creation_ops(), torch.device("meta"):
    torch.empty(0)
with torch.device("meta"):
    print(torch.linspace(0.0, 1.0, 3).device)
"""
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert found.stdout == "meta\n"
