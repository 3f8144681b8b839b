"""A checkpoint is whole or not there, and says so."""

import random

import numpy
import pytest
import torch

from drkernel.training import checkpoint
from drkernel.types import DrKernelError


def test_what_was_saved_comes_back_and_so_do_all_random_states(tmp_path):
    checkpoint.save(tmp_path, 3, {"weights": {"w": torch.arange(4.0)}, "cursor": 7}, keep=2)
    expected = (torch.rand(2).tolist(), numpy.random.rand(2).tolist(), random.random())
    torch.rand(5), numpy.random.rand(5), random.random()
    state = checkpoint.load_latest(tmp_path)
    assert state["step"] == 3 and state["cursor"] == 7
    assert torch.equal(state["weights"]["w"], torch.arange(4.0))
    assert (torch.rand(2).tolist(), numpy.random.rand(2).tolist(), random.random()) == expected


def test_the_newest_are_kept(tmp_path):
    for step in (1, 2, 3):
        checkpoint.save(tmp_path, step, {}, keep=2)
    assert [path.name for path in checkpoint.complete(tmp_path)] == ["step_000002", "step_000003"]


def test_a_half_written_checkpoint_is_not_seen(tmp_path):
    checkpoint.save(tmp_path, 1, {}, keep=2)
    (tmp_path / "step_000002").mkdir()
    (tmp_path / "step_000002" / "state.pt").write_bytes(b"half")
    assert checkpoint.load_latest(tmp_path)["step"] == 1


def test_a_damaged_checkpoint_is_one_clear_line(tmp_path):
    path = checkpoint.save(tmp_path, 1, {"w": torch.zeros(100)}, keep=2) / "state.pt"
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 0xFF
    path.write_bytes(data)
    with pytest.raises(DrKernelError, match=r"state\.pt: corrupt checkpoint .*remove it to start again") as error:
        checkpoint.load_latest(tmp_path)
    assert "\n" not in str(error.value)


def test_no_checkpoint_means_a_fresh_start(tmp_path):
    assert checkpoint.load_latest(tmp_path / "nothing") is None
