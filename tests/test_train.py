"""The whole loop, for real: tasks, rollouts, judge, rewards, update, checkpoints, report."""

import copy
import dataclasses
import itertools
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from contextlib import closing
from pathlib import Path

import pytest
import torch
from pyarrow import parquet
from rich.console import Console

import train
from drkernel.config.judge import judge_options
from drkernel.judge import Judge
from drkernel.objective.advantages import ADVANTAGES
from drkernel.objective.filters import GROUP_FILTERS, TOKEN_FILTERS, TURN_FILTERS
from drkernel.objective.rewards import REWARDS
from drkernel.policy import Policy, load_prompts, load_tokenizer
from drkernel.tasks import load_tasks
from drkernel.training import update
from drkernel.training.metric_names import is_known, repeats
from drkernel.training.progress import Progress
from drkernel.training.sampler import Sampler
from drkernel.training.trainer import State
from drkernel.types import Trajectory, Verdict, WorkerLost
from tests import commands
from tests.configs import train_config
from tests.training.chat_policy import chat_policy

ROOT = Path(__file__).parents[1]
SMALL = ["trainer.prompts=2", "trainer.samples=3", "trainer.turns=2", "engine.slots=8", "tasks.count=8", "logger=none"]


steps = pytest.mark.xdist_group("steps")
"""Tests of one world, in one process: they share its judge, and the episodes that `played_once` has."""


@pytest.fixture(scope="module")
def world():
    config = train_config(*SMALL)
    policy = Policy.load(config.policy.path)
    prompts = load_prompts("compact", load_tokenizer(config.policy.path))
    tasks = load_tasks("generated", split="train", count=8)
    with (
        Judge(**judge_options(config)) as judge,
        closing(train.make_engine(config, policy, prompts)) as engine,
        Progress(Console(quiet=True)) as progress,
    ):
        engine.sync(policy)
        sampler = Sampler(tasks, config.seed, judge, progress.log)
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
FILTERS = ("none", *GROUP_FILTERS, *TURN_FILTERS, *TOKEN_FILTERS, "full")
PAIRS = [
    (algo, list(REWARDS)[(a + f) % len(REWARDS)], filters)
    for (a, algo), (f, filters) in itertools.product(enumerate(ADVANTAGES), enumerate(FILTERS))
]
"""Each algorithm with each filter, and the rewards in turn, so that every two of them meet."""


@pytest.mark.slow
@steps
@pytest.mark.parametrize(
    ("algo", "reward", "filters"),
    [
        *PAIRS,
        ("trloo reward.hack_check=false", "speedup", "full"),
    ],
)
def test_every_combination_takes_a_real_step(world, played_once, algo, reward, filters):
    overrides = [*f"algo={algo}".split(), f"reward={reward}", f"filters={filters}", *SMALL]
    config = train_config(*overrides)
    here = dataclasses.replace(world, config=config, state=State(), policy=Policy.load(config.policy.path))
    optimizer = update.make_optimizer(here.policy, config.policy.lr, config.trainer.weight_decay)
    before = [p.clone() for p in here.policy.parameters()]
    trajectories = (played := train.collect(here)).trajectories
    rollouts, batch = (prepared := train.prepare(here, played)).rollouts, prepared.batch
    metrics = train.learn(here, optimizer, batch)
    assert torch.isfinite(torch.tensor(metrics["loss"]))
    moved = any(not torch.equal(p, q) for p, q in zip(here.policy.parameters(), before, strict=True))
    assert moved == bool(batch.loss_mask.any()) == (metrics["skipped"] == 0)
    assert rollouts.turn_mask.any() and {t.verdict.device for e in trajectories for t in e.turns if t.verdict.ok} <= {
        "simulated:H200"
    }


@pytest.mark.slow
@steps
def test_trajectories_on_which_the_judge_failed_leave_the_batch_and_are_counted(world, played_once, monkeypatch):
    real, failed = train.play, Verdict("judge_failure", "worker_lost")

    def play(*given, **named):
        episodes, times = real(*given, **named)
        for trajectory in episodes:
            if trajectory.sample == 0 or not some:
                trajectory.turns[-1].verdict = failed
        return episodes, times

    monkeypatch.setattr(train, "play", play)
    here = dataclasses.replace(world, state=State())
    some = True
    played = train.collect(here)
    assert {trajectory.sample for trajectory in played.trajectories} == {1, 2}
    assert sum(trajectory.ends_in_judge_failure for trajectory in played.every) >= 2
    rollouts, batch = (prepared := train.prepare(here, played)).rollouts, prepared.batch
    assert len(rollouts.groups) == len(played.trajectories) and batch.tokens.numel()
    some = False
    with pytest.raises(WorkerLost, match="it failed on all"):
        train.collect(here)


