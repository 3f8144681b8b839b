"""From rollouts to a batch: what train.py's `prepare` makes of filters that meet."""

import copy
import dataclasses
import itertools
from types import SimpleNamespace

import pytest
import torch

import train
from drkernel.config import LoraConfig, RewardConfig
from drkernel.policy import new_policy
from drkernel.policy.engine import Completion
from drkernel.policy.lora import add_adapters, draw_adapters
from drkernel.rollout import RolloutTimes
from drkernel.training import overlap
from drkernel.training.ranks import Ranks
from drkernel.training.rollout_metrics import describe_groups, make_estimator
from drkernel.training.sharded_rollout import StepRollouts
from drkernel.training.trainer import State
from drkernel.types import Task, Trajectory, Turn, Verdict, WorkerLost
from tests.configs import train_config

WRONG, LOST = Verdict("incorrect", "wrong_values"), Verdict("judge_failure", "worker_lost")


def right(speedup: float, coverage: float) -> Verdict:
    return Verdict("ok", "faster", speedup=speedup, coverage=coverage)


def trajectory(sample: int, *verdicts: Verdict) -> Trajectory:
    return Trajectory("t", 0, sample, [Turn([1], [2, 3], [-1.0, -1.0], verdict=verdict) for verdict in verdicts])


def trainer_for(*overrides: str):
    config = train_config(*overrides)
    return SimpleNamespace(config=config, state=State(), estimate_advantages=make_estimator(config.algo))


def prepared(trajectories, *overrides: str):
    return train.prepare(trainer_for(*overrides), StepRollouts(0, 0, {}, trajectories, trajectories))


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
    assert advantages(masked)[:2] == [0.0, 0.0] and masked.trained_shares().flatten().tolist() == [1.0, 1.0, 0.0]
    assert masked.rejected["overlong"].flatten().tolist() == [False, False, True]
    compared = prepared(answers, "filters=overlong", "reward=binary", "filters.overlong.rejected_in_baseline=true")
    assert advantages(compared)[:2] == [0.5, 0.5] and compared.trained_shares().flatten().tolist() == [1.0, 1.0, 0.0]


def test_an_answer_left_alone_is_compared_with_those_that_were_cut():
    answers = [of_length(0, 50, right(2.0, 1.0)), of_length(1, 400, finished=False)]
    assert advantages(prepared(answers, "filters=overlong", "reward=binary"))[0] == 1.0


def test_turns_before_one_that_was_cut_do_not_train_on_a_return_that_is_not_known():
    """Two trajectories earn 1 and then 4, the third 1 and then something that was cut; the fourth is cut at once."""
    answers = [trajectory(sample, right(1.0, 0.0), right(9.0, 0.0)) for sample in range(2)]
    answers += [trajectory(2, right(1.0, 0.0), WRONG), trajectory(3, WRONG, right(9.0, 0.0))]
    answers[2].turns[1].finished = answers[3].turns[0].finished = False
    found = prepared(answers, "filters=overlong", "reward=speedup")
    assert found.trained_shares().tolist() == [[1.0, 1.0], [1.0, 1.0], [0.0, 0.0], [0.0, 1.0]]
    assert found.rejected["overlong"].tolist() == [[False] * 2, [False] * 2, [True, True], [True, False]]
    assert found.advantages[:2].tolist() == [[0.0, 0.0]] * 2, "they are compared with each other"
    compared = prepared(answers, "filters=overlong", "reward=speedup", "filters.overlong.rejected_in_baseline=true")
    assert torch.equal(compared.trained_shares(), found.trained_shares()) and compared.advantages[0, 0] > 0


def test_the_limit_may_lie_below_the_longest_answer():
    options = ["reward.overlong_penalty=1", "reward.overlong_window=10", "reward.overlong_limit=60"]
    found = prepared([of_length(0, 55), of_length(1, 61)], "filters=none", "reward=binary", *options)
    assert found.rollouts.rewards.flatten().tolist() == [-0.5, -1.0]


def test_turns_without_anyone_to_compare_with_are_counted():
    """The second turn of the first trajectory is the only one: its advantage is its whole return."""
    found = prepared([trajectory(0, WRONG, right(2.0, 1.0)), trajectory(1, right(2.0, 1.0))], "reward=binary")
    assert found.advantages[0, 1] == 1.0
    assert found.sums["advantages/alone"].tolist() == [1.0, 3.0], "of the three turns that train"


