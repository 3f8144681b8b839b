"""Weights reach an engine whole, whatever the sharding, and an engine that does not have them is noticed."""

import contextlib
import multiprocessing
from types import SimpleNamespace

import pytest
import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.algorithms._checkpoint.checkpoint_wrapper import checkpoint_wrapper
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from transformers import AutoModelForCausalLM

from drkernel.config import REPOSITORY
from drkernel.policy import Policy, Request, load_engine, load_tokenizer, new_policy, transfer
from drkernel.policy.transfer import check_agreement, weights
from drkernel.types import DrKernelError

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("transfer")]  # one worker starts the ranks, once

SEED = REPOSITORY / "assets/seed"
VOCABULARY = 97
SHAPES = [(1,), (3,), (5,), (1, 4), (3, 1, 2), (5, 7), (8, 3), (12,), (2, 2), (7, 1)]
BUCKETS = {"one each": 1, "some": 160, "all": 2**30}
PROMPT = [i * i % (VOCABULARY - 1) + 1 for i in range(40)]


class Odd(nn.Module):
    """Every kind of weight: odd shapes, tied, wrapped, half precision already, a buffer, and one that stays whole."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.many = nn.ParameterList([nn.Parameter(torch.randn(shape)) for shape in SHAPES])
        self.low = nn.Linear(2, 3, dtype=torch.bfloat16)
        self.tied = self.many[5]
        self.whole = nn.Parameter(torch.randn(6))
        self.register_buffer("count", torch.tensor(2**40 + 1))
        self.block = checkpoint_wrapper(nn.Linear(3, 5))
        self.compiled = torch.compile(nn.Linear(2, 3))


def expected(model: nn.Module) -> dict[str, torch.Tensor]:
    whole = {name: t.bfloat16() if t.is_floating_point() else t for name, t in model.state_dict().items()}
    whole.pop("many.5", None)  # it is `tied`, which comes first
    whole.pop("lm_head.weight", None)
    return {name.replace("_orig_mod.", ""): tensor for name, tensor in whole.items()}


def wrong(found, right: dict[str, torch.Tensor]) -> list[str]:
    """Names that are missing, double, or not equal to the bit."""
    found = list(found)
    same = {name for name, t in found if name in right and t.dtype == right[name].dtype and torch.equal(t, right[name])}
    return sorted(({name for name, _ in found} | right.keys()) - same) + [f"{len(found)} of {len(right)}"] * (
        len(found) != len(right)
    )


def answers(engine) -> list:
    engine.add(Request("a", PROMPT, 12, seed=5))
    done = []
    while engine.busy:
        done += engine.step()
    engine.release("a")
    return done


def shard(policy, mesh):
    for layer in policy.body.layers:
        fully_shard(layer, mesh=mesh)
    fully_shard(policy, mesh=mesh)
    return policy


def worker(rank: int, size: int, folder) -> None:
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{folder}/store", rank=rank, world_size=size)
    mesh = init_device_mesh("cpu", (size,))
    results = {}
    model = Odd()
    fully_shard(model.low, mesh=mesh)  # FSDP wants one type per group
    fully_shard(model, mesh=mesh, ignored_params={model.whole})
    for title, size_ in BUCKETS.items():
        results[title] = wrong(weights(SimpleNamespace(model=model), torch.bfloat16, size_), expected(Odd()))
    policy, sharded = (new_policy(VOCABULARY, hidden=64, layers=2, seed=4) for _ in range(2))
    shard(sharded, mesh)
    results["policy"] = wrong(weights(sharded, torch.bfloat16, 50_000), expected(policy.model))
    sharded(transfer._rows(PROMPT, [[1]]))  # leaves the root's weights whole
    results["policy"] += wrong(weights(sharded, torch.bfloat16, 50_000), expected(policy.model))
    gathers, real = [], transfer.all_gather
    transfer.all_gather = lambda out, *rest, **named: (gathers.append(len(out)), real(out, *rest, **named))
    list(weights(sharded, torch.bfloat16))
    transfer.all_gather = real
    results["gathers"] = gathers
    engine = load_engine("transformers", sharded, set(), 4, 128)
    results["answers"] = answers(engine) == answers(load_engine("transformers", policy, set(), 4, 128))
    results["agreement"] = check_agreement(engine, policy, PROMPT, bound=1e-3)
    if rank == 1:
        engine.model.base_model.layers[1].mlp.up_proj.weight.zero_()
    try:
        check_agreement(engine, policy, PROMPT, bound=1e-3)
    except DrKernelError as error:
        results["stopped"] = str(error)
    torch.save(results, folder / f"{rank}.pt")
    dist.barrier()
    dist.destroy_process_group()


@pytest.fixture(scope="module", params=[2, 4])
def ranks(request, tmp_path_factory):
    """What each rank of a process group of 2 or 4 saw."""
    folder = tmp_path_factory.mktemp("ranks")
    context = multiprocessing.get_context("fork")
    processes = [context.Process(target=worker, args=(rank, request.param, folder)) for rank in range(request.param)]
    for process in processes:
        process.start()
    for process in processes:
        process.join(120)
    assert [p.exitcode for p in processes] == [0] * request.param
    return [torch.load(folder / f"{rank}.pt") for rank in range(request.param)]


@pytest.mark.parametrize("title", [*BUCKETS, "policy"])
def test_every_rank_gets_every_weight_whole_and_once_under_its_plain_name(ranks, title):
    assert [seen[title] for seen in ranks] == [[]] * len(ranks)


def test_a_bucket_is_one_gather(ranks):
    assert all(len(seen["gathers"]) == 1 for seen in ranks)


def test_an_engine_of_a_sharded_policy_answers_as_that_of_the_whole(ranks):
    assert all(seen["answers"] and seen["agreement"] < 1e-4 for seen in ranks)


def test_one_rank_with_a_wrong_engine_stops_all(ranks):
    assert all("differ from the trainer's by" in seen["stopped"] for seen in ranks)


@pytest.fixture
def policy():
    return new_policy(VOCABULARY, hidden=64, layers=2, seed=4)


def test_one_rank_casts_and_where_the_type_fits_copies_nothing(policy):
    assert wrong(weights(policy, torch.bfloat16), expected(policy.model)) == []
    own = {p.data_ptr() for p in policy.parameters()}
    assert {t.data_ptr() for _, t in weights(policy, torch.float32)} == own
    assert not any(t.requires_grad for _, t in weights(policy, torch.float32))


def test_names_are_those_of_the_hub_under_checkpointing_and_compilation(policy):
    plain = [name for name, _ in weights(policy, torch.float32)]
    for i, layer in enumerate(policy.body.layers):
        policy.body.layers[i] = torch.compile(checkpoint_wrapper(layer))
    assert [name for name, _ in weights(policy, torch.float32)] == plain
    assert answers(load_engine("transformers", policy, set(), 4, 128))


def test_an_engine_with_one_wrong_weight_is_noticed(policy):
    engine = load_engine("transformers", policy, set(), 4, 128)
    assert check_agreement(engine, policy, PROMPT, bound=1e-3) < 1e-4
    engine.model.base_model.layers[1].self_attn.k_proj.weight[:64].neg_()
    with pytest.raises(DrKernelError, match=r"differ from the trainer's by \d.* expected at most 0.001: it does not"):
        check_agreement(engine, policy, PROMPT, bound=1e-3)
    engine.sync(policy)
    check_agreement(engine, policy, PROMPT, bound=1e-3)


def test_keys_and_values_of_older_weights_are_noticed(policy):
    engine = load_engine("transformers", policy, set(), 4, 128)
    check_agreement(engine, policy, PROMPT, bound=1e-3)
    stale, other = engine._prompts.copy(), new_policy(VOCABULARY, hidden=64, layers=2, seed=9)
    engine.sync(other)
    engine._prompts.update(stale)
    with pytest.raises(DrKernelError, match="keys and values of older ones"):
        check_agreement(engine, other, PROMPT, bound=1e-3)


def test_an_engine_is_compared_with_the_trainer_in_the_precision_in_which_it_trains(policy, monkeypatch):
    engine, inside, scored = load_engine("transformers", policy, set(), 4, 128), [], []

    @contextlib.contextmanager
    def autocast(entered):
        inside.append(entered)
        yield
        inside.pop()

    real = policy.logprobs
    monkeypatch.setattr(transfer, "autocast", autocast, raising=False)
    monkeypatch.setattr(policy, "logprobs", lambda batch: scored.append(list(inside)) or real(batch))
    check_agreement(engine, policy, PROMPT, bound=1e-3)
    assert [[entered is policy for entered in each] for each in scored] == [[True]]


def test_what_is_not_a_number_does_not_agree(policy):
    engine = load_engine("transformers", policy, set(), 4, 128)
    with torch.no_grad():
        policy.head.weight[3] = torch.nan
    with pytest.raises(DrKernelError, match="by inf"):
        check_agreement(engine, policy, PROMPT, bound=1e9)


def test_a_policy_is_exported_as_its_engine_computes():
    assert transfer.export_dtype(torch.device("cuda")) == torch.bfloat16, "8B is 16 GB and not 33"
    assert transfer.export_dtype(torch.device("cpu")) == torch.float32


@pytest.mark.parametrize("trained", [torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_the_config_of_an_export_names_the_type_of_its_weights(tmp_path, trained, dtype):
    """transformers and servers load weights as what the config names."""
    transfer.export(Policy.load(SEED, trained), tmp_path, load_tokenizer(SEED), dtype)
    assert AutoModelForCausalLM.from_pretrained(tmp_path, dtype="auto").dtype == dtype
