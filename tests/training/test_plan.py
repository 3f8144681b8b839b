"""What a run takes of a GPU's memory, by numbers worked out by hand for Qwen3-8B, and against what was measured."""

import dataclasses
import io
import re

import pytest
import torch
from rich.console import Console
from transformers import Qwen3Config

from drkernel.config import REPOSITORY
from drkernel.judge.devices.simulated.gpus import GPUS
from drkernel.training import plan
from drkernel.training.ranks import Ranks
from drkernel.types import DrKernelError
from tests import commands
from tests.configs import train_config as load

GIB = 2**30
EIGHT = plan.QWEN3["Qwen/Qwen3-8B"]


def test_parameters_of_8b():
    """Per block: 4096 x (2 x 4096 + 2 x 1024) of attention, 2 x 128 and 2 x 4096 of norms, 3 x 4096 x 12288."""
    assert EIGHT.block == 41_943_040 + 256 + 8192 + 150_994_944 == 192_946_432
    assert EIGHT.parameters == 36 * 192_946_432 + 2 * 151_936 * 4096 + 4096 == 8_190_735_360


def test_parts_of_8b_on_seven_gpus():
    parts = plan.memory(load("policy=qwen3_8b", "trainer.gpus=7"), EIGHT, ranks=7)
    # 16 x 8,190,735,360 / 7 = 18,721,680,823 bytes
    assert parts["state"] == (pytest.approx(17.436, abs=1e-3), pytest.approx(17.436, abs=1e-3))
    assert parts["engine weights"][0] == pytest.approx(15.256, abs=1e-3)  # 2 bytes each
    assert parts["key-value cache"] == (48.0, 48.0)
    # 2 x 32,768 tokens x (36 x 4,096 inputs of blocks + 68,608 of one block + 32,768 of its gradients), 6 x 4,096 x
    # 151,936 of the head, 2 x 151,936 x 4,096 of logits, 8 x 192,946,432 of blocks
    by_hand = 65_536 * (147_456 + 68_608 + 32_768) + 3_733_979_136 + 1_244_659_712 + 1_543_571_456
    assert parts["activations at the longest row"][1] == pytest.approx(by_hand / GIB)
    assert plan.total(parts) == pytest.approx(17.436 + 15.256 + 48 + by_hand / GIB + 5, abs=0.01)
    assert 105 < plan.total(parts) < 108


@pytest.mark.parametrize(("size", "tokens", "measured"), [("0.6B", 65_536, 88.8), ("1.7B", 32_768, 90.7)])
def test_an_update_step_alone_as_measured_on_an_h200(size, tokens, measured):
    config = load(f"policy=qwen3_{size.lower()}", f"trainer.micro_batch_tokens={tokens}")
    shape = plan.QWEN3[f"Qwen/Qwen3-{size}"]
    parts = plan.memory(config, shape, ranks=1)
    assert parts["state"][1] + parts["activations at the longest row"][1] == pytest.approx(measured, rel=0.02)


def test_an_engine_that_sleeps_takes_nothing_during_the_update():
    config = load("policy=qwen3_8b", "engine.sleep=true", "engine.name=vllm")
    parts = plan.memory(config, EIGHT, 8)
    assert parts["engine weights"] == (pytest.approx(15.256, abs=1e-3), 0) and parts["key-value cache"] == (48, 0)
    # The engine is awake while the trainer's log-probabilities are compared with its own: 16 rows of 2,048 + 8 tokens
    compared = 2 * 16 * 2056 * (2 * 4096 + 3 * 12_288) + 2 * 4096 * 151_936 + 2 * 151_936 * 128 + 4 * 192_946_432
    assert parts["activations at the longest row"][0] == pytest.approx(compared / GIB)
    assert plan.total(parts) == pytest.approx(15.256 + 15.256 + 48 + compared / GIB + 5, abs=0.01), "generating"


def test_nothing_is_compared_with_an_engine_that_computes_as_the_trainer_does():
    parts = plan.memory(load("policy=qwen3_8b", "engine.name=transformers"), EIGHT, 8)
    assert parts["activations at the longest row"][0] == 0