@pytest.mark.parametrize(("algo", "last"), [("trloo", 0.0), ("grpo", 0.0), ("rloo", 1.0)])
def test_the_last_trajectory_of_a_group_may_have_no_advantage_where_it_is_alone(algo, last):
    """Its second turn is the only one of the group; rloo compares trajectories, of which there are two."""
    answers = [trajectory(0, right(1.0, 0.0), right(2.0, 1.0)), trajectory(1, right(2.0, 1.0))]
    options = [f"algo={algo}", "reward=binary", "filters=none"]
    usual, zero = (prepared(answers, *options, f"algo.zero_alone={value}") for value in (False, True))
    assert usual.advantages[0, 1] == 1.0 and zero.advantages[0, 1] == last
    assert torch.equal(zero.advantages[:, 0], usual.advantages[:, 0])
    single = prepared(answers[:1], *options, "algo.zero_alone=true")
    assert single.advantages.tolist() == [[0.0, 0.0]]


def test_a_token_that_the_engine_gave_no_log_probability_for_has_no_part_in_a_reweighed_loss(monkeypatch):
    answers = [trajectory(0, right(2.0, 1.0)), trajectory(1, WRONG)]
    answers[0].turns[0].logprobs[1] = float("nan")
    monkeypatch.setattr(train.update, "logprobs", lambda policy, batch, **_: -batch.loss_mask.float())
    trainer = trainer_for("reward=binary", "algo.importance_cap=2", "filters=none")
    trainer.policy, trainer.pass_options = None, {}
    batch = train.prepare(trainer, StepRollouts(0, 0, {}, answers, answers)).batch
    assert batch.loss_mask.tolist() == [False, True, False, False, True, True]
    assert batch.advantages[1:].tolist() == [1.0, 0.0, 0.0, -1.0, -1.0]


def test_a_batch_is_scored_once_for_mismatch_and_for_ratios(monkeypatch):
    trainer = trainer_for(
        "reward=binary", "filters=mrs", "filters.mrs.upper=9", "filters.mrs.lower=0.1", "algo.updates=2"
    )
    trainer.policy, trainer.ranks, trainer.reference = new_policy(8, hidden=32, layers=1), Ranks(), None
    trainer.pass_options = {"max_tokens": 99}
    answers = [trajectory(0, right(2.0, 1.0)), trajectory(1, WRONG), trajectory(2, WRONG)]
    answers[0].turns[0].logprobs[:] = [-50.0, -50.0]  # its row does not train
    scored, real = [], train.update.logprobs
    monkeypatch.setattr(
        train.update, "logprobs", lambda *given, **named: scored.append(real(*given, **named)) or scored[-1]
    )
    step = train.prepare(trainer, StepRollouts(0, 0, {}, answers, answers))
    assert step.batch.loss_mask.tolist() == [False] * 3 + [False, True, True] * 2
    results = []
    for known in (step.trainer_logprobs, None):
        here = copy.deepcopy(trainer)
        optimizer = train.update.make_optimizer(here.policy, 1e-2, 0.0)
        results.append(train.learn(here, optimizer, step.batch, known))
    assert len(scored) == 2, "by prepare, and by the learn that was not told"
    assert results[0] == pytest.approx(results[1], rel=1e-4, abs=1e-6)


def test_adapters_are_held_to_their_base_as_to_a_second_policy(monkeypatch):
    base = new_policy(8, hidden=32, layers=1)
    adapted = copy.deepcopy(base)
    draw_adapters(add_adapters(adapted, LoraConfig(rank=2)), seed=0)
    for name, weight in adapted.named_parameters():
        if name.endswith("lora_B.weight"):
            torch.nn.init.constant_(weight, 0.1)
    trainer = trainer_for("reward=binary", "filters=none", "algo.kl_coef=0.1")
    trainer.ranks, trainer.pass_options = Ranks(), {"max_tokens": 99}
    answers = [trajectory(0, right(2.0, 1.0)), trajectory(1, WRONG)]
    results = []
    for own in (True, False):
        trainer.policy = copy.deepcopy(adapted)
        trainer.reference = trainer.policy if own else base
        batch = train.prepare(trainer, StepRollouts(0, 0, {}, answers, answers)).batch
        results.append(train.learn(trainer, train.update.make_optimizer(trainer.policy, 1e-2, 0.0), batch))
    assert results[0] == results[1] and results[0]["policy/kl_to_reference"] > 0


