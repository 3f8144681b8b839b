"""A checkpoint is whole or not there, says so, and fits any number of ranks."""

import copy
import errno
import json
import os
import random
import time
from types import SimpleNamespace

import numpy
import pytest
import torch

from drkernel.config import Config
from drkernel.policy.model import new_policy
from drkernel.training import checkpoint, seeds, sharding, trainer, update
from drkernel.training.ranks import Ranks
from drkernel.training.saving import Saver
from drkernel.training.trainer import Trainer
from drkernel.types import DrKernelError
from tests.training import gloo
from tests.training.test_sharding import batch, full, loss, make_policy

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("checkpoint")]  # one worker starts the ranks, once

ALONE = Ranks()


def run(policy, seed=0):
    """A policy and an optimizer that made a step."""
    optimizer = update.make_optimizer(policy, lr=1e-2, weight_decay=0.1)
    policy.backward(batch([seed]), loss)
    optimizer.step()
    return policy, optimizer


def everything(policy, optimizer) -> dict:
    names = {parameter: name for name, parameter in sharding.parameters(policy)}
    moments = {names[p]: {k: full(v) for k, v in state.items()} for p, state in optimizer.state.items()}
    hyper = [{k: v for k, v in group.items() if k != "params"} for group in optimizer.param_groups]
    return {"weights": {n: full(p) for n, p in sharding.parameters(policy)}, "moments": moments, "hyper": hyper}


def draws() -> tuple:
    return torch.rand(2).tolist(), numpy.random.rand(2).tolist(), random.random()


def work(ranks: Ranks, folder) -> dict:
    """Each number of ranks saves a run and then loads what every earlier one saved."""
    torch.manual_seed(ranks.rank)
    policy, optimizer = run(sharding.shard(make_policy(), ranks))
    checkpoint.save(folder / f"by{ranks.size}", 7, policy, optimizer, {"cursor": ranks.size}, 2, ranks)
    found = {"saved": everything(policy, optimizer), "draws": draws()}
    for size in (s for s in (1, 2, 4) if (folder / f"by{s}").exists()):
        other = run(sharding.shard(make_policy(), ranks), seed=3)
        state = checkpoint.load_latest(folder / f"by{size}", *other, ranks, seed=5)
        found[size] = {"state": state, "draws": draws(), **everything(*other)}
    plain = sharding.shard(make_policy(), ranks)
    found["plain"] = checkpoint.load_latest(folder / "plain", plain, torch.optim.SGD(plain.parameters(), 1.0), ranks)
    found["damaged"] = refusal(folder / "damaged", ranks)
    found["behind"] = behind(ranks, folder / f"behind{ranks.size}")
    found["unnamed"] = unnamed(ranks, folder / f"unnamed{ranks.size}")
    found["failed"] = failed(ranks, folder / f"failed{ranks.size}")
    return found


def unnamed(ranks: Ranks, folder) -> str:
    """What each rank raises where the first one cannot write which checkpoint is the best."""

    def write(*_):
        raise DrKernelError("best.json: no space")

    config = Config(run_dir=str(folder))
    first = SimpleNamespace(metrics_offset=0, write=write) if ranks.is_main else None
    policy, optimizer = run(sharding.shard(make_policy(), ranks))
    parts = dict.fromkeys(("sampler", "prompts", "engine", "judge", "progress"))
    made = Trainer(config, policy=policy, ranks=ranks, run=first, saver=Saver(ranks), **parts)
    made.state.step, made.state.best = 3, {"step": 3, "value": 1.0}
    with pytest.raises(DrKernelError) as raised:
        trainer.save(made, optimizer)
    ranks.barrier()
    return str(raised.value)


def behind(ranks: Ranks, folder) -> tuple[dict, dict]:
    """What was saved while training went on, with collectives of its own; and what is loaded of it."""
    policy, optimizer = run(sharding.shard(make_policy(), ranks), seed=1)
    saved = copy.deepcopy(everything(policy, optimizer))
    with Saver(ranks, in_background=True) as saver:
        save_behind(saver, folder, policy, optimizer, ranks)
        for seed in range(3):
            policy.backward(batch([seed]), loss)
            optimizer.step()
            ranks.all_gather_object(lambda: 1)
        assert not (folder / "step_000004").exists(), "the write waits, training does not"
        ranks.barrier()
        (folder.parent / f"go{ranks.size}").touch()
    other = run(sharding.shard(make_policy(), ranks), seed=3)
    assert checkpoint.load_latest(folder, *other, ranks) == {"count": [1]}
    return saved, everything(*other)


