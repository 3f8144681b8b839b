"""A checkpoint of any number of ranks becomes a Hugging Face folder in bfloat16."""

import json
import shutil

import pytest
import torch
from safetensors.torch import load_file

from drkernel.config import REPOSITORY, LoraConfig
from drkernel.policy import Policy, load_tokenizer, transfer
from drkernel.policy.lora import adapted, add_adapters
from drkernel.training import checkpoint, sharding, update
from drkernel.training.export import main
from drkernel.training.loading import set_adapters
from drkernel.training.ranks import Ranks
from tests.training import gloo
from tests.training.test_sharding import make_policy

SEED = REPOSITORY / "assets/seed"


def save(run, step: int, policy: Policy, ranks: Ranks, origin) -> None:
    """A checkpoint in a run folder, as train.py leaves it."""
    optimizer = update.make_optimizer(policy, 1e-3, 0.0)
    checkpoint.save(run / "checkpoints", step, policy, optimizer, {}, 5, ranks)
    if ranks.is_main:
        (run / "config.yaml").write_text(json.dumps({"policy": {"path": str(origin), "prompts": "compact"}}))


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    run, policy = tmp_path_factory.mktemp("run"), Policy.load(SEED)
    for step in (5, 40):
        with torch.no_grad():
            policy.body.norm.weight.fill_(1 + step / 1000)
        save(run, step, policy, Ranks(), SEED)
    (run / "best.json").write_text(json.dumps({"checkpoint": "checkpoints/step_000005", "step": 5}))
    return run


def exported(capsys, *arguments) -> str:
    assert main([str(each) for each in arguments]) == 0
    return capsys.readouterr().out


@pytest.mark.parametrize("name", ["step_40", "step_000040", "40"])
def test_the_folder_is_what_an_export_of_the_policy_itself_would_be(run, tmp_path, capsys, name):
    said = exported(capsys, run / "checkpoints" / name, tmp_path / "out")
    policy = Policy.load(SEED)
    with torch.no_grad():
        policy.body.norm.weight.fill_(1.04)
    transfer.export(policy, tmp_path / "expected", load_tokenizer(SEED), torch.bfloat16)
    files = {path.name for path in (tmp_path / "expected").iterdir()}
    assert {path.name for path in (tmp_path / "out").iterdir()} == files
    found, expected = (load_file(tmp_path / side / "model.safetensors") for side in ("out", "expected"))
    assert found.keys() == expected.keys() and all(torch.equal(found[name], expected[name]) for name in found)
    assert {tensor.dtype for tensor in found.values()} == {torch.bfloat16}
    assert f"policy.path={tmp_path / 'out'} policy.prompts=compact" in said
    assert torch.equal(
        Policy.load(tmp_path / "out").body.norm.weight, torch.tensor(1.04).bfloat16().float().expand(192)
    )


def test_the_best_checkpoint_has_a_name_of_its_own(run, tmp_path, capsys):
    assert "step_000005" in exported(capsys, run / "checkpoints" / "best", tmp_path / "out")


def damaged(run):
    """A copy of a run of which one file of weights is damaged."""
    copy = shutil.copytree(run, run.with_name("damaged"), dirs_exist_ok=True)
    file = next((copy / "checkpoints/step_000040/tensors").iterdir())
    file.write_bytes(file.read_bytes()[:-1] + b"\xff")
    return copy


def test_what_cannot_be_exported_is_one_clear_line(run, tmp_path, capsys):
    (tmp_path / "full").mkdir()
    (tmp_path / "full/file").touch()
    bare = shutil.copytree(run, tmp_path / "bare")
    (bare / "config.yaml").unlink(), (bare / "best.json").unlink()
    cases = {
        "step_000007: found no whole checkpoint there; expected one of": (run / "checkpoints/step_7", tmp_path / "a"),
        "step_000005, step_000040": (run / "checkpoints/step_7", tmp_path / "a"),
        f"expected one of {run / 'checkpoints'}: step_000005, step_000040": (run, tmp_path / "a"),
        f"{run / 'checkpoints'}: found no whole checkpoint there; expected one of {run / 'checkpoints'}: step_": (
            run / "checkpoints",
            tmp_path / "a",
        ),
        "full: found something there already": (run / "checkpoints/step_5", tmp_path / "full"),
        "corrupt checkpoint (SHA-256 is": (damaged(run) / "checkpoints/step_40", tmp_path / "a"),
        "config.yaml: found no policy in it": (bare / "checkpoints/step_5", tmp_path / "a"),
        "best.json: not found; expected a run with": (bare / "checkpoints/best", tmp_path / "a"),
    }
    for message, (source, out) in cases.items():
        assert main([str(source), str(out)]) == 2
        said = capsys.readouterr().err
        assert message in said and said.count("\n") == 1 and not (tmp_path / "a").exists()