def test_a_run_that_an_engine_fills_to_the_brim_does_not_fit():
    overrides = ["policy=qwen3_14b", "filters=full", "engine.sleep=true", "engine.kv_cache_gib=75", "engine.name=vllm"]
    assert "engine" in plan.verdict(load(*overrides), plan.QWEN3["Qwen/Qwen3-14B"], 7, 139.0)


def test_ranks_that_have_an_engine_together_share_its_weights_and_have_a_cache_each():
    parts = plan.memory(load("policy=qwen3_8b", "engine.tensor_parallel=4"), EIGHT, 8)
    assert parts["engine weights"] == (pytest.approx(15.256 / 4, abs=1e-3),) * 2
    assert parts["key-value cache"] == (48, 48)


def test_a_run_whose_engine_does_not_fit_on_one_gpu_is_told_how_many_take_it_together():
    config, shape = load("policy=qwen3_14b"), plan.QWEN3["Qwen/Qwen3-14B"]
    assert re.search(r"engine\.tensor_parallel=[248]\b", plan.remedy(config, shape, 8, 60.0))
    assert plan._groups(config, shape, 6) == [2] and plan._groups(config, shape, 7) == []


def test_moments_in_the_hosts_memory_leave_half_of_the_state():
    config = load("policy=qwen3_8b", "trainer.offload=optimizer")
    # 8 x 8,190,735,360 / 7 bytes of weights and gradients, and two chunks
    assert plan.memory(config, EIGHT, 7)["state"] == (pytest.approx(8.718 + 1.0, abs=1e-3),) * 2
    assert "trainer.offload=optimizer" in plan.remedy(load("policy=qwen3_8b"), EIGHT, 2, 79.0)


def test_more_gpus_do_not_divide_the_state_of_a_policy_that_each_has_whole():
    config = load("policy=seed_8m")
    shape = plan.shape_of(config.policy.path)
    assert shape and shape.parameters < plan.WHOLE
    assert plan.memory(config, shape, 1)["state"] == plan.memory(config, shape, 8)["state"]


def test_groups_that_the_ranks_of_a_node_cannot_form_are_refused():
    config = load("policy=qwen3_14b", "engine.tensor_parallel=2")
    with pytest.raises(DrKernelError, match="tensor_parallel=2 with 7 ranks on a node"):
        plan.check(config, Ranks(size=1, local_size=7))


def test_the_longest_row_counts_where_it_is_longer_than_a_micro_batch():
    short = plan.memory(load("policy=qwen3_8b", "trainer.micro_batch_tokens=1024"), EIGHT, 7)
    assert short == plan.memory(load("policy=qwen3_8b"), EIGHT, 7)


def test_a_judge_on_the_gpus_that_train_has_a_part():
    shared = plan.memory(load("policy=qwen3_8b", "judge=cuda", "judge.share=true"), EIGHT, 8)
    assert shared["judge"] == (plan.JUDGE_GIB,) * 2
    planned_elsewhere = plan.memory(load("policy=qwen3_8b", "judge.share=true"), EIGHT, 8)
    assert planned_elsewhere["judge"] == (plan.JUDGE_GIB,) * 2, "where there is no GPU, too"
    assert plan.memory(load("policy=qwen3_8b", "judge=simulated"), EIGHT, 8)["judge"] == (0, 0)


def test_a_reference_policy_has_a_part_where_there_is_one():
    parts = plan.memory(load("policy=qwen3_8b", "algo.kl_coef=0.01"), EIGHT, 8)
    assert parts["reference policy"] == (pytest.approx(EIGHT.parameters * 4 / 8 / plan.GIB),) * 2
    assert "reference policy" not in plan.memory(load("policy=qwen3_8b"), EIGHT, 8)
    assert "reference policy" not in plan.memory(load("policy=qwen3_8b_lora", "algo.kl_coef=0.01"), EIGHT, 8)


def test_a_float32_head_takes_memory_for_a_copy_its_gradient_and_wider_logits():
    shape = plan.QWEN3["Qwen/Qwen3-8B"]
    part = lambda *more: plan.memory(load("policy=qwen3_8b", *more), shape, 7)["activations at the longest row"][1]
    found = part("policy.fp32_head=true") - part()
    assert found == pytest.approx((8 * 4096 * 151_936 + 2 * 151_936 * 4096) / 2**30)


