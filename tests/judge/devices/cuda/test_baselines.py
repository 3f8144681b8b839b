"""What else speed-ups are stated over: kept per task, machine and day's speed, and refused where they do not hold."""

from __future__ import annotations

import dataclasses
import json
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch

import drkernel
from drkernel.judge import Judge
from drkernel.judge.devices.cuda import baselines
from drkernel.judge.devices.cuda.baselines import (
    Machine,
    Row,
    Store,
    add_speedups,
    drifted,
    speedup_over,
)
from drkernel.judge.devices.cuda.interleaving import median_interval
from drkernel.types import DrKernelError, Task

TASK = Task("file/relu", "source of a task")
HERE = Machine("NVIDIA H200", "one", "570.1", "2.11.0", "3.6.0", "12.8")
PROBE = {"copy_us": 120.0, "matmul_us": 200.0}
ROW = Row(
    task=TASK.id,
    digest=TASK.digest,
    **dataclasses.asdict(HERE),
    date="2026-01-01T00:00:00+00:00",
    probe=PROBE,
    train=False,
    eager_us=100.0,
    eager_tf32_us=50.0,
    compile_us=80.0,
    compile_error=None,
    intervals={"eager": [99.5, 100.5], "eager_tf32": [49.0, 51.0], "compile": [79.0, 81.0]},
)
OLDER = dataclasses.replace(ROW, eager_us=90.0)


def _written(path, *rows) -> Store:
    path.write_text("".join(json.dumps(dataclasses.asdict(row)) + "\n" for row in rows))
    return Store(path)


@pytest.fixture
def path(tmp_path):
    return tmp_path / "store.jsonl"


def test_a_row_that_was_added_is_found_now_and_after_loading_again(path):
    store = _written(path)
    assert store.find(TASK, HERE, PROBE) is None
    store.add(ROW)
    failed = dataclasses.replace(ROW, digest="another", compile_us=None, compile_error="task: RuntimeError: no")
    store.add(failed)
    assert store.find(TASK, HERE, PROBE) == ROW == Store(path).find(TASK, HERE, PROBE)
    assert path.read_text().splitlines()[1] == json.dumps(dataclasses.asdict(failed))


def test_the_later_of_two_rows_wins(path):
    assert _written(path, OLDER, ROW).find(TASK, HERE, PROBE) == ROW
    store = _written(path, ROW)
    store.add(OLDER)
    assert store.find(TASK, HERE, PROBE) == OLDER == Store(path).find(TASK, HERE, PROBE)


@pytest.mark.parametrize("name", ["copy_us", "matmul_us"])
@pytest.mark.parametrize(("factor", "holds"), [(1.019, True), (0.981, True), (1.03, False), (0.97, False)])
def test_a_row_holds_only_while_the_gpu_is_as_fast_as_then(path, name, factor, holds):
    now = PROBE | {name: factor * PROBE[name]}
    assert drifted(PROBE, now) is not holds
    assert (_written(path, ROW).find(TASK, HERE, now) is not None) is holds


def test_a_later_row_from_another_days_speed_does_not_hide_one_that_holds(path):
    slow = dataclasses.replace(OLDER, probe={"copy_us": 140.0, "matmul_us": 240.0})
    assert _written(path, ROW, slow).find(TASK, HERE, PROBE) == ROW


@pytest.mark.parametrize("key", ["gpu", "driver", "torch", "triton", "cuda"])
def test_a_row_from_another_machine_does_not_hold(path, key):
    assert _written(path, ROW).find(TASK, dataclasses.replace(HERE, **{key: "another"}), PROBE) is None


