"""Runs in the runner process on a GPU, which executes one submission. It knows no expected outputs, and no inputs
before their call.

The process is started ahead of time: confined, then given a CUDA context, then sealed, and only then sent a submission.
"""

from __future__ import annotations

import contextlib
import importlib
import os
import socket
import sys
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from drkernel.judge.boundary import warm_up
from drkernel.judge.boundary.call_areas import CallAreas
from drkernel.judge.boundary.construction import in_mode
from drkernel.judge.boundary.cuda import activity, driver, handshake, kernel_cache, recorder, runner_environment, setup
from drkernel.judge.boundary.cuda.calls import TimedCalls
from drkernel.judge.boundary.cuda.device_memory import DeviceArea
from drkernel.judge.boundary.sandbox import Sandbox
from drkernel.judge.boundary.shared_tensors import HostArea
from drkernel.judge.boundary.tf32 import allow as allow_tf32
from drkernel.judge.untrusted import runner
from drkernel.judge.untrusted.cuda import streams

MAX_MISSING = 64
"""Descriptions of kernels that were not compiled, in one reply."""
_WARM_UP_BYTES = 2**21
"""Of each area that the warm-up uses."""


def prepare() -> None:
    """Sets up what all runners share; called once, in the zygote, which must not touch CUDA."""
    for slow in ("torch._dynamo", "triton.experimental.gluon", "triton.tools.tensor_descriptor"):
        importlib.import_module(slow)  # else done at the first custom operator or launch
    from triton.backends.nvidia import driver as launching
    from triton.runtime import build

    build.platform_key()  # these two start programs, which no runner can
    launching.library_dirs()
    kernel_cache.prepare()
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")


def main(connection: socket.socket, areas: list[HostArea], sandbox: Sandbox) -> None:
    """Locks the process in, sets up CUDA, and answers requests until the connection closes. Never returns."""
    folder, (shared,) = Path(os.environ[runner_environment.KERNELS]), areas
    runner.leave_session()
    sandbox.confine(readable=folder, devices=map(Path, filter(None, os.environ[setup.DEVICES].split(os.pathsep))))
    connection = runner.close_others(connection)
    try:
        os.environ["TRITON_CACHE_DIR"] = str(folder)
        recording = activity.Recording(folder / activity.LIBRARY, shared)
        setup.start(everywhere=True)
        _warm_up(runner_environment.PRODUCTS in os.environ)
        cuda_runner = CudaRunner(kernel_cache.install_cache_only(), handshake.register(shared), recording.flush)
        cuda_runner.warm_up()
        answer: runner.Answer = cuda_runner.answer
    except Exception as error:
        problem = {"error": runner.describe(error)}
        answer = lambda request: problem
    sandbox.seal()
    runner.serve(connection, answer)


