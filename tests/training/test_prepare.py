"""From rollouts to a batch: what train.py's `prepare` makes of filters that meet."""

from types import SimpleNamespace

import torch
from hydra import compose, initialize_config_dir

import train
from drkernel import config as configuration
from drkernel.config import REPOSITORY
from drkernel.training.rollout_metrics import make_estimator
from drkernel.training.sharded_rollout import Played
from drkernel.training.trainer import State
from drkernel.types import Trajectory, Turn, Verdict

WRONG = Verdict("incorrect", "wrong_values")


def right(speedup: float, coverage: float) -> Verdict:
    return Verdict("ok", "faster", speedup=speedup, coverage=coverage)


def trajectory(sample: int, *verdicts: Verdict) -> Trajectory:
    return Trajectory("t", 0, sample, [Turn([1], [2, 3], [-1.0, -1.0], verdict=verdict) for verdict in verdicts])


def prepared(trajectories, *overrides: str):
    with initialize_config_dir(str(REPOSITORY / "conf"), version_base="1.3"):
        config = configuration.load(compose("train", overrides=["run_dir=nowhere", *overrides]))
    trainer = SimpleNamespace(config=config, state=State(), estimate_advantages=make_estimator(config.algo))
    return train.prepare(trainer, Played(0, 0, {}, trajectories, trajectories))


def test_a_turn_whose_peers_regressed_or_were_rejected_is_compared_with_the_rejected_ones():
    """At turn 1 the second trajectory fails after a success and leaves, and PRS rejects the third. The first is then
    alone: its baseline is the rejected one, and not nothing."""
    trajectories = [
        trajectory(0, WRONG, right(2.0, 1.0)),
        trajectory(1, right(2.0, 1.0), WRONG),
        trajectory(2, WRONG, right(1.5, 0.0)),
    ]
    batch = prepared(trajectories, "filters=prs", "algo.drop_regressions=true", "reward=speedup").batch
    of_turn = lambda b, k: batch.advantages[batch.turn_ids == 2 * b + k].unique().tolist()
    assert of_turn(0, 1) == [3.0 - 2.5]


def test_metrics_of_what_trains_stand_beside_those_of_all():
    trajectories = [trajectory(0, right(2.0, 1.0)), trajectory(1, right(1.5, 0.0)), trajectory(2, WRONG)]
    sums = prepared(trajectories, "filters=prs", "reward=binary").sums
    means = {name: (entry[0] / entry[1]).item() for name, entry in sums.items()}
    assert means["trained/correct"] == 1 / 2 and means["trained/speedup"] == 2.0 and means["prs/kept"] == 1 / 2
    assert torch.tensor(means["kept"]).isclose(torch.tensor(2 / 3))


def of_length(sample: int, tokens: int, verdict: Verdict = WRONG, finished: bool = True) -> Trajectory:
    turn = Turn([1], [2] * tokens, [-1.0] * tokens, verdict=verdict, finished=finished)
    return Trajectory("t", 0, sample, [turn])


def advantages(prepared) -> list[float]:
    return prepared.advantages.flatten().tolist()


def test_long_completions_are_plain_penalised_or_masked():
    answers = [of_length(0, 50, right(2.0, 1.0)), of_length(1, 350, right(2.0, 1.0)), of_length(2, 400, finished=False)]
    plain = prepared(answers, "filters=none", "reward=binary")
    assert plain.rollouts.rewards.flatten().tolist() == [1.0, 1.0, 0.0] and advantages(plain) == [0.5, 0.5, -1.0]
    penalty = ["reward.overlong_penalty=0.5", "reward.overlong_window=100"]
    penalised = prepared(answers, "filters=none", "reward=binary", *penalty)
    assert penalised.rollouts.rewards.flatten().tolist() == [1.0, 0.75, -0.5]
    masked = prepared(answers, "filters=overlong", "reward=binary")
    assert advantages(masked)[:2] == [0.0, 0.0] and masked.trained().flatten().tolist() == [1.0, 1.0, 0.0]
    assert masked.rejected["overlong"].flatten().tolist() == [False, False, True]
    compared = prepared(answers, "filters=overlong", "reward=binary", "filters.overlong.rejected_in_baseline=true")
    assert advantages(compared)[:2] == [0.5, 0.5] and compared.trained().flatten().tolist() == [1.0, 1.0, 0.0]


def test_an_answer_left_alone_is_compared_with_those_that_were_cut():
    answers = [of_length(0, 50, right(2.0, 1.0)), of_length(1, 400, finished=False)]
    assert advantages(prepared(answers, "filters=overlong", "reward=binary"))[0] == 1.0


def test_the_limit_may_lie_below_the_longest_answer():
    options = ["reward.overlong_penalty=1", "reward.overlong_window=10", "reward.overlong_limit=60"]
    found = prepared([of_length(0, 55), of_length(1, 61)], "filters=none", "reward=binary", *options)
    assert found.rollouts.rewards.flatten().tolist() == [-0.5, -1.0]
