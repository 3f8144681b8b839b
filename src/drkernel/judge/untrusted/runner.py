"""The process that executes one submission: it answers the examiner's questions and is then killed.

Everything here runs beside code that may have taken the process over. Nothing that is said here is believed: outputs
are bytes that the examiner compares, and it alone knows the inputs to come and the expected answers.
"""

from __future__ import annotations

import linecache
import math
import os
import socket
import sys
import traceback
import types
import warnings
from collections.abc import Callable
from contextlib import nullcontext, suppress
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode

from drkernel.judge.boundary import framing, shared_tensors
from drkernel.judge.boundary.construction import perturbed_construction, seed_one_generator
from drkernel.judge.boundary.sandbox import Sandbox
from drkernel.judge.boundary.shared_tensors import Area, Slot
from drkernel.judge.untrusted.simulated.device import install, record

FILE = "submission.py"
MAX_TEXT, MAX_SEEN = 2000, 64
_MOST_FILES = 2**20


def main(connection: socket.socket, areas: list[Area], sandbox: Sandbox) -> None:
    """Locks the process in and answers questions until the connection closes. Never returns."""
    leave_session()
    sandbox.enter()
    serve(close_others(connection), Runner(*areas).answer)


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
    os.closerange(4, _MOST_FILES)
    return socket.socket(fileno=3)


def serve(connection: socket.socket, answer: Callable[[dict[str, Any]], dict[str, Any]]) -> None:
    while True:
        sequence, nonce, question = framing.receive(connection)
        framing.send(connection, sequence, nonce, answer(question))


def prepare() -> None:
    """What all runners of the simulated device share; done once in the zygote."""
    install(fake_cuda=True)
    torch.set_num_threads(1)
    seed_one_generator()
    torch._C._set_deterministic_algorithms(True, warn_only=True)  # fills uninitialised memory with NaN
    warnings.simplefilter("ignore")
    _warm_up()


class Runner:
    """The submission's module and its models."""

    record = staticmethod(record)
    """What counts the launches and operators of a block, and can leave some out."""

    def __init__(self, inputs: Area, outputs: Area):
        self.inputs, self.outputs = inputs, outputs
        self.models: dict[int, nn.Module] = {}
        self._views: dict[Slot, tuple[Tensor, int]] = {}

    def answer(self, question: dict[str, Any]) -> dict[str, Any]:
        self.outputs.clear()
        try:
            return self._do()[question.pop("do")](**question)
        except BaseException as error:
            return {"error": describe(error)}

    def _do(self) -> dict[str, Callable[..., dict[str, Any]]]:
        return {"load": self._load, "build": self._build, "weights": self._weights, "call": self._call}

    def _load(self, source: str, name: str) -> dict[str, Any]:
        linecache.cache[FILE] = (len(source), None, source.splitlines(keepends=True), FILE)
        module = types.ModuleType("submission")
        module.__file__ = FILE
        sys.modules["submission"] = module
        exec(compile(source, FILE, "exec", dont_inherit=True), module.__dict__)
        self.build = getattr(module, name)
        return {}

    def _build(self, model: int, args: Any, slots: list, seed: int, varied: bool) -> dict[str, Any]:
        values, keywords = self._values(args, slots)
        torch.manual_seed(seed)
        with perturbed_construction(varied):
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

    def _call(
        self, model: int, args: Any, slots: list, train: bool, seed: int, skip: list, budget: float
    ) -> dict[str, Any]:
        values = self._values(args, slots)
        module = self.models[model].train(train)
        torch.manual_seed(seed)
        watch = _Watch()
        with torch.no_grad(), self.record(skip=skip, budget=budget) as trace, watch if skip else nullcontext():
            result = module(*values)
        answer = self._exported(result)
        numels = {math.prod(fact["slot"][2]) for fact in answer["tensors"]}
        seen = self._kept([t for t in reversed(watch.results) if t.numel() in numels])
        return answer | {"trace": trace.to_json(), "seen": seen}

    def _kept(self, tensors: list[Tensor]) -> list[list]:
        """Copies tensors out, as many as there is room for."""
        kept = []
        with suppress(shared_tensors.NotSerializable):
            for tensor in tensors:
                kept.append(self.outputs.put(tensor, dense=True).to_json())
        return kept

    def _exported(self, result: Any) -> dict[str, Any]:
        """What forward returned, its tensors copied out."""
        facts: list[dict[str, Any]] = []
        given = [view for view, _ in self._views.values()]
        return {
            "outputs": shared_tensors.encode(result, lambda tensor: self._export(tensor, given, facts)),
            "tensors": facts,
        }

    def _export(self, tensor: Tensor, given: list[Tensor], facts: list) -> int:
        """Copies an output out, and says what its bytes alone do not show."""
        if tensor.layout != torch.strided:
            raise shared_tensors.NotSerializable(f"an output with layout {tensor.layout}")
        expanded = any(stride == 0 and size > 1 for size, stride in zip(tensor.shape, tensor.stride(), strict=True))
        shares = tensor.numel() > 0 and any(shared_tensors.overlaps(tensor, other) for other in given if other.numel())
        slot = self.outputs.put(tensor, dense=True)
        facts.append({"slot": slot.to_json(), "expanded": expanded, "shares": shares})
        return len(facts) - 1

    def _values(self, tree: Any, slots: list) -> Any:
        """The question's values. A tensor at the same place with the same form is the same object as last time."""
        parsed = [Slot.parse(slot, self.inputs.size) for slot in slots]
        self._views = {slot: self._views.get(slot) or self._fresh(slot) for slot in parsed}
        for slot, (view, storage) in self._views.items():
            if (tuple(view.shape), view.stride()) != (slot.shape, slot.stride) or view.data_ptr() != storage:
                self._views[slot] = self._fresh(slot)
        return shared_tensors.decode(tree, lambda index: self._views[parsed[index]][0])

    def _fresh(self, slot: Slot) -> tuple[Tensor, int]:
        view = self.inputs.view(slot)
        return view, view.data_ptr()


