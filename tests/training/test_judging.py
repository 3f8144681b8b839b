"""Where the judge measures, who owns it, and how it shares a GPU with an engine."""

import dataclasses
import os

import pytest

from drkernel.config import Config, EndpointConfig, EvaluateConfig, JudgeConfig
from drkernel.config.judge import judge_options
from drkernel.policy.engine import BaseEngine
from drkernel.training import judging
from drkernel.training.judging import GpuSharingEngine, described, placed, reserved_gpus, workers
from drkernel.types import DrKernelError


@pytest.fixture
def gpus(monkeypatch):
    """A machine that shows so many GPUs."""
    return lambda number: monkeypatch.setenv("CUDA_VISIBLE_DEVICES", ",".join(map(str, range(number))))


def reserved(**judge):
    return reserved_gpus(Config(judge=JudgeConfig(**judge)))


def test_the_judge_keeps_the_last_of_several_gpus(gpus):
    gpus(8)
    assert reserved() == ["7"] and reserved(device="cuda", gpus=["5", "6"]) == ["5", "6"]


def test_a_judge_on_gpus_takes_the_last_where_a_policy_needs_others(gpus):
    gpus(8)
    assert reserved(device="cuda") == ["7"]
    elsewhere = EvaluateConfig(judge=JudgeConfig(device="cuda"), endpoint=EndpointConfig(url="http://localhost"))
    assert placed(elsewhere) == ("cuda", [str(number) for number in range(8)]) and reserved_gpus(elsewhere) == []


def test_processes_that_compile_keep_the_gpus_busy_as_far_as_there_are_cores(gpus, monkeypatch):
    of = lambda **judge: workers(Config(judge=JudgeConfig(**judge)))
    gpus(8)
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: range(128))
    assert of(device="cuda") == 10 and of(device="cuda", share=True) == 80 and of(workers=3) == 3
    assert of(device="simulated") == 2
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: range(16))
    assert of(device="cuda", share=True) == 12


def test_a_training_leaves_one_gpu_alone_and_a_study_that_generates_nothing_uses_all(gpus):
    gpus(1)
    training, generating = Config(), EvaluateConfig()
    saved = EvaluateConfig(solutions="folder")
    assert [judge_options(each)["device"] for each in (training, generating, saved)] == [
        "simulated",
        "simulated",
        "cuda",
    ]
    assert placed(saved) == ("cuda", ["0"]) and placed(training) == placed(generating) == ("simulated", None)
    gpus(3)
    assert [judge_options(each)["gpus"] for each in (training, generating, saved)] == [["2"], ["2"], ["0", "1", "2"]]


def test_a_run_says_what_measures(gpus):
    said = lambda **judge: described(Config(judge=JudgeConfig(**judge)))
    gpus(1)
    assert said().startswith("judge: simulates an H200 though a GPU is visible, since it trains; judge.share=true")
    assert said(device="simulated") == "judge: simulates an H200; 2 processes"
    gpus(0)
    assert said() == "judge: simulates an H200; 2 processes"
    gpus(8)
    assert said(workers=4) == "judge: measures on GPU 7; 4 processes compile"
    assert said(share=True, gpus=["0", "1"], workers=4).startswith("judge: measures on GPU 0, 1, which train, too")


def test_a_judge_that_shares_or_simulates_keeps_none(gpus):
    gpus(1)
    assert reserved() == [] and reserved(share=True) == [] and reserved(device="simulated") == []
    gpus(8)
    assert reserved(share=True) == [] and reserved(device="cuda", share=True) == []


def test_a_judge_that_would_leave_no_gpu_to_train_on_is_refused_with_the_remedy(gpus):
    gpus(1)
    with pytest.raises(DrKernelError, match=r"judge\.gpus: found 0, which leaves no GPU.*judge\.share=true"):
        reserved(device="cuda")


def test_an_engine_that_shares_its_gpu_computes_only_while_it_holds_the_lock(monkeypatch):
    seen = []

    class Lock:
        def acquire(self, exclusive):
            seen.append(("acquire", exclusive))

        def release(self):
            seen.append("release")

    class Engine(BaseEngine):
        context = 7

        def step(self):
            seen.append("step")
            return ["completion"]

    properties = dataclasses.make_dataclass("Properties", ["uuid"])("GPU-1")
    monkeypatch.setattr(judging.torch.cuda, "get_device_properties", lambda device: properties)
    monkeypatch.setattr(judging.torch.cuda, "synchronize", lambda: seen.append("synchronize"))
    monkeypatch.setattr(judging, "gpu_lock", lambda uuid: Lock())
    engine = GpuSharingEngine(Engine(), "cuda")
    assert engine.step() == ["completion"] and engine.context == 7
    assert seen == [("acquire", False), "step", "synchronize", "release"]
    assert engine.paused_s > 0 and engine.play(str, (1, 2)) == "(1, 2)"