def save_behind(saver, folder, policy, optimizer, ranks):
    state = {"count": [1]}
    snapshot = checkpoint.take(4, policy, optimizer, state, ranks).copied()
    state["count"].append(2)

    def write(others):
        while not (folder.parent / f"go{ranks.size}").exists():
            time.sleep(0.01)
        checkpoint.write(folder, snapshot, checkpoint.Keep(2), others)

    saver.run(write)


def failed(ranks: Ranks, folder) -> str:
    """What is said where one rank cannot write."""
    policy, optimizer = run(sharding.shard(make_policy(), ranks))
    snapshot = checkpoint.take(4, policy, optimizer, {}, ranks)
    if ranks.rank == ranks.size - 1:
        snapshot.files["nowhere/rng.pt"] = b""
    saver = Saver(ranks, in_background=True)
    saver.run(lambda others: checkpoint.write(folder, snapshot, checkpoint.Keep(2), others) and None)
    with pytest.raises(DrKernelError) as error:
        saver.wait()
    ranks.barrier()
    return f"{error.value} {[*folder.iterdir()]}"


def refusal(folder, ranks) -> str:
    policy = sharding.shard(make_policy(), ranks)
    with pytest.raises(DrKernelError) as error:
        checkpoint.load_latest(folder, policy, torch.optim.SGD(policy.parameters(), 1.0), ranks)
    return str(error.value)


def damage(path):
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 0xFF
    path.write_bytes(data)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder, policy = tmp_path_factory.mktemp("checkpoints"), make_policy()
    for name in ("plain", "damaged"):
        checkpoint.save(
            folder / name, 1, policy, torch.optim.SGD(policy.parameters(), 1.0), {"made": "plain"}, 2, ALONE
        )
    damage(next((folder / "damaged" / "step_000001" / "tensors").iterdir()))
    return folder


@pytest.fixture(scope="module")
def found(folder):
    return gloo.results("tests.training.test_checkpoint", folder)


def same(loaded, saved):
    for part in ("weights", "moments", "hyper"):
        torch.testing.assert_close(loaded[part], saved[part], rtol=0, atol=0)


@pytest.mark.parametrize(("saved_by", "loaded_by"), [(1, 1), (1, 2), (1, 4), (2, 2), (2, 4), (4, 4)])
def test_what_some_ranks_saved_others_load_bit_for_bit(found, saved_by, loaded_by):
    for rank in found[loaded_by]:
        assert rank[saved_by]["state"] == {"cursor": saved_by}
        same(rank[saved_by], found[saved_by][0]["saved"])


@pytest.mark.parametrize("saved_by", [2, 4])
def test_what_several_ranks_saved_a_policy_that_is_not_sharded_loads(found, folder, saved_by):
    other = run(make_policy(), seed=3)
    assert checkpoint.load_latest(folder / f"by{saved_by}", *other, ALONE) == {"cursor": saved_by}
    same(everything(*other), found[saved_by][0]["saved"])


@pytest.mark.parametrize("size", [1, 2, 4])
def test_what_a_policy_that_is_not_sharded_saved_ranks_load(found, size):
    assert [rank["plain"] for rank in found[size]] == [{"made": "plain"}] * size


@pytest.mark.parametrize("size", [1, 2, 4])
def test_as_many_ranks_go_on_with_the_random_numbers_they_had(found, size):
    assert all(rank[size]["draws"] == rank["draws"] for rank in found[size])


def test_another_number_of_ranks_draws_from_seed_step_and_rank(found):
    drawn = [rank[1]["draws"] for rank in found[4]]
    assert len({str(d) for d in drawn}) == 4
    seeds.seed_rng(5, 7, 2)
    assert draws() == drawn[2] == found[4][2][2]["draws"]


@pytest.mark.parametrize("size", [1, 2, 4])
def test_damage_that_one_rank_sees_is_one_line_on_all(found, size):
    for rank in found[size]:
        assert "safetensors: corrupt checkpoint (SHA-256 is" in rank["damaged"] and "\n" not in rank["damaged"]


@pytest.mark.parametrize("size", [1, 2, 4])
def test_what_is_written_behind_later_steps_is_what_was_there_when_it_was_saved(found, size):
    for rank in found[size]:
        same(rank["behind"][1], rank["behind"][0])


