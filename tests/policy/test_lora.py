"""Adapters learn what peft's learn, leave their base alone, and reach the engine and peft's files as one policy."""

import json

import pytest
import torch
from safetensors.torch import load_file
from transformers import AutoModelForCausalLM

from drkernel.config import LoraConfig
from drkernel.policy import Policy, check_agreement, export, load_engine, new_policy
from drkernel.policy.attention import ATTENTION
from drkernel.policy.lora import adapted, add_adapters, dithered, draw_adapters, is_adapter, pairs, without_adapters
from drkernel.policy.model import Base
from drkernel.policy.transfer import adapters, export_adapters, weights
from drkernel.types import Batch, DrKernelError

VOCABULARY = 97
ALL = ["down_proj", "gate_proj", "k_proj", "o_proj", "q_proj", "up_proj", "v_proj"]
PROMPT = [i * i % (VOCABULARY - 1) + 1 for i in range(40)]
SETTINGS = [
    LoraConfig(rank=4, alpha=8),
    LoraConfig(rank=9, alpha=6, rslora=True),
    LoraConfig(rank=2, alpha=32, targets=["q_proj", "v_proj"]),
]


class NoTokenizer:
    def save_pretrained(self, folder):
        pass


def base() -> Policy:
    return new_policy(VOCABULARY, hidden=32, layers=2, seed=4)


def policy(settings: LoraConfig, trained: bool = True) -> Policy:
    """With adapters; `trained`: with a B that is not 0."""
    made = add_adapters(base(), settings)
    draw_adapters(made, seed=3)
    generator = torch.Generator().manual_seed(8)
    for _, layer in adapted(made.model) if trained else ():
        layer.lora_B.weight.data.normal_(0.0, 0.05, generator=generator)
    return made


def row(length: int = 30) -> Batch:
    tokens = torch.randint(0, VOCABULARY, (length,), generator=torch.Generator().manual_seed(1))
    positions, zeros = torch.arange(length), torch.zeros(length)
    ends = torch.tensor([0, length], dtype=torch.int32)
    return Batch(tokens, positions, ends, positions > 0, zeros, zeros, positions, positions)


def loss(logprobs, index):
    return -(logprobs * (1 + index % 3)).sum() / 30


def whole(policy: Policy) -> dict[str, torch.Tensor]:
    return {name: tensor.clone() for name, tensor in weights(policy, torch.float32)}


def test_a_new_adapter_changes_nothing():
    fresh = policy(LoraConfig(rank=4), trained=False)
    assert torch.equal(fresh.logprobs(row()).logprobs, base().logprobs(row()).logprobs)
    assert all(layer.lora_A.weight.abs().max() <= layer.in_features**-0.5 for _, layer in adapted(fresh.model))


def test_adapters_are_a_function_of_the_seed_and_leave_the_global_random_state():
    state = torch.get_rng_state()
    one, again = (dict(adapters(policy(LoraConfig(rank=4), trained=False))) for _ in range(2))
    assert torch.equal(torch.get_rng_state(), state)
    torch.testing.assert_close(one, again, rtol=0, atol=0)
    other = add_adapters(base(), LoraConfig(rank=4))
    draw_adapters(other, seed=4)
    name = "model.layers.0.mlp.up_proj.lora_A.weight"
    assert not torch.equal(one[name], dict(adapters(other))[name])


@pytest.mark.parametrize("settings", SETTINGS)
def test_only_adapters_train_and_there_are_as_many_as_the_shapes_say(settings):
    made = policy(settings)
    names = {name for name, p in made.model.named_parameters() if p.requires_grad}
    assert names == {name for name, _ in made.model.named_parameters() if is_adapter(name)}
    linear = {
        name.rpartition(".")[2]: (m.in_features, m.out_features) for name, m in adapted(policy(SETTINGS[0]).model)
    }
    assert sum(tensor.numel() for _, tensor in adapters(made)) == 2 * pairs(linear, settings)
    made.backward(row(), loss)
    assert all((p.grad is not None) == (name in names) for name, p in made.model.named_parameters())


