"""Fake CUDA: code written for a GPU runs unchanged in a process that has none.

It has two uses, both in processes that run a submission:

    simulated/cpu_as_cuda.py    the runner of the simulated device: CPU tensors, with their data
    cuda/meta_as_cuda.py        the tracer, which looks for kernels to compile: meta tensors, without data

Each of them enters a `FakeCudaMode` for good, and replaces `torch.cuda` and Triton's driver by what is here. Streams
run in order, and everything is synchronous. A captured graph is the list of its steps.
"""

from __future__ import annotations

import contextlib
import functools
import time
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any, ClassVar, Protocol

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode

from drkernel.judge.boundary.graph_capture import CaptureMode

CUDA = torch.device("cuda", 0)
CPU = torch.device("cpu")

PROPERTIES = {
    "name": "NVIDIA H200", "major": 9, "minor": 0, "total_memory": 150 * 10**9, "multi_processor_count": 132,
    "warp_size": 32, "max_threads_per_multi_processor": 2048, "max_threads_per_block": 1024,
    "L2_cache_size": 50 * 2**20, "regs_per_multiprocessor": 65536, "shared_memory_per_block": 49152,
    "shared_memory_per_block_optin": 232448,
    "shared_memory_per_multiprocessor": 233472, "is_integrated": 0, "is_multi_gpu_board": 0, "gcnArchName": "",
    "clock_rate": 1_980_000, "memory_clock_rate": 3_201_000,
}  # fmt: skip
DRIVER_PROPERTIES = {
    "max_shared_mem": 232448, "max_num_regs": 65536, "multiprocessor_count": 132, "warpSize": 32,
    "sm_clock_rate": 1_980_000, "mem_clock_rate": 3_201_000, "mem_bus_width": 6144,
}  # fmt: skip


def getter(name: str) -> Any:
    """What torch calls where an attribute of a tensor is read."""
    return getattr(Tensor, name).__get__


class FakeCudaMode(TorchFunctionMode):
    """Makes the tensors of another device pass for CUDA tensors.

    CUDA devices in arguments become `home`, and questions about a tensor's device are answered as a CUDA tensor would.

    Args:
        home: the device where the tensors really are.
        answers: what is called instead of a torch function, beside those of ANSWERS.
    """

    ANSWERS: ClassVar[dict[Any, Callable]] = {
        getter("is_cuda"): lambda tensor: True,
        getter("is_cpu"): lambda tensor: False,
        Tensor.get_device: lambda tensor: 0,
        Tensor.pin_memory: lambda tensor, *_, **__: tensor,
        Tensor.is_pinned: lambda tensor, *_, **__: False,
    }

    def __init__(self, home: torch.device, answers: dict[Any, Callable]):
        super().__init__()
        self._home = home
        self._answers = self.ANSWERS | answers

    def __torch_function__(self, func: Any, types: Any, args: tuple = (), kwargs: dict | None = None) -> Any:
        kwargs = dict(kwargs or {})
        if func is torch.device:
            return func(*args, **kwargs)
        if (answer := self._answers.get(func)) is not None:
            return answer(*args, **kwargs)
        args = tuple(at_home(value, self._home) for value in args)
        if func is Tensor.to and len(args) > 1 and type(args[1]) is int:
            args = (args[0], self._home, *args[2:])
        if "device" in kwargs:
            device = kwargs["device"]
            kwargs["device"] = self._home if isinstance(device, int) else at_home(device, self._home)
        kwargs.pop("pin_memory", None)
        return self._call(func, args, kwargs)

    def _call(self, func: Any, args: tuple, kwargs: dict[str, Any]) -> Any:
        """Executes a function whose arguments name no CUDA device any more."""
        return func(*args, **kwargs)


def at_home(value: Any, home: torch.device) -> Any:
    """`home` in the place of a CUDA device or its name; any other value as it is."""
    if isinstance(value, torch.device):
        return home if value.type == "cuda" else value
    if isinstance(value, str) and (value == "cuda" or value.startswith("cuda:")):
        return home
    return value


class Stream:
    """A stream on which everything has already happened."""

    cuda_stream = 0
    stream_id = 0
    device = CUDA
    device_index = 0

    def __init__(self, device: Any = None, priority: int = 0, **_: Any):
        self.priority = priority

    def synchronize(self) -> None:
        pass

    def query(self) -> bool:
        return True

    def wait_stream(self, stream: Any) -> None:
        pass

    def wait_event(self, event: Any) -> None:
        pass

    def record_event(self, event: Any = None) -> Any:
        event = event or Event()
        event.record(self)
        return event

    def __enter__(self) -> Stream:
        return self

    def __exit__(self, *_: Any) -> None:
        pass


class Event:
    """An event that has happened once it is recorded."""

    def __init__(self, *_: Any, **__: Any):
        self._time = 0.0

    def record(self, stream: Any = None) -> None:
        self._time = time.perf_counter()

    def wait(self, stream: Any = None) -> None:
        pass

    def synchronize(self) -> None:
        pass

    def query(self) -> bool:
        return True

    def elapsed_time(self, end: Event) -> float:
        return 1e3 * (end._time - self._time)


