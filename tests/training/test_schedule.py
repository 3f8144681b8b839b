"""The learning rate is a function of the config and the step alone."""

import pytest
import torch

from drkernel.config import TrainerConfig
from drkernel.policy.model import new_policy
from drkernel.training import supervised
from drkernel.training.update import learning_rate, make_optimizer, set_learning_rate
from drkernel.types import DrKernelError
from tests.configs import train_config


def rates(steps: int, **options) -> list[float]:
    return [learning_rate(1e-3, TrainerConfig(**options), step) for step in range(steps)]


def test_by_default_it_is_constant():
    assert rates(50) == [1e-3] * 50


def test_a_warm_up_is_linear_and_never_zero():
    assert rates(6, lr_warmup=4) == pytest.approx([2.5e-4, 5e-4, 7.5e-4, 1e-3, 1e-3, 1e-3])


@pytest.mark.parametrize("kind", ["linear", "cosine"])
def test_a_decay_begins_at_the_highest_and_stays_at_the_end(kind):
    found = rates(40, lr_schedule=kind, lr_warmup=5, lr_steps=25, lr_end=0.1)
    assert max(found) == found[4] == 1e-3, "the fifth step"
    assert found[14] == pytest.approx(0.55e-3), "half way"
    assert found[4:] == sorted(found[4:], reverse=True) and found[23] > 1.01e-4
    assert found[24:] == pytest.approx([1e-4] * 16), "from the 25th step on"


@pytest.mark.parametrize("kind", ["linear", "cosine"])
@pytest.mark.parametrize("warm_up", [0, 1, 7])
def test_with_as_many_steps_as_the_run_has_its_last_step_reaches_the_end(kind, warm_up):
    found = rates(16, lr_schedule=kind, lr_warmup=warm_up, lr_steps=16, lr_end=0.0)
    assert found[-1] == pytest.approx(0.0, abs=1e-12) and found[-2] > 1e-6


@pytest.mark.parametrize("steps", [1, 10, 97])
def test_supervised_training_has_the_same_schedule(steps):
    mine = rates(steps, lr_schedule="cosine", lr_warmup=steps // 10, lr_steps=steps, lr_end=0.1)
    assert mine == [1e-3 * supervised.schedule(step, steps, warmup=0.1, end=0.1) for step in range(steps)]


def test_linear_and_cosine_differ_before_the_middle():
    linear, cosine = (rates(10, lr_schedule=kind, lr_steps=10, lr_end=0.0) for kind in ("linear", "cosine"))
    assert cosine[2] > linear[2] and cosine[7] < linear[7]


def test_it_is_set_for_all_parameters():
    optimizer = make_optimizer(new_policy(32, hidden=64, layers=1, heads=1, kv_heads=1), 1.0, 0.1)
    set_learning_rate(optimizer, 0.25)
    assert {group["lr"] for group in optimizer.param_groups} == {0.25} and len(optimizer.param_groups) == 2
    assert isinstance(optimizer, torch.optim.AdamW)


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        (
            ["trainer.lr_schedule=cosine"],
            r"lr_schedule=cosine ends at trainer\.lr_steps=null.*e\.g\. trainer\.lr_steps=16",
        ),
        (
            ["trainer.lr_schedule=linear", "trainer.lr_steps=5", "trainer.lr_warmup=5"],
            r"a step after the warm-up \(5 st",
        ),
        (["trainer.lr_steps=5"], r"ends no schedule that is constant"),
        (["trainer.lr_warmup=-1"], r"lr_warmup=-1"),
        (["trainer.lr_schedule=cosin", "trainer.lr_steps=5"], r"did you mean 'cosine'"),
    ],
)
def test_settings_without_a_meaning_are_refused(overrides, message):
    with pytest.raises(DrKernelError, match=message):
        train_config(*overrides)
