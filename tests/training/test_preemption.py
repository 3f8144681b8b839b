"""A signal is noted at once, agreed among ranks at a step boundary, and handed to whoever listened before."""

import os
import signal

import pytest

from drkernel.training import preemption
from drkernel.training.preemption import Preemption
from drkernel.training.ranks import Ranks
from tests.training import gloo

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("preemption")]  # one worker starts the ranks, once

ALONE = Ranks()


def work(ranks: Ranks, folder) -> dict:
    """The last rank gets SIGUSR2, the first one SIGTERM, and rank 0 has submitit's kind of handlers."""
    calls, found = [], {}
    for number in (signal.SIGTERM, signal.SIGUSR2):
        signal.signal(number, lambda number, frame: calls.append((ranks.rank, number, frame)))
    preemption.WAIT_S = 0.01
    with Preemption() as asking:
        found["before"] = asking.agreed(ranks)
        if ranks.rank == ranks.size - 1:
            os.kill(os.getpid(), signal.SIGUSR2)
        if ranks.rank == 0:
            os.kill(os.getpid(), signal.SIGTERM)
        found["noted"], found["asked"], found["still"] = asking.received, asking.agreed(ranks), asking.agreed(ranks)
        found["early calls"] = list(calls)
        asking.call_previous_handler(ranks)
    found["calls"] = calls
    return found


@pytest.fixture(scope="module")
def found(tmp_path_factory):
    return gloo.results("tests.training.test_preemption", tmp_path_factory.mktemp("ranks"))


@pytest.mark.parametrize("size", [1, 2, 4])
def test_what_one_rank_received_all_agree_on(found, size):
    for rank, result in enumerate(found[size]):
        assert (result["before"], result["asked"], result["still"]) == (False, True, True)
        assert result["noted"] == (rank in (0, size - 1))


@pytest.mark.parametrize("size", [1, 2, 4])
def test_the_first_rank_alone_calls_the_handler_that_was_there_before_and_only_after_the_save(found, size):
    assert all(result["early calls"] == [] for result in found[size])
    # SIGUSR2 decides: submitit requeues on it and ignores the SIGTERM beside it.
    assert [result["calls"] for result in found[size]] == [[(0, signal.SIGUSR2, None)]] + [[]] * (size - 1)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGUSR1, signal.SIGUSR2])
def test_without_an_earlier_handler_handing_over_just_returns(number):
    with Preemption() as asking:
        assert not asking.agreed(ALONE) and not asking.received
        os.kill(os.getpid(), number)
        assert asking.received and asking.agreed(ALONE)
        asking.call_previous_handler(ALONE)


def test_handlers_are_taken_back(monkeypatch):
    calls = []
    before = signal.signal(signal.SIGUSR1, lambda *_: calls.append("mine"))
    try:
        with Preemption():
            os.kill(os.getpid(), signal.SIGUSR1)
        assert calls == []
        os.kill(os.getpid(), signal.SIGUSR1)
        assert calls == ["mine"]
    finally:
        signal.signal(signal.SIGUSR1, before)


def test_a_handler_that_exits_ends_the_run():
    def requeue(*_):
        raise SystemExit(-1)

    before = signal.signal(signal.SIGUSR2, requeue)
    try:
        with Preemption() as asking:
            os.kill(os.getpid(), signal.SIGUSR2)
            assert asking.agreed(ALONE)
            with pytest.raises(SystemExit):
                asking.call_previous_handler(ALONE)
    finally:
        signal.signal(signal.SIGUSR2, before)


def test_after_the_last_step_a_signal_acts_at_once_and_the_log_says_so(capfd):
    calls = []
    before = signal.signal(signal.SIGUSR2, lambda number, frame: calls.append(number))
    try:
        with Preemption() as asking:
            assert not asking.should_stop()
            os.kill(os.getpid(), signal.SIGUSR2)  # nobody asks any more
            assert asking.should_stop()
            asking.release()
            assert not asking.should_stop(), "a rollout after the last step is played to its end"
            assert calls == [signal.SIGUSR2]
            os.kill(os.getpid(), signal.SIGUSR2)
            assert calls == [signal.SIGUSR2] * 2
    finally:
        signal.signal(signal.SIGUSR2, before)
    assert capfd.readouterr().out.count("stopped by a signal after the last step") == 2