class CudaRunner(runner.Runner):
    """Answers what Runner answers, and further requests: `map` (which memory to share), `limit`, `enqueue_gated`,
    `enqueue_alone`, `wait`, `claims`, `report` and `flush` (timed calls), `profile`, `joins`.

    Until `map` it works in memory of its own.

    Args:
        missing: where the descriptions of kernels appear that were launched and have not been compiled.
        words: the device's address of the words of handshakes.
        flush: hands over the records of what the device has executed.
    """

    record = staticmethod(recorder.record)

    def __init__(self, missing: list[dict[str, Any]], words: int, flush: Callable[[], None]):
        self._own_memory: torch.Tensor | None = torch.zeros(2, _WARM_UP_BYTES, dtype=torch.uint8)
        inputs, outputs = (DeviceArea(row.data_ptr(), _WARM_UP_BYTES, owned=False) for row in self._own_memory)
        super().__init__(inputs, outputs)
        self._missing, self._flush_activity = missing, flush
        self._timed = TimedCalls(self.areas, inputs.address, self.models, words)
        self._host_s = 0.0

    @staticmethod
    def choosing(model: int) -> contextlib.AbstractContextManager[None]:
        """Nothing: on a GPU tuners measure."""
        return contextlib.nullcontext()

    def answer(self, request: dict[str, Any]) -> dict[str, Any]:
        enqueues = request["do"] in ("enqueue_gated", "enqueue_alone")
        self._missing.clear()
        try:
            self.outputs.clear()
            reply = self._methods()[request.pop("do")](**request)
            if not enqueues:
                torch.cuda.synchronize()
            self._expect_compiled()
            return reply
        except BaseException as error:
            return {"error": runner.describe(error) | {"missing": self._missing[:MAX_MISSING]}}

    def _expect_compiled(self) -> None:
        """A submission may have caught what a kernel that was not compiled raised; the call is void all the same."""
        if self._missing:
            raise kernel_cache.MissingKernel(self._missing[0])

    def _methods(self) -> dict[str, Callable[..., dict[str, Any]]]:
        more: dict[str, Callable[..., dict[str, Any]]] = {
            "map": self._map,
            "limit": self._limit,
            "call": self._gated_call,
            "enqueue_gated": self._enqueue_gated,
            "enqueue_alone": self._enqueue_alone,
            "wait": self._flush,
            "claims": self._timed.report,
            "report": self._report,
            "flush": self._flush,
            "profile": self._profile,
            "joins": self._joins,
        }
        return super()._methods() | more

    def warm_up(self) -> None:
        """Answers an examination's requests once: then CUDA has loaded the kernels of this class, and its memory is
        warm."""
        slot = self.inputs.put(torch.ones(64, 64)).to_json()
        given = {"args": {"list": [{"tensor": 0}]}, "slots": [slot], "train": False, "seed": 0, "model": 0}
        block = {**given, "args": {"list": [given["args"]] * 2}, "do": "enqueue_gated", "word": -1}
        build = {"do": "build", "model": 0, "args": {"list": [{"list": []}, {"dict": []}]}, "slots": [], "seed": 0}
        alone = {**block, "args": {"list": [given["args"]]}, "do": "enqueue_alone", "value": 0, "waiting": False}
        del alone["word"]
        call = {**given, "do": "call", "budget": 0.0, "go": 0}
        requests: list[dict[str, Any]] = [
            {"do": "load", "source": warm_up.CUDA_RUNNER, "name": "ModelNew"},
            {**build, "how": {"active": False}},
        ]
        requests += [{**given, "do": "profile", "empty_us": 0.0}, {**call, "skip": []}, {**call, "skip": ["none:0"]}]
        for request in [*requests, block, {"do": "wait"}, {"do": "claims"}, alone, {"do": "report"}]:
            name = request["do"]
            if error := self.answer(request).get("error"):
                raise RuntimeError(f"{name}: {error}")
        self.models.clear()
        self.areas.forget()
        del sys.modules["submission"]

    def _map(self, inputs: list, outputs: list) -> dict[str, Any]:
        """Opens the examiner's areas, each given as (IPC handle, bytes), and works in them from now on."""
        if self._own_memory is None:
            self.inputs.close()
            self.outputs.close()
        opened = [DeviceArea.open(bytes.fromhex(handle), size) for handle, size in (inputs, outputs)]
        self.areas = self._timed.areas = CallAreas(*opened)
        self._timed.semaphore = opened[0].address
        self._own_memory = None
        return {}

    def _limit(self, memory: float) -> dict[str, Any]:
        """The largest share of the GPU's memory to allocate from now on."""
        torch.cuda.set_per_process_memory_fraction(memory)
        return {}

    def _load(self, source: str, name: str, tf32: bool = False) -> dict[str, Any]:
        allow_tf32(tf32)
        return super()._load(source, name)

    def _gated_call(self, go: int, **call: Any) -> dict[str, Any]:
        """A call whose stream waits for a handshake first, as timed calls do."""
        _poison_free_memory()
        self._timed.await_go(go)
        start = time.perf_counter()
        reply = self._call(**call)
        self._host_s = time.perf_counter() - start
        return reply

    def _enqueue_gated(self, word: int, **calls: Any) -> dict[str, Any]:
        """Enqueues calls behind the semaphore, see TimedCalls.enqueue, and says what each launched."""
        return {"traces": [trace.to_json() for trace in self._timed.enqueue(value=word, **calls)]}

    def _enqueue_alone(self, **call: Any) -> dict[str, Any]:
        """Enqueues one call behind a handshake, see TimedCalls.enqueue_alone, and says what it launched."""
        return {"traces": [trace.to_json() for trace in self._timed.enqueue_alone(**call)]}

    def _flush(self) -> dict[str, Any]:
        """Waits for the device, and hands over the records of what it has executed."""
        torch.cuda.synchronize()
        self._flush_activity()
        return {}

    def _report(self) -> dict[str, Any]:
        """Waits for the call that was enqueued alone, and reports it."""
        self._flush()
        return self._timed.report()

    def _forward(self, model: int, args: Any, slots: list, train: bool, seed: int) -> Callable[[], Any]:
        values = self.areas.values(args, slots)
        module = in_mode(self.models[model], train)
        torch.manual_seed(seed)
        return lambda: module(*values)

    def _profile(self, empty_us: float, **call: Any) -> dict[str, Any]:
        forward = self._forward(**call)
        with torch.no_grad():
            rows = recorder.times(forward, empty_us, 1.5 * self._host_s)
        self._flush_activity()
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
    """Loads what every submission uses. `products`: cuBLAS, too, which takes long and delays other runners."""
    from triton.compiler.compiler import max_shared_mem
    from triton.runtime.driver import driver as triton_driver

    triton_driver.active.get_current_target()
    max_shared_mem(0)  # else the first launch asks CUDA, which may take 16 ms while others start
    if products:
        x = torch.rand(64, 64)
        torch.nn.functional.linear(x @ x, x)
    for poisoned in (torch.full((2**26,), 0xFF, dtype=torch.uint8), torch.full((2**20,), 0xFF, dtype=torch.uint8)):
        del poisoned  # what is allocated first comes from here; more would take the driver longer to make and to end
