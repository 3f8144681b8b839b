"""How tokens are drawn: what may be typed, and that training corrects for what is cut off, or is refused."""

import pytest

from drkernel.policy.engine import Sampling
from drkernel.training.build import episode_config, sampling_of
from drkernel.types import DrKernelError
from tests.configs import train_config

CORRECTED = ["algo.importance_cap=2"]


@pytest.mark.parametrize(
    ("typed", "words"),
    [
        (["engine.top_p=0"], r"engine\.top_p=0; expected more than 0 and at most 1"),
        (["engine.top_k=-1"], r"engine\.top_k=-1; expected 0 or more"),
        (["engine.min_p=1"], r"engine\.min_p=1; expected 0 or more and below 1"),
        (
            ["engine.top_p=0.9"],
            r"engine\.top_p=0\.9 samples from a part .*importance_cap=null .*importance_cap=2 with",
        ),
        (["engine.top_k=20", "engine.min_p=0.1"], r"engine\.top_k=20 engine\.min_p=0\.1 samples from a part"),
        (["engine.top_p=0.9", *CORRECTED, "algo.importance_level=trajectory"], "importance_level=trajectory; expected"),
        (["engine.top_p=0.9", *CORRECTED, "filters=[mrs]"], r"filters\.mrs would reject it as a mismatch; expected"),
    ],
)
def test_training_on_a_part_of_the_distribution_is_refused_where_nothing_corrects_it(typed, words):
    with pytest.raises(DrKernelError, match=words):
        train_config(*typed)


def test_with_importance_weights_all_rollouts_are_drawn_from_that_part():
    config = train_config("engine.top_p=0.9", "engine.top_k=50", "engine.min_p=0.01", *CORRECTED)
    assert episode_config(config, 3).sampling == Sampling(1.0, 0.9, 50, 0.01)


def test_the_whole_distribution_is_the_default_and_needs_no_weights():
    assert sampling_of(train_config()) == Sampling() and not Sampling().truncates
    assert sampling_of(train_config("engine.top_p=1", "engine.top_k=0", "engine.min_p=0")) == Sampling()
    assert not Sampling(0.0, top_p=0.5).truncates, "the most probable token is what it is"


def test_the_validation_of_a_supervised_stage_trains_on_nothing_and_may_cut():
    config = train_config("stage=sft", "sft.data=x", "trainer.validate_every=5", "engine.top_p=0.95")
    assert sampling_of(config).top_p == 0.95
