"""Honest submissions are right, shown without the judge: `comparison` runs them beside their references."""

from __future__ import annotations

import functools
import json
import os
import subprocess
import sys

import pytest
import torch

from tests.judge.examples import examples

NAMES = [example.name for example in examples("honest")]
_PER_PROCESS = 32
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


@functools.cache
def compared(*options: str, start: int) -> dict[str, str]:
    """What is wrong with some submissions, by name; they share one process."""
    names = NAMES[start : start + _PER_PROCESS]
    interpreted = "0" if "--cuda" in options else "1"
    environment = os.environ | {"TRITON_INTERPRET": interpreted, "PYTHONPATH": os.pathsep.join(sys.path)}
    command = [sys.executable, "-W", "ignore", "-m", "tests.judge.comparison", *options, *names]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=1200)
    found = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]  # kernels may print
    died = dict.fromkeys(names, f"its process ended with {done.returncode}: {done.stderr[-2000:]}")
    return died | {entry["name"]: entry["wrong"] for entry in found}


def wrong(name: str, *options: str) -> str:
    start = NAMES.index(name) // _PER_PROCESS * _PER_PROCESS
    return compared(*options, start=start)[name]


@pytest.mark.slow
@one_worker
@pytest.mark.parametrize("name", [name for name in NAMES if name not in _ONLY_ON_A_GPU])
def test_right_in_the_plain_interpreter_at_two_shapes(name):
    assert not wrong(name)


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
@one_worker
@pytest.mark.parametrize("name", NAMES)
def test_right_on_a_gpu_at_the_published_shape(name):
    assert not wrong(name, "--cuda")
