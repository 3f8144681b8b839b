"""What a judge may be made with, and what it decides by the machine."""

from __future__ import annotations

import dataclasses
import os

import pytest

from drkernel.judge import __main__ as cli
from drkernel.judge.options import JudgeOptions, choose_device
from drkernel.types import DrKernelError


@pytest.fixture
def machine(monkeypatch):
    """A machine that shows so many GPUs, and has so many cores."""

    def show(gpus: int, cores: int = 16) -> None:
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", ",".join(map(str, range(gpus))))
        monkeypatch.setattr(os, "sched_getaffinity", lambda _: range(cores))

    return show


@pytest.mark.parametrize(
    ("option", "message"),
    [
        ({"gpu": "B300"}, r"judge: gpu is 'B300', expected one of .*H200"),
        ({"device": "tpu"}, r"judge: device is 'tpu', expected one of auto, simulated, cuda"),
        ({"criterion": "mine"}, r"judge: criterion is 'mine', expected one of drkernel"),
        ({"workers": 0}, r"judge: workers is 0, expected more than 0"),
        ({"timeout_s": 0.0}, r"judge: timeout_s is 0\.0, expected more than 0"),
        ({"memory_gib": -1.0}, r"judge: memory_gib is -1\.0, expected more than 0"),
        ({"timed_shapes": 5}, r"judge: timed_shapes is 5, expected 1 to 4"),
        ({"device": "simulated", "share": True}, r"judge: share \(True\) needs device 'cuda', found 'simulated'"),
        ({"screen": True, "criterion": "both"}, r"judge: screen needs criterion 'drkernel', found 'both'"),
    ],
)
def test_each_option_is_checked_where_options_are_made(option, message):
    with pytest.raises(DrKernelError, match=message):
        JudgeOptions(**option)


@pytest.mark.parametrize(("gpus", "alone"), [(0, None), (1, ["0"]), (3, ["0", "1", "2"])])
def test_auto_measures_on_every_gpu_that_nothing_else_computes_on(machine, gpus, alone):
    machine(gpus)
    beside = ["2"] if gpus == 3 else None
    for free, options in ((alone, {}), (beside, {"beside": True}), (alone, {"beside": True, "share": True})):
        expected = ("cuda", free) if free else ("simulated", None)
        assert choose_device("auto", None, options.pop("share", False), **options) == expected


def test_auto_without_a_gpu_is_no_place_for_what_only_gpus_have(machine):
    machine(0)
    with pytest.raises(DrKernelError, match=r"judge: share \(True\) needs device 'cuda', found 'simulated'"):
        JudgeOptions(share=True).placed()


@pytest.mark.parametrize(
    ("gpus", "beside", "workers"), [(0, False, 16), (0, True, 2), (1, False, 10), (1, True, 2), (2, True, 10)]
)
def test_workers_are_as_many_as_the_machine_allows(machine, gpus, beside, workers):
    machine(gpus)
    assert JudgeOptions().placed(beside).workers == workers
    assert JudgeOptions(workers=3).placed(beside).workers == 3


def test_the_timeout_goes_by_the_device_that_was_chosen(machine):
    machine(1)
    assert JudgeOptions().placed().timeout_s == 8 and JudgeOptions().placed(beside=True).timeout_s == 20


def test_the_command_has_every_option_that_somebody_outside_a_training_and_a_test_may_want():
    other_names = {"timeout_s": "timeout", "secret": "secret_file"}
    known = vars(cli._parse(["--serve", "127.0.0.1:0"]))
    missing = {f.name for f in dataclasses.fields(JudgeOptions) if other_names.get(f.name, f.name) not in known}
    assert missing == {"share", "cache", "gate"}


def test_the_command_changes_no_default(monkeypatch):
    given = {}
    monkeypatch.setattr(cli, "Judge", lambda **options: given.update(options))
    cli._judge(cli._parse(["--serve", "127.0.0.1:0"]), None)
    assert JudgeOptions(**given) == JudgeOptions()
