"""What trusted work took, by kind: on a GPU by events, for which nobody waits before the times are asked for."""

from __future__ import annotations

import time

import pytest
import torch

from drkernel.judge.trusted import spent
from drkernel.tasks import module


class Event:
    """One of a device that takes a millisecond between any two."""

    waited, recorded = 0, 0

    def __init__(self, enable_timing):
        assert enable_timing
        self.at = None

    def record(self):
        Event.recorded += 1
        self.at = Event.recorded

    def synchronize(self):
        Event.waited += 1

    def elapsed_time(self, end):
        return float(end.at - self.at)


def test_blocks_on_a_gpu_are_timed_by_events_that_nobody_waits_for(monkeypatch):
    monkeypatch.setattr(module, "DEVICE", "cuda")
    monkeypatch.setattr(torch.cuda, "Event", Event)
    spent.taken()
    with spent.spent("outer"):
        for _ in range(2):
            with spent.spent("inner"):
                pass
    with pytest.raises(ValueError), spent.spent("failing"):
        raise ValueError
    assert Event.waited == 0
    assert spent.taken() == {"inner": 2.0, "outer": 5.0, "failing": 1.0} and spent.taken() == {}


def test_blocks_elsewhere_are_timed_by_the_clock():
    spent.taken()
    with spent.spent("sleep"):
        time.sleep(0.01)
    assert spent.taken()["sleep"] >= 10.0