@pytest.mark.parametrize(
    ("overrides", "ranks", "card", "words"),
    [
        (
            ["policy=qwen3_8b"],
            1,
            139.0,
            r"8B on 1 GPU needs about 212 GiB .* at most 139 \(state 122\); trainer.offload=optimizer .*fits",
        ),
        (["policy=qwen3_8b"], 8, 79.0, r"on 8 GPUs needs about 105 .* \(key-value cache 48\); engine.kv_cache_gib=2\d"),
        (["policy=qwen3_1.7b"], 1, 79.0, r"trainer.recompute=1.0"),
        (["policy=qwen3_14b", "judge=cuda", "judge.share=true"], 8, 79.0, r"engine.sleep=true|no setting"),
    ],
)
def test_what_does_not_fit_is_refused_with_the_number_to_change(overrides, ranks, card, words):
    config = load(*overrides)
    with pytest.raises(DrKernelError, match=words):
        plan.verdict(config, plan.QWEN3[config.policy.path], ranks, card)


@pytest.mark.parametrize(("size", "ranks"), [("0.6b", 1), ("1.7b", 2), ("4b", 2), ("8b", 7), ("14b", 8)])
def test_every_preset_fits_the_h200s_that_its_documentation_names(size, ranks):
    config = load(f"policy=qwen3_{size}", f"trainer.gpus={ranks}")
    assert plan.verdict(config, plan.QWEN3[config.policy.path], ranks, GPUS["H200"].memory_gib) == ""


@pytest.mark.slow
def test_what_is_proposed_fits():
    config, shape, tried = load("policy=qwen3_14b"), plan.QWEN3["Qwen/Qwen3-14B"], 0
    for ranks in (1, 2, 4, 8):
        for card in (79.0, 139.0):
            line = plan.remedy(config, shape, ranks, card)
            overrides = [word for word in line.split() if "=" in word]
            changed = load("policy=qwen3_14b", *overrides)
            gpus = max(ranks, changed.trainer.gpus)
            assert "no setting" in line or plan.total(plan.memory(changed, shape, gpus)) <= card, line
            tried += "no setting" not in line
    assert tried


def test_a_run_a_little_above_the_card_is_only_warned(monkeypatch):
    config = load("policy=qwen3_8b")
    assert "needs about 107 GiB" in plan.verdict(config, EIGHT, 7, 105.0)


