"""Honest submissions are right, shown without the judge: `comparison` runs them beside their references."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest
import torch

from tests.judge.examples import examples

NAMES = [example.name for example in examples("honest")]
_ONLY_ON_A_GPU = {
    "106_try": "asks for a CUDA tensor",
    "108_side_stream": "streams",
    "109_device_guard": "a device guard",
    "112_graph": "CUDA graphs",
    "119_two_streams": "streams",
    "120_graph_lazily": "CUDA graphs",
    "121_device_guard_of": "a device guard",
    "124_inline_assembly": "inline assembly",
    "125_synchronize": "synchronises the device",
    "135_stream_kept_in_step": "streams",
    "181_custom_op_libdevice": "libdevice",
    "334_quantised": "libdevice",
}
"""Submissions that the plain interpreter cannot run, and why; the comparison on a GPU has them all."""

one_worker = pytest.mark.xdist_group("honest corpus")


class Comparison:
    """A process that compares one submission after the other, and is started again after one that ends it."""

    def __init__(self, *options: str):
        self._command = [sys.executable, "-W", "ignore", "-m", "tests.judge.comparison", *options]
        interpreted = "0" if "--cuda" in options else "1"
        self._environment = os.environ | {"TRITON_INTERPRET": interpreted, "PYTHONPATH": os.pathsep.join(sys.path)}
        self._process: subprocess.Popen[str] | None = None

    def wrong(self, name: str) -> str:
        """What is wrong with a submission, or an empty string."""
        process = self._process = self._process or self._started()
        process.stdin.write(f"{name}\n")
        process.stdin.flush()
        for line in process.stdout:
            if line.startswith("{"):  # kernels may print
                return json.loads(line)["wrong"]
        self.end()
        return f"its process ended with {process.returncode}"

    def _started(self) -> subprocess.Popen[str]:
        pipe = subprocess.PIPE
        return subprocess.Popen(self._command, env=self._environment, stdin=pipe, stdout=pipe, text=True)

    def end(self) -> None:
        if self._process:
            self._process.communicate()
        self._process = None


@pytest.fixture(scope="module")
def interpreted():
    comparison = Comparison()
    yield comparison
    comparison.end()


@pytest.fixture(scope="module")
def compiled():
    comparison = Comparison("--cuda")
    yield comparison
    comparison.end()


@pytest.mark.slow
@one_worker
@pytest.mark.parametrize("name", [name for name in NAMES if name not in _ONLY_ON_A_GPU])
def test_right_in_the_plain_interpreter_at_two_shapes(name, interpreted):
    assert not interpreted.wrong(name)


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
@one_worker
@pytest.mark.parametrize("name", NAMES)
def test_right_on_a_gpu_at_the_published_shape(name, compiled):
    assert not compiled.wrong(name)
