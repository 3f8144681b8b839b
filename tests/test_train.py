"""The whole loop, for real: tasks, rollouts, judge, rewards, update, checkpoints, report."""

import copy
import dataclasses
import itertools
import json
import os
import signal
import subprocess
import sys
import time
from contextlib import closing
from pathlib import Path

import pytest
import torch
from hydra import compose, initialize_config_dir
from rich.console import Console

import train
from drkernel import config as configuration
from drkernel.judge import Judge
from drkernel.policy import Policy, load_prompts, load_tokenizer
from drkernel.tasks import load_tasks
from drkernel.training import update
from drkernel.training.progress import Progress
from drkernel.training.sampler import Sampler
from drkernel.training.trainer import State
from drkernel.types import Trajectory

ROOT = Path(__file__).parents[1]
SMALL = ["trainer.prompts=2", "trainer.samples=3", "trainer.turns=2", "engine.slots=8", "tasks.count=8", "logger=none"]


@pytest.fixture(scope="module")
def world():
    with initialize_config_dir(str(ROOT / "conf"), version_base="1.3"):
        config = configuration.load(compose("train", overrides=["run_dir=nowhere", *SMALL]))
    policy = Policy.load(config.policy.path)
    prompts = load_prompts("compact", load_tokenizer(config.policy.path))
    tasks = load_tasks("generated", split="train", count=8)
    with (
        Judge(**configuration.judge_options(config)) as judge,
        closing(train.make_engine(config, policy, prompts)) as engine,
        Progress(Console(quiet=True)) as progress,
    ):
        engine.sync(policy)
        sampler = Sampler(tasks, config.seed, judge, progress.say)
        yield train.Trainer(config, sampler, policy, prompts, engine, judge, progress)


@pytest.fixture
def played_once(monkeypatch):
    """Runs with the same policy, tasks and seeds play the same episodes: each is played once."""
    real = train.play

    def play(world, tasks, samples, turns, *, first_group, seed, title):
        key = (*(task.id for task in tasks), samples, turns, first_group, seed, world.config.reward.hack_check)
        if key not in EPISODES:
            EPISODES[key] = real(world, tasks, samples, turns, first_group=first_group, seed=seed, title=title)
        return copy.deepcopy(EPISODES[key])

    monkeypatch.setattr(train, "play", play)


EPISODES: dict[tuple, list[Trajectory]] = {}
FILTERS = ("none", "zero_variance", "mrs", "prs", "full")


@pytest.mark.parametrize(
    ("algo", "reward", "filters"),
    [
        *itertools.product(("grpo", "rloo", "trloo"), ("binary", "speedup", "profiling"), FILTERS),
        ("trloo reward.hack_check=false", "speedup", "full"),
    ],
)
def test_every_combination_takes_a_real_step(world, played_once, algo, reward, filters):
    overrides = [*f"algo={algo}".split(), f"reward={reward}", f"filters={filters}", *SMALL]
    with initialize_config_dir(str(ROOT / "conf"), version_base="1.3"):
        config = configuration.load(compose("train", overrides=["run_dir=nowhere", *overrides]))
    here = dataclasses.replace(world, config=config, state=State(), policy=Policy.load(config.policy.path))
    optimizer = update.make_optimizer(here.policy, config.policy.lr, config.trainer.weight_decay)
    before = [p.clone() for p in here.policy.parameters()]
    trajectories, rollouts, decision = train.collect(here)
    batch, _ = train.prepare(here, trajectories, rollouts, decision)
    metrics = train.learn(here, optimizer, batch)
    assert torch.isfinite(torch.tensor(metrics["loss"]))
    moved = any(not torch.equal(p, q) for p, q in zip(here.policy.parameters(), before, strict=True))
    assert moved == bool(batch.loss_mask.any()) == (metrics["skipped"] == 0)
    assert rollouts.exists.any() and {t.verdict.device for e in trajectories for t in e.turns if t.verdict.ok} <= {
        "simulated:H200"
    }


def test_a_step_says_where_its_seconds_went(world):
    here = dataclasses.replace(world, state=State(), policy=Policy.load(world.config.policy.path))
    optimizer = update.make_optimizer(here.policy, 1e-4, 0.0)
    started = time.perf_counter()
    metrics = train.step(here, optimizer)
    wall = time.perf_counter() - started
    seconds = {name.removeprefix("time/"): value for name, value in metrics.items() if name.startswith("time/")}
    assert seconds.keys() == {"sync", "generate", "judge", "peers", "rollout", "prepare", "update"}
    assert all(value >= 0 for value in seconds.values()) and seconds["generate"] > 0 < seconds["judge"]
    assert 0.9 * wall < sum(seconds.values()) <= wall