class _Watch(TorchDispatchMode):
    """Keeps what ATen operators compute, to see whether the answer exists without any Triton kernel."""

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        return False  # else torch imports its compiler at the first operator

    def __init__(self) -> None:
        super().__init__()
        self.results: list[Tensor] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: tuple = (), kwargs: dict | None = None) -> Any:
        result = func(*args, **(kwargs or {}))
        for tensor in result if isinstance(result, (tuple, list)) else (result,):
            if (
                isinstance(tensor, Tensor)
                and tensor.is_floating_point()
                and not func.is_view
                and len(self.results) < MAX_SEEN
            ):
                self.results.append(tensor)
        return result


def tensors_of(model: nn.Module) -> list[tuple[str, Tensor]]:
    """A model's parameters and buffers by name, those outside the state dict included."""
    return [*model.named_parameters(), *model.named_buffers()]


def describe(error: BaseException) -> dict[str, Any]:
    """An error in the submission: its type, message and the deepest of the submission's own lines behind it."""
    line, cause = None, error
    while cause is not None:
        frames = [frame for frame in traceback.extract_tb(cause.__traceback__) if frame.filename.endswith(FILE)]
        line = frames[-1].lineno if frames else line
        cause = cause.__cause__
    if isinstance(error, SyntaxError):
        line = error.lineno
    return {"type": type(error).__name__[:80], "message": str(error)[:MAX_TEXT], "line": line}


def _warm_up() -> None:
    """Answers the questions of a small exam once, so that nothing is left to be imported or set up in each runner."""
    model = Runner(Area.create("warm", 2**16), Area.create("warm", 2**16))
    slot = model.inputs.put(torch.ones(64)).to_json()
    call = {"do": "call", "model": 0, "args": {"list": [{"tensor": 0}]}, "slots": [slot], "train": False, "seed": 0}
    questions = [
        {"do": "load", "source": _WARM, "name": "ModelNew"},
        {
            "do": "build",
            "model": 0,
            "args": {"list": [{"list": []}, {"dict": []}]},
            "slots": [],
            "seed": 0,
            "varied": True,
        },
        call | {"skip": [], "budget": 1e8},
        call | {"skip": ["double:6"], "budget": 1e8},
    ]
    for question in questions:
        if error := model.answer(question).get("error"):
            raise RuntimeError(f"the simulated device does not work: {error}")
    del sys.modules["submission"]


_WARM = """
import torch
import triton
import triton.language as tl

@triton.jit
def double(x, y, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(y + i, 2 * tl.load(x + i, mask=i < n), mask=i < n)

class ModelNew(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.norm = torch.nn.LayerNorm(4)

    def forward(self, x):
        y = torch.empty_like(x)
        double[(triton.cdiv(x.numel(), 32),)](x, y, x.numel(), BLOCK=32)
        return y + self.norm(x.view(-1, 4)).relu().view(-1)
"""
