"""Prepared tasks are kept, as many as there is room for; an unusable one is not prepared again."""

from __future__ import annotations

import contextlib
from types import SimpleNamespace

import pytest

from drkernel.judge.boundary import aten
from drkernel.judge.boundary.op_trace import OpTrace
from drkernel.judge.devices.simulated.gpus import GPUS
from drkernel.judge.devices.simulated.rescale import Scale
from drkernel.judge.devices.simulated.roofline import Roofline
from drkernel.judge.trusted import prepare, spent
from drkernel.judge.trusted.cases.plans import PUBLISHED
from drkernel.judge.trusted.prepare import PreparedTaskCache
from drkernel.tasks.module import Reference
from drkernel.types import DrKernelError, Task


def prepared(cache: PreparedTaskCache, *names: str) -> list[str]:
    """Which of the tasks were prepared when they were asked for in turn."""
    done: list[str] = []
    for name in names:
        task = SimpleNamespace(name=name, shared=None)
        assert cache.get(Task(name, name), lambda: done.append(name) or task).name == name  # noqa: B023
    return done


def test_a_task_is_prepared_once_and_the_one_that_was_asked_for_longest_ago_makes_room():
    cache = PreparedTaskCache(2)
    assert prepared(cache, "a", "b", "a", "b") == ["a", "b"]
    assert prepared(cache, "a", "c", "a") == ["c"]
    assert Task("a", "a") in cache and Task("b", "b") not in cache


def test_what_is_wrong_with_a_task_is_said_again_without_another_try():
    cache, tried, said = PreparedTaskCache(2), [], []

    def fail():
        tried.append(1)
        raise DrKernelError("task a: its reference fails")

    for _ in range(2):
        with pytest.raises(DrKernelError, match=r"^task a: its reference fails$") as caught:
            cache.get(Task("a", "a"), fail)
        said.append(caught.value)
    assert len(tried) == 1 and said[0] is not said[1], "the error is kept, and all that its traceback holds"


SOURCE = """
import torch, torch.nn as nn
ROWS, COLS = 32, 64
class Model(nn.Module):
    def forward(self, x):
        return torch.tanh(x) * x
def get_inputs():
    return [torch.randn(ROWS, COLS)]
def get_init_inputs():
    return []
"""


@contextlib.contextmanager
def recording():
    with aten.Recorder(OpTrace()) as recorder:
        yield recorder.trace


def test_others_may_have_the_device_between_the_steps_and_each_is_timed():
    reference, pauses = Reference(Task("t", SOURCE)), []
    spent.taken()
    given = b"secret", Roofline(GPUS["H200"], Scale()), recording, reference
    found = prepare.prepare(reference, reference, *given, pause=lambda: pauses.append(1))
    assert not found.degenerate and len(pauses) >= 3
    took = spent.taken()
    assert {"costs", "hidden shapes", "trivial outputs", "exact", "noise"} <= took.keys()
    assert took["exact"] <= took["trivial outputs"] and not spent.taken()


PRODUCT = """
import torch, torch.nn as nn
ROWS, INNER = {rows}, {inner}
class Model(nn.Module):
    def forward(self, x, y):
        return torch.relu(x @ y) * (0.0 if x.shape[1] > 100 else 1.0)
def get_inputs():
    return [torch.randn(ROWS, INNER), torch.randn(INNER, ROWS)]
def get_init_inputs():
    return []
"""


@pytest.mark.parametrize("output", ["torch.fft.rfft(x)", "[x * 2, {'spectrum': torch.fft.rfft(x)}]", "1j"])
def test_a_task_with_complex_outputs_is_refused(output):
    task = Task("a/spectrum", SOURCE.replace("torch.tanh(x) * x", output))
    reference, gpu = Reference(task), Roofline(GPUS["H200"], Scale())
    with pytest.raises(DrKernelError, match=r"task a/spectrum: output.* is complex.*view_as_real"):
        prepare.prepare(reference, reference, b"secret", gpu, recording, reference)


GATE = """(nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("gate", torch.zeros(3, dtype=torch.{kind}))
"""


@pytest.mark.parametrize("kind", ["float8_e4m3fn", "uint16"])
@pytest.mark.parametrize(
    ("old", "new", "named"),
    [
        ("(ROWS, COLS)", "(ROWS, COLS).abs().to(torch.{kind})", r"inputs\[0\]"),
        ("torch.tanh(x) * x", "x.abs().to(torch.{kind})", "output"),
        ("(nn.Module):\n", GATE, "gate"),
    ],
    ids=["input", "output", "buffer"],
)
def test_a_task_with_numbers_in_which_torch_does_not_compute_is_refused(kind, old, new, named):
    source = SOURCE.replace("tanh(x) * x", "tanh(x.float()) * x.float()") if named.startswith("inputs") else SOURCE
    reference = Reference(Task("a/narrow", source.replace(old, new.format(kind=kind))))
    with pytest.raises(DrKernelError, match=rf"task a/narrow: {named} is torch.{kind}, which is not judged; "):
        prepare.prepare(reference, reference, b"secret", Roofline(GPUS["H200"], Scale()), recording, reference)


VARYING = """def get_inputs():
    x = torch.rand(1)
    while not 0.4 < x.numpy()[0] < 0.5:
        x = torch.rand(1)
    return [x * torch.randn(ROWS, COLS)]
def once():
"""


def test_a_task_whose_draws_are_as_many_as_others_say_unseen_is_refused():
    reference = Reference(Task("a/varying", SOURCE.replace("def get_inputs():\n", VARYING)))
    with pytest.raises(DrKernelError, match="task a/varying: how often get_inputs draws"):
        prepare.prepare(reference, reference, b"secret", Roofline(GPUS["H200"], Scale()), recording, reference)


