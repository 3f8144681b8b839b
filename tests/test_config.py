"""The command line: every combination composes, and what is wrong is named in one line with the nearest right word."""

from itertools import product
from pathlib import Path

import pytest
from hydra import compose, initialize_config_dir

from drkernel import config as configuration
from drkernel.overrides import slug
from tests import commands

ROOT = Path(__file__).parents[1]
ALGOS, REWARDS = ("grpo", "rloo", "trloo"), ("binary", "speedup", "profiling")
FILTERS = ("none", "zero_variance", "mrs", "prs", "full", "[zero_variance,mrs]", "[mrs,prs]")


def load(*overrides):
    with initialize_config_dir(str(ROOT / "conf"), version_base="1.3"):
        return configuration.load(compose("train", overrides=["run_dir=nowhere", *overrides]))


@pytest.mark.parametrize(("algo", "reward", "filters"), list(product(ALGOS, REWARDS, FILTERS)))
def test_every_algorithm_composes_with_every_reward_and_every_filter(algo, reward, filters):
    config = load(f"algo={algo}", f"reward={reward}", f"filters={filters}")
    assert (config.algo.advantage, config.reward.name) == (algo, reward)
    chosen = {name for name in ("zero_variance", "mrs", "prs") if getattr(config.filters, name)}
    expected = {"none": "", "full": "zero_variance,mrs,prs"}.get(filters, filters).strip("[]")
    assert chosen == set(filter(None, expected.split(",")))


ADDED = ("arm", "group", "sweep")
"""Groups that a run has only where it asks for them: `+sweep=ablation`."""
ELSEWHERE = ("scaling", "hydra")
"""Groups of evaluate.py (tests/test_evaluate.py) and of Hydra itself (tests/slurm/)."""


@pytest.mark.parametrize("group", [p.name for p in (ROOT / "conf").iterdir() if p.is_dir() and p.name not in ELSEWHERE])
def test_every_variant_of_every_group_composes_and_is_short(group):
    for path in (ROOT / "conf" / group).glob("*.yaml"):
        load(f"{'+' * (group in ADDED)}{group}={path.stem}")
        lines = path.read_text().splitlines()
        assert len(lines) <= 15 and any(line.startswith("# ") for line in lines), f"{path} should say what it changes"


def test_the_papers_recipe_is_the_full_filter():
    filters = load("filters=full").filters
    assert (filters.mrs.level, filters.mrs.lower, filters.mrs.upper, filters.mrs.veto) == (
        "geometric",
        0.999,
        1.001,
        1e-4,
    )
    assert filters.prs.width == 0.1 and 0.5 <= filters.prs.tau <= 0.65


def test_a_run_folder_is_named_after_its_overrides_and_never_after_the_time():
    assert slug("algo=grpo,seed=1") == "algo=grpo,seed=1"
    assert slug("") == "default"
    assert slug("tasks.source=/data/my tasks") == "tasks.source=-data-my-tasks"
    assert len(slug("x" * 500)) < 128


@pytest.mark.parametrize(
    ("override", "words"),
    [
        ("algo.gama=1", ["algo.gama", "algo.gamma"]),
        ("+trainer.stepz=1", ["trainer.stepz", "trainer.steps"]),
        ("+arm=gamma0 trainer.steps=many", ["trainer.steps=many", "Integer"]),
        ("+arm=gama0", ["gama0", "gamma0"]),
        ("algo=3", ["algo=3", "must be a string"]),
        ("alog=grpo", ["alog", "algo"]),
        ("algo=tlroo", ["tlroo", "trloo"]),
        ("trainer.steps=many", ["trainer.steps", "many", "Integer"]),
        ("trainer.samples=0", ["trainer.samples", "at least 1"]),
        ("algo.aggregation=token_men", ["token_men", "token_mean"]),
        ("policy.path=/nowhere/policy", ["/nowhere/policy"]),
        ("tasks.source=/nowhere/tasks.jsonl", ["/nowhere/tasks.jsonl"]),
        ("tasks.families=[nothing]", ["nothing"]),
    ],
)
def test_a_wrong_command_line_is_one_clear_line_and_exit_code_2(override, words, tmp_path):
    done = commands.run([str(ROOT / "train.py"), *override.split(), "logger=none"], cwd=tmp_path)
    message = done.stderr.strip().splitlines()
    assert done.returncode == 2, done.stderr
    assert len(message) == 1 and message[0].startswith("error: ")
    assert all(word in message[0] for word in words), message[0]