def test_a_row_holds_on_another_gpu_of_the_same_kind_and_for_no_other_task(path):
    store = _written(path, ROW)
    assert store.find(TASK, dataclasses.replace(HERE, uuid="two"), PROBE) == ROW
    assert store.find(dataclasses.replace(TASK, precision="tf32"), HERE, PROBE) is None


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ("{", ["line 2", "not JSON"]),
        ("[]", ["line 2", "list"]),
        ({"eager_us": None}, ["line 2", "'eager_us'", "None", "positive number"]),
        ({"eager_us": True}, ["'eager_us'", "positive number"]),
        ({"eager_tf32_us": -1.0}, ["'eager_tf32_us'", "-1.0"]),
        ({"compile_us": float("nan")}, ["'compile_us'", "nan"]),
        ({"compile_us": None}, ["'compile_us'", "'compile_error'"]),
        ({"compile_error": "both"}, ["'compile_us'", "'compile_error'"]),
        ({"driver": 570}, ["'driver'", "570", "text"]),
        ({"train": 0}, ["'train'", "true or false"]),
        ({"probe": {"copy_us": 1.0}}, ["'probe'", "matmul_us"]),
        ({"intervals": {"eager": [2.0, 1.0]}}, ["'intervals'", "[low, high]"]),
        ({"speed": 1}, ["unknown key 'speed'"]),
    ],
)
def test_a_broken_line_is_named_with_its_key_and_what_was_expected(path, changes, words):
    line = changes if isinstance(changes, str) else json.dumps(dataclasses.asdict(ROW) | changes)
    path.write_text(json.dumps(dataclasses.asdict(ROW)) + "\n" + line + "\n")
    with pytest.raises(DrKernelError) as error:
        Store(path)
    assert all(word in str(error.value) for word in [str(path), *words]), error.value


@pytest.mark.parametrize("key", [f.name for f in dataclasses.fields(Row)])
def test_every_key_of_a_row_must_be_there(path, key):
    path.write_text(json.dumps({k: v for k, v in dataclasses.asdict(ROW).items() if k != key}))
    with pytest.raises(DrKernelError, match=f"line 1: key '{key}' is missing"):
        Store(path)


def test_speedups_over_the_other_baselines_scale_with_their_times():
    assert speedup_over(ROW, 2.0) == {"eager_tf32": 1.0, "compile": 1.6}
    failed = dataclasses.replace(ROW, compile_us=None, compile_error="no")
    assert speedup_over(failed, 2.0) == {"eager_tf32": 1.0}
    assert speedup_over(ROW, 2.0, "tf32") == {"eager_tf32": 2.0, "compile": 3.2}, "the judge's own has TF32 then"


def _answer(**changes) -> dict:
    verdict = {"speedup": 2.0, "evidence": {"training": False}}
    return {"verdict": verdict, "machine": {**dataclasses.asdict(HERE), "probe": PROBE}} | changes


def test_a_verdict_with_times_states_them_where_the_store_has_the_like(path):
    store, answer = _written(path, ROW), _answer()
    add_speedups(store, TASK, answer)
    assert answer["verdict"]["evidence"]["speedup_over"] == {"eager_tf32": 1.0, "compile": 1.6}


def test_baselines_are_of_the_published_shape_whatever_a_verdict_states_of_several(path):
    shapes = [{"speedup": 2.0, "published": True}, {"speedup": 0.5}]
    verdict = {"speedup": 1.0, "evidence": {"training": False, "timed_shapes": {"shapes": shapes}}}
    store, answer = _written(path, ROW), _answer(verdict=verdict)
    add_speedups(store, TASK, answer)
    assert answer["verdict"]["evidence"]["speedup_over"] == {"eager_tf32": 1.0, "compile": 1.6}


@pytest.mark.parametrize(
    "changes",
    [
        {"verdict": {"speedup": None, "evidence": {"training": False}}},
        {"verdict": {"status": "invalid", "evidence": {}}},
        {"verdict": {"speedup": 2.0, "evidence": {"training": True}}},
        {"machine": {**dataclasses.asdict(HERE), "probe": PROBE | {"copy_us": 130.0}}},
        {"machine": None},
    ],
    ids=["not timed", "never examined", "in the other mode", "on a GPU that has drifted", "without a machine"],
)
def test_a_verdict_that_cannot_be_compared_stays_as_it_is(path, changes):
    answer = _answer(**changes)
    add_speedups(_written(path, ROW), TASK, answer)
    assert "speedup_over" not in answer["verdict"]["evidence"]


