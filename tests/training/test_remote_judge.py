"""Runs and studies whose judge is a server (judge=remote): the same results, and the same care for the device."""

from __future__ import annotations

import json
import os
from dataclasses import replace
from pathlib import Path

import pytest

import evaluate
from drkernel.judge import Judge
from drkernel.judge.network.server import HttpServer
from drkernel.judge.options import JudgeOptions
from drkernel.scaling import records, setup
from drkernel.training.judging import described, measured_on, placed, reserved_gpus, workers
from drkernel.training.metric_names import repeats
from drkernel.training.ranks import Ranks
from drkernel.types import DrKernelError
from tests import commands
from tests.configs import evaluate_config, train_config

pytestmark = pytest.mark.xdist_group("remote judge")

ROOT = Path(__file__).parents[2]
TOKEN = "0123456789abcdef"
TINY = [
    *(
        "trainer.steps=1",
        "trainer.prompts=2",
        "trainer.samples=2",
        "trainer.turns=2",
        "engine.slots=8",
        "tasks.count=8",
    ),
    *("trainer.threads=1", "tasks.families=[elementwise]", "tasks.eval_count=1", "trainer.eval_samples=1"),
    *("trainer.eval_turns=1", "logger=none", "logger.plots=false", "filters=none", "judge.feedback_tokens=64"),
]


@pytest.fixture(scope="module")
def remote(tmp_path_factory):
    """The overrides by which a run asks a server whose judge has the secret of a run with seed 0."""
    token = tmp_path_factory.mktemp("token") / "token"
    token.write_text(f"{TOKEN}\n")
    options = {"device": "simulated", "workers": 1, "secret": b"drkernel run 0"}
    with Judge(**options) as judge, HttpServer(judge, "127.0.0.1", 0, TOKEN) as server:
        yield ["judge=remote", f"judge.servers=[{server.url}]", f"judge.token_file={token}"]


def trained(folder: Path, *overrides: str) -> dict[str, float]:
    """The metrics of a step, but for what it took."""
    run = commands.run(["train.py", f"hydra.run.dir={folder}", *TINY, *overrides], ROOT, os.environ, timeout=300)
    assert run.returncode == 0, run.output
    (line,) = (json.loads(text) for text in (folder / "metrics.jsonl").read_text().splitlines())
    return {key: value for key, value in line.items() if repeats(key)}


@pytest.mark.slow
def test_a_run_learns_the_same_from_a_server_and_from_a_judge_of_its_own(remote, tmp_path):
    own = trained(tmp_path / "own", "judge.workers=1")
    assert trained(tmp_path / "remote", *remote) == own and own["reward"] > 0
    (start,) = (json.loads(line) for line in (tmp_path / "remote" / "starts.jsonl").read_text().splitlines())
    assert start["judge"] == "simulated:H200" and TOKEN not in (tmp_path / "remote" / "config.yaml").read_text()
    both = trained(tmp_path / "two", *remote, "trainer.gpus=2")
    assert both["reward"] == pytest.approx(own["reward"]) and both["tokens"] == own["tokens"]


@pytest.mark.slow
def test_a_study_says_the_same_of_a_server_and_of_a_judge_of_its_own(remote, tmp_path):
    def played(name: str, *overrides: str) -> dict:
        few = ["report=false", "tasks.eval_count=2", "scaling.budget=1", "engine.slots=8", "trainer.threads=1"]
        config = evaluate_config(*few, "judge.degenerate=refuse", *overrides, run_dir=tmp_path / name)
        evaluate.evaluate(config, Ranks())
        found = records.read(tmp_path / name / records.RESULTS)
        timeless = {"generate_s": 0, "judge_s": 0, "started": 0}
        return {each.key: replace(each, **timeless, verdict=replace(each.verdict, seconds=0)) for each in found}

    assert played("remote", *remote) == played("own", "judge.workers=1") != {}


class Described:
    """A judge that is asked nothing but what it is."""

    def __init__(self, **options):
        self.options = JudgeOptions(**{"device": "simulated", "workers": 3, **options}).placed()


@pytest.fixture
def serving():
    """The address of a server of a judge with these options."""
    servers = []

    def serve(**options) -> str:
        servers.append(HttpServer(Described(**options), "127.0.0.1", 0))
        return servers[-1].url

    yield serve
    for server in servers:
        server.close()


def test_servers_leave_this_machine_to_the_run(serving, monkeypatch):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0,1")
    url = serving(gpu="A100")
    config = train_config("judge=remote", f"judge.servers=[{url}]")
    assert reserved_gpus(config) == [] and workers(config) == 0 and placed(config) == ("remote", None)
    assert measured_on(config) == "simulated:A100" and described(config) == f"judge: {url}, on simulated:A100"


@pytest.mark.slow
def test_a_run_goes_on_with_servers_of_the_same_device_alone(serving, tmp_path):
    (tmp_path / "starts.jsonl").write_text(json.dumps({"judge": "simulated:H200"}) + "\n")
    overrides = [*TINY, "judge=remote", f"judge.servers=[{serving(gpu='A100')}]"]
    run = commands.run(["train.py", f"hydra.run.dir={tmp_path}", *overrides], ROOT, os.environ)
    assert run.returncode == 2
    assert "this run was measured on simulated:H200, now it would be on simulated:A100" in run.output


def test_a_study_names_the_device_of_the_servers(serving):
    config = evaluate_config("judge=remote", f"judge.servers=[{serving(degenerate='mark', gpu='A100')}]", "solutions=x")
    assert setup.identity(config) == {"device": "simulated:A100"}


@pytest.mark.parametrize(
    ("load", "override", "options"),
    [
        (train_config, "judge.timed_shapes=3", {"timed_shapes": 3}),
        (train_config, "judge.criterion=both", {"criterion": "both"}),
        (train_config, "reward.hack_check=false", {"price_hacks": True}),
        (evaluate_config, "judge.lazy_below=1.2", {"lazy_below": 1.2, "degenerate": "mark"}),
    ],
)
def test_the_servers_must_judge_as_the_run_says(serving, load, override, options):
    asks = lambda url: load("judge=remote", f"judge.servers=[{url}]", override)
    assert measured_on(asks(serving(**options))) == "simulated:H200"
    ((key, value), *_) = options.items()
    with pytest.raises(DrKernelError, match=rf"they judge with {key}=.*; this run expects {key}={value}"):
        measured_on(asks(serving(**{name: option for name, option in options.items() if name != key})))


@pytest.mark.parametrize(
    ("overrides", "words"),
    [
        (["judge.servers=[]"], "judge.servers=[]; expected addresses"),
        (["judge.servers=[node1]"], "judge.servers: found 'node1', expected http://HOST:PORT"),
        (["judge=remote", "judge.share=true"], "judge.share=true with judge.servers"),
    ],
)
def test_what_no_server_can_be_is_refused_when_the_configuration_is_read(overrides, words):
    with pytest.raises(DrKernelError) as refused:
        train_config(*overrides)
    assert words in str(refused.value)
