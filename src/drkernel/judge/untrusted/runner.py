"""Runs in the runner process, which executes one submission: it answers the examiner's requests and is then killed.

Everything here runs beside code that may have taken the process over, so the examiner trusts no reply. Outputs are
bytes that the examiner compares. It alone knows the inputs to come and the expected outputs.
"""

from __future__ import annotations

import gc
import linecache
import math
import os
import socket
import sys
import traceback
import types
import warnings
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode

from drkernel.judge.boundary import framing, warm_up
from drkernel.judge.boundary.call_areas import CallAreas
from drkernel.judge.boundary.construction import in_mode, perturbed_construction, seed_one_generator
from drkernel.judge.boundary.sandbox import Sandbox
from drkernel.judge.boundary.shared_tensors import Area, HostArea, Slot, checksum, encode
from drkernel.judge.untrusted import FILE
from drkernel.judge.untrusted.simulated.device import choosing, install, record

MAX_TEXT, MAX_SEEN = 2000, 64
"""Characters of an error message, and results of ATen operators that are kept."""
MAX_LINE = 10**6
_MAX_DESCRIPTOR = 2**20

Answer = Callable[[dict[str, Any]], dict[str, Any]]
"""From the body of a request to the body of the reply."""


def main(connection: socket.socket, areas: list[Area], sandbox: Sandbox) -> None:
    """Locks the process in and answers requests until the connection closes. Never returns."""
    leave_session()
    sandbox.enter()
    inputs, outputs = areas
    serve(close_others(connection), Runner(inputs, outputs).answer)


def leave_session() -> None:
    """Gives up the terminal and the standard streams."""
    os.setsid()
    null = os.open(os.devnull, os.O_RDWR)
    for standard in (0, 1, 2):
        os.dup2(null, standard)


def close_others(connection: socket.socket) -> socket.socket:
    """The connection, now the only descriptor besides the standard streams."""
    handle = connection.detach()
    if handle != 3:
        os.dup2(handle, 3, inheritable=False)
    os.closerange(4, _MAX_DESCRIPTOR)
    return socket.socket(fileno=3)


def serve(connection: socket.socket, answer: Answer) -> None:
    while True:
        sequence, nonce, request = framing.receive(connection)
        framing.send(connection, sequence, nonce, answer(request))


def prepare() -> None:
    """Sets up what all runners of the simulated device share; called once, in the zygote."""
    install(fake_cuda=True)
    torch.set_num_threads(1)
    seed_one_generator()
    torch._C._set_deterministic_algorithms(True, warn_only=True)  # fills uninitialised memory with NaN
    warnings.simplefilter("ignore")
    gc.disable()
    _warm_up()


class Runner:
    """The submission's module and its models."""

    record = staticmethod(record)
    """Counts the launches and operators of a block, and can leave some out."""
    choosing = staticmethod(choosing)
    """A block in which a model's tuners choose."""

    def __init__(self, inputs: Area, outputs: Area):
        self.areas = CallAreas(inputs, outputs)
        self.models: dict[int, nn.Module] = {}
        """By number; 0 and 1 have the published shape, further ones hidden shapes."""
        self._last: list[tuple[Tensor, int]] = []
        """The outputs of the last call, however large: somebody who has them may still read them. What a submission is
        promised of a GPU's memory has room for them (footprint.py)."""

    @property
    def inputs(self) -> Area:
        return self.areas.inputs

    @property
    def outputs(self) -> Area:
        return self.areas.outputs

    def answer(self, request: dict[str, Any]) -> dict[str, Any]:
        """The reply to a request; `do` names the method, all else are its arguments."""
        self.outputs.clear()
        try:
            return self._methods()[request.pop("do")](**request)
        except BaseException as error:
            return {"error": describe(error)}

    def _methods(self) -> dict[str, Callable[..., dict[str, Any]]]:
        return {
            "load": self._load,
            "build": self._build,
            "weights": self._weights,
            "call": self._call,
            "dry": self._dry,
        }

    def _load(self, source: str, name: str, tf32: bool = False) -> dict[str, Any]:
        """`tf32`: whether PyTorch may round products of fp32 to TF32 from now on. On a CPU it never does."""
        linecache.cache[FILE] = (len(source), None, source.splitlines(keepends=True), FILE)
        module = types.ModuleType("submission")
        module.__file__ = FILE
        sys.modules["submission"] = module
        exec(compile(source, FILE, "exec", dont_inherit=True), module.__dict__)
        self.build = getattr(module, name)
        return {}

    def _build(self, model: int, args: Any, slots: list, seed: int, how: dict[str, Any]) -> dict[str, Any]:
        values, keywords = self.areas.values(args, slots)
        torch.manual_seed(seed)
        with perturbed_construction(**how):
            built = self.build(*values, **keywords)
        if not isinstance(built, nn.Module):
            raise TypeError(f"{self.build.__name__} is not a torch.nn.Module")
        self.models[model] = built
        return {"weights": [[name, self.outputs.put(tensor).to_json()] for name, tensor in tensors_of(built)]}

    def _weights(self, model: int, values: list, slots: list) -> dict[str, Any]:
        targets = dict(tensors_of(self.models[model]))
        with torch.no_grad():
            for name, index in values:
                targets[name].copy_(self.inputs.view(Slot.parse(slots[index], self.inputs.size)))
        return {}

    def _dry(
        self, init: Any, args: Any, metas: list, train: bool, seed: int = 0, answers: Sequence[bool] = ()
    ) -> dict[str, Any]:
        """The launches of a forward on tensors without data, by a model of its own."""
        from drkernel.judge.untrusted.simulated import dry_run, own_errors

        try:
            trace = dry_run.launched(self.build, init, args, metas, train, seed, answers)
        except own_errors.Unfinished as ended:
            return {"trace": "[]", "ended": describe(ended.error), "unclear": ended.unclear, "read": ended.read}
        return {"trace": trace.to_json(), "read": trace.read}

    def _call(
        self, model: int, args: Any, slots: list, train: bool, seed: int, skip: list, budget: float
    ) -> dict[str, Any]:
        torch.manual_seed(seed)
        watch = _OperatorResults()
        with torch.no_grad(), self.record(skip=skip, budget=budget) as trace, watch if skip else nullcontext():
            values = self.areas.values(args, slots)  # it destroys objects of the last call, and their code may run
            with self.choosing(model):
                result = in_mode(self.models[model], train)(*values)
        reply = self.areas.copy_out(result)
        reply["overwrites"] = any(checksum(tensor) != before for tensor, before in self._last)
        described = zip(tensors_in(result), reply["tensors"], strict=True)
        kept = [tensor for tensor, facts in described if not facts["shares"]]
        self._last = [(tensor, checksum(tensor)) for tensor in kept]
        numels = {math.prod(tensor["slot"][2]) for tensor in reply["tensors"]}
        seen = [tensor for tensor in reversed(watch.results) if tensor.numel() in numels]
        return reply | {"trace": trace.to_json(), "seen": self.areas.copy_as_many(seen)}