@pytest.mark.parametrize("size", [1, 2, 4])
def test_a_write_that_fails_on_one_rank_names_the_file_on_all_and_leaves_nothing(found, size):
    for rank in found[size]:
        assert "nowhere/rng.pt" in rank["failed"] and rank["failed"].endswith("[]")
        assert "\n" not in rank["failed"]


def test_every_file_has_its_hash(found, folder):
    path = folder / "by4" / "step_000007"
    complete = json.loads((path / "COMPLETE").read_text())
    files = {str(p.relative_to(path)) for p in path.rglob("*") if p.is_file()} - {"COMPLETE"}
    assert set(complete["files"]) == files and complete["step"] == 7 and complete["ranks"] == 4
    assert len([name for name in files if name.startswith("tensors/")]) == 4


# One process without a process group


def save(folder, step, state=None, keep=2):
    policy = make_policy()
    return checkpoint.save(folder, step, policy, torch.optim.SGD(policy.parameters(), 1.0), state or {}, keep, ALONE)


def load(folder):
    policy = make_policy()
    return checkpoint.load_latest(folder, policy, torch.optim.SGD(policy.parameters(), 1.0), ALONE)


def test_the_state_and_all_random_states_come_back(tmp_path):
    save(tmp_path, 3, {"cursor": 7, "values": [torch.arange(4.0)], "id": None})
    expected = draws()
    draws()
    state = load(tmp_path)
    assert state["cursor"] == 7 and torch.equal(state["values"][0], torch.arange(4.0)) and state["id"] is None
    assert draws() == expected


def test_training_goes_on_bit_for_bit(tmp_path):
    def one_more(policy, optimizer):
        optimizer.zero_grad()
        policy.backward(batch([2]), loss)
        optimizer.step()
        return everything(policy, optimizer)

    policy, optimizer = run(make_policy())
    checkpoint.save(tmp_path, 1, policy, optimizer, {}, 2, ALONE)
    again = make_policy()
    fresh = update.make_optimizer(again, lr=1.0, weight_decay=0.0)
    checkpoint.load_latest(tmp_path, again, fresh, ALONE)
    same(one_more(again, fresh), one_more(policy, optimizer))


def test_large_tensors_are_written_in_several_rounds(tmp_path, monkeypatch):
    monkeypatch.setattr(checkpoint, "FILE_BYTES", 4000)
    policy, optimizer = run(make_policy())
    path = checkpoint.save(tmp_path, 1, policy, optimizer, {}, 2, ALONE)
    assert len(list((path / "tensors").iterdir())) > 5
    other = run(make_policy(), seed=3)
    checkpoint.load_latest(tmp_path, *other, ALONE)
    same(everything(*other), everything(policy, optimizer))


def test_the_newest_are_kept(tmp_path):
    for step in (1, 2, 3):
        save(tmp_path, step, keep=2)
    assert [path.name for path in checkpoint.complete(tmp_path)] == ["step_000002", "step_000003"]


def test_a_half_written_checkpoint_is_not_seen(tmp_path):
    save(tmp_path, 1, {"step": 1})
    (tmp_path / "step_000002").mkdir()
    (tmp_path / "step_000002" / "state.pt").write_bytes(b"half")
    assert load(tmp_path)["step"] == 1


def test_an_interrupted_save_leaves_nothing_that_the_next_one_minds(tmp_path):
    (tmp_path / ".step_000001.tmp" / "tensors").mkdir(parents=True)
    (tmp_path / ".step_000001.tmp" / "rng_00009.pt").write_bytes(b"old")
    assert not (save(tmp_path, 1) / "rng_00009.pt").exists()


@pytest.mark.parametrize("name", ["state.pt", "rng_00000.pt", "COMPLETE", "tensors/*"])
def test_a_damaged_checkpoint_is_one_clear_line(tmp_path, name):
    path = next(save(tmp_path, 1).glob(name))
    damage(path)
    with pytest.raises(DrKernelError, match=rf"{path.name}: corrupt checkpoint .*remove it to start again") as error:
        load(tmp_path)
    assert "\n" not in str(error.value)


def test_a_missing_file_is_named_with_the_checkpoint_to_go_back_to(tmp_path):
    save(tmp_path, 1)
    (save(tmp_path, 2) / "rng_00000.pt").unlink()
    with pytest.raises(DrKernelError, match=r"rng_00000\.pt: corrupt.*remove the folder to resume from step_000001"):
        load(tmp_path)


