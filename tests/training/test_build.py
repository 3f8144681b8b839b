"""Which tasks a run trains on and which it is tested on."""

import re
from pathlib import Path

import pytest
import torch

from drkernel import tasks
from drkernel.config import LoraConfig
from drkernel.policy import new_policy
from drkernel.policy.lora import add_adapters
from drkernel.policy.model import autocast
from drkernel.scaling.setup import study_tasks
from drkernel.tasks import generate, write_task
from drkernel.training import build
from drkernel.training.build import load_sets
from drkernel.training.ranks import SINGLE
from tests.configs import evaluate_config
from tests.configs import train_config as load

ROOT = Path(__file__).parents[2]


def test_backward_passes_stay_in_the_split_of_their_tasks():
    forward, backward = (
        load("tasks.count=6", "tasks.eval_count=4"),
        load("tasks.count=6", "tasks.eval_count=4", "tasks.backward=true"),
    )
    for plain, made in zip(load_sets(forward), load_sets(backward), strict=True):
        assert [(f"{task.id}/backward", task.split) for task in plain] == [(task.id, task.split) for task in made]


def test_a_trainer_is_built_whole_and_only_its_state_changes():
    files = [ROOT / "train.py", *(ROOT / "src/drkernel").rglob("*.py")]
    targets = [
        found for file in files for found in re.findall(r"\btrainer\.(\w+)(?:, trainer\.\w+)* = ", file.read_text())
    ]
    assert set(targets) == {"state"}


@pytest.fixture
def folder(tmp_path, monkeypatch) -> Path:
    """Six tasks of one's own, on a machine without internet."""
    for number, task in enumerate(generate("train", 6, 0)):
        write_task(task, tmp_path / f"op{number}.py")
    monkeypatch.setattr(tasks, "read_hub", lambda name: pytest.fail(f"asked for hub:{name}"))
    return tmp_path


@pytest.mark.parametrize("group", ["generated", "kernelbench"])
@pytest.mark.parametrize("more", [[], ["tasks.eval_source={}"], ["tasks.eval_source={}/"]])
def test_a_folder_given_as_source_serves_training_and_test(folder, group, more):
    config = load(f"tasks={group}", f"tasks.source={folder}", *(override.format(folder) for override in more))
    train, test = (({task.id for task in part}) for part in load_sets(config))
    assert train and test and not train & test and len(train | test) <= 6


def test_the_papers_sets_are_trained_and_tested_on(monkeypatch):
    asked = []
    monkeypatch.setattr(tasks, "read_hub", lambda name: asked.append(name) or generate("train", 3, 0))
    train, test = load_sets(load("tasks=kernelbench"))
    assert asked == ["hkust-nlp/drkernel-rl-data", "hkust-nlp/drkernel-validation-data"]
    assert len(train) == len(test) == 3, "the validation set is held out whole"


def test_the_generator_of_the_config_is_asked_for_its_dtypes(monkeypatch):
    asked = []
    monkeypatch.setattr(tasks, "generate", lambda *given: asked.append(given) or generate("train", 2, 0))
    load_sets(load("tasks.generator=operators", "tasks.count=5", "tasks.seed=3", "tasks.dtypes=[bfloat16]"))
    assert asked == [("train", 5, 3, None, ["bfloat16"], "operators"), ("test", 48, 3, None, ["bfloat16"], "operators")]


@pytest.mark.parametrize("seed", [0, 3])
def test_train_and_evaluate_have_one_set_of_each_split_that_is_held_out(seed):
    options = ["tasks.eval_count=6", f"tasks.seed={seed}"]
    config = load("tasks.count=2", "trainer.validate_every=1", *options)
    for split, mine in (("test", load_sets(config)[1]), ("validation", build.load_validation(config))):
        assert [task.id for task in mine] == [
            task.id for task in study_tasks(evaluate_config(f"split={split}", *options))
        ]
        drawn = generate(split, 6, seed)
        assert [task.digest for task in mine] == [task.digest for task in drawn]


def test_the_reference_of_a_policy_with_adapters_is_its_own_base(monkeypatch):
    made = []
    monkeypatch.setattr(build, "make_policy", lambda config, ranks: made.append("a second policy") or made[-1])
    whole, adapted = new_policy(8, hidden=32, layers=1), new_policy(8, hidden=32, layers=1)
    add_adapters(adapted, LoraConfig(rank=2))
    assert build.make_reference(load(), whole, SINGLE) is None and not made
    assert build.make_reference(load("algo.kl_coef=0.1"), adapted, SINGLE) is adapted and not made
    assert build.make_reference(load("algo.kl_coef=0.1"), whole, SINGLE) == "a second policy"


def test_tasks_of_a_folder_have_the_precision_of_the_config(folder):
    train, test = load_sets(load(f"tasks.source={folder}", "tasks.count=null", "tasks.precision=tf32"))
    assert {task.precision for task in train} == {task.precision for task in test} == {"tf32"}


@pytest.mark.parametrize("chosen", [False, True])
def test_a_cpu_multiplies_in_bfloat16_where_the_config_says_so(chosen):
    policy = build.make_policy(load(f"trainer.bfloat16={chosen}"), SINGLE)
    with autocast(policy):
        product = torch.ones(2, 2) @ torch.ones(2, 2)
    assert product.dtype == (torch.bfloat16 if chosen else torch.float32)