def test_another_policy_is_refused_by_name(run, tmp_path, capsys):
    origin = tmp_path / "other"
    policy = make_policy()
    transfer.export(policy, origin, load_tokenizer(SEED))
    assert main([str(run / "checkpoints/step_5"), str(tmp_path / "out"), "--policy", str(origin)]) == 2
    assert f"does not hold the weights of {origin}" in capsys.readouterr().err


LORA = {"rank": 3, "alpha": 6.0, "targets": ["q_proj", "down_proj"]}


def adapters_of(dtype: torch.dtype) -> Policy:
    policy = add_adapters(Policy.load(SEED, dtype), LoraConfig(**LORA))
    set_adapters(policy, str(SEED), 0, Ranks())
    for number, (_, layer) in enumerate(adapted(policy.model)):
        torch.nn.init.constant_(layer.lora_B.weight, 0.01 * (1 + number))
    return policy


@pytest.fixture(scope="module", params=[torch.float32, torch.bfloat16], ids=["float32", "bfloat16"])
def lora(request, tmp_path_factory):
    """A run with adapters, and the policy itself."""
    run, policy = tmp_path_factory.mktemp("lora"), adapters_of(request.param)
    save(run, 5, policy, Ranks(), SEED)
    config = {"policy": {"path": str(SEED), "prompts": "compact", "lora": LORA}}
    (run / "config.yaml").write_text(json.dumps(config))
    return run, policy


def test_adapters_are_merged_as_the_engine_has_them(lora, tmp_path, capsys):
    run, policy = lora
    assert " parameters of step_000005 in bfloat16" in exported(capsys, run / "checkpoints/5", tmp_path / "out")
    transfer.export(policy, tmp_path / "expected", load_tokenizer(SEED), torch.bfloat16)
    assert {p.name for p in (tmp_path / "out").iterdir()} == {p.name for p in (tmp_path / "expected").iterdir()}
    found, expected = (load_file(tmp_path / side / "model.safetensors") for side in ("out", "expected"))
    assert found.keys() == expected.keys() and all(torch.equal(found[name], expected[name]) for name in found)


def test_adapters_alone_are_a_folder_that_peft_loads(lora, tmp_path, capsys):
    run, policy = lora
    said = exported(capsys, run / "checkpoints/5", tmp_path / "out", "--adapter")
    assert "parameters of adapters of step_000005 in float32" in said
    transfer.export_adapters(policy, tmp_path / "expected")
    for name in ("adapter_config.json", "adapter_model.safetensors"):
        assert (tmp_path / "out" / name).read_bytes() == (tmp_path / "expected" / name).read_bytes()


def test_adapters_are_not_added_to_weights_that_they_were_not_trained_on(lora, tmp_path, capsys):
    run, _ = lora
    other = Policy.load(SEED)
    with torch.no_grad():
        other.body.norm.weight.add_(1)
    transfer.export(other, tmp_path / "other", load_tokenizer(SEED))
    arguments = [str(run / "checkpoints/5"), str(tmp_path / "out")]
    assert main([*arguments, "--policy", str(tmp_path / "other")]) == 2
    assert "other: found other weights (digest" in capsys.readouterr().err and not (tmp_path / "out").exists()


def test_a_run_without_adapters_has_none_to_export(run, tmp_path, capsys):
    assert main([str(run / "checkpoints/5"), str(tmp_path / "out"), "--adapter"]) == 2
    assert "found all weights, expected adapters for --adapter" in capsys.readouterr().err


def work(ranks: Ranks, folder) -> None:
    save(folder / f"by{ranks.size}", 3, sharding.shard(make_policy(), ranks), ranks, folder / "origin")


@pytest.mark.slow
@pytest.mark.xdist_group("checkpoint")
def test_what_several_ranks_wrote_one_process_exports(tmp_path, capsys):
    transfer.export(make_policy(), tmp_path / "origin", load_tokenizer(SEED))
    gloo.results("tests.training.test_export", tmp_path, sizes=(2, 4))
    expected = load_file(tmp_path / "origin" / "model.safetensors")
    for size in (2, 4):
        exported(capsys, tmp_path / f"by{size}/checkpoints/step_3", tmp_path / f"out{size}")
        found = load_file(tmp_path / f"out{size}" / "model.safetensors")
        assert found.keys() == expected.keys()
        assert all(torch.equal(found[name], expected[name].bfloat16()) for name in found)
