"""A validation plays the same held-out tasks each time, names the best step, and may end the run."""

import dataclasses
import math
from types import SimpleNamespace

import pytest
import torch

from drkernel.config.ranges import RANGES
from drkernel.rollout import Stopped
from drkernel.training import build, checkpoint, trainer, validation
from drkernel.training.trainer import State, Trainer
from drkernel.types import DrKernelError, Task, Trajectory, Turn, Verdict
from tests.configs import train_config

TASKS = [Task(f"t{i}", "") for i in range(3)]
WRONG = Verdict("incorrect", "wrong_values")
LOST = Verdict("judge_failure", "worker_lost")
CHEAT = Verdict("hack", "no_triton_launch", speedup=9.0, coverage=1.0, evidence={"priced_as": "faster"})


def right(speedup: float) -> Verdict:
    return Verdict("ok", "faster", speedup=speedup, coverage=0.0)


class World:
    """A trainer whose rollouts are given: one trajectory per task, one verdict per turn."""

    def __init__(self, monkeypatch, *overrides: str):
        self.said, self.asked, self.verdicts = [], [], [[right(2.0)]] * 3
        monkeypatch.setattr(validation, "play", self.play)
        config = train_config("reward=speedup", "trainer.validate_every=2", *overrides)
        engine = SimpleNamespace(sync=lambda policy: None)
        progress = SimpleNamespace(log=self.said.append, steps=lambda first, last: iter(range(first, last)))
        self.trainer = Trainer(config, None, None, None, engine, None, progress, state=State(step=2))

    def play(self, trainer, tasks, samples, turns, **named):
        if self.verdicts is None:
            raise Stopped
        self.asked.append((samples, turns, named["first_group"], named["seed"], trainer.config.reward.hack_check))
        turn = lambda verdict: Turn([1], [2], [0.0], verdict=verdict)
        return [Trajectory(f"t{g}", g, 0, [*map(turn, given)]) for g, given in enumerate(self.verdicts)], None

    def validate(self, step: int, *verdicts):
        self.trainer.state.step = step
        self.verdicts = [[each] for each in verdicts] if verdicts else self.verdicts
        return validation.validate(self.trainer, TASKS, {"reward": 1.0})


def test_it_is_due_every_few_steps_and_plays_with_the_same_seeds(monkeypatch):
    world = World(monkeypatch, "trainer.eval_samples=5", "trainer.eval_turns=2", "reward.hack_check=false")
    assert world.validate(1) == {"reward": 1.0}
    assert "validation/reward" in world.validate(2) and "validation/reward" in world.validate(4)
    assert world.asked == [(5, 2, 0, -1, True)] * 2, "and hacks count as hacks"


def test_no_run_may_have_the_seed_of_the_tests_completions():
    assert validation.EVALUATION_SEED not in RANGES["seed"]


def begun(world: World, monkeypatch, **state) -> list[tuple[int, dict]]:
    """What a run writes before its first step: lines of metrics, and "saved" for a checkpoint."""
    written: list = []
    world.trainer.state = State(**state)
    world.trainer.run = SimpleNamespace(log=lambda step, metrics: written.append((step, metrics)))
    monkeypatch.setattr(validation, "save", lambda trainer, optimizer: written.append("saved"))
    monkeypatch.setattr(validation.completions, "write_validation", lambda *_: None)
    validation.begin(world.trainer, None, TASKS, lambda: {"held_out": 1.5})
    return written


def test_the_policy_that_a_run_begins_with_is_step_0_and_may_stay_the_best(monkeypatch):
    world = World(monkeypatch)
    (step, line), saved = begun(world, monkeypatch)
    assert step == 0 and line["validation/reward"] == 3.0 and line["held_out"] == 1.5 and saved == "saved"
    world.validate(2, WRONG, WRONG, WRONG)
    assert world.trainer.state.best["step"] == 0 and "best 3.000 at step 0" in world.said[-1]