@pytest.mark.slow
@steps
def test_a_step_says_where_its_seconds_went(world):
    here = dataclasses.replace(world, state=State(), policy=Policy.load(world.config.policy.path))
    optimizer = update.make_optimizer(here.policy, 1e-4, 0.0)
    started = time.perf_counter()
    metrics = train.step(here, optimizer)
    assert metrics["judge/failures"] == 0
    assert [name for name in metrics if not is_known(name)] == []
    wall = time.perf_counter() - started
    seconds = {name.removeprefix("time/"): value for name, value in metrics.items() if name.startswith("time/")}
    assert seconds.keys() == {"sync", "generate", "judge", "peers", "rollout", "prepare", "update"}
    assert all(value >= 0 for value in seconds.values()) and seconds["generate"] > 0 < seconds["judge"]
    assert 0.9 * wall < sum(seconds.values()) <= wall


RUN = ["trainer.samples=2", "trainer.steps=2", "trainer.save_every=1", "tasks.eval_count=2", "trainer.eval_samples=1"]
RUN += ["trainer.eval_turns=1", "tasks.families=[elementwise]", "logger.plots=false"]  # short answers, which take time
RUN += ["trainer.threads=1", "judge.workers=1", "policy.lr=1e-6"]
RUN += ["trainer.validate_every=1", "trainer.lr_schedule=cosine", "trainer.lr_steps=3"]

REFILLED = ["seed=4"]
"""A group without spread is dropped and refilled in each step."""
OPTIONS = [
    "algo=gspo",
    "algo.updates=2",
    "algo.clip_high=0.2",
    "algo.entropy_coef=0.01",
    "filters=[oversampled,overlong]",
]
OPTIONS += ["reward.overlong_penalty=1", "reward.overlong_window=300", "policy.fp32_head=true"]
OPTIONS += ["trainer.save_async=true", "trainer.keep=1", "trainer.keep_every=1"]
"""Everything at once that is off by default and has a part in a step or a checkpoint."""
AHEAD = ["trainer.overlap=true", "algo.importance_cap=2", "filters=oversampled", "trainer.offload=optimizer"]
"""First turns of a step are generated in the step before."""


def arguments(folder: Path, *overrides: str) -> list[str]:
    return ["train.py", f"hydra.run.dir={folder}", *SMALL, *RUN, *overrides]


def launch(folder: Path, *overrides: str) -> commands.Command:
    return commands.Command(arguments(folder, *overrides), ROOT, os.environ)


def until_saved(run: commands.Command, folder: Path) -> None:
    """Wait for the checkpoint of a run's first step."""
    while not list(folder.glob("checkpoints/step_*[1-9]/COMPLETE")):
        assert run.poll() is None, run.output
        time.sleep(0.05)


def succeed(run: commands.Command) -> str:
    """Wait for a run's end; what it printed."""
    assert run.wait(400) == 0, run.output
    return run.output


@pytest.fixture(
    scope="module",
    params=[REFILLED, ["policy.lora.rank=4"], OPTIONS, AHEAD],
    ids=["all weights", "adapters", "options", "ahead"],
)
def trained(request) -> list[str]:
    """The overrides that say what trains, and how."""
    return request.param


@pytest.fixture(scope="module")
def runs(trained, tmp_path_factory) -> tuple[Path, Path]:
    """The folder of a run that nobody disturbed, and that of a run which was killed once it had saved.

    The first runs by the real command in one case, in which the second is killed. In the others the second is a copy of
    the first, made while that was stopped: what a kill would have left.
    """
    made = tmp_path_factory.mktemp("runs")
    whole, killed = made / "whole", made / "killed"
    if trained is REFILLED:
        command = [sys.executable, *arguments(whole, *trained)]
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=400)
        assert done.returncode == 0, done.stdout + done.stderr
        assert all(line["groups/refilled"] for line in metrics(whole)[1:])
        run = launch(killed, *trained)
        until_saved(run, killed)
        run.signal_group(signal.SIGKILL)
        run.wait()
        return whole, killed
    run = launch(killed, *trained)  # a run goes on in the folder that it knows
    until_saved(run, killed)
    run.signal_group(signal.SIGSTOP)
    shutil.copytree(killed, made / "copy", symlinks=True)
    run.signal_group(signal.SIGCONT)
    succeed(run)
    killed.rename(whole)
    (made / "copy").rename(killed)
    return whole, killed


def metrics(folder: Path) -> list[dict]:
    lines = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    return [{key: value for key, value in line.items() if repeats(key)} for line in lines]


def completions(folder: Path) -> dict[str, list]:
    """What is kept of each step and validation, but for the verdicts, which say how long judging took."""
    files = sorted((folder / "completions").iterdir())
    return {path.stem: parquet.read_table(path).drop(["verdict"]).to_pylist() for path in files}


