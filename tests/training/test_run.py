"""A run folder reproduces its run, and holds every step exactly once."""

import dataclasses
import json

import pytest

from drkernel.config import AlgoConfig, Config, LoggerConfig, TrainerConfig
from drkernel.training.run import Run
from drkernel.types import DrKernelError


def config_for(folder, **changes):
    return dataclasses.replace(Config(run_dir=str(folder), logger=LoggerConfig(wandb="disabled")), **changes)


def test_the_folder_says_what_was_run(tmp_path):
    Run(config_for(tmp_path)).close()
    assert "advantage: trloo" in (tmp_path / "config.yaml").read_text()
    assert "torch==" in (tmp_path / "environment.txt").read_text()
    start = json.loads((tmp_path / "starts.jsonl").read_text())
    assert start["commit"] and start["command"]


def test_metrics_after_a_checkpoint_are_cut_off_when_the_run_resumes_there(tmp_path):
    run = Run(config_for(tmp_path))
    run.log(1, {"reward": 0.5})
    offset = run.metrics_offset
    run.log(2, {"reward": 0.6})
    run.close()
    again = Run(config_for(tmp_path))
    again.rewind(offset)
    again.log(2, {"reward": 0.7})
    assert again.metrics() == [{"step": 1, "reward": 0.5}, {"step": 2, "reward": 0.7}]
    again.close()


def test_another_configuration_may_not_continue_the_run(tmp_path):
    Run(config_for(tmp_path)).close()
    with pytest.raises(DrKernelError, match=r"made with algo\.gamma=1\.0, now it is 0\.0"):
        Run(config_for(tmp_path, algo=AlgoConfig(gamma=0.0)))


def test_a_run_may_be_made_longer(tmp_path):
    Run(config_for(tmp_path, trainer=TrainerConfig(steps=5))).close()
    Run(config_for(tmp_path, trainer=TrainerConfig(steps=9))).close()
    assert "steps: 9" in (tmp_path / "config.yaml").read_text()


def test_offline_wandb_keeps_its_files_in_the_run_folder_and_resumes_its_id(tmp_path):
    identity = None
    for step in (1, 2):
        run = Run(config_for(tmp_path, logger=LoggerConfig(wandb="offline")))
        identity = run.start_wandb(identity)
        run.log(step, {"reward": 1.0})
        run.close()
    assert any((tmp_path / "wandb").rglob(f"run-{identity}.wandb"))