@pytest.mark.parametrize("settings", SETTINGS)
def test_gradients_equal_those_of_peft(settings):
    """The same weights in peft's own model with full logits and transformers' own attention."""
    peft = pytest.importorskip("peft")
    ours = policy(settings)
    options = {"r": settings.rank, "lora_alpha": settings.alpha, "use_rslora": settings.rslora}
    theirs = peft.get_peft_model(base().model, peft.LoraConfig(**options, target_modules=settings.targets or ALL))
    theirs.base_model.model.set_attn_implementation("eager")
    parameters = dict(theirs.named_parameters())
    at = lambda name: parameters["base_model.model." + name.replace(".weight", ".default.weight")]
    for name, tensor in adapters(ours):
        at(name).data.copy_(tensor)
    data = row()
    logits = theirs(input_ids=data.tokens.unsqueeze(0)).logits[0, :-1]
    logp = logits.log_softmax(-1).gather(1, data.tokens[1:, None]).squeeze(1)
    expected = loss(logp, torch.arange(1, len(data.tokens)))
    expected.backward()
    scores = ours.backward(data, loss)
    torch.testing.assert_close(scores.loss, expected.detach(), rtol=1e-5, atol=1e-6)
    compared = {name: p for name, p in ours.model.named_parameters() if p.requires_grad}
    assert compared
    for name, parameter in compared.items():
        torch.testing.assert_close(parameter.grad, at(name).grad, rtol=1e-4, atol=1e-6)
        assert parameter.grad.abs().max() > 0


@pytest.mark.parametrize("settings", SETTINGS)
def test_the_exported_adapter_is_loaded_by_peft_as_the_same_policy(tmp_path, settings):
    peft = pytest.importorskip("peft")
    ours = policy(settings)
    export(base(), tmp_path / "base", NoTokenizer())
    ours.base = Base(str(tmp_path / "base"), "0" * 16)
    export_adapters(ours, tmp_path / "adapter")
    assert {path.name for path in (tmp_path / "adapter").iterdir()} == {
        "adapter_config.json",
        "adapter_model.safetensors",
    }
    said = json.loads((tmp_path / "adapter" / "adapter_config.json").read_text())
    assert said["base_model_name_or_path"] == str(tmp_path / "base") and said["target_modules"] == sorted(
        settings.targets or ALL
    )
    model = AutoModelForCausalLM.from_pretrained(said["base_model_name_or_path"], attn_implementation=ATTENTION)
    loaded = peft.PeftModel.from_pretrained(model, tmp_path / "adapter").merge_and_unload()
    expected = ours.logprobs(row()).logprobs
    torch.testing.assert_close(Policy(loaded).logprobs(row()).logprobs, expected, rtol=1e-5, atol=1e-5)
    assert not torch.allclose(base().logprobs(row()).logprobs, expected, atol=1e-3), "the adapters do something"


@pytest.mark.parametrize("settings", SETTINGS)
def test_the_merged_export_is_loaded_by_transformers_as_the_same_policy(tmp_path, settings):
    ours = policy(settings)
    export(ours, tmp_path, NoTokenizer())
    assert load_file(tmp_path / "model.safetensors").keys() == whole(base()).keys()
    expected = ours.logprobs(row()).logprobs
    torch.testing.assert_close(Policy.load(tmp_path).logprobs(row()).logprobs, expected, rtol=1e-5, atol=1e-5)


def test_the_engine_gets_the_sum_and_the_trainers_base_stays_as_it_was():
    ours, before = policy(SETTINGS[0]), whole(base())
    engine = load_engine("transformers", ours, {0}, 4, 128)
    assert check_agreement(engine, ours, PROMPT, bound=1e-4) < 1e-5
    after = dict(ours.model.named_parameters())
    assert all(torch.equal(after[name], tensor) for name, tensor in before.items())
    name = "model.layers.1.self_attn.v_proj"
    layer = ours.model.get_submodule(name)
    expected = layer.weight + 2.0 * layer.lora_B.weight @ layer.lora_A.weight
    torch.testing.assert_close(engine.model.get_parameter(f"{name}.weight"), expected, rtol=1e-6, atol=1e-7)


def test_an_engine_without_the_adapters_is_noticed():
    ours = policy(SETTINGS[0])
    engine = load_engine("transformers", base(), {0}, 4, 128)
    with pytest.raises(DrKernelError, match="differ from the trainer's by"):
        check_agreement(engine, ours, PROMPT, bound=1e-3)


