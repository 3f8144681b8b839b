"""The recorder of simulated runners. It uses nothing that a submission may have changed, and is watched.

What Python shows of an operator or a tensor is an object whose attributes anybody may set: `x.numel = lambda: 1`.
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Collection
from types import SimpleNamespace
from typing import Any

import torch
from torch import Tensor
from triton.runtime import interpreter as upstream

from drkernel.judge.boundary.aten import Recorder, is_counted, moves_data, plain, without_compiler
from drkernel.judge.boundary.custom_operators import is_followed
from drkernel.judge.boundary.op_trace import OpTrace, Row, site_of
from drkernel.judge.boundary.witness import executing, is_view, watched

COPIED_AT_ONCE = 8
"""Elements that are copied to the host at the price of one: a price for what the host may compute from them."""

_operation, _schema = torch._C._get_operation_overload, torch._C._get_schema
_no_dispatch = Tensor.__torch_dispatch__


class Operator:
    """An operator as PyTorch's dispatcher knows it, with the attributes of an OpOverload that recorders use."""

    def __init__(self, name: str, overload: str):
        self.call, _, self.tags = _operation(name, overload)
        self._schema = _schema(name, overload)
        self.name: str = self._schema.name
        self.namespace, _, short = self.name.partition("::")
        self._overloadpacket = SimpleNamespace(__name__=short)
        self.is_view = is_view(self._schema)

    def __str__(self) -> str:
        return f"{self._schema.name}.{self._schema.overload_name or 'default'}".replace("::", ".")


_operator = functools.cache(Operator)


@without_compiler
class WatchedRecorder(Recorder):
    """Records what it executes, and executes what it records. Operators raise whose work is not known: other libraries'
    that have no kernels for a GPU, those that hide behind a dispatch key, and those of tensors or of numbers that
    compute by themselves."""

    def __torch_dispatch__(self, func: Any, types: Any, args: tuple = (), kwargs: dict | None = None) -> Any:
        kwargs = kwargs or {}
        operator = _operator(func._schema.name, func._schema.overload_name)
        of_others = any(kind.__torch_dispatch__ is not _no_dispatch for kind in types) or not _is_data((args, kwargs))
        if of_others or not _is_known(operator):
            with executing(func._schema.name):  # nothing, which is no reason to refuse who catches the error
                raise NotImplementedError(f"the operator {operator} has no kernel on this device")
        with executing(operator.name):
            result = operator.call(*args, **kwargs)
        if moves_data(operator):
            self._record(operator, *plain((args, kwargs, result)))
        return result


_DATA = (
    Tensor, torch.Generator, torch.ScriptObject, torch.dtype, torch.device, torch.layout, torch.memory_format,
    int, float, complex, str, type(None),
)  # fmt: skip
"""Classes of what operators are given. A number of another class (SymInt) is an object that PyTorch asks for it."""


def _is_data(value: Any) -> bool:
    """Whether a value, or what it holds, has no Python code that an operator would call."""
    if isinstance(value, (list, tuple)):
        return all(map(_is_data, value))
    return all(map(_is_data, value.values())) if type(value) is dict else isinstance(value, _DATA)


_MARKS = frozenset({"_record_function_enter", "_record_function_enter_new", "_record_function_exit"})
"""Operators that take a text, or what such a one has made, and compute nothing."""


def _is_known(operator: Operator) -> bool:
    """Whether the operator, or what it consists of, is counted, or it only marks a block for a profiler."""
    is_mark = operator.namespace == "profiler" and operator._overloadpacket.__name__ in _MARKS
    return is_counted(operator) or is_mark or is_followed(operator)


class Session:
    """One recording: what launches are counted in."""

    def __init__(self, trace: OpTrace, skip: Collection[str], budget: float, dry: bool = False):
        self.trace, self.dry = trace, dry
        self.skip = frozenset(skip)
        self.budget = budget
        self.recorder = Recorder(trace, dry=True) if dry else WatchedRecorder(trace)
        self._rows: dict[Any, Row] = {}

    def row(self, kernel: upstream.InterpretedFunction) -> Row:
        """The trace's row of a kernel."""
        if kernel not in self._rows:
            self._rows[kernel] = Row(kernel.__name__[:200], site_of(kernel)[:200], True)
            self.trace.rows.append(self._rows[kernel])
        return self._rows[kernel]

    def watch(self) -> contextlib.AbstractContextManager[None]:
        """A block in which PyTorch computes nothing that is not recorded; without data, it computes nothing."""
        reads = lambda number: self.recorder.add("_local_scalar_dense", [], [], calls=number)
        return contextlib.nullcontext() if self.dry else watched(reads)

    def copied_to_host(self, tensor: Tensor) -> None:
        """Counts a copy of all elements to the host, like one `item()` for a few of them."""
        tensor = plain(tensor)
        self.recorder.add("_local_scalar_dense", [tensor], [], calls=1 + tensor.numel() // COPIED_AT_ONCE)
