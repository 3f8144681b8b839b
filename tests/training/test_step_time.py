"""What a step takes, against what was measured on an H200 (results/training-h200), and what settings change."""

import io

import pytest
from rich.console import Console

from drkernel.judge.devices.simulated.gpus import GPUS
from drkernel.training import plan, step_time
from drkernel.training.step_time import Lengths
from tests.configs import train_config as load

H200 = GPUS["H200"]
SMALL, MIDDLE, EIGHT = (plan.QWEN3[f"Qwen/Qwen3-{size}"] for size in ("0.6B", "1.7B", "8B"))


@pytest.mark.parametrize(
    ("number", "turns", "lengths", "measured"),
    [
        # log-normal answers with a median of 1,024 and 160 tokens; the longest as they are drawn
        (256, 3, Lengths(prompt=512, completion=1226, longest=2650, feedback=64), 92.2),
        (512, 1, Lengths(prompt=512, completion=192, longest=1027, feedback=0), 4.36),
    ],
)
def test_generation_as_measured(number, turns, lengths, measured):
    config = load("policy=qwen3_0.6b", "engine.name=vllm", "engine.slots=512", f"trainer.turns={turns}")
    assert step_time.generation(config, SMALL, number, H200, lengths) == pytest.approx(measured, rel=0.25)


@pytest.mark.parametrize(("shape", "tokens_per_second"), [(SMALL, 98_267), (MIDDLE, 47_213)])
def test_an_update_of_204512_tokens_as_measured(shape, tokens_per_second):
    config = load("policy=qwen3_1.7b", "trainer.prompts=8", "trainer.samples=8", "engine.max_tokens=30000")
    lengths = Lengths(prompt=512, completion=(204_512 / 64 - 512 - 128) / 3, longest=9999, feedback=64)
    found = step_time.update(config, shape, 1, H200, lengths)
    assert found == pytest.approx(204_512 / tokens_per_second, rel=0.15)


def test_an_update_of_8b_with_lora_as_measured():
    config = load("policy=qwen3_8b_lora", "trainer.prompts=1", "trainer.samples=2", "trainer.turns=1")
    lengths = Lengths(prompt=8_192, completion=24_576, longest=24_576, feedback=0)
    assert step_time.update(config, EIGHT, 1, H200, lengths) == pytest.approx(2 * 4.88, rel=0.25)


def test_what_settings_change():
    base = step_time.seconds(load("policy=qwen3_8b"), EIGHT, 8, H200)
    fewer = step_time.seconds(load("policy=qwen3_8b"), EIGHT, 4, H200)
    assert fewer["update"] == pytest.approx(2 * base["update"]) and fewer["generation"] > base["generation"]
    shorter = step_time.seconds(load("policy=qwen3_8b", "engine.max_answer_tokens=2048"), EIGHT, 8, H200)
    assert shorter["generation"] < base["generation"] / 3 and shorter["update"] < base["update"] / 2
    kept = step_time.seconds(load("policy=qwen3_8b", "trainer.recompute=0.0"), EIGHT, 8, H200)
    assert kept["update"] == pytest.approx(base["update"] * 3 / 4)
    waiting = step_time.seconds(load("policy=qwen3_8b", "engine.slots=8"), EIGHT, 8, H200)
    assert waiting["generation"] > base["generation"]


@pytest.mark.parametrize(
    ("overrides", "forwards"),
    [
        ("", 0),
        ("filters=full", 1),
        ("algo.importance_cap=2", 1),
        ("algo=gspo", 1),
        ("algo=gspo filters=full", 1),  # what was scored for the filter is not scored again
        ("algo.kl_coef=0.1", 1),
        ("filters=full algo.kl_coef=0.1", 2),
    ],
)
def test_passes_that_only_score_take_a_forward_each(overrides, forwards):
    without = step_time.seconds(load("policy=qwen3_8b", "trainer.recompute=0.0"), EIGHT, 8, H200)["update"]
    found = step_time.seconds(load("policy=qwen3_8b", "trainer.recompute=0.0", *overrides.split()), EIGHT, 8, H200)
    assert found["update"] == pytest.approx(without * (1 + forwards / 3))


def test_a_row_per_turn_repeats_what_stands_before_it():
    lengths = Lengths(prompt=1000, completion=1000, longest=2000, feedback=0)
    whole, turns = (
        step_time.update(load("policy=qwen3_8b", f"trainer.layout={layout}"), EIGHT, 8, H200, lengths)
        for layout in ("trajectory", "turn")
    )
    assert turns == pytest.approx(whole * (2 + 3 + 4) / 4, rel=0.05)


def test_groups_beyond_those_that_train_are_generated_and_judged_too():
    base, more = (
        step_time.seconds(load("policy=qwen3_8b", f"filters={name}"), EIGHT, 8, H200)
        for name in ("zero_variance", "oversampled")
    )
    assert more["generation"] > base["generation"] and more["update"] == base["update"]


def test_a_judge_that_is_slower_than_generation_is_waited_for():
    config = load("policy=qwen3_0.6b", "engine.max_answer_tokens=64", "trainer.prompts=64")
    found = step_time.seconds(config, SMALL, 8, H200)
    assert found["judge"] == pytest.approx(64 * 16 * 3 / 6.0 - found["generation"] + 7.0)


def test_the_table_says_what_it_assumes():
    said = io.StringIO()
    step_time.show(load("policy=qwen3_8b"), 7, Console(file=said, width=120))
    assert "completions have 4096 tokens in the mean, 8192 the longest" in said.getvalue()
    assert "generation" in said.getvalue() and "a step" in said.getvalue()


def test_a_supervised_stage_has_no_such_table():
    said = io.StringIO()
    step_time.show(load("stage=sft", "policy=qwen3_8b", "sft.data=x"), 1, Console(file=said))
    assert said.getvalue() == ""
