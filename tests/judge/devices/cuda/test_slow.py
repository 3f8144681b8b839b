"""A submission that is surely slow has no claim to check, and does not hold the GPU for long."""

from types import SimpleNamespace

from drkernel.judge.devices.cuda import device
from drkernel.judge.devices.cuda.timer import BUDGET_S
from tests.judge.devices.cuda.test_timer import Scripted, steady, timing


def test_a_slow_submission_is_not_asked_alone(monkeypatch):
    slow = Scripted(monkeypatch, steady(300), steady(900, spread=0.2, seed=1))
    slow.floor = 2000.0
    found = slow.timing()
    assert found.is_slow and found.high < 0.5 and not found.claimed_us and slow.timed < BUDGET_S + 0.02
    fast = Scripted(monkeypatch, steady(300), steady(500, spread=0.2, seed=1))
    assert not fast.timing().is_slow and len(fast.alone) == 3 and fast.timed > slow.timed


def test_calls_that_are_uneven_are_timed_again_unless_they_are_slow():
    of = lambda *speedup: timing(**dict(zip(("low", "speedup", "high"), speedup, strict=True)), uneven=True)
    attempts = []
    for one, number in ((of(0.1, 0.2, 0.3), 1), (of(0.3, 0.4, 0.6), 2)):
        attempts.clear()
        paired = SimpleNamespace(run=lambda *_, one=one: attempts.append(1) or one)
        assert device._timed(paired, [], [], lambda *_: 0).uneven and len(attempts) == number