def test_the_sum_is_made_in_float32_before_it_becomes_the_engines_type():
    ours = policy(SETTINGS[0])
    for p in ours.parameters():
        p.data = p.data if p.requires_grad else p.data.bfloat16()
    layer = ours.model.get_submodule("model.layers.0.mlp.down_proj")
    exact = layer.weight.float() + 2.0 * layer.lora_B.weight @ layer.lora_A.weight
    merged = dict(weights(ours, torch.bfloat16))["model.layers.0.mlp.down_proj.weight"]
    torch.testing.assert_close(merged, exact.bfloat16(), rtol=0.008, atol=0)
    assert (merged.float() - exact).abs().mean() < 0.003 * exact.abs().mean()


def test_a_step_that_is_smaller_than_bfloat16_resolves_reaches_the_engine_on_average():
    draw = torch.Generator().manual_seed(0)
    # Between 1 and 2, where bfloat16 has steps of 2**-7.
    base = (0.9 * torch.rand(400, 500, generator=draw) + 1.05).bfloat16().float()
    for change in (2**-7 / 100, -(2**-7) / 100, 2**-7 / 3):
        assert abs(change) > 2**-8 or torch.equal((base + change).bfloat16().float(), base), "lost, to the nearest"
        moved = dithered(base + change, 0).float() - base
        assert moved.mean().item() == pytest.approx(change, rel=0.05)
        assert set(moved.unique().abs().tolist()) <= {0.0, 2**-7}
        whole = dithered(base + change, 0)
        assert torch.equal(dithered((base + change)[150:], 150), whole[150:]), "a rank's rows are those of the whole"
        assert torch.equal(dithered(base + change, 0), whole)
    assert torch.equal(dithered(base, 0).float(), base), "what does not change stays"


def test_the_engine_in_bfloat16_follows_small_steps_of_the_trainer():
    ours = policy(LoraConfig(rank=8), trained=False)
    for p in ours.parameters():
        p.data = p.data if p.requires_grad else p.data.bfloat16().float()
    start = ours.logprobs(row()).logprobs
    ours.backward(row(), loss)
    for _, layer in adapted(ours.model):
        layer.lora_B.weight.data.sub_(1e-4 * layer.lora_B.weight.grad.sign())
    step = ours.logprobs(row()).logprobs - start
    engine = base()
    engine.model.load_state_dict(dict(weights(ours, torch.bfloat16)), strict=False)
    theirs = engine.logprobs(row()).logprobs - start
    assert (theirs @ step / (step @ step)).item() == pytest.approx(1.0, abs=0.1)


def test_without_its_adapters_a_policy_is_its_base():
    ours = policy(SETTINGS[0])
    with without_adapters(ours):
        torch.testing.assert_close(whole(ours), whole(base()), rtol=0, atol=0)
    name = "model.layers.0.mlp.up_proj.weight"
    assert not torch.equal(whole(ours)[name], whole(base())[name])


def test_dropout_acts_in_the_backward_pass_alone():
    ours, plain = policy(LoraConfig(rank=4, dropout=0.5)), policy(LoraConfig(rank=4))
    assert torch.equal(ours.logprobs(row()).logprobs, plain.logprobs(row()).logprobs)
    found = [ours.backward(row(), loss).loss.item() for _ in range(2)]
    assert len({*found, plain.backward(row(), loss).loss.item()}) == 3


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        (
            {"rank": 4, "targets": ["q_proj", "query"]},
            r"policy.lora.targets: found query; expected some of down_proj, ",
        ),
        ({"rank": -1}, r"policy.lora.rank=-1; expected 0 \(no adapters\) or more"),
        ({"rank": 4, "alpha": 0}, "policy.lora.alpha=0; expected more than 0"),
        ({"rank": 4, "dropout": 1.0}, "policy.lora.dropout=1.0; expected a probability below 1"),
        ({"rank": 4, "targets": []}, r"policy.lora.targets=\[\]; expected names of linear layers"),
    ],
)
def test_settings_that_make_no_sense_are_named(settings, words):
    with pytest.raises(DrKernelError, match=words):
        add_adapters(base(), LoraConfig(**settings))
