"""CPU tensors that pass for CUDA tensors, so that submissions written for a GPU run unchanged on the simulated device.

A torch-function mode, entered for good, rewrites CUDA devices in arguments to the CPU and answers questions about a
tensor's device; `torch.cuda` and Triton's driver are replaced piece by piece. Streams run in order: all is synchronous.
"""

from __future__ import annotations

import contextlib
import functools
import time
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode, _disable_current_modes
from torch.utils._pytree import tree_leaves

from drkernel.judge.boundary.aten import moves_data, without_compiler

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


def install(machine: Any) -> None:
    """Patches torch and Triton in this process and thread, for good."""
    _patch_cuda(machine)
    _patch_driver()
    machine.shim = _PassForCuda()
    machine.shim.__enter__()


def _on_cpu(value: Any) -> Any:
    if isinstance(value, torch.device):
        return CPU if value.type == "cuda" else value
    if isinstance(value, str) and (value == "cuda" or value.startswith("cuda:")):
        return "cpu"
    return value


_ANSWERS: dict[Any, Callable] = {
    Tensor.is_cuda.__get__: lambda tensor: True,
    Tensor.is_cpu.__get__: lambda tensor: False,
    Tensor.device.__get__: lambda tensor: tensor.device if tensor.is_meta else CUDA,
    Tensor.get_device: lambda tensor: 0,
    Tensor.pin_memory: lambda tensor, *_, **__: tensor,
    Tensor.is_pinned: lambda tensor, *_, **__: False,
    Tensor.cuda: lambda tensor, *_, **__: tensor,
}


class _PassForCuda(TorchFunctionMode):
    def __torch_function__(self, func: Any, types: Any, args: tuple = (), kwargs: dict | None = None) -> Any:
        kwargs = kwargs or {}
        if func is torch.device:
            return func(*args, **kwargs)
        if (answer := _ANSWERS.get(func)) is not None:
            return answer(*args, **kwargs)
        args = tuple(_on_cpu(a) for a in args)
        if func is Tensor.to and len(args) > 1 and type(args[1]) is int:
            args = (args[0], CPU, *args[2:])
        if "device" in kwargs:
            kwargs["device"] = CPU if isinstance(kwargs["device"], int) else _on_cpu(kwargs["device"])
        kwargs.pop("pin_memory", None)
        return func(*args, **kwargs)


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


class Graph:
    """torch.cuda.CUDAGraph: what was done during the capture, to be done again on the same tensors."""

    machine: Any = None

    def __init__(self, *_: Any, **__: Any):
        self._steps: list[Callable[[], None]] = []
        self._mode: TorchDispatchMode | None = None

    def capture_begin(self, *_: Any, **__: Any) -> None:
        self._steps = self.machine.capture = []
        self._mode = Capture(self._steps)
        self._mode.__enter__()

    def capture_end(self) -> None:
        self.machine.capture = None
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


@without_compiler
class Capture(TorchDispatchMode):
    """Executes the operators and notes how to execute them again into the tensors that they returned."""

    def __init__(self, steps: list[Callable[[], None]]):
        super().__init__()
        self._steps = steps

    def __torch_dispatch__(self, func: Any, types: Any, args: tuple = (), kwargs: dict | None = None) -> Any:
        kwargs = kwargs or {}
        result = func(*args, **kwargs)
        if moves_data(func):
            self._steps.append(functools.partial(again, func, args, kwargs, result))
        return result


def again(func: Any, args: tuple, kwargs: dict, result: Any) -> None:
    fresh = func(*args, **kwargs)
    with torch.no_grad(), torch._C.DisableTorchFunction(), _disable_current_modes():
        for old, new in zip(tree_leaves(result), tree_leaves(fresh), strict=True):
            if isinstance(old, Tensor) and old is not new:
                old.copy_(new)


@contextlib.contextmanager
def _graph(graph: Graph, *_: Any, **__: Any) -> Iterator[None]:
    graph.capture_begin()
    try:
        yield
    finally:
        graph.capture_end()


class _Generator(torch.Generator):
    def __new__(cls, device: Any = "cpu") -> _Generator:
        return super().__new__(cls, _on_cpu(device))


@contextlib.contextmanager
def _scope(*_: Any, **__: Any) -> Iterator[None]:
    yield


def _patch_cuda(machine: Any) -> None:
    stream = Stream()
    Graph.machine = machine
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
    for name, value in constants.items():
        setattr(torch.cuda, name, functools.partial(_constant, value))
    for name, value in {
        "Stream": Stream,
        "ExternalStream": Stream,
        "Event": Event,
        "CUDAGraph": Graph,
        "graph": _graph,
    }.items():
        setattr(torch.cuda, name, value)
    for name in ("device", "device_of", "stream", "StreamContext"):
        setattr(torch.cuda, name, _scope)
    torch.cuda.get_rng_state = lambda *_: torch.get_rng_state()
    torch.cuda.is_current_stream_capturing = lambda: machine.capture is not None
    torch.cuda.nvtx.range_push = torch.cuda.nvtx.range_pop = torch.cuda.nvtx.mark = functools.partial(_constant, None)
    torch.cuda.nvtx.range = _scope
    Tensor.record_stream = lambda tensor, stream: None
    torch.backends.cudnn.is_acceptable = lambda tensor: False
    torch.Stream, torch.Event, torch.Generator = Stream, Event, _Generator
    torch.set_default_device = functools.partial(_constant, None)


def _constant(value: Any, *_: Any, **__: Any) -> Any:
    return value


def _patch_driver() -> None:
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
            get_device_interface=lambda: torch.cuda,
            get_device_capability=lambda device=None: (9, 0),
            get_empty_cache_for_benchmark=lambda: torch.empty(1),
            clear_cache=lambda cache: None,
            utils=SimpleNamespace(get_device_properties=lambda device=0: dict(DRIVER_PROPERTIES)),
        )
    )
