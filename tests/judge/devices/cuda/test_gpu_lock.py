"""Who may compute on a GPU: several together or one exclusively, across processes. No GPU."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Iterator
from multiprocessing import get_context
from pathlib import Path

import pytest
import torch

from drkernel.judge.devices.cuda import gpu_lock as gpu_lock_module
from drkernel.judge.devices.cuda.gpu_lock import GpuBusy, GpuLease, GpuLock, gpu_lock

HUNG_S, MOMENT_S = 5.0, 0.03
"""No test takes so long unless it fails; after a moment, what still waits is taken to be locked out."""


def soon(condition: Callable[[], bool]) -> bool:
    deadline = time.monotonic() + HUNG_S
    while not condition() and time.monotonic() < deadline:
        time.sleep(0.001)
    return condition()


def _hold(path: Path, pipe) -> None:
    lock = GpuLock(path)
    while True:
        name, *arguments = pipe.recv()
        found = getattr(lock, name)
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

    def acquires(self, exclusive: bool) -> bool:
        self.begin("acquire", exclusive)
        return self.done()

    def release(self) -> None:
        self.begin("release")
        assert self.done()

    @property
    def writer_waits(self) -> bool:
        self.begin("writer_waits")
        return self._pipe.recv()

    def kill(self) -> None:
        self.process.kill()
        self.process.join(HUNG_S)


@pytest.fixture
def three(tmp_path) -> Iterator[list[Holder]]:
    holders = [Holder(tmp_path / "lock") for _ in range(3)]
    yield holders
    for holder in holders:
        holder.kill()


def test_many_enter_together(three):
    assert all(holder.acquires(exclusive=False) for holder in three)
    assert not three[0].writer_waits


def test_one_alone_excludes_all_others(three):
    inside, second, third = three
    assert inside.acquires(exclusive=True)
    second.begin("acquire", True)
    assert soon(lambda: inside.writer_waits)
    third.begin("acquire", False)
    assert not second.done(MOMENT_S) and not third.done(MOMENT_S)
    inside.release()
    assert second.done() and not third.done(MOMENT_S)
    second.release()
    assert third.done()


def test_who_enters_among_others_keeps_out_only_who_wants_to_be_alone(three):
    among, alone, other = three
    assert among.acquires(exclusive=False) and other.acquires(exclusive=False)
    alone.begin("acquire", True)
    assert not alone.done(MOMENT_S)
    among.release()
    assert not alone.done(MOMENT_S), "there is still another"
    other.release()
    assert alone.done()


def test_who_wants_to_be_alone_is_seen_and_comes_before_those_who_come_later(three):
    inside, alone, newcomer = three
    assert inside.acquires(exclusive=False) and not inside.writer_waits
    alone.begin("acquire", True)
    assert soon(lambda: inside.writer_waits)
    newcomer.begin("acquire", False)
    assert not newcomer.done(MOMENT_S), "else newcomers could keep it waiting for ever"
    inside.release()
    assert alone.done() and not newcomer.done(MOMENT_S)
    alone.release()
    assert newcomer.done() and not inside.writer_waits


def test_nobody_pauses_for_one_that_comes_to_be_among_others(three):
    inside, newcomer, _ = three
    assert inside.acquires(exclusive=True)
    newcomer.begin("acquire", False)
    assert not newcomer.done(MOMENT_S) and not inside.writer_waits
    inside.release()
    assert newcomer.done()


def test_who_is_inside_rises_when_the_others_have_left_unless_one_of_them_waits_to_be_alone(three):
    rising, other, third = three
    assert rising.acquires(exclusive=False) and other.acquires(exclusive=False)
    rising.begin("upgrade")
    assert not rising.done(MOMENT_S)
    third.begin("acquire", False)
    other.begin("upgrade")
    assert other.answer() is False and not third.done(MOMENT_S), "nobody comes in between"
    other.release()
    assert rising.answer() is True and not third.done(MOMENT_S)
    rising.release()
    assert third.done()


def test_a_holder_that_is_killed_lets_go(three):
    killed, waiting, newcomer = three
    assert killed.acquires(exclusive=True)
    waiting.begin("acquire", True)
    assert not waiting.done(MOMENT_S)
    killed.kill()
    assert waiting.done()
    waiting.release()
    assert newcomer.acquires(exclusive=False)


def test_one_that_is_killed_while_it_waits_to_be_alone_no_longer_keeps_others_out(three):
    inside, killed, newcomer = three
    assert inside.acquires(exclusive=False)
    killed.begin("acquire", True)
    assert soon(lambda: inside.writer_waits)
    killed.kill()
    assert not inside.writer_waits and newcomer.acquires(exclusive=False)


class Lease(GpuLease):
    """A lease that writes down what happens to its runner and when its examiner looks at the GPU."""

    def __init__(self):
        self.now, self.began = [], []
        """What lasts at the moment, and all that ever began."""
        self.looks: list[tuple[bool, list[str]]] = []
        """`exclusive`, and what lasted, whenever the GPU was looked at."""
        self.busy = False
        super().__init__("a-gpu", self._look, lambda: self._lasts("quiet"))

    @contextlib.contextmanager
    def hold_with_a_runner(self, exclusive: bool = False) -> Iterator[None]:
        with self.hold(exclusive):
            self.stop_runner = lambda: self._lasts("runner stopped")
            yield

    @contextlib.contextmanager
    def _lasts(self, what: str) -> Iterator[None]:
        self.began.append(what)
        self.now.append(what)
        yield
        self.now.remove(what)

    def _look(self, exclusive: bool) -> None:
        self.looks.append((exclusive, list(self.now)))
        if self.busy:
            raise GpuBusy


@pytest.fixture
def leases(tmp_path, monkeypatch) -> tuple[Lease, Lease]:
    monkeypatch.setattr(gpu_lock_module, "FOLDER", tmp_path)
    monkeypatch.setattr(torch.cuda, "synchronize", lambda: None)
    return Lease(), Lease()


class Examination:
    """Takes a lease in a thread of its own, among others or alone, and lets others pass until it is told to end."""

    def __init__(self, lease: Lease, exclusive: bool = False):
        self._over, self.inside = threading.Event(), threading.Event()
        self._thread = threading.Thread(target=self._run, args=(lease, exclusive), daemon=True)
        self._thread.start()

    def _run(self, lease: Lease, exclusive: bool) -> None:
        with lease.hold_with_a_runner(exclusive):
            self.inside.set()
            while not self._over.is_set():
                lease.pause()
                time.sleep(0.001)

    def end(self) -> None:
        self._over.set()
        self._thread.join(HUNG_S)
        assert not self._thread.is_alive()


def test_while_one_is_alone_the_others_wait_and_their_runners_are_stopped(leases):
    mine, other = leases
    examination = Examination(other)
    assert examination.inside.wait(HUNG_S)
    with mine.hold_with_a_runner():
        assert not other.began and not mine.began
        with mine.exclusively():
            assert other.now == ["runner stopped", "quiet"]
            assert not mine.now, "one's own runner goes on, and so does what is prepared unless one is quiet"
            time.sleep(MOMENT_S)
            assert other.now == ["runner stopped", "quiet"]
        assert soon(lambda: not other.now)
        examination.end()
    assert mine.exclusive_s >= MOMENT_S and other.waited_s >= MOMENT_S
    assert other.exclusive_s == 0.0


def test_the_gpu_is_looked_at_once_all_is_quiet_and_before_anything_is_timed(leases):
    mine, _ = leases
    with mine.hold_with_a_runner(), mine.exclusively():
        assert mine.began[:2] == ["runner stopped", "quiet"], "one's own runner is stopped while one waits for others"
        assert mine.looks == [(False, ["quiet"])]


def test_until_others_have_left_one_s_own_runners_are_made(leases):
    mine, _ = leases
    trainer = gpu_lock("a-gpu")
    trainer.acquire(exclusive=False)
    with mine.hold_with_a_runner():
        threading.Timer(MOMENT_S, trainer.release).start()
        with mine.exclusively():
            assert mine.began == ["runner stopped", "quiet"] and mine.waited_s >= MOMENT_S / 2
            assert mine.looks == [(False, ["quiet"])], "it began when the others had left"


def test_whoever_waits_for_one_that_is_alone_is_quiet(leases):
    mine, other = leases
    with mine.hold_with_a_runner():
        with mine.exclusively():
            newcomer = Examination(other)
            assert soon(lambda: other.now == ["quiet"])
        assert newcomer.inside.wait(HUNG_S) and soon(lambda: not other.now)
        newcomer.end()
    with mine.hold_with_a_runner(exclusive=True):
        newcomer = Examination(other)
        assert soon(lambda: other.now == ["quiet"]), "what is examined alone is timed as well"
    assert newcomer.inside.wait(HUNG_S) and soon(lambda: not other.now)
    newcomer.end()


def test_of_two_that_want_to_be_alone_the_second_is_quiet_before_the_first_is(leases):
    mine, other = leases
    trainer, looks = gpu_lock("a-gpu"), []
    trainer.acquire(exclusive=False)

    def examine(lease: Lease, neighbour: Lease) -> None:
        with lease.hold_with_a_runner():
            both.wait(HUNG_S)
            with lease.exclusively():
                looks.append(list(neighbour.now))
            while len(looks) < 2:
                lease.pause()

    both = threading.Barrier(3)
    threads = [threading.Thread(target=examine, args=pair, daemon=True) for pair in (leases, leases[::-1])]
    for thread in threads:
        thread.start()
    both.wait(HUNG_S)
    assert soon(lambda: "quiet" in mine.now + other.now)
    assert not ("quiet" in mine.now and "quiet" in other.now), "the first still makes runners"
    trainer.release()
    for thread in threads:
        thread.join(HUNG_S)
    assert looks == [["runner stopped", "quiet"]] * 2


def test_two_are_never_alone_at_once(leases):
    alone, most = [], []

    def examine(lease: Lease) -> None:
        for _ in range(5):
            with lease.hold_with_a_runner():
                with lease.exclusively():
                    alone.append(lease)
                    most.append(len(alone))
                    time.sleep(0.002)
                    alone.remove(lease)
                lease.pause()

    threads = [threading.Thread(target=examine, args=(lease,), daemon=True) for lease in leases]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(HUNG_S)
    assert most == [1] * 10


def test_nothing_pauses_where_nobody_wants_to_be_alone(leases):
    mine, other = leases
    with mine.hold_with_a_runner(), other.hold_with_a_runner():
        assert mine.pause() == 0.0 and not mine.began
    assert mine.waited_s < MOMENT_S / 2 and mine.exclusive_s == 0.0


def test_a_sole_examination_has_the_gpu_from_beginning_to_end(leases):
    mine, other = leases
    with mine.hold_with_a_runner(exclusive=True):
        assert mine.looks == [(True, [])]
        examination = Examination(other)
        with mine.exclusively():
            assert mine.looks[1:] == [(True, ["quiet"])]
        mine.pause()
        assert not examination.inside.wait(MOMENT_S)
    assert examination.inside.wait(HUNG_S)
    examination.end()
    assert mine.exclusive_s >= MOMENT_S


def test_a_sole_examination_waits_for_the_end_of_others(leases):
    mine, other = leases
    first = Examination(other)
    assert first.inside.wait(HUNG_S)
    sole = Examination(mine, exclusive=True)
    assert not sole.inside.wait(MOMENT_S), "to let it pass for a while is not enough"
    first.end()
    assert sole.inside.wait(HUNG_S)
    sole.end()
    assert other.exclusive_s == 0.0 and mine.exclusive_s > 0.0


@pytest.mark.parametrize("exclusive", [False, True])
def test_who_computes_beside_a_judge_is_waited_for_and_then_kept_out(leases, exclusive):
    mine, trainer = leases[0], gpu_lock("a-gpu")
    trainer.acquire(exclusive=False)
    began = time.monotonic()
    threading.Timer(MOMENT_S, trainer.release).start()
    with mine.hold_with_a_runner(exclusive), mine.exclusively():
        assert time.monotonic() - began >= MOMENT_S
        thread = threading.Thread(target=trainer.acquire, args=(False,), daemon=True)
        thread.start()
        thread.join(MOMENT_S)
        assert thread.is_alive()
    thread.join(HUNG_S)
    assert not thread.is_alive()


def test_what_was_counted_for_one_examination_is_not_counted_for_the_next(leases):
    mine, _ = leases
    with mine.hold_with_a_runner(exclusive=True):
        time.sleep(0.001)
    with mine.hold(exclusive=False):
        pass
    assert mine.waited_s < MOMENT_S / 2 and mine.exclusive_s == 0.0 and mine.stop_runner is contextlib.nullcontext


@pytest.mark.parametrize("exclusive", [False, True])
def test_a_gpu_that_is_busy_all_the_same_leaves_the_locks_free(leases, exclusive):
    mine, other = leases
    mine.busy = True
    with pytest.raises(GpuBusy), mine.hold_with_a_runner(exclusive), mine.exclusively():
        pytest.fail("what should run alone runs")
    next_one = Examination(other, exclusive=True)
    assert next_one.inside.wait(HUNG_S)
    next_one.end()


def test_after_an_error_while_alone_one_is_among_others_again(leases):
    mine, other = leases
    with mine.hold_with_a_runner():
        with pytest.raises(ZeroDivisionError), mine.exclusively():
            _ = 1 / 0
        beside = Examination(other)
        assert beside.inside.wait(HUNG_S)
        beside.end()