def test_it_is_validated_once_whatever_signals_and_resumed_runs_there_are(monkeypatch):
    world = World(monkeypatch)
    world.verdicts = None
    assert begun(world, monkeypatch) == [] and not world.trainer.state.begun, "a signal ended it"
    world.verdicts = [[right(2.0)]] * 3
    assert len(begun(world, monkeypatch, begun=False)) == 2 and world.trainer.state.begun
    assert begun(world, monkeypatch, begun=True) == [] == begun(world, monkeypatch, step=4)
    assert len(world.asked) == 1


@pytest.mark.parametrize("override", ["trainer.validate_first=false", "trainer.validate_every=0"])
def test_without_it_step_0_has_what_is_measured_besides_and_is_no_checkpoint(monkeypatch, override):
    world = World(monkeypatch, override)
    assert begun(world, monkeypatch) == [(0, {"held_out": 1.5})] and world.asked == []


def test_step_0_is_named_as_the_best_checkpoint(tmp_path, monkeypatch):
    world, written = World(monkeypatch), {}
    world.trainer.config.run_dir, world.trainer.state = str(tmp_path), State(best={"step": 0, "value": 1.0})
    world.trainer.run = SimpleNamespace(metrics_offset=0, write=written.__setitem__)
    monkeypatch.setattr(checkpoint, "take", lambda *_: None)
    monkeypatch.setattr(checkpoint, "write", lambda *_: None)
    trainer.save(world.trainer, None)
    assert written["best.json"]["checkpoint"] == "checkpoints/step_000000"


def test_it_tells_the_last_turn_from_a_single_try(monkeypatch):
    world = World(monkeypatch)
    world.verdicts = [[WRONG, right(2.0)], [right(1.0), right(1.5)], [right(1.5), CHEAT]]
    found = world.validate(2)
    assert found["validation/correct"] == pytest.approx(2 / 3) == found["validation/first/correct"]
    assert found["validation/fast@1.2"] == pytest.approx(2 / 3)
    assert found["validation/first/fast@1.2"] == pytest.approx(1 / 3)
    assert found["validation/hack"] == pytest.approx(1 / 6) and found["validation/best/correct"] == 1
    assert found["validation/reward/low"] < found["validation/reward"] < found["validation/reward/high"]
    assert found["time/validation"] >= 0


def test_the_best_step_is_that_of_the_highest_value(monkeypatch):
    world = World(monkeypatch)
    for step, speedup in ((2, 1.5), (4, 2.0), (6, 1.8), (8, 2.0)):
        world.validate(step, *[right(speedup)] * 3)
    assert world.trainer.state.best["step"] == 4 and world.trainer.state.best["value"] == 3.0
    assert "best 3.000 at step 4" in world.said[-1]


def test_values_of_another_measure_or_of_other_tasks_are_not_compared(monkeypatch):
    world = World(monkeypatch)
    world.validate(2, *[right(3.0)] * 3)
    world.trainer.config.trainer.best_by = "correct"
    world.validate(4, right(3.0), right(3.0), WRONG)
    assert world.trainer.state.best["step"] == 4
    world.trainer.config.trainer.eval_samples = 9
    world.validate(6, right(3.0), WRONG, WRONG)
    assert world.trainer.state.best["step"] == 6


def test_a_validation_that_the_judge_failed_on_says_nothing(monkeypatch):
    world = World(monkeypatch, "trainer.stop_below=0.5")
    world.validate(2, *[right(3.0)] * 3)
    found = world.validate(4, LOST, LOST, LOST)
    assert math.isnan(found["validation/reward"]) and found["validation/judge_failures"] == 3
    assert world.trainer.state.best["step"] == 2 and not world.trainer.state.collapsed


def test_a_collapse_ends_the_run_and_says_why(monkeypatch):
    world = World(monkeypatch, "trainer.stop_below=0.5", "trainer.steps=20")
    world.validate(2, *[right(3.0)] * 3)
    world.validate(4, right(3.0), right(3.0), WRONG)
    assert list(trainer.steps_to_take(world.trainer)) == list(range(4, 20))
    world.validate(6, right(3.0), WRONG, WRONG)
    assert trainer.should_save(world.trainer) and list(trainer.steps_to_take(world.trainer)) == []
    assert "below trainer.stop_below=0.5" in world.said[-1] and "at step 2" in world.said[-1]
    world.trainer.config.trainer.stop_below = None
    assert len(list(trainer.steps_to_take(world.trainer))) == 14, "without the option a run goes on"