def test_a_checkpoint_of_another_policy_is_refused(tmp_path):
    save(tmp_path, 1)
    for other in (new_policy(45, hidden=24, layers=2, heads=3, kv_heads=1), new_policy(45, hidden=20, layers=3)):
        with pytest.raises(DrKernelError, match="step_000001: does not fit this policy or optimizer") as error:
            checkpoint.load_latest(tmp_path, other, torch.optim.SGD(other.parameters(), 1.0), ALONE)
        assert "\n" not in str(error.value)


def test_no_checkpoint_means_a_fresh_start(tmp_path):
    assert load(tmp_path / "nothing") is None


def test_what_interrupted_saves_left_is_removed_at_the_next_start(tmp_path):
    save(tmp_path, 1, {"step": 1})
    (tmp_path / ".step_000002.tmp" / "tensors").mkdir(parents=True)
    assert load(tmp_path)["step"] == 1 and not list(tmp_path.glob(".*.tmp"))
    (tmp_path / "step_000003").mkdir()
    assert load(tmp_path)["step"] == 1 and not (tmp_path / "step_000003").exists()


def test_folders_of_the_users_own_beside_checkpoints_stay_and_are_no_checkpoints(tmp_path):
    save(tmp_path, 1, {"step": 1})
    (tmp_path / "step_000001_hf").mkdir()
    (tmp_path / "step_000002_copy").mkdir()
    (tmp_path / "step_000002_copy" / "COMPLETE").write_text("{}")
    assert load(tmp_path)["step"] == 1
    for step in (3, 4, 5):
        save(tmp_path, step, {"step": step})
    assert (tmp_path / "step_000001_hf").exists() and (tmp_path / "step_000002_copy").exists()


def written(folder, step, keep):
    policy = make_policy()
    optimizer = torch.optim.SGD(policy.parameters(), 1.0)
    checkpoint.write(folder, checkpoint.take(step, policy, optimizer, {}, ALONE), keep, ALONE)


def test_a_step_is_written_again_where_its_state_has_changed_and_only_then(tmp_path):
    first = save(tmp_path, 3, {"pending": {"loss": 1.0}}).stat().st_ino
    assert save(tmp_path, 3, {"pending": {"loss": 1.0}}).stat().st_ino == first
    assert save(tmp_path, 3, {"pending": {}}).stat().st_ino != first
    assert load(tmp_path) == {"pending": {}} and [path.name for path in tmp_path.iterdir()] == ["step_000003"]


def test_a_checkpoint_that_is_there_already_still_has_older_ones_removed(tmp_path):
    for step in (1, 2):
        save(tmp_path, step, keep=2)
    save(tmp_path, 2, keep=1)
    assert [path.name for path in checkpoint.complete(tmp_path)] == ["step_000002"]


def test_every_nth_is_kept_for_ever_and_so_is_the_best(tmp_path):
    for step in range(1, 9):
        written(tmp_path, step, checkpoint.Keep(1, best=5, every=3))
    assert [int(path.name[-1]) for path in checkpoint.complete(tmp_path)] == [3, 5, 6, 8]


def test_a_full_disk_is_one_line_that_names_the_file(tmp_path, monkeypatch):
    def full(*_):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(DrKernelError, match=r"step_000002.* cannot be written \(No space left on device\)"):
        written(tmp_path, 2, checkpoint.Keep(2))
    assert not [*tmp_path.iterdir()]


def test_an_exit_waits_for_the_write_and_raises_what_it_raised(tmp_path):
    def slow(ranks):
        time.sleep(0.2)
        (tmp_path / "done").touch()
        raise DrKernelError("disk")

    with pytest.raises(DrKernelError, match="disk"), Saver(ALONE, in_background=True) as saver:
        saver.run(slow)
        assert not (tmp_path / "done").exists()
    assert (tmp_path / "done").exists()
    (tmp_path / "done").unlink()
    with pytest.raises(ZeroDivisionError), Saver(ALONE, in_background=True) as saver:
        saver.run(slow)
        raise ZeroDivisionError
    assert (tmp_path / "done").exists()


@pytest.mark.parametrize("size", [1, 2, 4])
def test_a_best_checkpoint_that_cannot_be_named_is_an_error_on_all_ranks(found, size):
    assert {rank["unnamed"] for rank in found[size]} == {"best.json: no space"}
