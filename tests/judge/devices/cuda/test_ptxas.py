"""What a tracer that has been taken over can say, and what ptxas may be told."""

from __future__ import annotations

import time
from pathlib import Path

import pytest
import torch

from drkernel.judge.boundary.cuda import kernel_cache
from drkernel.judge.boundary.framing import DeadlineExceeded, ProtocolViolation
from drkernel.judge.boundary.shared_tensors import HostArea
from drkernel.judge.devices.cuda import precompile, ptxas
from drkernel.judge.devices.cuda.precompile import Call, Compiled


class Forger:
    """A tracer that has been taken over."""

    def __init__(self, **changes: object):
        self.outputs = HostArea.create("forged", 2**16)
        slot = self.outputs.put(torch.zeros(64, dtype=torch.uint8)).to_json()
        key = "ab" * 32
        self.kernel = {"key": key, "name": "k", "metadata": {"hash": key}, "ptx": slot, "fusion": True, "tuned": False}
        self.kernel |= {"ptx_options": "", "signature": ["*fp32", "i32", ["i32"], "constexpr"]} | changes

    def request(self, question: dict, deadline: float) -> dict:
        kernels = [] if question["do"] == "load" else [self.kernel]
        return {"kernels": kernels, "failures": [], "error": None, "definite": False, "launched": 1}


def forged(tmp_path: Path, **changes: object) -> Compiled:
    call = Call.of([[], {}], [], False)
    folders = tmp_path / "kernels", tmp_path / "shared"
    return precompile.precompile(Forger(**changes), "", "ModelNew", [call], [], *folders, 20.0)


@pytest.mark.parametrize(
    "changes",
    [
        {"name": "../../escape"}, {"name": "a/b"}, {"name": "x" * 200}, {"name": "café"}, {"name": ""}, {"name": 5},
        {"key": "AB" * 32}, {"key": "ab" * 31}, {"key": "../" + "ab" * 30}, {"metadata": {"hash": "other"}},
        {"metadata": {"hash": "ab" * 32, "more": "x" * 10**5}}, {"metadata": []}, {"signature": ["i32; system()"]},
        {"signature": "i32"}, {"signature": [[[[[["i32"]]]]]]}, {"fusion": 1}, {"ptx_options": None},
        {"ptx": [0, "uint8", [10**9], [1]]}, {"ptx": [0, "float32", [4], [1]]}, {"ptx": [0, "uint8", [0], [1]]},
    ],
    ids=str,
)  # fmt: skip
def test_absurd_descriptions_are_violations_and_leave_nothing(tmp_path, changes):
    with pytest.raises(ProtocolViolation):
        forged(tmp_path, **changes)
    assert not [path for path in tmp_path.rglob("*") if path.is_file()]


def test_ptx_that_is_none_and_options_from_a_forger_are_refused(tmp_path):
    assert forged(tmp_path).failure.kind == "PTXASError"
    assert "ptx_options" in forged(tmp_path, ptx_options="--maxrregcount=9 -o /tmp/x").failure.message


def test_the_command_is_the_one_that_triton_would_run(monkeypatch):
    from triton.backends.nvidia import compiler as nvidia

    class Seen(Exception):
        pass

    def see(command, **_):
        raise Seen(command)

    nvidia.get_ptxas_version(kernel_cache.HOPPER.arch)  # by a process of its own, once
    for fusion in (True, False):
        backend = nvidia.CUDABackend(kernel_cache.HOPPER)
        options = backend.parse_options({"enable_fp_fusion": fusion, "ptx_options": "--maxrregcount=64"})
        with monkeypatch.context() as patch, pytest.raises(Seen) as seen:
            patch.setattr(nvidia.subprocess, "run", see)
            nvidia.CUDABackend.make_cubin(backend, "", {}, options, 90)
        (command,) = seen.value.args
        source, _, cubin = command[-3:]
        ours = ptxas.command_line(fusion, ["--maxrregcount=64"], kernel_cache.HOPPER, source, cubin)
        assert ours == command


def test_ptxas_has_a_time_limit(tmp_path):
    start = time.monotonic()
    assert ptxas._bounded(["sleep", "20"], tmp_path, tmp_path / "log", 0.2) is None
    assert time.monotonic() - start < 5


def test_a_deadline_that_passes_in_ptxas_is_late_and_no_failure(tmp_path, monkeypatch):
    monkeypatch.setattr(ptxas, "command_line", lambda *_: ["sleep", "20"])
    call = Call.of([[], {}], [], False)
    with pytest.raises(DeadlineExceeded):
        precompile.precompile(Forger(), "", "ModelNew", [call], [], tmp_path / "kernels", tmp_path / "shared", 0.3)
    assert not list(tmp_path.rglob("failure.json"))
