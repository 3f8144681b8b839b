"""From rollouts to a batch: what train.py's `prepare` makes of filters that meet."""

import dataclasses
from types import SimpleNamespace

import torch

import train
from drkernel.config import RewardConfig
from drkernel.rollout import RolloutTimes
from drkernel.training import overlap
from drkernel.training.rollout_metrics import describe_groups, make_estimator
from drkernel.training.sharded_rollout import Played
from drkernel.training.trainer import State
from drkernel.types import Trajectory, Turn, Verdict
from tests.configs import train_config

WRONG = Verdict("incorrect", "wrong_values")


def right(speedup: float, coverage: float) -> Verdict:
    return Verdict("ok", "faster", speedup=speedup, coverage=coverage)


def trajectory(sample: int, *verdicts: Verdict) -> Trajectory:
    return Trajectory("t", 0, sample, [Turn([1], [2, 3], [-1.0, -1.0], verdict=verdict) for verdict in verdicts])


def trainer_for(*overrides: str):
    config = train_config(*overrides)
    return SimpleNamespace(config=config, state=State(), estimate_advantages=make_estimator(config.algo))


def prepared(trajectories, *overrides: str):
    return train.prepare(trainer_for(*overrides), Played(0, 0, {}, trajectories, trajectories))


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


def collected(monkeypatch, signals: str, *overrides: str):
    """A step whose k-th group carries signal where the k-th letter is `s`; also how many groups each rollout had."""
    rollouts = []

    def play(trainer, tasks, samples, turns, *, first_group, seed, title):
        rollouts.append(len(tasks))
        verdicts = lambda group: (right(2.0, 1.0), WRONG if signals[group] == "s" else right(2.0, 1.0))
        groups = range(first_group, first_group + len(tasks))
        made = [dataclasses.replace(trajectory(i, v), group=g) for g in groups for i, v in enumerate(verdicts(g))]
        return made, RolloutTimes()

    monkeypatch.setattr(train, "play", play)
    monkeypatch.setattr(overlap, "draw", lambda trainer, cursor, n: (["task"] * n, cursor + n, RolloutTimes()))
    trainer = trainer_for("trainer.prompts=4", "trainer.samples=2", "reward=binary", *overrides)
    return train.collect(trainer), rollouts


def groups_of(played) -> list[int]:
    return sorted({trajectory.group for trajectory in played.trajectories})


def test_of_more_groups_than_a_step_needs_the_first_drawn_with_signal_train(monkeypatch):
    played, rollouts = collected(monkeypatch, ".ssss.ss", "filters=oversampled", "filters.zero_variance.oversample=2")
    assert rollouts == [8] and groups_of(played) == [1, 2, 3, 4]
    assert played.surplus == {6, 7} and (played.cursor, played.groups, len(played.every)) == (8, 8, 16)
    metrics = describe_groups(RewardConfig("binary"), played.every, {1, 2, 3, 4, 6, 7}, played.refilled, 2)
    assert (metrics["groups/played"], metrics["groups/dropped"], metrics["groups/surplus"]) == (8, 0.25, 0.25)


def test_where_too_few_of_them_carry_signal_the_step_goes_on_with_those(monkeypatch):
    played, rollouts = collected(monkeypatch, ".s....", "filters=oversampled")
    assert rollouts == [6] and groups_of(played) == [1] and not played.surplus


def test_a_step_without_any_signal_has_the_groups_that_it_needs(monkeypatch):
    played, _ = collected(monkeypatch, "......", "filters=oversampled")
    assert groups_of(played) == [0, 1, 2, 3] and not played.surplus


def test_refills_draw_what_is_missing_and_no_more(monkeypatch):
    options = ["filters.zero_variance.oversample=1.5", "filters.zero_variance.max_refills=1"]
    played, rollouts = collected(monkeypatch, "s.s...s.", *options)
    assert rollouts == [6, 2] and groups_of(played) == [0, 2, 6] and played.refilled == 2
    assert collected(monkeypatch, "ssssssss")[1] == [4]