def test_a_validation_that_a_signal_ended_comes_first_in_the_resumed_run(monkeypatch):
    world = World(monkeypatch, "trainer.steps=4")
    world.verdicts = None
    with pytest.raises(Stopped):
        world.validate(4)
    assert world.trainer.state.pending == {"reward": 1.0}
    assert list(trainer.steps_to_take(world.trainer)) == [3], "though all steps are taken"
    world.verdicts = [[right(2.0)]] * 3
    assert "validation/reward" in validation.validate(world.trainer, TASKS, world.trainer.state.pending)
    assert world.trainer.state.pending == {} and list(trainer.steps_to_take(world.trainer)) == []


def test_checkpoints_are_every_few_steps_the_last_and_the_best():
    there = SimpleNamespace(config=train_config("trainer.steps=13", "trainer.save_every=5"), state=State())
    saved = []
    for step in range(1, 14):
        there.state.step = step
        there.state.best = {"step": 7} if step >= 7 else {}
        saved += [step] if trainer.should_save(there) else []
    assert saved == [5, 7, 10, 13]


def test_the_best_checkpoint_stays_beside_the_newest(tmp_path):
    for step in range(1, 7):
        (tmp_path / checkpoint.name_of(step)).mkdir()
        (tmp_path / checkpoint.name_of(step) / "COMPLETE").write_text("{}")
    checkpoint._remove_old(tmp_path, checkpoint.Keep(2, best=3))
    assert [path.name for path in checkpoint.complete(tmp_path)] == ["step_000003", "step_000005", "step_000006"]


def test_the_tasks_are_of_the_validation_split_and_none_are_loaded_without_a_validation():
    config = train_config("trainer.validate_every=1", "tasks.eval_count=5", "tasks.count=20")
    tasks, held_out = build.load_sets(config)
    found = build.load_validation(config)
    assert len(found) == 5 and {task.split for task in found} == {"validation"}
    assert not {task.digest for task in found} & {task.digest for task in (*tasks, *held_out)}
    assert build.load_validation(train_config()) == []


def test_none_that_can_be_used_is_an_error():
    there = SimpleNamespace(
        config=train_config("trainer.validate_every=3"), sampler=SimpleNamespace(usable=lambda tasks: [])
    )
    with pytest.raises(DrKernelError, match=r"trainer\.validate_every=3: none of 3 tasks"):
        validation.usable_tasks(there, TASKS)
    assert validation.usable_tasks(there, []) == []


def test_test_tasks_none_of_which_can_be_used_end_a_run_before_its_first_step():
    there = SimpleNamespace(config=train_config(), sampler=SimpleNamespace(usable=lambda tasks: []))
    with pytest.raises(DrKernelError, match=r"tasks\.eval_source: none of 3 tasks of the test split can be used"):
        validation.usable_tasks(there, TASKS, validation.TESTED)


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        (["trainer.validate_every=-1"], r"validate_every=-1; expected 0 or more"),
        (["trainer.stop_below=0.5"], r"stop_below=0\.5 with trainer\.validate_every=0"),
        (["trainer.stop_below=2", "trainer.validate_every=1"], r"expected a share between 0 and 1"),
        (["trainer.best_by=rewards"], r"trainer\.best_by='rewards' is none of reward, .* did you mean 'reward'"),
    ],
)
def test_settings_that_contradict_each_other_are_refused(overrides, message):
    with pytest.raises(DrKernelError, match=message):
        train_config(*overrides)


def test_the_state_with_a_best_step_survives_a_checkpoint(tmp_path):
    state = State(
        step=3, best={"step": 2, "value": 1.5, "measure": "reward"}, pending={"reward": math.nan, "skipped": 0}
    )
    torch.save({"state": dataclasses.asdict(state)}, tmp_path / "state.pt")
    loaded = State(**torch.load(tmp_path / "state.pt", weights_only=True)["state"])
    assert loaded.best == state.best and loaded.pending["skipped"] == 0
