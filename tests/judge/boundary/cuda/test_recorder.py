"""What recordings of timed calls hold, where a GPU is not needed for it."""

from __future__ import annotations

import functools
from types import SimpleNamespace

import torch

from drkernel.judge.boundary.cuda.recorder import MODULE, Session, _counted_compiled, _State, record
from drkernel.judge.boundary.graph_capture import replay_operator


def kernel():
    """Stands for a Triton kernel's function."""


class Kernel:
    fn = kernel

    def run(self):
        """Launches it."""


def test_a_brief_recording_holds_names_and_counts():
    a, b = torch.ones(3), torch.ones(5)
    with record(brief=True) as trace:
        (a + a).relu().view(3, 1)
        torch.empty(3).copy_(b[:3] + 1)
    assert {row.name: row.calls for row in trace.rows} == {"add": 2, "relu": 1, "copy_": 1}
    assert not any(row.triton or row.tensors for row in trace.rows)


def test_the_steps_of_a_graph_are_noted_by_name():
    session, line = Session(brief=True), kernel.__code__.co_firstlineno
    relu = SimpleNamespace(_overloadpacket=SimpleNamespace(__name__="relu"))
    for step in (functools.partial(replay_operator, relu, (), {}, None), functools.partial(Kernel().run, grid=(1,))):
        session.note(step)
    operator, launch = session.trace.rows
    assert (operator.site, operator.triton) == ("relu", False)
    assert (launch.site, launch.triton, launch.programs) == (f"kernel:{line}", True, 1)


def test_operators_are_recorded_while_an_autotuner_launches(monkeypatch):
    x = torch.ones(3)
    monkeypatch.setattr(_State, "paused", True)
    with record() as trace:
        x.neg()
    assert [row.name for row in trace.rows] == ["neg"]


def test_launches_of_a_kernel_that_was_compiled_ahead_are_recorded(monkeypatch):
    """As in Triton's tutorial on softmax: compiled = kernel.warmup(...), then compiled[grid](...)."""
    ran, line = [], kernel.__code__.co_firstlineno
    launches = _counted_compiled(lambda compiled, grid: lambda *args, stream=None: ran.append((grid, args)))
    compiled = SimpleNamespace(src=SimpleNamespace(fn=Kernel()))
    launches(compiled, (8, 1, 1))(1)  # not of a submission
    monkeypatch.setattr(kernel, "__module__", MODULE)
    with record() as trace:
        launches(compiled, (8, 2, 1))(2)
    with record(skip=[f"kernel:{line}"]) as skipped:
        launches(compiled, (8, 2, 1))(3)
    assert ran == [((8, 1, 1), (1,)), ((8, 2, 1), (2,))]
    assert [(row.site, row.triton, row.calls, row.programs) for row in trace.rows] == [(f"kernel:{line}", True, 1, 16)]
    assert [(row.calls, row.programs) for row in skipped.rows] == [(1, 0)]
    monkeypatch.setattr(_State, "capture", steps := [])
    launches(compiled, (4, 1, 1))(5)
    session = Session(brief=True)
    session.note(*steps)
    assert session.trace.rows[0].site == f"kernel:{line}" and steps[0].args == (5,)