def test_the_interval_of_a_median_narrows_with_more_calls():
    low, high = median_interval([float(us) for us in range(101)])
    assert (low, high) == (40.0, 60.0)
    assert median_interval([1.0, 2.0]) == (1.0, 2.0) and median_interval([3.0]) == (3.0, 3.0)


def test_the_simulated_device_has_no_baselines(path):
    _written(path, ROW)
    with pytest.raises(DrKernelError, match=r"baselines .* needs device 'cuda', found 'simulated'"):
        Judge(device="simulated", baselines=str(path))


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ([], "STORE.jsonl"),
        (["store.jsonl"], "give task files or --source"),
        (["store.jsonl", "task.py", "--source", "generated"], "give task files or --source"),
        (["store.jsonl", "nowhere.py"], "nowhere.py"),
        (["store.jsonl", "--source", "generated"], "a count is needed"),
    ],
)
def test_a_wrong_command_is_one_line_and_exit_code_2(arguments, words, capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert baselines.main(arguments) == 2
    out, message = capsys.readouterr()
    assert not out and message.startswith("error: ") and words in message and message.count("\n") == 1
    assert not list(tmp_path.iterdir())


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_without_a_gpu_the_command_says_so_and_leaves_no_file(capsys, path):
    assert baselines.main([str(path), "--source", "generated", "--count", "1"]) == 2
    assert "needs a GPU" in capsys.readouterr().err and not path.exists()


MATMUL = """
import torch

N = 2048

class Model(torch.nn.Module):
    def forward(self, x, y):
        return torch.relu(x @ y) + 1

def get_inputs():
    return [torch.randn(N, N), torch.randn(N, N)]

def get_init_inputs():
    return []
"""
UNCOMPILABLE = f"""
import torch._inductor.compile_fx

def broken(*_, **__):
    raise RuntimeError("no compiler today")

torch._inductor.compile_fx.compile_fx = broken
{MATMUL}
"""


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
class TestOnTheGpu:
    """The command runs in a process of its own, because it changes defaults of the whole process."""

    @pytest.fixture(scope="class")
    def folder(self, tmp_path_factory):
        folder = tmp_path_factory.mktemp("baselines")
        (folder / "matmul.py").write_text(MATMUL)
        (folder / "uncompilable.py").write_text(UNCOMPILABLE)
        self._run(folder)
        return folder

    @staticmethod
    def _run(folder, *options) -> subprocess.CompletedProcess:
        command = [
            sys.executable,
            "-m",
            "drkernel.judge.devices.cuda.baselines",
            "store.jsonl",
            "matmul.py",
            "uncompilable.py",
        ]
        paths = [str(Path(drkernel.__file__).parents[1]), os.environ.get("PYTHONPATH", "")]
        env = os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, paths)), "TRITON_INTERPRET": "0"}
        done = subprocess.run([*command, *options], cwd=folder, env=env, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        return done

    @staticmethod
    def _rows(folder) -> list[dict]:
        return [json.loads(line) for line in (folder / "store.jsonl").read_text().splitlines()]

    def test_tf32_makes_a_product_faster_and_intervals_are_narrow(self, folder):
        row = self._rows(folder)[0]
        assert 1.5 < row["eager_us"] / row["eager_tf32_us"] < 20
        assert 0.5 < row["compile_us"] / row["eager_us"] < 1.1
        for name, (low, high) in row["intervals"].items():
            assert low <= row[f"{name}_us"] <= high < 1.05 * low

    def test_a_compile_error_is_kept_as_text(self, folder):
        row = self._rows(folder)[1]
        assert row["compile_us"] is None and "no compiler today" in row["compile_error"] and row["eager_us"] > 0

    def test_tasks_that_have_a_row_are_measured_again_only_by_force(self, folder):
        before = len(self._rows(folder))
        self._run(folder, "--force")
        assert len(self._rows(folder)) == before + 2
        kept = self._run(folder).stderr  # what drifts in between may be measured again, but then it is said
        measured = len(self._rows(folder)) - before - 2
        assert f"{2 - measured} of 2 tasks have a valid row" in kept

    def test_the_probe_repeats_within_its_bound_of_drift(self):
        first = baselines.probe()
        time.sleep(1)
        assert not drifted(first, baselines.probe())
