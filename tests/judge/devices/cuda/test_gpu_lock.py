"""Whose turn it is on a GPU: among others or alone, across processes. No GPU."""

from __future__ import annotations

import contextlib
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from multiprocessing import get_context
from pathlib import Path

import pytest
import torch

from drkernel.judge.devices.cuda.gpu_lock import GpuBusy, GpuLease, GpuLock, floor

HUNG_S, MOMENT_S = 5.0, 0.03
"""No test takes so long unless it fails; after a moment, what still waits is taken to be locked out."""


def soon(condition: Callable[[], bool]) -> bool:
    deadline = time.monotonic() + HUNG_S
    while not condition() and time.monotonic() < deadline:
        time.sleep(0.001)
    return condition()


def _hold(path: Path, pipe) -> None:
    turn = GpuLock(path)
    while True:
        name, *arguments = pipe.recv()
        found = getattr(turn, name)
        pipe.send(found(*arguments) if callable(found) else found)


class Holder:
    """A process with a GpuLock."""

    def __init__(self, path: Path):
        context = get_context("fork")
        self._pipe, theirs = context.Pipe()
        self.process = context.Process(target=_hold, args=(path, theirs), daemon=True)
        self.process.start()

    def begin(self, *order: object) -> None:
        self._pipe.send(order)

    def done(self, seconds: float = HUNG_S) -> bool:
        """Whether the order is carried out within so many seconds."""
        return self._pipe.poll(seconds) and (self._pipe.recv() or True)

    def answer(self) -> object:
        assert self._pipe.poll(HUNG_S)
        return self._pipe.recv()

    def enters(self, alone: bool) -> bool:
        self.begin("enter", alone)
        return self.done()

    def leave(self) -> None:
        self.begin("leave")
        assert self.done()

    @property
    def wanted(self) -> bool:
        self.begin("wanted")
        return self._pipe.recv()

    def kill(self) -> None:
        self.process.kill()
        self.process.join(HUNG_S)


@pytest.fixture
def three(tmp_path) -> Iterator[list[Holder]]:
    holders = [Holder(tmp_path / "turn") for _ in range(3)]
    yield holders
    for holder in holders:
        holder.kill()


def test_many_enter_together(three):
    assert all(holder.enters(alone=False) for holder in three)
    assert not three[0].wanted


def test_one_alone_excludes_all_others(three):
    inside, second, third = three
    assert inside.enters(alone=True)
    second.begin("enter", True)
    assert soon(lambda: inside.wanted)
    third.begin("enter", False)
    assert not second.done(MOMENT_S) and not third.done(MOMENT_S)
    inside.leave()
    assert second.done() and not third.done(MOMENT_S)
    second.leave()
    assert third.done()


def test_who_enters_among_others_keeps_out_only_who_wants_to_be_alone(three):
    among, alone, other = three
    assert among.enters(alone=False) and other.enters(alone=False)
    alone.begin("enter", True)
    assert not alone.done(MOMENT_S)
    among.leave()
    assert not alone.done(MOMENT_S), "there is still another"
    other.leave()
    assert alone.done()


def test_who_wants_to_be_alone_is_seen_and_comes_before_those_who_come_later(three):
    inside, alone, newcomer = three
    assert inside.enters(alone=False) and not inside.wanted
    alone.begin("enter", True)
    assert soon(lambda: inside.wanted)
    newcomer.begin("enter", False)
    assert not newcomer.done(MOMENT_S), "else newcomers could keep it waiting for ever"
    inside.leave()
    assert alone.done() and not newcomer.done(MOMENT_S)
    alone.leave()
    assert newcomer.done() and not inside.wanted


def test_nobody_pauses_for_one_that_comes_to_be_among_others(three):
    inside, newcomer, _ = three
    assert inside.enters(alone=True)
    newcomer.begin("enter", False)
    assert not newcomer.done(MOMENT_S) and not inside.wanted
    inside.leave()
    assert newcomer.done()


def test_who_is_inside_rises_when_the_others_have_left_unless_one_of_them_waits_to_be_alone(three):
    rising, other, third = three
    assert rising.enters(alone=False) and other.enters(alone=False)
    rising.begin("rise")
    assert not rising.done(MOMENT_S)
    third.begin("enter", False)
    other.begin("rise")
    assert other.answer() is False and not third.done(MOMENT_S), "nobody comes in between"
    other.leave()
    assert rising.answer() is True and not third.done(MOMENT_S)
    rising.leave()
    assert third.done()


