"""A policy is loaded in shards, and is the one that transformers loads."""

import huggingface_hub
import pytest
import torch
from safetensors.torch import load_file, save_file

from drkernel.policy.model import Policy, new_policy
from drkernel.policy.transfer import export
from drkernel.training.loading import load_policy, random_policy
from drkernel.training.ranks import Ranks
from drkernel.types import DrKernelError
from tests.training import gloo
from tests.training.test_sharding import batch

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("loading")]  # one worker starts the ranks, once


class NoTokenizer:
    def save_pretrained(self, folder):
        pass


def tiny(**changes) -> Policy:
    policy = new_policy(45, hidden=20, layers=2, heads=3, kv_heads=1)
    for name, value in changes.items():
        setattr(policy.model.config, name, value)
    return policy


def untied() -> Policy:
    policy = tiny(tie_word_embeddings=False)
    policy.head.weight = torch.nn.Parameter(torch.randn_like(policy.head.weight))
    return policy


def whole_weights(policy: Policy) -> dict[str, torch.Tensor]:
    """Every weight, tied ones under each of their names; sharded ones gathered."""
    named = policy.model.state_dict().items()
    return {name: tensor.full_tensor() if hasattr(tensor, "full_tensor") else tensor for name, tensor in named}


def everything(policy: Policy) -> dict:
    weights = {name: tensor.clone() for name, tensor in whole_weights(policy).items()}
    buffers = {name: tensor.clone() for name, tensor in policy.named_buffers()}
    return {"weights": weights, "buffers": buffers, "logprobs": policy.logprobs(batch([0, 1])).logprobs}


def refusal(load) -> str:
    try:
        load()
        return ""
    except DrKernelError as error:
        return str(error)


def work(ranks: Ranks, folder) -> dict:
    load = lambda name, **options: load_policy(folder / name, ranks, **options)
    found = {name: everything(load(name)) for name in ("tied", "untied", "half", "pieces")}
    found["random"] = everything(random_policy(untied().model.config, ranks, seed=3))
    found["random again"] = everything(load_policy(f"random:{folder / 'tied'}", ranks, seed=3))
    found["tied after a step"] = stepped(load("tied"))
    downloads = []
    huggingface_hub.snapshot_download = lambda name, **_: downloads.append(name) or str(folder / "tied")
    found["hub"] = everything(load_policy("someone/tied", ranks))
    found["downloads"] = downloads
    found["refusals"] = {name: refusal(lambda: load(name)) for name in ("damaged", "partial", "empty")}  # noqa: B023
    alone = lambda: load_policy(folder / ("tied" if ranks.rank else "empty"), ranks)
    found["refusals"]["alone"] = refusal(alone)
    return found


def stepped(policy: Policy) -> bool:
    """Whether embedding and head are still one tensor after an optimizer step."""
    optimizer = torch.optim.SGD(policy.parameters(), lr=1.0)
    policy.backward(batch([0]), lambda logprobs, _: logprobs.sum())
    optimizer.step()
    weights = whole_weights(policy)
    return torch.equal(weights["lm_head.weight"], weights["model.embed_tokens.weight"])


@pytest.fixture(scope="module")
def sources(tmp_path_factory):
    folder = tmp_path_factory.mktemp("sources")
    export(tiny(), folder / "tied", NoTokenizer())
    export(tiny(), folder / "half", NoTokenizer(), torch.bfloat16)
    torch.manual_seed(0)
    export(untied(), folder / "untied", NoTokenizer())
    for name in ("damaged", "partial", "empty", "pieces"):
        export(tiny(), folder / name, NoTokenizer())
    weights = load_file(folder / "tied" / "model.safetensors")
    data = (folder / "tied" / "model.safetensors").read_bytes()
    (folder / "damaged" / "model.safetensors").write_bytes(data[: len(data) // 2])
    removed = {k: v for k, v in weights.items() if k != "model.layers.1.mlp.up_proj.weight"}
    save_file(removed, folder / "partial" / "model.safetensors")
    (folder / "empty" / "model.safetensors").unlink()
    (folder / "pieces" / "model.safetensors").unlink()
    for number, names in enumerate((sorted(weights)[:7], sorted(weights)[7:])):
        save_file({name: weights[name] for name in names}, folder / "pieces" / f"model-0000{number + 1}.safetensors")
    return folder


@pytest.fixture(scope="module")
def found(sources):
    return gloo.results("tests.training.test_loading", sources)


@pytest.mark.parametrize("size", [1, 2, 4])
@pytest.mark.parametrize("name", ["tied", "untied", "half", "pieces"])
def test_every_number_of_ranks_loads_what_transformers_loads(found, sources, name, size):
    expected = everything(Policy.load(sources / ("tied" if name == "pieces" else name)))
    for rank in found[size]:
        torch.testing.assert_close(rank[name]["weights"], expected["weights"], rtol=0, atol=0)
        torch.testing.assert_close(rank[name]["buffers"], expected["buffers"], rtol=0, atol=0)
        torch.testing.assert_close(rank[name]["logprobs"], expected["logprobs"], rtol=1e-5, atol=1e-6)
    assert "model.rotary_emb.inv_freq" in {name.removeprefix("model.") for name in expected["buffers"]}


def test_random_weights_do_not_depend_on_the_number_of_ranks(found):
    for name in ("random", "random again"):
        one = found[1][0][name]["weights"]
        assert all(one[key].std() > 0.015 for key in one if one[key].ndim > 1)
        for size in (2, 4):
            torch.testing.assert_close(found[size][-1][name]["weights"], one, rtol=0, atol=0)
    same = found[1][0]["random"]["weights"], found[1][0]["random again"]["weights"]
    assert torch.equal(*(weights["model.embed_tokens.weight"] for weights in same))
    assert not torch.equal(same[0]["lm_head.weight"], same[1]["lm_head.weight"])


@pytest.mark.parametrize("size", [1, 2, 4])
def test_tied_weights_stay_tied(found, size):
    assert all(rank["tied after a step"] for rank in found[size])


@pytest.mark.parametrize("size", [1, 2, 4])
def test_a_hub_id_is_downloaded_by_the_first_rank_of_a_node_before_the_others_look(found, size):
    assert [len(rank["downloads"]) for rank in found[size]] == [2] + [1] * (size - 1)
    torch.testing.assert_close(found[size][-1]["hub"], found[size][-1]["tied"], rtol=0, atol=0)


@pytest.mark.parametrize("size", [1, 2, 4])
@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("damaged", "model.safetensors: "),
        ("partial", r"model.layers.1.mlp.up_proj.weight: found nothing, expected shape (60, 20)"),
        ("empty", "no .safetensors file"),
        ("alone", "no .safetensors file"),
    ],
)
def test_what_is_missing_or_damaged_is_one_line_on_every_rank(found, size, name, reason):
    for rank in found[size]:
        assert reason in rank["refusals"][name] and "\n" not in rank["refusals"][name]
        assert "expected config.json, .safetensors and tokenizer files" in rank["refusals"][name]


def test_a_config_that_is_no_json_is_refused(tmp_path):
    (tmp_path / "config.json").write_text("{")
    with pytest.raises(DrKernelError, match="not loadable"):
        load_policy(tmp_path, Ranks())