class Capturing(Protocol):
    """What knows whether a graph is being captured."""

    capture: list[Callable[[], None]] | None
    """The steps of the capture in progress; launches append themselves. None where there is none."""


class _Shared:
    """What graphs use, and may not show."""

    machine: Capturing


class Graph:
    """torch.cuda.CUDAGraph: the steps of the capture. A replay executes them again on the same tensors."""

    def __init__(self, *_: Any, **__: Any):
        self._steps: list[Callable[[], None]] = []
        self._mode = CaptureMode(self._steps)

    def capture_begin(self, *_: Any, **__: Any) -> None:
        self._steps = _Shared.machine.capture = []
        self._mode = CaptureMode(self._steps)
        self._mode.__enter__()

    def capture_end(self) -> None:
        _Shared.machine.capture = None
        self._mode.__exit__(None, None, None)

    def replay(self) -> None:
        for step in self._steps:
            step()

    def reset(self) -> None:
        self._steps = []

    def pool(self) -> tuple[int, int]:
        return (0, 0)

    def enable_debug_mode(self) -> None:
        pass


@contextlib.contextmanager
def _graph(graph: Graph, *_: Any, **__: Any) -> Iterator[None]:
    graph.capture_begin()
    try:
        yield
    finally:
        graph.capture_end()


class _Generator(torch.Generator):
    def __new__(cls, device: Any = "cpu") -> Any:
        return super().__new__(cls, at_home(device, CPU))  # type: ignore[call-arg]


@contextlib.contextmanager
def _scope(*_: Any, **__: Any) -> Iterator[None]:
    yield


def patch_torch_cuda(machine: Capturing) -> None:
    """Replaces what torch.cuda offers by what is true of one fake H200, in this process, for good."""
    stream = Stream()
    _Shared.machine = machine
    constants = {
        "is_available": True, "is_initialized": True, "device_count": 1, "current_device": 0,
        "get_device_name": PROPERTIES["name"], "get_device_capability": (9, 0), "get_arch_list": ["sm_90"],
        "get_device_properties": SimpleNamespace(**PROPERTIES), "is_bf16_supported": True, "is_tf32_supported": True,
        "current_stream": stream, "default_stream": stream, "memory_allocated": 0, "memory_reserved": 0,
        "max_memory_allocated": 0, "max_memory_reserved": 0, "mem_get_info": (140 * 10**9, 150 * 10**9),
        "graph_pool_handle": (0, 0),
    }  # fmt: skip
    silent = (
        "synchronize", "empty_cache", "set_device", "set_stream", "init", "_lazy_init", "manual_seed",
        "manual_seed_all",
        "seed", "seed_all", "set_rng_state", "reset_peak_memory_stats", "reset_max_memory_allocated", "ipc_collect",
        "set_per_process_memory_fraction",
    )  # fmt: skip
    constants.update(dict.fromkeys(silent))
    replace(torch.cuda, **{name: functools.partial(_constant, value) for name, value in constants.items()})
    replace(torch.cuda, Stream=Stream, ExternalStream=Stream, Event=Event, CUDAGraph=Graph, graph=_graph)
    replace(torch.cuda, device=_scope, device_of=_scope, stream=_scope, StreamContext=_scope)
    replace(torch.cuda, get_rng_state=lambda *_: torch.get_rng_state())
    replace(torch.cuda, is_current_stream_capturing=lambda: machine.capture is not None)
    ignored = functools.partial(_constant, None)
    replace(torch.cuda.nvtx, range_push=ignored, range_pop=ignored, mark=ignored, range=_scope)
    replace(Tensor, record_stream=lambda tensor, stream: None)
    replace(torch.backends.cudnn, is_acceptable=lambda tensor: False)
    replace(torch, Stream=Stream, Event=Event, Generator=_Generator)
    replace(torch, set_default_device=functools.partial(_constant, None))  # not `ignored`: Dynamo takes no object twice


def replace(owner: Any, **attributes: Any) -> None:
    """Puts other values in the place of some attributes of a module or class, for good."""
    for name, value in attributes.items():
        setattr(owner, name, value)


def _constant(value: Any, *_: Any, **__: Any) -> Any:
    return value


def patch_triton_driver() -> None:
    """Replaces Triton's driver by one for a fake H200, in this process, for good."""
    from triton.backends.compiler import GPUTarget
    from triton.runtime.driver import driver

    driver.set_active(
        SimpleNamespace(
            is_active=lambda: True,
            get_current_device=lambda: 0,
            set_current_device=lambda device: None,
            get_current_stream=lambda device=None: 0,
            get_current_target=lambda: GPUTarget("cuda", 90, 32),
            get_active_torch_device=lambda: CUDA,
            get_device_interface=lambda: SimpleNamespace(Event=Event, Stream=Stream, synchronize=lambda *_: None),
            get_device_capability=lambda device=None: (9, 0),
            get_empty_cache_for_benchmark=lambda: torch.empty(1),
            clear_cache=lambda cache: None,
            utils=SimpleNamespace(get_device_properties=lambda device=0: dict(DRIVER_PROPERTIES)),
        )
    )