MASKED = "x.masked_fill(torch.ones(x.shape[0], x.shape[1], dtype=torch.bool).triu(1), float('-inf'))"


@pytest.mark.parametrize(("output", "fit"), [(MASKED, True), (MASKED.replace("x.m", "(0 * x).m"), False)])
def test_infinities_where_a_mask_is_do_not_make_a_task_degenerate(output, fit):
    reference = Reference(Task("t", SOURCE.replace("torch.tanh(x) * x", output)))
    found = prepare.prepare(reference, reference, b"secret", Roofline(GPUS["H200"], Scale()), recording, reference)
    assert (not found.degenerate) is fit and len(found.hidden) > 0


@pytest.mark.slow
def test_ranks_of_close_numbers_do_not_make_a_task_degenerate():
    source = SOURCE.replace("torch.tanh(x) * x", "x.flatten().argsort().argsort()")
    # numbers lie so close that rounding decides ranks in every regime but the given one
    reference = Reference(Task("t", source.replace("32, 64", "128, 2048")))
    found = prepare.prepare(reference, reference, b"secret", Roofline(GPUS["H200"], Scale()), recording, reference)
    assert not found.degenerate


TOWER = """
import torch
from torch import nn
class Model(nn.Module):
    def __init__(self):
        super().__init__()
        block = lambda: nn.Sequential(nn.Linear(16, 16), nn.BatchNorm1d(16), nn.ReLU())
        self.layers, self.head = nn.Sequential(*(block() for _ in range({depth}))), nn.Linear(16, 8)
    def forward(self, x):
        return self.head(self.layers(x))
def get_inputs():
    return [torch.rand({rows}, 16)]
def get_init_inputs():
    return []
"""


@pytest.mark.slow
@pytest.mark.parametrize(("rows", "depth", "alternatives"), [(3, 20, [(False,)]), (64, 2, [(True,), (False,)])])
def test_a_mode_in_which_rounding_hides_wrong_outputs_is_no_alternative(rows, depth, alternatives):
    """A norm of three numbers is little more than their order: outputs of a deep network in training say nothing."""
    reference = Reference(Task("t", TOWER.format(rows=rows, depth=depth)))
    found = prepare.prepare(reference, reference, b"secret", Roofline(GPUS["H200"], Scale()), recording, reference)
    assert found.mode_alternatives == alternatives and not found.degenerate


@pytest.mark.slow
def test_deep_networks_tell_in_evaluation_too():
    """Their running statistics are near those of a batch, so that values do not vanish from layer to layer."""
    reference = Reference(Task("t", TOWER.format(rows=64, depth=30)))
    found = prepare.prepare(reference, reference, b"secret", Roofline(GPUS["H200"], Scale()), recording, reference)
    assert found.mode_alternatives == [(True,), (False,)]


@pytest.mark.slow
def test_modes_stay_where_the_sizes_that_count_are_others():
    """There, norms have more numbers."""
    small, large = (Reference(Task("t", TOWER.format(rows=rows, depth=20))) for rows in (3, 64))
    found = prepare.prepare(large, small, b"secret", Roofline(GPUS["H200"], Scale()), recording, large, large=True)
    assert found.mode_alternatives == [(True,), (False,)]


@pytest.mark.parametrize(("clear_draw", "draws", "alternatives"), [(0, 1, 2), (2, 3, 2), (9, 4, 1)])
def test_weights_are_drawn_again_where_rounding_decides_in_evaluation(monkeypatch, clear_draw, draws, alternatives):
    """Else a right answer for evaluation would be refused in some draws of the weights, and not in others."""
    tried: list[int] = []

    def doubt(reference, sources, train, seeds, weights, pause):
        if not train:
            tried.append(weights)
        return "", not train and len(tried) <= clear_draw

    monkeypatch.setattr(prepare.trivial_outputs, "doubt", doubt)
    reference = Reference(Task("t", TOWER.format(rows=8, depth=1)))
    found = prepare.prepare(reference, reference, b"secret", Roofline(GPUS["H200"], Scale()), recording, reference)
    assert len(tried) == draws and len(found.mode_alternatives) == alternatives
    assert found.shared.seeds("model", PUBLISHED) == tried[clear_draw if clear_draw < draws else 0]


def test_trivial_outputs_are_looked_for_at_the_tasks_own_sizes_however_dear():
    small, own, dear = (
        Reference(Task("t", PRODUCT.format(rows=rows, inner=inner)))
        for rows, inner in ((8, 16), (16, 128), (8192, 8192))
    )
    ask = lambda sized: prepare.prepare(sized, small, b"secret", Roofline(GPUS["H200"], Scale()), recording, dear)
    assert ask(own).degenerate and not ask(small).degenerate


@pytest.mark.parametrize(
    ("output", "narrow"),
    [
        ("x @ x.mT", False),
        ("(x @ x.mT, x.half())", False),
        ("(x @ x.mT, x.half().float() * 2)", False),
        ("x.half() @ x.half().mT", True),
        ("x.half().float() @ x.mT", True),
        ("F.conv1d(x[None].half().repeat(1, 1, 2).float(), x[:, :1, None].expand(-1, 32, -1))", True),
        ("F.scaled_dot_product_attention(x[None].bfloat16(), x[None].bfloat16(), x[None].bfloat16())", True),
    ],
)
def test_a_task_multiplies_in_16_bits_where_a_factor_has_so_few(output, narrow):
    source = SOURCE.replace("torch.tanh(x) * x", output).replace("nn as nn", "nn as nn, torch.nn.functional as F")
    reference = Reference(Task("a", source))
    with (found := prepare._NarrowFactors()):
        reference.forward(reference.model(0), reference.inputs(0))
    assert found.seen is narrow