@pytest.mark.slow
@pytest.mark.xdist_group("launches")
def test_a_run_killed_in_the_middle_and_started_again_ends_bit_for_bit_the_same(runs, trained):
    whole, killed = runs
    output = succeed(launch(killed, *trained))
    assert "resumed" in output
    assert metrics(killed) == metrics(whole)
    assert [line["step"] for line in metrics(whole)] == [0, 1, 2]
    assert [line["lr"] for line in metrics(whole)[1:]] == [1e-6, pytest.approx(0.55e-6)]
    assert all("validation/first/reward" in line for line in metrics(whole))
    for name in ("report.json", "best.json"):
        found, expected = ((folder / name).read_text() for folder in (killed, whole))
        assert found == expected
    assert completions(killed) == completions(whole)
    weights = lambda folder: (folder / "policy" / "model.safetensors").read_bytes()
    assert weights(killed) == weights(whole)


@pytest.mark.slow
@pytest.mark.xdist_group("launches")
def test_two_ranks_do_what_one_does_and_either_goes_on_where_the_other_was_stopped(runs, trained, tmp_path):
    """`trainer.gpus=2` on a machine without GPUs: two CPU processes over gloo, sharded by FSDP2."""
    pair = launch(tmp_path / "two", "trainer.gpus=2", *trained)
    until_saved(pair, tmp_path / "two")
    os.kill(pair.pid, signal.SIGTERM)
    assert "stopped by a signal at step 1" in succeed(pair), f"gave up step 2\n{pair.output}"
    again = succeed(launch(tmp_path / "two", *trained))
    assert "resumed" in again
    ones, twos = (metrics(folder) for folder in (runs[0], tmp_path / "two"))
    assert [m["step"] for m in twos] == [0, 1, 2]
    for key in ("reward", "tokens", "entropy", "grad_norm", "loss"):
        assert [m[key] for m in twos[1:]] == pytest.approx([m[key] for m in ones[1:]], rel=1e-3, abs=1e-5), key


@pytest.mark.slow
@pytest.mark.xdist_group("launches")
def test_two_ranks_train_on_stripped_thoughts_and_own_prompts_as_one_does(tmp_path):
    chat_policy(tmp_path / "policy", thinks=True)
    (tmp_path / "prompts.yaml").write_text("system: Be brief.\nopening: '{source}'\nrevision: '{feedback}'\n")
    given = [
        f"policy.path={tmp_path / 'policy'}",
        "policy.prompts=chat",
        f"policy.template={tmp_path / 'prompts.yaml'}",
    ]
    given += ["policy.thinking=stripped", "engine.max_answer_tokens=20", "filters=none", "trainer.steps=1", "algo=rloo"]
    given += [
        "trainer.validate_every=0",
        "tasks.eval_count=1",
        "reward.overlong_penalty=1",
        "reward.overlong_window=20",
    ]
    given += ["algo.entropy_coef=0.1"]  # all answers are cut, so nothing else has a gradient
    for name, gpus in (("one", 1), ("two", 2)):
        succeed(launch(tmp_path / name, *given, f"trainer.gpus={gpus}"))
    (one,), (two,) = metrics(tmp_path / "one"), metrics(tmp_path / "two")
    assert one["turns"] == 2.0 and one["overlong_penalty"] > 0 and (tmp_path / "one" / "template.yaml").exists()
    assert one["grad_norm"] > 0
    for key in ("reward", "tokens", "entropy", "grad_norm", "loss"):
        assert two[key] == pytest.approx(one[key], rel=1e-3, abs=1e-5), key
    turns = completions(tmp_path / "one")["step_000001"]
    assert turns[0]["prompt"].startswith("<|im_start|>system\nBe brief.<|im_end|>\n<|im_start|>user\n")
    assert all(turn["prompt"].endswith("<think>\n") for turn in turns)


@pytest.mark.slow
def test_a_corrupt_checkpoint_is_one_line_and_exit_code_2(tmp_path):
    folder = tmp_path / "run" / "checkpoints" / "step_000001"
    folder.mkdir(parents=True)
    (folder / "state.pt").write_bytes(b"nonsense")
    (folder / "COMPLETE").write_text(json.dumps({"step": 1, "ranks": 1, "files": {"state.pt": "0" * 64}}))
    run = launch(tmp_path / "run")
    assert run.wait(200) == 2
    output = run.output.strip().splitlines()
    assert [line for line in output if line.startswith("error: ")] and "state.pt: corrupt checkpoint" in output[-1]


@pytest.mark.slow
def test_tasks_that_the_judge_cannot_use_are_named(tmp_path):
    (tmp_path / "broken.py").write_text(
        "import torch\nclass Model(torch.nn.Module):\n    def forward(self, x):\n        return x @ x\n"
        "def get_inputs():\n    return [torch.randn(3, 5)]\ndef get_init_inputs():\n    return []\n"
    )
    own = f"tasks.source={tmp_path / 'broken.py'}"
    run = launch(
        tmp_path / "run", own, "tasks.families=null", "tasks.eval_source=generated", "trainer.validate_every=0"
    )
    assert run.wait(200) == 2
    output = run.output.strip().splitlines()
    assert "broken" in output[-1] and "line 4" in output[-1], output
