"""Every completion of a step is in the run folder, with what became of it and why."""

import dataclasses
import json
from types import SimpleNamespace

import pytest
from pyarrow import parquet

import train
from drkernel.config import REPOSITORY
from drkernel.config.filters import MrsConfig
from drkernel.policy import load_prompts, load_tokenizer
from drkernel.training import completions
from drkernel.training.rollout_metrics import tabulate_rollouts
from drkernel.training.run import Run
from drkernel.training.sharded_rollout import StepRollouts
from drkernel.training.trainer import State, Trainer
from drkernel.types import Trajectory, Turn, Verdict
from tests.configs import train_config

WRONG, LOST = Verdict("incorrect", "wrong_values", "off by 3"), Verdict("judge_failure", "worker_lost")


def right(speedup: float, coverage: float = 1.0) -> Verdict:
    return Verdict("ok", "faster", speedup=speedup, coverage=coverage, evidence={"replaced": float("nan")})


@pytest.fixture(scope="module")
def prompts():
    return load_prompts("compact", load_tokenizer(REPOSITORY / "assets/seed"))


@pytest.fixture
def world(tmp_path, prompts):
    """Makes a trainer with a run folder."""

    def make(*overrides: str) -> Trainer:
        config = train_config("logger=none", "reward=speedup", *overrides, run_dir=tmp_path)
        return Trainer(config, None, None, prompts, None, None, None, state=State(step=4), run=Run(config))

    return make


def trajectory(prompts, group: int, sample: int, *verdicts: Verdict) -> Trajectory:
    ids = prompts.tokenizer.encode("class ModelNew: pass")
    turn = lambda verdict: Turn(ids[:2], ids, [-1.0] * len(ids), source="class ModelNew: pass", verdict=verdict)
    return Trajectory(f"task {group}", group, sample, [turn(verdict) for verdict in verdicts])


def rows(trainer: Trainer, name: str) -> dict[tuple, SimpleNamespace]:
    """The rows of a file by (group, sample, turn)."""
    table = parquet.read_table(trainer.run.path / "completions" / f"{name}.parquet")
    return {(row["group"], row["sample"], row["turn"]): SimpleNamespace(**row) for row in table.to_pylist()}


def test_each_turn_says_whether_it_trains_and_why_not(world, prompts):
    trainer = world("filters=[zero_variance,prs]", "algo.drop_regressions=true")
    kept = [
        trajectory(prompts, 0, 0, WRONG, right(2.0)),
        trajectory(prompts, 0, 1, right(2.0), WRONG),
        trajectory(prompts, 0, 2, WRONG, right(1.5, coverage=0.0)),
    ]
    dropped = [trajectory(prompts, 1, sample, WRONG) for sample in range(2)]
    failed = trajectory(prompts, 0, 3, right(3.0), LOST)
    played = StepRollouts(0, 2, {"zero_variance": {0}}, kept, [*kept, failed, *dropped])
    prepared = train.prepare(trainer, played)
    completions.write_step(trainer, played, prepared)
    found = rows(trainer, "step_000005")
    assert len(found) == 10, "one row per turn of all trajectories"
    why = {key: row.why_not for key, row in found.items()}
    assert why[0, 1, 1] == "drop_regressions" and why[0, 2, 1] == "prs"
    assert why[0, 3, 0] == why[0, 3, 1] == "judge_failure" and why[1, 0, 0] == why[1, 1, 0] == "zero_variance"
    trains = {key for key, reason in why.items() if not reason}
    assert trains == {(0, 0, 0), (0, 0, 1), (0, 1, 0), (0, 2, 0)}
    assert {key for key, row in found.items() if row.trained == 1.0} == trains
    assert found[0, 0, 1].reward == 3.0 and found[1, 0, 0].reward == 0.0 and found[0, 3, 0].reward is None
    assert found[0, 0, 1].advantage == pytest.approx(float(prepared.advantages[0, 1]))
    assert found[1, 0, 0].advantage is None


def test_each_turn_has_its_text_and_its_verdict(world, prompts):
    trainer = world("filters=none")
    played = StepRollouts(
        0, 1, {}, every := [trajectory(prompts, 0, 0, right(2.0)), trajectory(prompts, 0, 1, WRONG)], every
    )
    completions.write_step(trainer, played, train.prepare(trainer, played))
    first, second = rows(trainer, "step_000005").values()
    assert first.completion == first.source == "class ModelNew: pass" and first.completion.startswith(first.prompt)
    assert first.task == "task 0" and first.finished and first.tokens == len(every[0].turns[0].response_ids)
    assert (second.status, second.reason, second.detail) == ("incorrect", "wrong_values", "off by 3")
    assert json.loads(first.verdict)["speedup"] == first.speedup == 2.0
    assert json.loads(first.verdict)["evidence"] == {"replaced": "nan"}, "JSON has no NaN"


def test_tokens_that_a_token_filter_rejects_are_named(world, prompts):
    trainer = world("filters=none")
    played = StepRollouts(
        0, 1, {}, every := [trajectory(prompts, 0, 0, right(2.0)), trajectory(prompts, 0, 1, WRONG)], every
    )
    prepared = train.prepare(trainer, played)
    mask = prepared.batch.loss_mask.clone()
    mask[prepared.batch.turn_ids == 1] = False
    mask[(prepared.batch.turn_ids == 0).nonzero()[0]] = False
    trainer.config.filters.mrs = MrsConfig()
    batch = dataclasses.replace(prepared.batch, loss_mask=mask)
    completions.write_step(trainer, played, dataclasses.replace(prepared, batch=batch))
    first, second = rows(trainer, "step_000005").values()
    assert 0 < first.trained < 1 and first.why_not == "" and second.trained == 0 and second.why_not == "mrs"


def test_a_turn_that_was_not_judged_is_kept_without_a_verdict(world, prompts):
    trainer = world("filters=none")
    every = [trajectory(prompts, 0, 0, right(2.0)), trajectory(prompts, 0, 1, None)]
    played = StepRollouts(0, 1, {}, every, every)
    completions.write_step(trainer, played, train.prepare(trainer, played))
    _, second = rows(trainer, "step_000005").values()
    assert second.completion == "class ModelNew: pass" and second.reward == 0.0
    assert (second.status, second.speedup, second.verdict) == (None, None, None)


def test_a_validation_is_kept_too(world, prompts):
    trainer = world()
    every = [trajectory(prompts, 0, 0, right(2.0)), trajectory(prompts, 1, 0, LOST)]
    table = tabulate_rollouts(trainer.config.reward, every[:1])
    completions.write_validation(trainer, table, every[:1], every)
    first, second = rows(trainer, "validation_000004").values()
    assert (first.reward, first.why_not, first.trained) == (3.0, "", 0.0)
    assert (second.reward, second.why_not) == (None, "judge_failure")


def test_without_a_run_folder_or_with_the_option_off_nothing_is_written(world, prompts):
    played = StepRollouts(0, 1, {}, every := [trajectory(prompts, 0, 0, right(2.0))], every)
    for trainer in (world("logger.completions=false"), dataclasses.replace(world(), run=None)):
        completions.write_step(trainer, played, train.prepare(trainer, played))
    assert not (world().run.path / "completions").exists()


def test_a_resumed_run_removes_what_it_repeats(world):
    run = world().run
    for name in ("step_000003", "step_000004", "validation_000004", "validation_000005", "step_000005", "step_000012"):
        run.completions_path(name).write_bytes(b"")
    run.rewind(0, step=4)
    left = sorted(path.stem for path in (run.path / "completions").iterdir())
    assert left == ["step_000003", "step_000004", "validation_000004"]