def test_a_holder_that_is_killed_lets_go(three):
    killed, waiting, newcomer = three
    assert killed.enters(alone=True)
    waiting.begin("enter", True)
    assert not waiting.done(MOMENT_S)
    killed.kill()
    assert waiting.done()
    waiting.leave()
    assert newcomer.enters(alone=False)


def test_one_that_is_killed_while_it_waits_to_be_alone_no_longer_keeps_others_out(three):
    inside, killed, newcomer = three
    assert inside.enters(alone=False)
    killed.begin("enter", True)
    assert soon(lambda: inside.wanted)
    killed.kill()
    assert not inside.wanted and newcomer.enters(alone=False)


class Seat(GpuLease):
    """A lease that writes down what happens to its runner and when its examiner looks at the GPU."""

    def __init__(self):
        self.now, self.began = [], []
        """What lasts at the moment, and all that ever began."""
        self.looks: list[tuple[bool, list[str]]] = []
        """`sole`, and what lasted, whenever the GPU was looked at."""
        self.crowded = False
        super().__init__("a-gpu", self._look, lambda: self._lasts("quiet"))

    @contextlib.contextmanager
    def taken_with_a_runner(self, sole: bool = False) -> Iterator[None]:
        with self.taken(sole):
            self.resting = lambda: self._lasts("runner stopped")
            yield

    @contextlib.contextmanager
    def _lasts(self, what: str) -> Iterator[None]:
        self.began.append(what)
        self.now.append(what)
        yield
        self.now.remove(what)

    def _look(self, sole: bool) -> None:
        self.looks.append((sole, list(self.now)))
        if self.crowded:
            raise GpuBusy


@pytest.fixture
def seats(tmp_path, monkeypatch) -> tuple[Seat, Seat]:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.setattr(torch.cuda, "synchronize", lambda: None)
    return Seat(), Seat()


class Examination:
    """Takes a seat in a thread of its own, among others or alone, and lets others pass until it is told to end."""

    def __init__(self, seat: Seat, sole: bool = False):
        self._over, self.inside = threading.Event(), threading.Event()
        self._thread = threading.Thread(target=self._run, args=(seat, sole), daemon=True)
        self._thread.start()

    def _run(self, seat: Seat, sole: bool) -> None:
        with seat.taken_with_a_runner(sole):
            self.inside.set()
            while not self._over.is_set():
                seat.pause()
                time.sleep(0.001)

    def end(self) -> None:
        self._over.set()
        self._thread.join(HUNG_S)
        assert not self._thread.is_alive()


def test_while_one_is_alone_the_others_wait_and_their_runners_are_stopped(seats):
    mine, other = seats
    examination = Examination(other)
    assert examination.inside.wait(HUNG_S)
    with mine.taken_with_a_runner():
        assert not other.began and not mine.began
        with mine.alone():
            assert other.now == ["runner stopped", "quiet"]
            assert not mine.now, "one's own runner goes on, and so does what is prepared unless one is quiet"
            time.sleep(MOMENT_S)
            assert other.now == ["runner stopped", "quiet"]
        assert soon(lambda: not other.now)
        examination.end()
    assert mine.held >= MOMENT_S and other.waited >= MOMENT_S
    assert other.held == 0.0


def test_the_gpu_is_looked_at_once_all_is_quiet_and_before_anything_is_timed(seats):
    mine, _ = seats
    with mine.taken_with_a_runner(), mine.alone():
        assert mine.began[:2] == ["runner stopped", "quiet"], "one's own runner is stopped while one waits for others"
        assert mine.looks == [(False, ["quiet"])]


def test_until_others_have_left_one_s_own_runners_are_made(seats):
    mine, _ = seats
    trainer = floor("a-gpu")
    trainer.enter(alone=False)
    with mine.taken_with_a_runner():
        threading.Timer(MOMENT_S, trainer.leave).start()
        with mine.alone():
            assert mine.began == ["runner stopped", "quiet"] and mine.waited >= MOMENT_S / 2
            assert mine.looks == [(False, ["quiet"])], "it began when the others had left"


def test_whoever_waits_for_one_that_is_alone_is_quiet(seats):
    mine, other = seats
    with mine.taken_with_a_runner():
        with mine.alone():
            newcomer = Examination(other)
            assert soon(lambda: other.now == ["quiet"])
        assert newcomer.inside.wait(HUNG_S) and soon(lambda: not other.now)
        newcomer.end()
    with mine.taken_with_a_runner(sole=True):
        newcomer = Examination(other)
        assert soon(lambda: other.now == ["quiet"]), "what is examined alone is timed as well"
    assert newcomer.inside.wait(HUNG_S) and soon(lambda: not other.now)
    newcomer.end()