class _OperatorResults(TorchDispatchMode):
    """Keeps what ATen operators compute, to see whether the outputs exist without any Triton kernel."""

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        return False  # else torch imports its compiler at the first operator

    def __init__(self) -> None:
        super().__init__()
        self.results: list[Tensor] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: tuple = (), kwargs: dict | None = None) -> Any:
        result = func(*args, **(kwargs or {}))
        for tensor in result if isinstance(result, (tuple, list)) else (result,):
            if isinstance(tensor, Tensor) and not func.is_view and len(self.results) < MAX_SEEN:
                self.results.append(tensor)
        return result


def tensors_in(value: Any) -> list[Tensor]:
    """The tensors of a value that `encode` takes."""
    found: list[Tensor] = []

    def note(tensor: Tensor) -> int:
        found.append(tensor)
        return len(found) - 1

    encode(value, note)
    return found


def tensors_of(model: nn.Module) -> list[tuple[str, Tensor]]:
    """A model's parameters and buffers by name, those outside the state dict included."""
    return [*model.named_parameters(), *model.named_buffers()]


def describe(error: BaseException) -> dict[str, Any]:
    """An error in the submission: its type, message and the deepest of the submission's own lines behind it."""
    line: int | None = None
    cause: BaseException | None = error
    while cause is not None:
        frames = [frame for frame in traceback.extract_tb(cause.__traceback__) if frame.filename.endswith(FILE)]
        line = frames[-1].lineno if frames else line
        cause = cause.__cause__
    if isinstance(error, SyntaxError):
        line = error.lineno  # which the submission may have set to anything
    known = type(line) is int and 0 < line < MAX_LINE
    return {"type": type(error).__name__[:80], "message": str(error)[:MAX_TEXT], "line": line if known else None}


def _warm_up() -> None:
    """Answers the requests of a small examination, so that no runner has anything left to import or to set up."""
    runner = Runner(HostArea.create("warm", 2**16), HostArea.create("warm", 2**16))
    slot = runner.inputs.put(torch.ones(64)).to_json()
    call = {"do": "call", "model": 0, "args": {"list": [{"tensor": 0}]}, "slots": [slot], "train": False, "seed": 0}
    requests: list[dict[str, Any]] = [
        {"do": "load", "source": warm_up.RUNNER, "name": "ModelNew"},
        {
            "do": "build",
            "model": 0,
            "args": {"list": [{"list": []}, {"dict": []}]},
            "slots": [],
            "seed": 0,
            "how": {"active": True},
        },
        call | {"skip": [], "budget": 1e8},
        call | {"skip": ["double:7"], "budget": 1e8},
        {"do": "dry", "init": {"list": [{"list": []}, {"dict": []}]}, "args": call["args"], "train": False}
        | {"metas": [["float32", [64], [1]]]},
    ]
    for request in requests:
        if error := runner.answer(request).get("error"):
            raise RuntimeError(f"the simulated device does not work: {error}")
    del sys.modules["submission"]
