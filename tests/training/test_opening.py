"""The first lines of a run say on what it trains, and warn of a learning rate that nobody chose."""

import re

import pytest
from hydra.core.hydra_config import HydraConfig

from drkernel.tasks import generate
from drkernel.training import opening
from tests.configs import composed, train_config


@pytest.mark.parametrize(("every", "validate"), [(0, ""), (5, " 2 validate,")])
def test_the_numbers_of_tasks_are_said(every, validate):
    config, tasks = train_config(f"trainer.validate_every={every}"), generate("train", 3, 0)
    lines = opening.lines(config, "", tasks, tasks[:2] if every else [], tasks[:1])
    assert f"tasks: 3 train,{validate} 1 test" in lines
    assert lines[0] == "run folder: nowhere" and lines[-1] == "precision of training tasks: ieee 3"


@pytest.mark.parametrize(
    ("overrides", "words"),
    [
        (
            ["policy.path=/tiny", "policy.prompts=chat"],
            r"policy\.lr=0\.0003 .*300 times .*expected policy.lr=1e-06 for /tiny",
        ),
        (["policy.path=/tiny", "policy.prompts=chat", "policy.lora.rank=8"], "expected policy.lr=1e-05"),
        (["policy.path=/tiny", "policy.prompts=chat", "policy.lr=3e-4"], ""),
        (["policy=qwen3_8b"], ""),
        (["policy=qwen3_8b", "policy.path=/tiny"], ""),
        ([], ""),
    ],
)
def test_a_chat_model_at_the_learning_rate_of_the_seed_is_warned_of(overrides, words, monkeypatch):
    monkeypatch.setattr(HydraConfig.instance(), "cfg", composed("train", *overrides, hydra=True))
    said = opening.large_lr(train_config(*overrides))
    assert bool(said) == bool(words) and re.search(words, said)