def test_of_two_that_want_to_be_alone_the_second_is_quiet_before_the_first_is(seats):
    mine, other = seats
    trainer, looks = floor("a-gpu"), []
    trainer.enter(alone=False)

    def examine(seat: Seat, neighbour: Seat) -> None:
        with seat.taken_with_a_runner():
            both.wait(HUNG_S)
            with seat.alone():
                looks.append(list(neighbour.now))
            while len(looks) < 2:
                seat.pause()

    both = threading.Barrier(3)
    threads = [threading.Thread(target=examine, args=pair, daemon=True) for pair in (seats, seats[::-1])]
    for thread in threads:
        thread.start()
    both.wait(HUNG_S)
    assert soon(lambda: "quiet" in mine.now + other.now)
    assert not ("quiet" in mine.now and "quiet" in other.now), "the first still makes runners"
    trainer.leave()
    for thread in threads:
        thread.join(HUNG_S)
    assert looks == [["runner stopped", "quiet"]] * 2


def test_two_are_never_alone_at_once(seats):
    alone, most = [], []

    def examine(seat: Seat) -> None:
        for _ in range(5):
            with seat.taken_with_a_runner():
                with seat.alone():
                    alone.append(seat)
                    most.append(len(alone))
                    time.sleep(0.002)
                    alone.remove(seat)
                seat.pause()

    threads = [threading.Thread(target=examine, args=(seat,), daemon=True) for seat in seats]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(HUNG_S)
    assert most == [1] * 10


def test_nothing_pauses_where_nobody_wants_to_be_alone(seats):
    mine, other = seats
    with mine.taken_with_a_runner(), other.taken_with_a_runner():
        assert mine.pause() == 0.0 and not mine.began
    assert mine.waited < MOMENT_S / 2 and mine.held == 0.0


def test_a_sole_examination_has_the_gpu_from_beginning_to_end(seats):
    mine, other = seats
    with mine.taken_with_a_runner(sole=True):
        assert mine.looks == [(True, [])]
        examination = Examination(other)
        with mine.alone():
            assert mine.looks[1:] == [(True, ["quiet"])]
        mine.pause()
        assert not examination.inside.wait(MOMENT_S)
    assert examination.inside.wait(HUNG_S)
    examination.end()
    assert mine.held >= MOMENT_S


def test_a_sole_examination_waits_for_the_end_of_others(seats):
    mine, other = seats
    first = Examination(other)
    assert first.inside.wait(HUNG_S)
    sole = Examination(mine, sole=True)
    assert not sole.inside.wait(MOMENT_S), "to let it pass for a while is not enough"
    first.end()
    assert sole.inside.wait(HUNG_S)
    sole.end()
    assert other.held == 0.0 and mine.held > 0.0


@pytest.mark.parametrize("sole", [False, True])
def test_who_computes_beside_a_judge_is_waited_for_and_then_kept_out(seats, sole):
    mine, trainer = seats[0], floor("a-gpu")
    trainer.enter(alone=False)
    began = time.monotonic()
    threading.Timer(MOMENT_S, trainer.leave).start()
    with mine.taken_with_a_runner(sole), mine.alone():
        assert time.monotonic() - began >= MOMENT_S
        thread = threading.Thread(target=trainer.enter, args=(False,), daemon=True)
        thread.start()
        thread.join(MOMENT_S)
        assert thread.is_alive()
    thread.join(HUNG_S)
    assert not thread.is_alive()


def test_what_was_counted_for_one_examination_is_not_counted_for_the_next(seats):
    mine, _ = seats
    with mine.taken_with_a_runner(sole=True):
        time.sleep(0.001)
    with mine.taken(sole=False):
        pass
    assert mine.waited < MOMENT_S / 2 and mine.held == 0.0 and mine.resting is contextlib.nullcontext


@pytest.mark.parametrize("sole", [False, True])
def test_a_gpu_that_is_busy_all_the_same_leaves_the_locks_free(seats, sole):
    mine, other = seats
    mine.crowded = True
    with pytest.raises(GpuBusy), mine.taken_with_a_runner(sole), mine.alone():
        pytest.fail("what should run alone runs")
    next_one = Examination(other, sole=True)
    assert next_one.inside.wait(HUNG_S)
    next_one.end()


def test_after_an_error_while_alone_one_is_among_others_again(seats):
    mine, other = seats
    with mine.taken_with_a_runner():
        with pytest.raises(ZeroDivisionError), mine.alone():
            _ = 1 / 0
        beside = Examination(other)
        assert beside.inside.wait(HUNG_S)
        beside.end()
