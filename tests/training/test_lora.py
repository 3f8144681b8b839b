"""Adapters of a sharded policy: any number of ranks trains, merges, saves and loads the same ones."""

import json
import subprocess
import sys
from collections.abc import Iterator

import pytest
import torch
import torch.distributed as dist

from drkernel.config import REPOSITORY, Config, LoraConfig, PolicyConfig
from drkernel.policy import Policy, check_agreement, export, load_engine, load_prompts, load_tokenizer
from drkernel.policy.lora import adapted, add_adapters
from drkernel.policy.transfer import adapters, export_adapters, weights
from drkernel.training import build, checkpoint, sharding, update
from drkernel.training.loading import base_digest, load_policy, random_policy, set_adapters
from drkernel.training.ranks import Ranks
from drkernel.types import DrKernelError
from tests.training import gloo
from tests.training.test_sharding import ROWS, batch, full, loss, make_policy, share

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("lora")]  # one worker starts the ranks, once

ALONE = Ranks()
LORA = LoraConfig(rank=3, alpha=6)  # rows that neither two nor four ranks share out evenly
PROMPT = [i * i % 44 + 1 for i in range(30)]
OPTIONS = {
    "plain": {},
    "computed again": {"activation_checkpointing": 1.0},
    "kept": {"reshard_after_forward": False},
    "compiled": {"compile": {"backend": "eager"}},
}


@pytest.fixture(autouse=True)
def _no_group_is_left() -> Iterator[None]:
    """A policy that is sharded on one rank makes a process group, which other tests of this process would meet."""
    yield
    if dist.is_initialized():
        dist.destroy_process_group()


class NoTokenizer:
    def save_pretrained(self, folder):
        pass


def stepped(policy: Policy, micro_batches, steps: int = 2) -> dict:
    """The gradients of the last of some optimizer steps, and the adapters after it."""
    optimizer = update.make_optimizer(policy, lr=1e-2, weight_decay=0.1)
    gradients = {}
    for _ in range(steps):
        optimizer.zero_grad()
        for number, micro in enumerate(micro_batches, 1):
            sharding.set_gradient_sync(policy, number == len(micro_batches))
            policy.backward(micro, loss)
        gradients = {name: full(p.grad) for name, p in sharding.parameters(policy) if p.grad is not None}
        optimizer.step()
    return {"gradients": gradients, "adapters": {name: full(t) for name, t in adapters(policy)}, "optimizer": optimizer}


def without_optimizer(found: dict) -> dict:
    return {name: value for name, value in found.items() if name != "optimizer"}


def moments(optimizer) -> list[dict[str, torch.Tensor]]:
    return [{name: full(value) for name, value in state.items()} for state in optimizer.state.values()]


def work(ranks: Ranks, folder) -> dict:
    torch.set_num_threads(1)
    load = lambda name, **options: load_policy(folder / name, ranks, lora=LORA, lora_seed=5, **options)
    found: dict = {}
    for name, options in OPTIONS.items():
        found[name] = without_optimizer(stepped(load("tied", **options), share(ranks)))
    found["untied"] = without_optimizer(stepped(load("untied"), share(ranks)))
    policy = load("tied", dtype=torch.bfloat16)
    found["types"] = {p.requires_grad: p.dtype for p in policy.parameters()}
    found["bf16"] = without_optimizer(stepped(policy, share(ranks)))
    policy = load("tied")
    made = stepped(policy, share(ranks))
    found["merged"] = {name: full(tensor) for name, tensor in weights(policy, torch.float32)}
    found["base"] = policy.base
    fresh = load("tied")
    for _, layer in adapted(fresh.model):
        torch.nn.init.constant_(layer.lora_B.weight, 1e-4)
    found["in half precision"] = {name: full(tensor) for name, tensor in weights(fresh, torch.bfloat16)}
    found["local"] = sum(p.to_local().numel() for p in policy.parameters())
    engine = load_engine("transformers", policy, {0}, 4, 64)
    found["agreement"] = check_agreement(engine, policy, PROMPT, bound=1e-3)
    export_adapters(policy, folder / f"adapter{ranks.size}")
    checkpoint.save(folder / f"by{ranks.size}", 7, policy, made["optimizer"], {}, 2, ranks)
    found["moments"] = moments(made["optimizer"])
    for size in (s for s in (1, 2, 4) if (folder / f"by{s}").exists()):
        other = load("tied")
        optimizer = update.make_optimizer(other, lr=1.0, weight_decay=0.0)
        checkpoint.load_latest(folder / f"by{size}", other, optimizer, ranks)
        found[size] = {"adapters": {name: full(t) for name, t in adapters(other)}, "moments": moments(optimizer)}
    found["refused"] = [refusal(folder / f"by{ranks.size}", load("untied"), ranks)]
    random = random_policy(policy.model.config, ranks, seed=2, lora=LORA)
    found["random digest"] = base_digest(random, ranks)
    return found


