"""`stage=coldstart`: a policy from nothing that reads any of the prompts, and goes on with reinforcement learning."""

import json
import os

import pytest

from drkernel.coldstart import stage
from drkernel.coldstart.dataset import Options, unjudged_records, write
from drkernel.config import REPOSITORY
from drkernel.policy.model import load_tokenizer
from drkernel.policy.prompts import PROMPTS
from drkernel.policy.tokenizer import MADE_FOR
from drkernel.tasks import generate
from tests import commands
from tests.configs import train_config

SET = Options(1, 0, "train", 0, "graphs", ("float32",), 1, 1, 1, 0, 0.75, plain=True)
TINY = ["coldstart.hidden=64", "coldstart.layers=1", "coldstart.kv_heads=1", "coldstart.vocabulary=400"]
TINY += ["logger=none", "sft.batch_tokens=4096", "trainer.threads=1", "trainer.compile=false", "judge.device=simulated"]
REINFORCED = ["tasks.generator=graphs", "tasks.count=8", "tasks.eval_count=2", "trainer.eval_samples=1"]
REINFORCED += [
    "trainer.turns=1",
    "trainer.steps=1",
    "trainer.prompts=2",
    "trainer.samples=2",
    "engine.max_answer_tokens=16",
    "filters=none",
    "algo.entropy_coef=0.1",  # no answer is right, so nothing else has a gradient
    "trainer.threads=1",
    "judge.workers=1",
    "logger=none",
    "logger.plots=false",
]


@pytest.mark.slow
@pytest.mark.parametrize("prompts", PROMPTS)
def test_a_policy_from_nothing_learns_and_goes_on(prompts, tmp_path):
    write(tmp_path / "set.parquet", unjudged_records(generate("train", 12, 7, generator="graphs"), SET))
    chosen = [f"policy.prompts={prompts}", "engine.max_tokens=8192", "coldstart.positions=8192"]
    made = ["coldstart=seed_8m", f"sft.data={tmp_path / 'set.parquet'}", "sft.epochs=6", "sft.max_steps=6", *TINY]
    run(tmp_path / "made", *made, *(word for word in chosen if not word.startswith("engine")))
    lines = map(json.loads, (tmp_path / "made" / "metrics.jsonl").read_text().splitlines())
    losses = [line["loss"] for line in lines if "loss" in line]
    assert losses[-1] < losses[0] - 0.3
    made_policy = tmp_path / "made" / "policy"
    assert load_tokenizer(made_policy).init_kwargs[MADE_FOR] == prompts
    policy = f"policy.path={made_policy}"
    run(tmp_path / "reinforced", policy, *REINFORCED, *(word for word in chosen if not word.startswith("cold")))
    assert (tmp_path / "reinforced" / "policy" / "config.json").exists()
    assert '"skipped": 0' in (tmp_path / "reinforced" / "metrics.jsonl").read_text()


def run(folder, *overrides: str) -> None:
    started = commands.Command(["train.py", f"hydra.run.dir={folder}", *overrides], REPOSITORY, os.environ)
    assert started.wait(300) == 0, started.output


def test_a_cold_start_says_where_it_is_kept_before_the_set_is_made(tmp_path, monkeypatch, capsys):
    """The set takes minutes."""
    told: list[str] = []

    def make(path, *_):
        told.append(capsys.readouterr().out)
        raise KeyboardInterrupt

    monkeypatch.setattr(stage, "make", make)
    with pytest.raises(KeyboardInterrupt):
        stage.prepare(train_config("coldstart=seed_8m", run_dir=tmp_path))
    assert f"run folder: {tmp_path}" in told[0] and "900 tasks with judged answers" in told[0]
