"""An optimizer whose state is in the host's memory steps as any other, and brings little of it at a time."""

import pytest
import torch

from drkernel.policy.model import new_policy
from drkernel.training import checkpoint, offload, sharding, supervised
from drkernel.training.offload import HostOptimizer
from drkernel.training.optimizers import OPTIMIZERS
from drkernel.training.ranks import Ranks
from tests.training import gloo
from tests.training.test_supervised import ROWS

pytestmark = pytest.mark.xdist_group("offload")
CHUNK = 100_000
"""Bytes: some of these policies' matrices share a chunk, the largest are alone in one."""


def policy_of(ranks: Ranks | None = None):
    torch.manual_seed(0)
    policy = new_policy(20, hidden=64, layers=2)
    return sharding.shard(policy, ranks) if ranks else policy


def take(policy, optimizer, steps: int, ranks: Ranks) -> list[float]:
    options = {"max_tokens": 20, "max_grad_norm": 1.0, "ranks": ranks}
    return [supervised.step(policy, optimizer, ROWS, 1e-2, **options)["loss"] for _ in range(steps)]


def everything(policy, optimizer) -> dict:
    whole = lambda tensor: tensor.full_tensor() if hasattr(tensor, "full_tensor") else tensor.clone()
    names = {parameter: name for name, parameter in sharding.parameters(policy)}
    state = {f"{names[p]} {key}": whole(value) for p, of in optimizer.state.items() for key, value in of.items()}
    return state | {name: whole(weight.detach()) for name, weight in sharding.parameters(policy)}


def same(found, expected) -> bool:
    return found.keys() == expected.keys() and all(found[name].equal(expected[name]) for name in expected)


def compare(name: str, ranks: Ranks, folder, sharded: bool) -> dict:
    """Steps with and without, and from each other's checkpoints."""
    new = lambda: policy_of(ranks if sharded else None)
    made = lambda policy: OPTIMIZERS[name](policy, 1e-2, 0.1)
    plain, moved = new(), new()
    plain = plain, made(plain)
    moved = moved, HostOptimizer(made(moved), CHUNK)
    found = {"losses": [take(*pair, 2, ranks) for pair in (plain, moved)]}
    found["after two"] = same(everything(*moved), everything(*plain))
    for pair, path in ((plain, folder / "plain"), (moved, folder / "moved")):
        checkpoint.save(path, 2, *pair, {}, 1, ranks)
    found["later"] = [take(*pair, 2, ranks) for pair in (plain, moved)]
    for path in (folder / "plain", folder / "moved"):
        for wrap in (lambda optimizer: optimizer, lambda optimizer: HostOptimizer(optimizer, CHUNK)):
            policy = new()
            again = policy, wrap(made(policy))
            checkpoint.load_latest(path, *again, ranks)
            found["later"].append(take(*again, 2, ranks))
            found["after two"] &= same(everything(*again), everything(*plain))
    return found


def check(found: dict) -> None:
    assert found["losses"][0] == found["losses"][1] and found["after two"]
    assert all(losses == found["later"][0] for losses in found["later"]) and len(found["later"]) == 6


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_a_step_is_the_same_bit_for_bit_also_after_a_checkpoint_of_either_kind(name, tmp_path):
    check(compare(name, Ranks(), tmp_path, sharded=False))


def work(ranks: Ranks, folder) -> dict:
    torch.set_num_threads(1)
    return {name: compare(name, ranks, folder / f"{ranks.size} {name}", sharded=True) for name in OPTIMIZERS}


@pytest.mark.slow
def test_so_it_is_on_two_ranks(tmp_path):
    for rank in gloo.results(__name__, tmp_path, sizes=(2,))[2]:
        for found in rank.values():
            check(found)


def test_a_step_has_no_more_than_a_chunk_of_state_on_the_device(monkeypatch):
    policy = policy_of()
    optimizer = HostOptimizer(OPTIMIZERS["adamw"](policy, 1e-2, 0.1), CHUNK)
    take(policy, optimizer, 1, Ranks())
    kept = {id(value) for state in optimizer.state.values() for value in state.values() if value.ndim}
    sizes, step = [], optimizer._optimizer.step

    def watched():
        chunk = [p for group in optimizer.param_groups for p in group["params"]]
        here = {p: [v for v in state.values() if v.ndim and id(v) not in kept] for p, state in optimizer.state.items()}
        assert {id(p) for p, values in here.items() if values} == {id(p) for p in chunk}
        sizes.append(sum(value.nbytes for values in here.values() for value in values))
        assert sizes[-1] <= CHUNK or len(chunk) == 1
        step()

    monkeypatch.setattr(optimizer._optimizer, "step", watched)
    take(policy, optimizer, 1, Ranks())
    assert len(sizes) > 3 and sum(sizes) == sum(8 * p.numel() for p in policy.parameters())
    assert kept == {id(value) for state in optimizer.state.values() for value in state.values() if value.ndim}
    assert sum(len(group["params"]) for group in optimizer.param_groups) == len(list(policy.parameters()))


def test_an_error_in_a_step_leaves_the_optimizer_whole(monkeypatch):
    policy = policy_of()
    optimizer = HostOptimizer(OPTIMIZERS["adamw"](policy, 1e-2, 0.1), CHUNK)

    def fail():
        raise RuntimeError("out of memory")

    monkeypatch.setattr(optimizer._optimizer, "step", fail)
    with pytest.raises(RuntimeError):
        take(policy, optimizer, 1, Ranks())
    assert sum(len(group["params"]) for group in optimizer.param_groups) == len(list(policy.parameters()))


def test_the_config_chooses():
    optimizer = OPTIMIZERS["adamw"](policy_of(), 1e-2, 0.1)
    assert offload.placed(optimizer, "none") is optimizer
    assert isinstance(offload.placed(optimizer, "optimizer"), HostOptimizer)
