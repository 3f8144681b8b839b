"""Ranks find each other, tell each other, start together and end together."""

import contextlib
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch
import torch.distributed as dist

from drkernel.training import ranks as module
from drkernel.training.ranks import RankInfo, Ranks, init_distributed, launch, rank_info
from drkernel.types import DrKernelError
from tests.training import gloo

pytestmark = pytest.mark.xdist_group("ranks")  # one worker starts the ranks, once


class Unpicklable(Exception):
    def __init__(self, one, two):
        super().__init__(f"{one} {two}")


def caught(call):
    try:
        return call()
    except Exception as error:
        return f"{type(error).__name__}: {error}"


def work(ranks: Ranks, folder) -> dict:
    def fail(error):
        raise error

    last = ranks.rank == ranks.size - 1
    return {
        "ranks": ranks,
        "again": init_distributed(),
        "gather": ranks.all_gather_list([f"{ranks.rank}/{i}" for i in range(ranks.rank + 1)]),
        "each": ranks.all_gather_object(lambda: torch.tensor(ranks.rank)),
        "share": ranks.broadcast_object(lambda: {"from": ranks.rank}),
        "sum": ranks.all_reduce_sum(torch.tensor([1.0, ranks.rank])).tolist(),
        "any": [ranks.all_reduce_any(False), ranks.all_reduce_any(last), ranks.all_reduce_any(True)],
        "share fails": caught(
            lambda: ranks.broadcast_object(lambda: fail(DrKernelError(f"no such file on {ranks.rank}")))
        ),
        "share fails oddly": caught(lambda: ranks.broadcast_object(lambda: fail(Unpicklable("so", "odd")))),
        "share cannot be sent": caught(lambda: ranks.broadcast_object(lambda: lambda: 0)) if ranks.size > 1 else None,
        "each fails": caught(lambda: ranks.all_gather_object(lambda: last and fail(ValueError("the last one")))),
        "works on": ranks.all_gather_list([ranks.rank]),
        "close": ranks.close() or dist.is_initialized(),
    }


@pytest.fixture(scope="module")
def found(tmp_path_factory):
    return gloo.results("tests.training.test_ranks", tmp_path_factory.mktemp("ranks"))


@pytest.mark.slow
@pytest.mark.parametrize("size", [1, 2, 4])
def test_everybody_knows_what_everybody_said(found, size):
    for rank, result in enumerate(found[size]):
        assert result["ranks"] == result["again"] == Ranks(rank, size, rank, size)
        assert result["ranks"].is_main == (rank == 0)
        assert result["gather"] == [f"{r}/{i}" for r in range(size) for i in range(r + 1)]
        assert result["each"] == [torch.tensor(r) for r in range(size)]
        assert result["share"] == {"from": 0}
        assert result["sum"] == [size, sum(range(size))]
        assert result["any"] == [False, True, True]
        assert result["works on"] == list(range(size)) and result["close"] is False


@pytest.mark.slow
@pytest.mark.parametrize("size", [1, 2, 4])
def test_an_error_of_one_rank_reaches_all_and_all_can_go_on(found, size):
    for rank, result in enumerate(found[size]):
        assert result["share fails"] == "DrKernelError: no such file on 0"
        assert result["each fails"] == "ValueError: the last one"
        kind = "Unpicklable" if rank == 0 else "RuntimeError: Unpicklable"
        assert result["share fails oddly"] == f"{kind}: so odd"
        assert size == 1 or "pickle" in result["share cannot be sent"]


TORCHRUN = {"RANK": "5", "WORLD_SIZE": "16", "LOCAL_RANK": "1", "LOCAL_WORLD_SIZE": "4"}
TORCHRUN |= {"MASTER_ADDR": "gpu03", "MASTER_PORT": "1234"}
SRUN = {"SLURM_PROCID": "9", "SLURM_LOCALID": "1", "SLURM_NODEID": "1", "SLURM_JOB_ID": "15007", "SLURM_STEP_ID": "0"}
SRUN |= {"SLURM_NTASKS": "12", "SLURM_STEP_NUM_TASKS": "12", "SLURM_STEP_TASKS_PER_NODE": "8,4"}
SRUN |= {"SLURM_STEP_NODELIST": "gpu[07-09,12]"}


def test_torchrun_and_srun_are_recognised():
    assert rank_info({}) is None
    assert rank_info(TORCHRUN) == RankInfo(5, 16, 1, 4, "gpu03", 1234)
    assert rank_info(TORCHRUN).environment() == TORCHRUN
    assert rank_info(SRUN) == RankInfo(9, 12, 1, 4, "gpu07", 15007)
    assert rank_info(SRUN | TORCHRUN) == RankInfo(5, 16, 1, 4, "gpu03", 1234)


def test_one_slurm_task_and_a_batch_script_of_many_are_one_process():
    assert rank_info(SRUN | {"SLURM_STEP_NUM_TASKS": "1", "SLURM_NTASKS": "1"}) is None
    batch_script = {k: v for k, v in SRUN.items() if "STEP" not in k}
    assert rank_info(batch_script) is None