def launch(folder: Path, *overrides: str) -> subprocess.Popen:
    command = [sys.executable, "train.py", f"hydra.run.dir={folder}", *SMALL, "trainer.steps=3", "trainer.save_every=1"]
    command += ["tasks.eval_count=2", "trainer.eval_samples=1", "trainer.threads=1", *overrides]
    return subprocess.Popen(command, cwd=ROOT, start_new_session=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)


def metrics(folder: Path) -> list[dict]:
    lines = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    return [{key: value for key, value in line.items() if not key.startswith("time/")} for line in lines]


def test_a_run_killed_in_the_middle_and_started_again_ends_bit_for_bit_the_same(tmp_path):
    whole = launch(tmp_path / "whole")
    output = whole.communicate(timeout=400)[0].decode()
    assert whole.returncode == 0, output
    killed = launch(tmp_path / "killed")
    while not list((tmp_path / "killed").glob("checkpoints/step_*/COMPLETE")):
        assert killed.poll() is None, killed.communicate()[0].decode()
        time.sleep(0.05)
    os.killpg(killed.pid, signal.SIGKILL)
    killed.wait()
    again = launch(tmp_path / "killed")
    output = again.communicate(timeout=400)[0].decode()
    assert again.returncode == 0, output
    assert "resumed" in output
    assert metrics(tmp_path / "killed") == metrics(tmp_path / "whole")
    reports = [json.loads((tmp_path / name / "report.json").read_text()) for name in ("killed", "whole")]
    assert reports[0] == reports[1]
    assert (tmp_path / "killed" / "policy" / "model.safetensors").read_bytes() == (
        tmp_path / "whole" / "policy" / "model.safetensors"
    ).read_bytes()


def test_two_ranks_do_what_one_does_and_either_goes_on_where_the_other_was_stopped(tmp_path):
    """`trainer.gpus=2` on a machine without GPUs: two CPU processes over gloo, sharded by FSDP2."""
    options = ("judge.workers=1", "trainer.steps=2", "policy.lr=1e-6")
    pair = launch(tmp_path / "two", "trainer.gpus=2", *options)
    while not list((tmp_path / "two").glob("checkpoints/step_*/COMPLETE")):
        assert pair.poll() is None, pair.communicate()[0].decode()
        time.sleep(0.05)
    pair.send_signal(signal.SIGTERM)
    output = pair.communicate(timeout=400)[0].decode()
    assert pair.returncode == 0 and "stopped by a signal at step 1" in output, f"gave up step 2\n{output}"
    one = launch(tmp_path / "one", *options)
    output = one.communicate(timeout=400)[0].decode()
    assert one.returncode == 0, output
    again = launch(tmp_path / "two", *options)
    output = again.communicate(timeout=400)[0].decode()
    assert again.returncode == 0 and "resumed" in output, output
    ones, twos = (metrics(tmp_path / name) for name in ("one", "two"))
    assert [m["step"] for m in twos] == [1, 2]
    for key in ("reward", "tokens", "entropy", "grad_norm", "loss"):
        assert [m[key] for m in twos] == pytest.approx([m[key] for m in ones], rel=1e-3, abs=1e-5), key


def test_a_corrupt_checkpoint_is_one_line_and_exit_code_2(tmp_path):
    folder = tmp_path / "run" / "checkpoints" / "step_000001"
    folder.mkdir(parents=True)
    (folder / "state.pt").write_bytes(b"nonsense")
    (folder / "COMPLETE").write_text(json.dumps({"step": 1, "ranks": 1, "files": {"state.pt": "0" * 64}}))
    run = launch(tmp_path / "run")
    output = run.communicate(timeout=200)[0].decode().strip().splitlines()
    assert run.returncode == 2
    assert [line for line in output if line.startswith("error: ")] and "state.pt: corrupt checkpoint" in output[-1]


def test_tasks_that_the_judge_cannot_use_are_named(tmp_path):
    (tmp_path / "broken.py").write_text(
        "import torch\nclass Model(torch.nn.Module):\n    def forward(self, x):\n        return x @ x\n"
        "def get_inputs():\n    return [torch.randn(3, 5)]\ndef get_init_inputs():\n    return []\n"
    )
    run = launch(tmp_path / "run", f"tasks.source={tmp_path / 'broken.py'}", "tasks.eval_source=generated")
    output = run.communicate(timeout=200)[0].decode().strip().splitlines()
    assert run.returncode == 2 and "broken" in output[-1] and "line 4" in output[-1], output