def test_shapes_are_read_from_a_policys_folder(tmp_path):
    sizes = {"hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2}
    given = Qwen3Config(**sizes, head_dim=16, intermediate_size=128, vocab_size=500, tie_word_embeddings=True)
    given.save_pretrained(tmp_path)
    assert plan.shape_of(str(tmp_path)) == plan.Shape(64, 2, 4, 2, 16, 128, 500, tied=True)
    assert plan.shape_of(f"random:{tmp_path}") == plan.shape_of(str(tmp_path))
    assert plan.shape_of(str(tmp_path / "nothing")) is None


def test_without_a_gpu_nothing_is_refused():
    assert plan.check(load("policy=qwen3_14b"), Ranks(device=torch.device("cpu"))) == ""


def test_numbers_of_the_presets_are_those_of_their_models():
    config = dataclasses.asdict(EIGHT)
    assert (config["hidden"], config["layers"], config["vocabulary"]) == (4096, 36, 151_936)
    billions = {"0.6B": 0.596, "1.7B": 1.721, "4B": 4.022, "14B": 14.768}
    for size, number in billions.items():
        assert plan.QWEN3[f"Qwen/Qwen3-{size}"].parameters / 1e9 == pytest.approx(number, abs=1e-3)


@pytest.mark.slow
@pytest.mark.xdist_group("commands")  # one process imports what they need
def test_the_command_prints_the_table_and_loads_nothing(tmp_path):
    overrides = ["policy=qwen3_8b", "trainer.gpus=7", "plan=true", "logger=none"]
    done = commands.run([str(REPOSITORY / "train.py"), *overrides], cwd=tmp_path)
    assert done.returncode == 0, done.output
    for row in (
        "state",
        "engine weights",
        "key-value cache",
        "activations at the longest row",
        "judge",
        "total",
        "H200",
    ):
        assert row in done.stdout
    assert "it fits" in done.stdout
    assert not list((tmp_path / "outputs" / "train").iterdir())


@pytest.mark.parametrize(
    ("overrides", "ranks", "words"),
    [
        (["engine.tensor_parallel=3"], 8, r"engine\.tensor_parallel=3 with 8 ranks on a node"),
        (["engine.tensor_parallel=5"], 5, r"engine\.tensor_parallel=5 with 32 attention heads; expected a divisor"),
        (["stage=sft", "sft.data=/nowhere.parquet"], 8, r"sft\.data=/nowhere\.parquet: found no such file"),
    ],
)
def test_a_plan_refuses_what_the_run_refuses(overrides, ranks, words):
    with pytest.raises(DrKernelError, match=words):
        plan.show(load("policy=qwen3_8b", *overrides), ranks, Console(file=io.StringIO()))


def test_parts_of_8b_with_adapters_on_one_gpu():
    """A base of 2 bytes per parameter; adapters of rank 32 on seven matrices of each of 36 blocks, 16 bytes each."""
    config = load("policy=qwen3_8b", "policy.lora.rank=32")
    # inputs + outputs: q and o 8,192 each, k and v 5,120 each, gate, up and down 16,384 each
    adapters = 36 * 32 * (2 * 8192 + 2 * 5120 + 3 * 16_384)
    assert adapters == 87_293_952
    parts = plan.memory(config, EIGHT, ranks=1)
    assert parts["state"][1] == pytest.approx((2 * 8_190_735_360 + 16 * adapters) / GIB)
    # As without adapters, but no float32 gradients of head and blocks, and 32 numbers for each of a block's adapters
    by_hand = 65_536 * (147_456 + 68_608 + 7 * 32 + 32_768) + 1_244_659_712 + 1_244_659_712 + 771_785_728
    assert parts["activations at the longest row"][1] == pytest.approx(by_hand / GIB)


@pytest.mark.parametrize("overrides", [["policy=qwen3_8b", "policy.lora.rank=32"], ["policy=qwen3_8b_lora"]])
def test_8b_with_adapters_fits_one_h200_with_engine_and_judge(overrides):
    config = load(*overrides, "judge=cuda", "judge.share=true")
    assert plan.memory(config, EIGHT, 1)["judge"][0] > 0
    assert plan.verdict(config, EIGHT, 1, GPUS["H200"].memory_gib) == ""


def test_8b_with_adapters_on_80_gb_says_what_to_change():
    with pytest.raises(DrKernelError, match=r"needs about 10\d GiB .*(engine.kv_cache_gib|engine.sleep)=.* fits"):
        plan.verdict(load("policy=qwen3_8b", "policy.lora.rank=32"), EIGHT, 1, GPUS["H100"].memory_gib)


def test_adapters_of_chosen_layers_count_alone():
    config = load("policy=qwen3_8b", "policy.lora.rank=8", "policy.lora.targets=[q_proj,v_proj]")
    adapters = 36 * 8 * (8192 + 5120)
    assert plan.memory(config, EIGHT, 2)["state"][0] == pytest.approx(
        (8_190_735_360 + (12 / 2 + 4) * adapters) / GIB
    ), "gradients of adapters stay whole"


def test_where_no_setting_helps_adapters_are_proposed():
    config, shape = load("policy=qwen3_14b", "trainer.gpus=1"), plan.QWEN3["Qwen/Qwen3-14B"]
    assert "policy.lora.rank=32" in plan.remedy(config, shape, 32, 10.0)


@pytest.mark.skipif(torch.cuda.is_available(), reason="a plan is for the GPU that is there")
def test_a_plan_without_a_gpu_is_for_the_one_that_is_simulated_and_an_entry_makes_it_known(monkeypatch):
    monkeypatch.setitem(GPUS, "X", dataclasses.replace(GPUS["H200"], name="X", memory_gib=11.5))
    config, said = load("policy=qwen3_8b"), io.StringIO()
    config.judge.gpu = "X"
    plan.show(config, 1, Console(file=said, width=120))
    assert re.search(r"one X +. +11\.5", said.getvalue())