def refusal(folder, policy: Policy, ranks: Ranks) -> str:
    optimizer = update.make_optimizer(policy, lr=1.0, weight_decay=0.0)
    with pytest.raises(DrKernelError) as error:
        checkpoint.load_latest(folder, policy, optimizer, ranks)
    return str(error.value)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("lora")
    export(make_policy(), folder / "tied", NoTokenizer())
    policy = make_policy(untied=True)
    policy.model.config.tie_word_embeddings = False
    export(policy, folder / "untied", NoTokenizer())
    return folder


@pytest.fixture(scope="module")
def found(folder):
    return gloo.results("tests.training.test_lora", folder)


def whole(folder) -> Policy:
    """As a single CPU process has it: not sharded."""
    return set_adapters(add_adapters(Policy.load(folder), LORA), str(folder), 5, ALONE)


@pytest.fixture(scope="module")
def alone(folder):
    """What one whole policy learns from all rows at once."""
    return {name: stepped(whole(folder / name), [batch(list(range(ROWS)))]) for name in ("tied", "untied")}


@pytest.mark.parametrize("size", [1, 2, 4])
@pytest.mark.parametrize("variant", [*OPTIONS, "untied"])
def test_any_number_of_ranks_learns_what_the_whole_policy_learns(found, alone, variant, size):
    expected = alone["untied" if variant == "untied" else "tied"]
    assert len(expected["gradients"]) == 2 * 2 * 7
    for rank in found[size]:
        torch.testing.assert_close(rank[variant]["gradients"], expected["gradients"], rtol=1e-4, atol=2e-7)
        torch.testing.assert_close(rank[variant]["adapters"], expected["adapters"], rtol=1e-3, atol=2e-5)


@pytest.mark.parametrize("size", [1, 2, 4])
def test_a_frozen_base_is_kept_in_the_type_in_which_it_computes_and_adapters_in_float32(found, alone, size):
    for rank in found[size]:
        assert rank["types"] == {False: torch.bfloat16, True: torch.float32}
        ours, expected = (
            torch.cat([r["gradients"][name].flatten() for name in sorted(r["gradients"])])
            for r in (rank["bf16"], alone["tied"])
        )
        assert torch.cosine_similarity(ours, expected, dim=0) > 0.99


@pytest.mark.parametrize("size", [1, 2, 4])
def test_every_rank_sends_the_engine_the_merged_weights(found, folder, alone, size):
    policy = whole(folder / "tied")
    parameters = dict(policy.model.named_parameters())
    for name, tensor in alone["tied"]["adapters"].items():
        parameters[name].data.copy_(tensor)
    expected = dict(weights(policy, torch.float32))
    for rank in found[size]:
        torch.testing.assert_close(rank["merged"], expected, rtol=1e-3, atol=1e-4)
        assert rank["agreement"] < 1e-4


@pytest.mark.parametrize("size", [2, 4])
def test_any_number_of_ranks_rounds_the_merged_weights_alike(found, size):
    for name, expected in found[1][0]["in half precision"].items():
        same = (found[size][-1]["in half precision"][name] == expected).double().mean()
        assert same > 0.99, f"{name}: {same:.4f}; rows add up in another order on other ranks"


@pytest.mark.parametrize("size", [2, 4])
def test_no_rank_holds_more_than_its_share_of_base_and_adapters(found, size):
    # A has 3 rows: of four ranks three have one each.
    assert all(rank["local"] <= 1.15 * found[1][0]["local"] / size for rank in found[size])


@pytest.mark.parametrize("size", [2, 4])
def test_the_exported_adapters_are_those_of_one_rank(found, folder, size):
    names = [path.name for path in sorted((folder / f"adapter{size}").iterdir())]
    assert names == ["adapter_config.json", "adapter_model.safetensors"]
    read = lambda number: (folder / f"adapter{number}" / names[0]).read_text()
    assert read(size) == read(1)


@pytest.mark.parametrize(("saved_by", "loaded_by"), [(1, 1), (1, 2), (1, 4), (2, 2), (2, 4), (4, 4)])
def test_what_some_ranks_saved_others_load_bit_for_bit(found, saved_by, loaded_by):
    for rank in found[loaded_by]:
        torch.testing.assert_close(rank[saved_by]["adapters"], found[saved_by][0]["plain"]["adapters"], rtol=0, atol=0)
        torch.testing.assert_close(rank[saved_by]["moments"], found[saved_by][0]["moments"], rtol=0, atol=0)


def test_a_checkpoint_holds_adapters_and_optimizer_and_names_the_base(found, folder):
    path = folder / "by2" / "step_000007"
    base = json.loads((path / "COMPLETE").read_text())["base"]
    assert base == {"source": str(folder / "tied"), "digest": found[2][0]["base"].digest}
    stored = sum(file.stat().st_size for file in (path / "tensors").iterdir())
    numbers = sum(tensor.numel() for tensor in found[2][0]["plain"]["adapters"].values())
    assert 12 * numbers <= stored < 13 * numbers + 40_000, "adapters and two moments, and the files' headers"


