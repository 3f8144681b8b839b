"""`stage=sft` on a tiny policy with a chat template: what it learns from, how it goes on, and what comes after it."""

import dataclasses
import json
import os
import shlex
import signal
import time
from pathlib import Path
from types import SimpleNamespace

import pyarrow
import pytest
from hydra.core.hydra_config import HydraConfig
from pyarrow import parquet
from safetensors.torch import load_file
from transformers import AutoModelForCausalLM, AutoTokenizer

from drkernel.config import REPOSITORY, Config
from drkernel.training import plan, sft, view
from drkernel.training.export import export
from drkernel.training.metric_names import repeats
from drkernel.types import DrKernelError
from tests import commands
from tests.configs import composed, train_config
from tests.training.chat_policy import chat_policy
from tests.training.test_sft_data import record

PROMPTS = [f"Make number {i} faster." for i in range(12)]
SMALL = ["stage=sft", "policy.prompts=chat", "logger=none", "trainer.threads=1"]
SMALL += ["sft.batch_size=3", "sft.epochs=2", "sft.lr=1e-3", "sft.held_out=0.1", "sft.loss_every=3", "sft.save_every=2"]


def config_of(*overrides: str) -> Config:
    return train_config("stage=sft", *overrides)


@pytest.fixture(scope="module")
def world(tmp_path_factory) -> Path:
    """A folder with policy/ and trajectories.parquet."""
    folder = tmp_path_factory.mktemp("sft")
    chat_policy(folder / "policy")
    table = pyarrow.Table.from_pylist([record(prompt, original_python_code=...) for prompt in PROMPTS])
    parquet.write_table(table, folder / "trajectories.parquet")
    return folder


def launch(world: Path, name: str, *overrides: str) -> commands.Command:
    own = [f"policy.path={world / 'policy'}", f"sft.data={world / 'trajectories.parquet'}"]
    run = f"hydra.run.dir={world / name}"
    return commands.Command(["train.py", run, *SMALL, *own, *overrides], REPOSITORY, os.environ)


def succeed(run: commands.Command) -> str:
    assert run.wait(300) == 0, run.output
    return run.output


def metrics(folder: Path) -> list[dict]:
    lines = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    return [{key: value for key, value in line.items() if repeats(key)} for line in lines]


def weights(folder: Path) -> bytes:
    return (folder / "policy" / "model.safetensors").read_bytes()


@pytest.fixture(scope="module", params=["adamw", "muon", "adapters"])
def trained(request) -> list[str]:
    """The overrides that say what trains, and how."""
    return ["policy.lora.rank=4"] if request.param == "adapters" else [f"sft.optimizer={request.param}"]


@pytest.fixture(scope="module")
def whole(trained, world) -> Path:
    """The folder of a run that nobody disturbed."""
    name = f"whole {trained[0].replace('=', ' ')}"
    succeed(launch(world, name, *trained))
    return world / name


pytestmark = pytest.mark.xdist_group("sft")


@pytest.mark.slow
def test_adapters_alone_are_no_policy_to_go_on_from(world):
    run = launch(world, "alone", "policy.lora.rank=4", "policy.lora.export_merged=false", "sft.max_steps=1")
    assert "goes on from here" not in succeed(run)
    assert (world / "alone" / "adapter").is_dir() and not (world / "alone" / "policy").exists()


@pytest.mark.slow
def test_the_loss_falls_on_what_trains_and_is_measured_on_what_does_not(whole):
    lines = metrics(whole)
    assert [line["step"] for line in lines] == list(range(8)), "20 rows of 2 epochs, 3 a step; 0 is before the first"
    assert lines[0].keys() == {"step", "held_out"} and lines[7]["loss"] < lines[1]["loss"]
    assert [line["step"] for line in lines if "held_out" in line] == [0, 3, 6, 7]
    assert lines[7]["held_out"] < lines[0]["held_out"]
    assert {"lr", "epoch", "rows", "trained_tokens", "grad_norm", "skipped"} < lines[7].keys()
    assert lines[7]["epoch"] == 2.0 and lines[1]["lr"] == 1e-3 and lines[7]["lr"] == 0