def collected(monkeypatch, signals: str, *overrides: str):
    """A step whose k-th group carries signal where the k-th letter is `s`; the judge fails on it where that is `!`.
    Also how many groups each rollout had."""
    rollouts = []

    def play(trainer, tasks, samples, turns, *, first_group, seed, title):
        rollouts.append(len(tasks))
        kinds = {"s": (right(2.0, 1.0), WRONG), ".": (right(2.0, 1.0),) * 2, "!": (LOST,) * 2}
        verdicts = lambda group: kinds[signals[group]]
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


def test_a_step_whose_refills_the_judge_failed_on_has_what_it_judged_before(monkeypatch):
    played, rollouts = collected(monkeypatch, "....!!!!", "filters.zero_variance.max_refills=1")
    assert rollouts == [4, 4] and groups_of(played) == [0, 1, 2, 3] and not played.surplus


def test_a_step_on_which_the_judge_failed_throughout_ends_the_run(monkeypatch):
    with pytest.raises(WorkerLost, match="it failed on all 16 trajectories of step 1"):
        collected(monkeypatch, "!!!!!!!!", "filters.zero_variance.max_refills=1")


def test_refills_draw_what_is_missing_and_no_more(monkeypatch):
    options = ["filters.zero_variance.oversample=1.5", "filters.zero_variance.max_refills=1"]
    played, rollouts = collected(monkeypatch, "s.s...s.", *options)
    assert rollouts == [6, 2] and groups_of(played) == [0, 2, 6] and played.refilled == 2
    assert collected(monkeypatch, "ssssssss")[1] == [4]


def test_first_turns_begun_are_taken_up_by_their_own_task_alone(monkeypatch):
    """Of four tasks that a step began, the judge refuses the second when they are drawn again: later ones move up."""
    refused: set[int] = set()

    def draw(trainer, cursor, number):
        usable = (place for place in itertools.count(cursor) if place not in refused)
        places = list(itertools.islice(usable, number))
        return [Task(f"t{place}", "") for place in places], places[-1] + 1, RolloutTimes()

    monkeypatch.setattr(overlap, "draw", draw)
    trainer = trainer_for("trainer.overlap=true", "algo.importance_cap=2")
    played = StepRollouts(0, 0, {})
    attempt = overlap.draw_attempt(trainer, played, 4, refills=False)
    ahead = attempt.options["ahead"]
    assert [task.id for task in ahead.tasks] == ["t4", "t5", "t6", "t7"] and ahead.first_group == 4
    ahead.completions |= {(group, 0): Completion(f"{group}.0.0", [group], [-1.0], True) for group in range(4, 8)}
    overlap.keep(played, attempt)
    trainer.state.ahead = played.ahead
    again = lambda: overlap.draw_attempt(trainer, StepRollouts(8, 8, {}), 4, refills=False)
    assert again().options["begun"] == ahead.completions
    refused.add(5)
    second = again()
    assert [task.id for task in second.tasks] == ["t4", "t6", "t7", "t8"] and second.options["first_group"] == 4
    assert second.options["begun"] == {(4, 0): ahead.completions[4, 0]}, "the others are generated anew"
    trainer.state.ahead = {key: played.ahead[key] for key in ("cursor", "group", "completions")}
    assert again().options["begun"] == {}, "an older checkpoint does not say whose they are"


def test_the_engine_sleeps_before_the_batch_is_scored(monkeypatch):
    """MRS and TIS need a forward pass of the policy, which then has the engine's memory."""
    order: list[str] = []
    tell = lambda name, result=None: lambda *_: order.append(name) or result
    played = SimpleNamespace(cursor=0, groups=0, ahead={}, times=RolloutTimes())
    for name, result in {"sync": {}, "collect": played, "learn": {"skipped": 0}, "describe_rollouts": {}}.items():
        monkeypatch.setattr(train, name, tell(name, result))
    monkeypatch.setattr(train, "prepare", tell("prepare", SimpleNamespace(batch=None, trainer_logprobs=None, sums={})))
    monkeypatch.setattr(train.completions, "write_step", tell("write_step"))
    monkeypatch.setattr(train, "update_speed", lambda *_: {"tokens_per_second": 9.0})
    engine = SimpleNamespace(sleep=tell("sleep"))
    metrics = train.step(SimpleNamespace(state=State(), engine=engine, policy=None, ranks=Ranks()), None)
    assert metrics["tokens_per_second"] == 9.0
    assert order == ["sync", "collect", "sleep", "prepare", "write_step", "learn", "describe_rollouts"]