def test_the_digest_is_of_the_weights_and_not_of_the_ranks_or_adapters(found, folder):
    for part in ("base", "random digest"):
        assert len({rank[part] for ranks in found.values() for rank in ranks}) == 1
    policy = whole(folder / "tied")
    assert policy.base == found[4][3]["base"] and policy.base.digest != found[1][0]["random digest"]
    next(adapted(policy.model))[1].lora_B.weight.data.fill_(1.0)
    assert base_digest(policy, ALONE) == policy.base.digest
    rows = next(adapted(policy.model))[1].weight.data
    rows[[0, 1]] = rows[[1, 0]]
    assert base_digest(policy, ALONE) != policy.base.digest


@pytest.mark.parametrize("size", [1, 2, 4])
def test_a_checkpoint_of_another_base_is_refused(found, folder, size):
    for rank in found[size]:
        message = rank["refused"][0]
        assert f"expected {folder / 'tied'} with digest" in message and f"base {folder / 'untied'} with" in message


def test_a_run_goes_on_bit_for_bit(tmp_path, folder):
    one = whole(folder / "tied")
    optimizer = stepped(one, [batch([0])])["optimizer"]
    checkpoint.save(tmp_path, 1, one, optimizer, {}, 2, ALONE)
    other = whole(folder / "tied")
    fresh = update.make_optimizer(other, lr=1.0, weight_decay=0.0)
    checkpoint.load_latest(tmp_path, other, fresh, ALONE)
    for policy, its in ((one, optimizer), (other, fresh)):
        its.zero_grad()
        policy.backward(batch([2]), loss)
        its.step()
    torch.testing.assert_close(dict(adapters(other)), dict(adapters(one)), rtol=0, atol=0)


def test_blocks_computed_again_drop_the_same_inputs(folder):
    """With dropout the gradient of a block that is computed again is that of one that is kept."""
    gradients = []
    for again in (0.0, 1.0):
        settings = LoraConfig(rank=3, alpha=6, dropout=0.5)
        policy = load_policy(folder / "tied", ALONE, lora=settings, activation_checkpointing=again)
        for _, layer in adapted(policy.model):
            torch.nn.init.constant_(layer.lora_B.weight, 0.1)
        torch.manual_seed(0)
        policy.backward(batch([0, 1]), loss)
        gradients.append({name: full(p.grad) for name, p in sharding.parameters(policy) if p.grad is not None})
    torch.testing.assert_close(*gradients, rtol=1e-5, atol=1e-7)


def test_a_run_exports_its_adapters_and_the_whole_policy_and_compares_with_its_base(tmp_path):
    config = Config(run_dir=str(tmp_path / "run"))
    config.policy = PolicyConfig(path=str(REPOSITORY / "assets/seed"), lora=LoraConfig(rank=2))
    policy, prompts = build.make_policy(config, ALONE), load_prompts("compact", load_tokenizer(config.policy.path))
    for _, layer in adapted(policy.model):
        torch.nn.init.constant_(layer.lora_B.weight, 0.1)
    build.export_policy(config, policy, prompts, ALONE)
    assert json.loads((tmp_path / "run/adapter/adapter_config.json").read_text())["r"] == 2
    again = dict(Policy.load(tmp_path / "run" / "policy").model.named_parameters())
    torch.testing.assert_close(dict(weights(policy, torch.float32)), again)
    engine = load_engine("transformers", policy, {0}, 4, 64)
    name = "model.layers.0.mlp.up_proj.weight"
    assert torch.equal(engine.model.get_parameter(name), again[name])
    build.sync_first_policy(config, policy, engine, ALONE)
    assert torch.equal(engine.model.get_parameter(name), policy.model.get_parameter(name))


def test_a_whole_policy_is_not_exported_where_that_is_switched_off(tmp_path):
    config = Config(run_dir=str(tmp_path))
    config.policy = PolicyConfig(
        path=str(REPOSITORY / "assets/seed"), lora=LoraConfig(rank=2, targets=["q_proj"], export_merged=False)
    )
    prompts = load_prompts("compact", load_tokenizer(config.policy.path))
    build.export_policy(config, build.make_policy(config, ALONE), prompts, ALONE)
    assert [path.name for path in tmp_path.iterdir()] == ["adapter"]
    with pytest.raises(DrKernelError, match=r"found peft's adapter_config.json, expected a whole policy's config.json"):
        Policy.load(tmp_path / "adapter")


def test_the_benchmark_of_the_update_step_runs_on_a_small_shape(tmp_path):
    options = ["--shape", "tiny", "--row-tokens", "64", "--rank", "4"]
    command = [sys.executable, "benchmarks/update_step_lora.py", str(tmp_path), *options]
    done = subprocess.run(command, cwd=REPOSITORY, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stdout + done.stderr
    result = json.loads((tmp_path / "update_lora_tiny.json").read_text())
    assert result["tokens_per_second"] > 0 and result["adapters"] == 2 * 4 * (2 * 320 + 2 * 192 + 3 * 192)


def test_unknown_targets_are_named_before_weights_are_read(folder):
    with pytest.raises(DrKernelError, match=r"policy.lora.targets: found query; expected some of down_proj"):
        load_policy(folder / "tied", ALONE, lora=LoraConfig(rank=2, targets=["query"]))