@pytest.mark.slow
def test_the_run_leaves_what_any_run_leaves_and_the_best_step(whole, world, tmp_path):
    best = json.loads((whole / "best.json").read_text())
    lowest = min((line for line in metrics(whole)[1:] if "held_out" in line), key=lambda line: line["held_out"])
    assert (best["step"], best["value"]) == (lowest["step"], lowest["held_out"])
    names = {path.name for path in (whole / "checkpoints").iterdir()}
    assert f"step_{best['step']:06d}" in names and "step_000007" in names and len(names) <= 3
    data = json.loads((whole / "data.json").read_text())
    assert data["count"] == 10 and data["held_out"] == 2 and len(data["digest"]) == 16
    before = load_file(world / "policy" / "model.safetensors")
    after = load_file(whole / "policy" / "model.safetensors")
    assert before.keys() == after.keys() and any(not before[name].equal(after[name]) for name in before)
    assert AutoTokenizer.from_pretrained(whole / "policy").chat_template
    assert "steps" in view.write(whole, tmp_path / "view.html")
    if not (whole / "adapter").exists():
        export(whole / "checkpoints" / "best", tmp_path / "out")
        AutoModelForCausalLM.from_pretrained(tmp_path / "out")


@pytest.mark.slow
def test_a_run_killed_in_the_middle_and_started_again_ends_bit_for_bit_the_same(whole, trained, world):
    name = f"killed {trained[0].replace('=', ' ')}"
    killed = launch(world, name, *trained)
    while not list((world / name).glob("checkpoints/step_*/COMPLETE")):
        assert killed.poll() is None, killed.output
        time.sleep(0.01)
    killed.signal_group(signal.SIGKILL)
    killed.wait()
    assert "resumed" in succeed(launch(world, name, *trained))
    assert metrics(world / name) == metrics(whole) and weights(world / name) == weights(whole)


@pytest.mark.slow
def test_a_run_that_ended_after_some_steps_goes_on_to_the_same_end(whole, trained, world):
    name = f"ended {trained[0].replace('=', ' ')}"
    succeed(launch(world, name, *trained, "sft.max_steps=4"))
    assert metrics(world / name) == metrics(whole)[:5]
    succeed(launch(world, name, *trained))
    assert metrics(world / name) == metrics(whole) and weights(world / name) == weights(whole)


@pytest.mark.slow
def test_two_ranks_do_what_one_does_and_one_goes_on_where_they_ended(whole, trained, world):
    name = f"two {trained[0].replace('=', ' ')}"
    succeed(launch(world, name, *trained, "trainer.gpus=2", "sft.max_steps=4", "trainer.recompute=1"))
    succeed(launch(world, name, *trained))
    ones, twos = metrics(whole), metrics(world / name)
    exact = 2e-2 if "sft.optimizer=muon" in trained else 1e-4
    assert [line["step"] for line in twos] == list(range(8))
    for key in ("loss", "held_out", "tokens"):
        pairs = [(one[key], two[key]) for one, two in zip(ones, twos, strict=True) if key in one]
        assert all(two == pytest.approx(one, rel=exact) for one, two in pairs), (key, pairs)


@pytest.mark.slow
def test_other_trajectories_are_no_continuation(world):
    succeed(launch(world, "first", "sft.max_steps=1"))
    run = launch(world, "first", "sft.held_out=0.3")
    assert run.wait(100) == 2 and "sft.held_out=0.1, now it is 0.3" in " ".join(run.output.split())
    other = parquet.read_table(world / "trajectories.parquet").slice(1)
    parquet.write_table(other, world / "trajectories.parquet.new")
    os.replace(world / "trajectories.parquet", world / "kept")
    os.replace(world / "trajectories.parquet.new", world / "trajectories.parquet")
    try:
        run = launch(world, "first")
        assert run.wait(100) == 2 and "this run trains on other trajectories (10 with digest" in run.output
    finally:
        os.replace(world / "kept", world / "trajectories.parquet")


@pytest.mark.slow
def test_a_validation_may_play_tasks_and_then_decides_which_step_is_best(world):
    played = ["trainer.validate_every=2", "tasks.eval_count=1", "trainer.eval_samples=1", "trainer.eval_turns=2"]
    played += ["engine.max_answer_tokens=8", "judge.workers=1", "judge.device=simulated", "sft.max_steps=2"]
    output = succeed(launch(world, "played", *played))
    last = metrics(world / "played")[-1]
    assert {"validation/reward", "validation/first/reward"} < last.keys() and "validation at step 2" in output
    assert json.loads((world / "played" / "best.json").read_text())["measure"] == "reward"
    assert sorted(path.stem for path in (world / "played" / "completions").iterdir()) == [
        "validation_000000",
        "validation_000002",
    ]


