"""The Qwen3 variants: the paper's sizes, and they fit the GPUs that they are meant for."""

from pathlib import Path

import pytest

from drkernel.config import Config
from drkernel.training import plan
from tests.configs import train_config

ROOT = Path(__file__).parents[1]
SIZES = ("0.6b", "1.7b", "4b", "8b", "14b")
LAYERS = {"0.6b": 28, "1.7b": 28, "4b": 36, "8b": 36, "14b": 40}
H200_GIB, GPUS = 139, 8


def load(size: str, *overrides: str) -> Config:
    return train_config(f"policy=qwen3_{size}", *overrides)


@pytest.mark.parametrize("size", SIZES)
def test_the_papers_step_and_lengths(size):
    config = load(size)
    assert config.policy.path == f"Qwen/Qwen3-{size.upper()}"
    assert (config.policy.prompts, config.policy.lr) == ("chat", 1e-6)
    assert (config.engine.max_answer_tokens, config.engine.max_tokens) == (8192, 32768)
    trainer = config.trainer
    assert (trainer.steps, trainer.prompts, trainer.samples, trainer.turns) == (300, 16, 16, 3)


@pytest.mark.parametrize("size", SIZES)
def test_all_turns_fit_with_room_for_the_task(size):
    config = load(size)
    later = config.trainer.turns - 1
    used = config.trainer.turns * config.engine.max_answer_tokens + later * config.judge.feedback_tokens
    assert config.engine.max_tokens - used >= 4096, "the task's prompt and the words around the feedback"
    assert config.trainer.micro_batch_tokens >= config.engine.max_tokens, "the longest trajectory is one row"


@pytest.mark.parametrize("size", SIZES)
def test_the_other_groups_can_still_be_chosen(size):
    config = load(size, "engine=vllm", "judge=cuda", "filters=full", "tasks=kernelbench", "engine.slots=8")
    assert (config.engine.name, config.judge.device, config.engine.slots) == ("vllm", "cuda", 8)
    assert (config.engine.max_tokens, config.judge.feedback_tokens) == (32768, 1024)


@pytest.mark.parametrize("size", SIZES)
def test_eight_h200_hold_it_without_sleep(size):
    config = load(size)
    assert not config.engine.sleep and not plan.verdict(config, plan.QWEN3[config.policy.path], GPUS, H200_GIB)


@pytest.mark.parametrize("size", SIZES)
def test_the_cache_holds_a_ranks_trajectories_at_a_quarter_of_their_longest(size):
    """16-bit keys and values of 8 heads of 128; beyond that vLLM preempts sequences and reads them again."""
    config = load(size)
    per_token = 2 * LAYERS[size] * 8 * 128 * 2
    trajectories = min(config.engine.slots, config.trainer.prompts * config.trainer.samples // GPUS)
    assert config.engine.kv_cache_gib * 2**30 >= trajectories * config.engine.max_tokens / 4 * per_token
