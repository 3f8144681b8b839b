"""The process that executes one submission on a GPU. It knows no expected answer and no input before its call.

It is started ahead of time: confined, then given a CUDA context, then sealed, and only then told what to run.
"""

from __future__ import annotations

import contextlib
import functools
import importlib
import itertools
import os
import socket
import sys
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from drkernel.judge.boundary.cuda import driver, kernel_cache, recorder, setup
from drkernel.judge.boundary.cuda.device_memory import DeviceArea
from drkernel.judge.boundary.sandbox import Sandbox
from drkernel.judge.boundary.shared_tensors import Area
from drkernel.judge.untrusted import runner
from drkernel.judge.untrusted.cuda import streams

FLUSH = 2**27
"""Bytes that are read before a timed call: more than twice the L2 cache of an H200 (60 MB)."""
MAX_MISSING, _STAGE = 64, 2**21
SCATTERED = 2**24
"""Bytes of a call's outputs up to which each timed call writes elsewhere; calls that write more average over places."""
KERNELS = "DRKERNEL_KERNELS"
"""Environment variable with the folder that the submission's compiled kernels will be put into."""
PRODUCTS = "DRKERNEL_PRODUCTS"
"""Environment variable of a runner whose submission will most likely multiply matrices."""


def prepare() -> None:
    """What all runners share; done once in the zygote, which must not touch CUDA."""
    for slow in ("torch._dynamo", "triton.experimental.gluon", "triton.tools.tensor_descriptor"):
        importlib.import_module(slow)  # else done at the first custom operator or launch
    from triton.backends.nvidia import driver as launching
    from triton.runtime import build

    build.platform_key()  # these two start programs, which no runner can
    launching.library_dirs()
    kernel_cache.prepare()
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")


def main(connection: socket.socket, areas: list[Area], sandbox: Sandbox) -> None:
    """Locks the process in, readies the GPU, and answers questions until the connection closes. Never returns."""
    folder = Path(os.environ[KERNELS])
    runner.leave_session()
    sandbox.confine(readable=folder, devices=map(Path, filter(None, os.environ[setup.DEVICES].split(os.pathsep))))
    connection = runner.close_others(connection)
    try:
        os.environ["TRITON_CACHE_DIR"] = str(folder)
        setup.start(everywhere=True)
        _warm_up(PRODUCTS in os.environ)
        warmed_up = CudaRunner(met=kernel_cache.install_cache_only())
        warmed_up.warm_up()
        answer = warmed_up.answer
    except Exception as error:
        problem = {"error": runner.describe(error)}
        answer = lambda question: problem
    sandbox.seal()
    runner.serve(connection, answer)


