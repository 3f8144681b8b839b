"""Who holds how much of a GPU's memory: in the order of their coming, and only while they live."""

from __future__ import annotations

import json
import threading
import time

import pytest

from drkernel.judge.devices.cuda import gpu_lock
from drkernel.judge.devices.cuda.memory_ledger import MemoryLedger, expect_room
from drkernel.judge.trusted.sizes.footprint import GIB, Footprint
from drkernel.types import DrKernelError, Task


@pytest.fixture(autouse=True)
def _own_folder(monkeypatch: pytest.MonkeyPatch, tmp_path) -> None:
    monkeypatch.setattr(gpu_lock, "FOLDER", tmp_path)


def test_who_fits_beside_others_does_not_wait() -> None:
    ledger = MemoryLedger("gpu", 100)
    with ledger.hold(60), ledger.hold(40) as waited_s:
        assert waited_s < 1


def test_who_does_not_fit_waits_until_others_have_given_back_and_later_ones_wait_behind() -> None:
    ledger, order = MemoryLedger("gpu", 100), []

    def take(name: str, size: int) -> None:
        with MemoryLedger("gpu", 100).hold(size):
            order.append(name)

    with ledger.hold(70):
        threads = []
        for number, (name, size) in enumerate((("first", 50), ("later", 60))):
            threads.append(threading.Thread(target=take, args=(name, size)))
            threads[-1].start()
            while len(ledger._update()) < 2 + number:
                time.sleep(0.001)
        assert not order
    for thread in threads:
        thread.join(10)
    assert order == ["first", "later"]


def test_what_exceeds_the_limit_is_the_whole_of_it() -> None:
    with MemoryLedger("gpu", 100).hold(1000):
        pass


def test_a_process_that_died_holds_nothing() -> None:
    ledger = MemoryLedger("gpu", 100)
    ledger._path.write_text(json.dumps([[2**22 + 1, 1, 100, True]]))
    with ledger.hold(100) as waited_s:
        assert waited_s < 1


def test_a_task_that_cannot_fit_is_told_the_numbers() -> None:
    needs = Footprint(16 * GIB, 16 * GIB, 0)
    with pytest.raises(DrKernelError, match=r"task big: it needs 115\.0 GiB of the GPU \(inputs 16\.0 GiB.*40\.0 GiB"):
        expect_room(Task("big", ""), needs, 40 * GIB)