@pytest.mark.parametrize(
    ("overrides", "words"),
    [
        ([], r"stage=sft without sft\.data"),
        (["sft.data=x", "sft.loss_on=bset"], r"sft\.loss_on='bset' is none of all, right, until_best, best"),
        (["sft.data=x", "sft.held_out=1"], r"sft\.held_out=1; expected 0 or more and below 1"),
        (["sft.data=x", "sft.epochs=0"], r"sft\.epochs=0; expected more than 0"),
        (["sft.data=x", "sft.batch_size=0"], r"sft\.batch_size=0; expected 1 or more"),
        (["sft.data=x", "sft.optimizer=muon", "policy.lora.rank=8"], r"sft\.optimizer=muon with policy\.lora\.rank=8"),
        (["sft.data=x", "sft.messages=ready"], r"sft\.messages=ready with policy\.prompts=compact"),
    ],
)
def test_settings_that_cannot_train_are_refused(overrides, words):
    with pytest.raises(DrKernelError, match=words):
        config_of(*overrides)


@pytest.mark.parametrize(
    ("overrides", "preset"),
    [
        (["stage=sft", "policy=qwen3_8b", "policy.path=/tiny", "sft.data=x"], "qwen3_8b"),
        (["stage=sft", "sft.data=x"], "seed"),
        (["coldstart=seed_8m"], "seed_8m"),
        (["coldstart=seed_8m", "policy.prompts=compact"], "seed"),
    ],
)
def test_the_command_that_goes_on_can_be_pasted_and_has_the_preset_and_the_prompts(overrides, preset, monkeypatch):
    tree = composed("train", *overrides, hydra=True)
    monkeypatch.setattr(HydraConfig.instance(), "cfg", tree)
    config = train_config(*overrides, run_dir="/runs/sft/policy.path=-tiny,policy=qwen3_8b,seed=1")
    python, program, *words = shlex.split(sft.next_command(config))
    assert (python, program) == ("python", "train.py")
    next_one, plain = composed("train", *words), composed("train", f"policy={preset}")
    assert next_one.policy.path == "/runs/sft/policy.path=-tiny,policy=qwen3_8b,seed=1/policy"
    assert next_one.policy.prompts == config.policy.prompts and next_one.policy.lr == plain.policy.lr
    assert next_one.engine == plain.engine and next_one.trainer == plain.trainer and next_one.tasks == plain.tasks


def test_a_chat_model_of_ones_own_goes_on_at_the_papers_learning_rate_and_the_lengths_typed(monkeypatch):
    lengths = ["engine.max_tokens=4096", "engine.max_answer_tokens=1024", "judge.feedback_tokens=300"]
    overrides = ["stage=sft", "policy.path=/tiny", "policy.prompts=chat", "sft.data=x", *lengths]
    monkeypatch.setattr(HydraConfig.instance(), "cfg", composed("train", *overrides, hydra=True))
    words = shlex.split(sft.next_command(train_config(*overrides, run_dir="/runs/sft")))[2:]
    assert words == ["policy.path=/runs/sft/policy", "policy.prompts=chat", "policy.lr=1e-06", *lengths]
    next_one = composed("train", *words)
    assert next_one.policy.lr == 1e-6 and next_one.engine.max_tokens == 4096


def test_a_step_that_waits_for_a_validation_which_is_off_now_is_over():
    state = SimpleNamespace(pending={"loss": 1.0}, step=2)
    trainer = SimpleNamespace(state=state, config=config_of("sft.data=x"))
    assert sft.validate(trainer, [], {"loss": 1.0}) == {"loss": 1.0} and trainer.state.pending == {}


def test_a_stage_that_plays_nothing_needs_neither_judge_nor_engine():
    alone, plays = config_of("sft.data=x"), config_of("sft.data=x", "trainer.validate_every=5")
    assert not alone.generates and plays.generates
    shape = plan.QWEN3["Qwen/Qwen3-8B"]
    config = config_of("sft.data=x", "policy=qwen3_8b", "sft.max_length=16384", "trainer.micro_batch_tokens=16384")
    parts = plan.memory(config, shape, ranks=8)
    assert {"engine weights", "key-value cache"}.isdisjoint(parts) and parts["judge"] == (0, 0)
    longer = dataclasses.replace(config, sft=dataclasses.replace(config.sft, max_length=32768))
    name = "activations at the longest row"
    assert plan.memory(longer, shape, ranks=8)[name][1] > 1.5 * parts[name][1]