class CudaRunner(runner.Runner):
    """Questions beyond Runner's: `map` (which memory to share), `limit`, `enqueue_gated` and `claims` (timed calls), `profile`.

    The examiner has one of its own for the reference, without a sandbox.

    Args:
        word: the address of the 32-bit word that gated calls wait for; by default it leads the inputs.
        met: where the descriptions of launched kernels that have not been compiled appear.
    """

    record = staticmethod(recorder.record)

    def __init__(self, word: int = 0, met: list[dict[str, Any]] | None = None):
        super().__init__(None, None)
        self._met = met if met is not None else []
        self._word = word
        self._flush = torch.zeros(FLUSH // 4, device="cuda")
        self._armed: tuple[list[torch.cuda.Event], list[dict[str, Any]]] = [], []
        self._host_s = 0.0

    def answer(self, question: dict[str, Any]) -> dict[str, Any]:
        enqueues = question["do"] == "enqueue_gated"
        self._met.clear()
        try:
            if self.outputs:
                self.outputs.clear()
            answer = self._do()[question.pop("do")](**question)
            if not enqueues:
                torch.cuda.synchronize()
            self._expect_compiled()
            return answer
        except BaseException as error:
            return {"error": runner.describe(error) | {"missing": self._met[:MAX_MISSING]}}

    def _expect_compiled(self) -> None:
        """A submission may have caught what a kernel that was not compiled raised; the call is void all the same."""
        if self._met:
            raise kernel_cache.MissingKernel(self._met[0])

    def _do(self) -> dict[str, Callable[..., dict[str, Any]]]:
        more = {
            "map": self._map,
            "limit": self._limit,
            "enqueue_gated": self._arm,
            "wait": dict,
            "claims": self._claims,
        }
        return super()._do() | more | {"profile": self._profile, "joins": self._joins}

    def warm_up(self) -> None:
        """Answers an exam's questions once: then CUDA has loaded the kernels of this class, and its memory is warm."""
        stages = torch.zeros(2, _STAGE, dtype=torch.uint8)
        self.inputs, self.outputs = (DeviceArea(stage.data_ptr(), _STAGE, owned=False) for stage in stages)
        self._word = self.inputs.address
        slot = self.inputs.put(torch.ones(64, 64)).to_json()
        given = {"args": {"list": [{"tensor": 0}]}, "slots": [slot], "train": False, "seed": 0, "model": 0}
        block = {**given, "args": {"list": [given["args"]] * 2}, "do": "enqueue_gated", "word": -1}
        build = {"do": "build", "model": 0, "args": {"list": [{"list": []}, {"dict": []}]}, "slots": [], "seed": 0}
        call = {**given, "do": "call", "budget": 0.0}
        questions = [{"do": "load", "source": _REHEARSAL, "name": "ModelNew"}, {**build, "varied": False}]
        questions += [{**given, "do": "profile", "empty_us": 0.0}, {**call, "skip": []}, {**call, "skip": ["none:0"]}]
        for question in [*questions, block, {"do": "wait"}, {"do": "claims"}]:
            if error := self.answer(question).get("error"):
                raise RuntimeError(f"{question.get('do')}: {error}")
        self.inputs = self.outputs = None
        self.models.clear()
        self._views.clear()
        del sys.modules["submission"]

    def _map(self, inputs: list, outputs: list) -> dict[str, Any]:
        """Opens the areas, each given as (handle, bytes)."""
        for area in filter(None, (self.inputs, self.outputs)):
            area.close()
        self.use(*(DeviceArea.open(bytes.fromhex(handle), size) for handle, size in (inputs, outputs)))
        self._word = self.inputs.address
        return {}

    def use(self, inputs: DeviceArea, outputs: DeviceArea) -> None:
        """From now on questions mean these areas."""
        self.inputs, self.outputs = inputs, outputs
        self._views.clear()

    def _limit(self, memory: float) -> dict[str, Any]:
        """The largest share of the GPU's memory to allocate from now on."""
        torch.cuda.set_per_process_memory_fraction(memory)
        return {}

    def _load(self, source: str, name: str) -> dict[str, Any]:
        torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = False
        return super()._load(source, name)

    def _call(self, **question: Any) -> dict[str, Any]:
        _poison_free_memory()
        start = time.perf_counter()
        answer = super()._call(**question)
        self._host_s = time.perf_counter() - start
        return answer

    def _arm(
        self, model: int, args: Any, slots: list, train: bool, seed: int, word: int, recorded: bool = True
    ) -> dict[str, Any]:
        """Enqueues calls on each of the argument lists in `args`, with a cold L2 cache, and says what each launched.

        The first waits for `word`, each further one for a word that is one more. `recorded`: as the examination's calls
        are, so that a submission cannot tell them apart.
        What each returned is kept until the last is enqueued, and as much memory beside it, so that each writes
        elsewhere: where outputs lie makes a difference of up to 10 % to a call of a few microseconds.
        """
        calls = self._values(args, slots)
        module = self.models[model].train(train)
        torch.manual_seed(seed)
        marks, results, kept, traces = [], [], [], []
        mark = lambda: (marks.append(torch.cuda.Event(enable_timing=True)), marks[-1].record())
        recording = functools.partial(self.record, brief=True) if recorded else contextlib.nullcontext
        with torch.no_grad():
            for turn, values in enumerate(calls, word):
                driver.wait_for(self._word, turn)
                mark()
                self._flush.sum()
                mark()
                with recording() as trace:
                    result = module(*values)
                mark()
                traces.append(trace)
                begun = self.outputs.top
                results.append(self._exported(result))
                if (size := self.outputs.top - begun) <= SCATTERED:
                    kept += result, torch.empty(size, dtype=torch.uint8, device="cuda")
            mark()
        self._armed = marks, results
        return {"traces": [trace.to_json() for trace in traces if trace]}

    def _claims(self) -> dict[str, Any]:
        """How long each of the calls that were gated took by this process's events, and each copy of its outputs."""
        marks, results = self._armed
        spans = [1e3 * one.elapsed_time(other) for one, other in itertools.pairwise(marks)]
        whole = 1e3 * marks[0].elapsed_time(marks[-1])
        self._armed = [], []
        return {
            "flush_us": [float(us).hex() for us in spans[0::3]],
            "forward_us": [float(us).hex() for us in spans[1::3]],
            "copy_us": [float(us).hex() for us in spans[2::3]],
            "whole_us": float(whole).hex(),
            "calls": results,
        }

    def _forward(self, model: int, args: Any, slots: list, train: bool, seed: int) -> Callable[[], Any]:
        values = self._values(args, slots)
        module = self.models[model].train(train)
        torch.manual_seed(seed)
        return lambda: module(*values)

    def _profile(self, empty_us: float, **call: Any) -> dict[str, Any]:
        forward = self._forward(**call)
        with torch.no_grad():
            rows = recorder.times(forward, empty_us, 1.5 * self._host_s)
        return {"rows": [[name, triton, calls, float(us).hex()] for name, triton, calls, us in rows[:200]]}

    def _joins(self, **call: Any) -> dict[str, Any]:
        forward = self._forward(**call)
        with torch.no_grad():
            return {"joined": streams.joined(forward)}


def _poison_free_memory() -> None:
    """Fills what the allocator holds free with 0xFF, so that a buffer that is not written shows as NaN."""
    for segment in torch.cuda.memory_snapshot():
        address = segment["address"]
        for block in segment["blocks"]:
            if block["state"] == "inactive":
                driver.fill(block.get("address", address), 0xFF, block["size"])
            address += block["size"]


def _warm_up(products: bool) -> None:
    """Loads what every submission uses, and cuBLAS where it is wanted, which takes long and holds other runners up."""
    from triton.compiler.compiler import max_shared_mem
    from triton.runtime.driver import driver as triton_driver

    triton_driver.active.get_current_target()
    max_shared_mem(0)  # else the first launch asks CUDA, which may take 16 ms while others start
    if products:
        x = torch.rand(64, 64)
        torch.nn.functional.linear(x @ x, x)
    for poisoned in (torch.full((2**26,), 0xFF, dtype=torch.uint8), torch.full((2**20,), 0xFF, dtype=torch.uint8)):
        del poisoned  # what is allocated first comes from here; more would take the driver longer to make and to end


_REHEARSAL = """
import torch

class ModelNew(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.zeros(64))

    def forward(self, x):
        return torch.empty_like(x).copy_(x + self.weight)
"""