def test_ranks_take_the_gpus_that_the_judge_left(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "set_device", lambda device: None)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "4,5,6,7")
    assert module._device(1, 2, ["4"]) == torch.device("cuda", 2)
    assert module._device(0, 1, ["4", "5", "6", "7"]) == torch.device("cuda", 0)  # shared with the judge
    for call in (lambda: module._device(3, 4, ["4"]), lambda: launch(4, ["4"])):
        with pytest.raises(DrKernelError, match="expected at most 3: 4 GPUs are visible, of which the judge keeps 4"):
            call()
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "6")
    assert module._device(3, 4, []) == torch.device("cuda", 0)  # each task sees its own GPU only


def test_nothing_is_launched_for_one_rank_or_by_a_rank(monkeypatch):
    assert launch(1) is None
    monkeypatch.setenv("RANK", "0")
    monkeypatch.setenv("WORLD_SIZE", "2")
    assert launch(2) is None


def test_a_pod_that_says_one_process_is_no_launcher(monkeypatch):
    """Pods have RANK=0 and WORLD_SIZE=1 for whatever runs in them: trainer.gpus=8 means eight ranks."""
    pod = {"RANK": "0", "WORLD_SIZE": "1", "LOCAL_RANK": "0", "MASTER_ADDR": "pod-0"}
    assert rank_info(pod) is None and rank_info(SRUN | pod) == rank_info(SRUN | {"MASTER_ADDR": "pod-0"})
    for name, value in pod.items():
        monkeypatch.setenv(name, value)
    started: list[tuple[int, int]] = []
    monkeypatch.setattr(module, "_start", lambda rank, size, port: started.append((rank, size)))
    monkeypatch.setattr(module, "_wait", lambda ranks, signals: 0)
    assert launch(1) is None and started == []
    assert launch(8) == 0 and started == [(rank, 8) for rank in range(8)]


def test_inside_one_submitit_task_the_remedy_is_named(monkeypatch):
    monkeypatch.setenv("SUBMITIT_EXECUTOR", "slurm")
    with pytest.raises(DrKernelError, match=r"expected hydra\.launcher\.tasks_per_node=8"):
        launch(8)


SCRIPT = """
import os, signal, sys, time
from pathlib import Path
from drkernel.training.ranks import init_distributed, launch
code = launch(2)
if code is not None:
    sys.exit(code)
mode, folder = sys.argv[1], Path(sys.argv[2])
ranks = init_distributed()
if mode == "listen":
    signal.signal(signal.SIGUSR1, lambda *_: (folder / f"heard{ranks.rank}").touch())
(folder / f"up{ranks.rank}").write_text(f"{os.getpid()} {os.getcwd()} {ranks.all_gather_list([ranks.rank])}")
if mode == "fail" and ranks.rank == 1:
    sys.exit(7)
if mode == "killed" and ranks.rank == 1:
    os.kill(os.getpid(), signal.SIGKILL)
while mode != "listen" or not (folder / f"heard{ranks.rank}").exists():
    time.sleep(0.02)
os.write(1, f"rank {ranks.rank} heard\\n".encode())
"""


@contextlib.contextmanager
def launched(folder: Path, mode: str):
    """`python script.py`, which starts two ranks of itself; entered when both have met."""
    (folder / "script.py").write_text(SCRIPT)
    environment = {**os.environ, "PYTHONPATH": gloo.PATHS, "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "script.py", mode, str(folder)]
    parent = subprocess.Popen(command, cwd=folder, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    try:
        wait_for(lambda: all(up.exists() and up.read_text() for up in (folder / "up0", folder / "up1")), parent)
        pids = [int((folder / f"up{rank}").read_text().split()[0]) for rank in (0, 1)]
        yield parent, pids
    finally:
        parent.kill()
        parent.communicate()


def wait_for(ready, parent=None, seconds=60):
    end = time.monotonic() + seconds
    while not ready():
        assert time.monotonic() < end, "waited in vain"
        assert parent is None or parent.poll() is None or ready(), parent.communicate()[0].decode()
        time.sleep(0.02)


def gone(pid: int) -> bool:
    try:
        return "Z" in Path(f"/proc/{pid}/stat").read_text().split(")")[1].split()[0]
    except OSError:
        return True


@pytest.mark.slow
def test_launched_ranks_meet_in_the_same_folder_and_signals_are_passed_on(tmp_path):
    with launched(tmp_path, "listen") as (parent, _):
        for rank in (0, 1):
            assert (tmp_path / f"up{rank}").read_text().split(" ", 1)[1] == f"{tmp_path} [0, 1]"
        parent.send_signal(signal.SIGUSR1)
        output = parent.communicate(timeout=30)[0].decode()
        assert parent.returncode == 0 and sorted(output.split("\n")[-3:-1]) == ["rank 0 heard", "rank 1 heard"]


@pytest.mark.slow
@pytest.mark.parametrize(("mode", "code"), [("fail", 7), ("killed", 137)])
def test_when_one_rank_fails_the_others_end_and_its_code_is_the_result(tmp_path, mode, code):
    with launched(tmp_path, mode) as (parent, pids):
        assert parent.wait(timeout=30) == code
        assert all(gone(pid) for pid in pids)


@pytest.mark.slow
def test_ranks_die_with_a_killed_launcher(tmp_path):
    with launched(tmp_path, "wait") as (parent, pids):
        parent.kill()
        wait_for(lambda: all(gone(pid) for pid in pids), seconds=10)
