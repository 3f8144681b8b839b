"""Records the ATen operators of a forward: what a GPU's library kernels would have read, written and computed.

The examiner records references with `record`. Runners derive recorders of their own, which also count Triton launches.
"""

from __future__ import annotations

import contextlib
import functools
import math
import operator
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode, _get_current_dispatch_mode, _pop_mode_temporarily

from drkernel.hardware.windows import CONVOLUTIONS, lanes, share_read
from drkernel.judge.boundary.attention import needed_share
from drkernel.judge.boundary.custom_operators import implementation, record_without_modes
from drkernel.judge.boundary.dimensions import MASK, SCANS, SCATTERS, SOFTMAXES, dimension, places
from drkernel.judge.boundary.flops import FLOPS, flops_of
from drkernel.judge.boundary.op_trace import Math, OpTrace, Row
from drkernel.judge.boundary.sequences import of_few_steps, parts, recurrent_flops, steps
from drkernel.judge.boundary.witness import executing

SECTOR = 32
"""Bytes that a GPU's caches move at least."""

FREE = frozenset(
    {
        "alias", "_unsafe_view", "lift", "lift_fresh", "lift_fresh_copy", "empty", "empty_like", "empty_strided",
        "new_empty", "new_empty_strided", "empty_permuted", "set_", "resize_", "sym_size", "sym_stride", "sym_numel",
        "sym_storage_offset", "is_same_size", "_has_compatible_shallow_copy_type", "_assert_async", "_assert_scalar",
        "_assert_tensor_metadata", "record_stream", "unsafe_split", "unsafe_split_with_sizes",
    }
)  # fmt: skip
"""Operators that move no data: allocation, metadata and aliasing beyond what their schema says."""

GATHERS = frozenset(
    {"embedding", "index", "index" + MASK, "index_select", "gather", "take", "_embedding_bag", "nll_loss_forward"}
)
"""Operators that read only a part of their first tensor: as many elements as they return, or as the index has."""

EIGHT_BITS = frozenset({"_int_mm", "_scaled_mm"})
"""Those of int8 and fp8."""

_FACTORS = {"mm": (0, 1), "bmm": (0, 1), "addmm": (1, 2), "baddbmm": (1, 2)}
"""Which arguments of products of matrices are their factors."""
_LEAST_DIAGONAL = 8
"""Rows of a matrix that may be taken for a diagonal one."""

_alias = torch._C.TensorBase.detach
"""A tensor of the same memory without Python attributes; taken at the start, before anybody may change it."""

_COUNTED = ("aten", "prims", "torchvision")
"""Namespaces of operators that run as kernels of a library."""

TRAINING = ":training"
"""Suffix of native_batch_norm where it computes the statistics itself."""

IGNORES_SELF = frozenset({"copy_", "fill_", "zero_", "uniform_", "normal_", "bernoulli_", "random_", "exponential_"})
"""In-place operators that overwrite their first argument without reading it."""


def without_compiler(mode: type[TorchDispatchMode]) -> type[TorchDispatchMode]:
    """Takes torch's guard against dynamo off a mode's handler: its first call would import the compiler (1.5 s)."""
    handler = mode.__torch_dispatch__
    mode.__torch_dispatch__ = getattr(handler, "__wrapped__", handler)  # type: ignore[method-assign]
    return mode


@without_compiler
class Recorder(TorchDispatchMode):
    """Adds a row per operator and sizes to the trace. Real, meta and fake tensors alike.

    Args:
        merge: whether equal operators on equal sizes share a row.
        look: whether factors of products are looked at, which takes data; see Row.needless.
        dry: whether tensors have no data. Custom operators run their implementations even so.
    """

    def __init__(self, trace: OpTrace, merge: bool = True, look: bool = False, dry: bool = False):
        super().__init__()
        self.trace = trace
        self.shapes: list[list[torch.Size]] = []
        self._merge, self._look, self._dry = merge, look, dry
        self._rows: dict[tuple, Row] = {}

    def __torch_dispatch__(self, func: Any, types: Any, args: tuple = (), kwargs: dict | None = None) -> Any:
        kwargs = kwargs or {}
        result = (implementation(func) if self._dry else func)(*args, **kwargs)
        if moves_data(func):
            self._record(func, args, kwargs, result)
        return result

    def _record(self, func: Any, args: tuple, kwargs: dict, result: Any) -> None:
        name = func._overloadpacket.__name__
        read, written = _operands(func, name, args, kwargs, result)
        name = _algorithm(name, read, written)
        name += TRAINING if name == "native_batch_norm" and args[5] else ""
        strided = func._overloadpacket.__name__ not in FLOPS and name not in EIGHT_BITS
        scattered = torch.Tag.pointwise in func.tags and any(_is_scattered(t, out) for t in read for out in written)
        names = [argument.name for argument in func._schema.arguments]
        given = dict(zip(names, args, strict=False)) | kwargs
        needed, (along, suffix) = needed_share(given), dimension(name, given)
        flops = needed * flops_of(func, args, kwargs, result)
        share, number = share_read(func, args, kwargs), steps(func._overloadpacket.__name__, args)
        stored = places(name.removesuffix("_"), given) if name.removesuffix("_") in SCATTERS else None
        row = self.add(
            name + suffix, read, written, flops, strided, along, scattered, number, share=share, places=stored
        )
        row.dense_flops += flops * lanes(func, args, kwargs)
        if self._look and any(_is_diagonal(args[place]) for place in _FACTORS.get(name, ())):
            row.needless += flops

    def add(
        self,
        name: str,
        read: list[Tensor],
        written: list[Tensor],
        flops: float = 0.0,
        strided: bool = True,
        along: int = 0,
        scattered: bool = False,
        calls: int = 1,
        share: float = 1.0,
        places: int | None = None,
    ) -> Row:
        """Records one operator. Returns its row.

        Args:
            strided: transposed operands cost whole sectors.
            along: see `dimensions.dimension`.
            scattered: it has to compute the address of each element.
            calls: how many equal operators, or steps, it stands for.
            share: how much of the first operand it reads.
            places: how many numbers it writes, if not all; in place, it leaves the others alone.
        """
        if not self._merge:
            self.shapes.append([t.shape for t in read + written])
        numel = max((t.numel() for t in written), default=0)
        math = "byte" if name in EIGHT_BITS else _math(_factors(name, read) if flops else read + written)
        key = (name, numel, tuple(t.numel() for t in read), math, scattered, along)
        row = self._rows.get(key) if self._merge else None
        if row is None:
            row = self._rows[key] = Row(name, name, False, output_numel=numel, math=math, block=along)
            self.trace.rows.append(row)
        row.calls += calls
        row.flops += flops
        row.accesses += numel if scattered else places or 0
        row.arithmetic += max([t.numel() for t in read + written], default=0)
        for tensor, stored in [(t, False) for t in read] + [(t, True) for t in written]:
            selected = name in GATHERS and not stored and tensor is read[0]
            limit = max(numel, max((t.numel() for t in read[1:]), default=0)) if selected else None
            if places is not None and name.endswith("_") and (stored or tensor is read[0]):
                limit = places
            unique, total = _bytes(tensor, written[-1] if strided and written else tensor, limit)
            total = max(total, limit * tensor.element_size()) if limit is not None else total
            if strided and tensor.numel() > max(numel, distinct_elements(tensor)):  # a reduction of windows
                total = max(total, tensor.numel() * tensor.element_size())
            unique = int(unique * share) if not stored and tensor is read[0] else unique
            row.add_traffic(min(distinct_elements(tensor), limit or tensor.numel()), unique, total, stored)
        return row


class _Recordings:
    """The innermost recording of this process, and whether `install` was called."""

    current: Recorder | None = None
    installed = False


def install() -> None:
    """Prepares this process for `record`; further calls do nothing. Custom operators must be defined afterwards."""
    if not _Recordings.installed:
        _Recordings.installed = True
        record_without_modes(_suspended)
        keep_fused_operators_whole()


@contextlib.contextmanager
def record() -> Iterator[OpTrace]:
    """Counts the ATen operators of the block. `install` must have been called.

    Triton kernels are not seen: references have none, and submissions run elsewhere.
    """
    assert _Recordings.installed, "aten.record() before aten.install()"
    recorder = Recorder(OpTrace(), look=True)
    outer, _Recordings.current = _Recordings.current, recorder
    try:
        with recorder:
            yield recorder.trace
    finally:
        _Recordings.current = outer


def _suspended() -> list[Any]:
    """The recorder, where torch has taken it off its stack."""
    recorder = _Recordings.current
    return [recorder] if recorder is not None and _get_current_dispatch_mode() is not recorder else []


def keep_fused_operators_whole() -> None:
    """Records torch.rms_norm as one operator, which CUDA runs as one kernel but the CPU as five."""
    original = torch.rms_norm

    @functools.wraps(original)
    def rms_norm(input: Any, normalized_shape: Any, weight: Any = None, eps: Any = None) -> Tensor:
        recorder = _get_current_dispatch_mode()
        if not isinstance(recorder, Recorder):
            return original(input, normalized_shape, weight, eps)
        sizes = [operator.index(size) for size in normalized_shape]  # now: what an object says, its code may compute
        bound = eps if eps is None else float(eps)
        with _pop_mode_temporarily(), executing("aten::rms_norm"):
            result = original(input, sizes, weight, bound)
        read = [plain(t) for t in (input, weight) if isinstance(t, Tensor)]
        recorder.add("rms_norm", read, [result], along=math.prod(sizes))
        return result

    torch.rms_norm = rms_norm
    for name in ("gru", "rnn_tanh", "rnn_relu"):
        layer = _whole_layer(name, getattr(torch, name))
        for module in (torch, torch._VF):
            setattr(module, name, layer)
    for name in ("lstm_cell", "gru_cell"):
        cell = _whole_cell(name, getattr(torch, name))
        for module in (torch, torch._VF):
            setattr(module, name, cell)


def _whole_layer(name: str, original: Callable) -> Callable:
    """A recurrent layer of CUDA's, which is one operator of so many steps; the CPU has ten operators in each step."""
    whole = of_few_steps(original)

    @functools.wraps(original)
    def layer(*args: Any) -> Any:
        recorder = _get_current_dispatch_mode()
        if len(args) != 9 or not all(isinstance(t, Tensor) for t in parts(args[:3])):
            return original(*args)
        if not isinstance(recorder, Recorder):
            return whole(*args)
        tensor, state, weights = plain(args[0]), plain(args[1]), list(plain(args[2]))
        layers, dropout = operator.index(args[4]), float(args[5])  # now: what an object says, its code may compute
        has_biases, train, both, batch_first = (bool(args[place]) for place in (3, 6, 7, 8))
        with _pop_mode_temporarily(), executing(f"aten::{name}"):
            result = whole(tensor, state, weights, has_biases, layers, dropout, train, both, batch_first)
        steps = tensor.shape[1 if batch_first else 0] * layers * (1 + both)
        read = [tensor, state, *weights]
        flops = recurrent_flops((tensor, weights), result)
        recorder.add(name, read, list(result), flops, strided=False, calls=steps).dense_flops += flops
        return result

    return layer


def _whole_cell(name: str, original: Callable) -> Callable:
    """A step of a recurrent layer, which CUDA runs as two products and one kernel, and the CPU as a dozen operators."""

    @functools.wraps(original)
    def cell(*args: Any) -> Any:
        recorder, given = _get_current_dispatch_mode(), parts(args)
        if not isinstance(recorder, Recorder) or len(args) < 4 or not all(isinstance(t, Tensor) for t in given):
            return original(*args)
        args = plain(args)
        with _pop_mode_temporarily(), executing(f"aten::{name}"):
            result = original(*args)
            (tensor, *state), (inner, outer, *biases) = parts(args[:2]), args[2:]
            made = [
                torch.empty(len(tensor), len(weight), dtype=weight.dtype, device="meta") for weight in (inner, outer)
            ]
        for factors in zip((tensor, state[0]), (inner, outer), strict=True):
            flops = 2.0 * len(tensor) * factors[1].numel()
            recorder.add("mm", list(factors), made[:1], flops, strided=False).dense_flops += flops
        recorder.add(f"_thnn_fused_{name}", [*made, *state, *biases], parts([result]))
        return result

    return cell


def plain(value: Any) -> Any:
    """A value whose tensors have no attributes of their own, and no class of their own, that hide those of tensors."""
    if isinstance(value, Tensor):
        return value if type(value) is Tensor and not value.__dict__ else _alias(value)
    if isinstance(value, (list, tuple)):
        return tuple(map(plain, value))
    return {name: plain(part) for name, part in value.items()} if type(value) is dict else value


def moves_data(func: Any) -> bool:
    """Whether a GPU would run a kernel for this operator."""
    return not func.is_view and func._overloadpacket.__name__ not in FREE and is_counted(func)


def is_counted(func: Any) -> bool:
    """Whether the operator is one of a library that has kernels for a GPU."""
    return func.namespace in _COUNTED


def _algorithm(name: str, read: list[Tensor], written: list[Tensor]) -> str:
    """The name of what an operator does: it is the same in place, with an output that is given, for another library, or
    where places of single elements are told in another way."""
    plain = name.removesuffix("_")
    if plain in SCANS:
        return plain
    if f"_{plain}" in SOFTMAXES:
        return f"_{plain}"
    if name in CONVOLUTIONS:
        return "convolution"
    if plain == "index_put" and len(read) == 3 and read[1].dtype == torch.bool and not read[2].dim():
        return name.replace("index_put", "masked_fill")  # as CUDA does where the value is a number
    if plain in ("index", "index_put") and any(tensor.dtype == torch.bool for tensor in read[1:]):
        return plain + MASK
    if name in ("index", "take"):
        places = max((tensor.numel() for tensor in read[1:]), default=0)
        return "gather" if places >= max((tensor.numel() for tensor in written), default=0) > 1 else "index"
    return name


def distinct_elements(tensor: Tensor) -> int:
    """Elements at distinct addresses: expanded dimensions count once, and no more than lie in the tensor's span."""
    count, span = 1, 1
    for size, stride in zip(tensor.shape, tensor.stride(), strict=True):
        count *= 1 if stride == 0 and size else size
        span += max(size - 1, 0) * stride
    return min(count, span)


def _operands(func: Any, name: str, args: tuple, kwargs: dict, result: Any) -> tuple[list[Tensor], list[Tensor]]:
    """The tensors that an operator reads and writes, each storage region once."""
    read: dict[tuple, Tensor] = {}
    written: dict[tuple, Tensor] = {}
    for index, argument in enumerate(func._schema.arguments):
        value = args[index] if index < len(args) else kwargs.get(argument.name)
        mutated = argument.alias_info is not None and argument.alias_info.is_write
        for tensor in parts(value):
            if not isinstance(tensor, Tensor):
                continue
            if mutated:
                written[_region(tensor)] = tensor
            if not (mutated and (argument.name == "out" or name in IGNORES_SELF)):
                read[_region(tensor)] = tensor
    for tensor in parts(result[:1] if name == "log_sigmoid_forward" else result):  # CUDA leaves its buffer empty
        if isinstance(tensor, Tensor):
            written[_region(tensor)] = tensor
    return list(read.values()), list(written.values())


def _region(tensor: Tensor) -> tuple:
    return tensor.untyped_storage()._cdata, tensor.storage_offset(), tuple(tensor.shape), tuple(tensor.stride())


def _is_scattered(tensor: Tensor, output: Tensor) -> bool:
    """Whether an operand of an element-wise operator is broadcast or a slice: eager cannot vectorise over it."""
    span = 1 + sum((size - 1) * stride for size, stride in zip(tensor.shape, tensor.stride(), strict=True))
    return tensor.numel() > 0 and span > 1 and (tensor.numel() < output.numel() or span != tensor.numel())


def _bytes(tensor: Tensor, output: Tensor, limit: int | None) -> tuple[int, int]:
    """Distinct bytes, and bytes of whole sectors where the tensor is walked across its rows.

    An operator's threads follow the output's fastest dimension; a transposed operand gives them a sector per element.
    """
    elements = min(distinct_elements(tensor), limit if limit is not None else tensor.numel())
    unique = elements * tensor.element_size()
    if tensor.shape != output.shape:
        return unique, unique
    fastest = [tensor.stride(d) for d in range(tensor.dim()) if output.stride(d) == 1 and output.shape[d] > 1]
    return unique, unique * max(1, min(*fastest[:1], SECTOR // tensor.element_size()) if fastest else 1)


def _factors(name: str, read: list[Tensor]) -> list[Tensor]:
    """What an operator multiplies: of attention, query and what has its format, and no statistics of rows."""
    return read[:1] if "attention" in name else read


def _math(tensors: list[Tensor]) -> Math:
    kinds = {t.dtype for t in tensors if t.is_floating_point()}
    if torch.float64 in kinds:
        return "fp64"
    return "half" if kinds and kinds <= {torch.float16, torch.bfloat16} else "fp32"


def _is_diagonal(matrix: Tensor) -> bool:
    """Whether all matrices of a batch are diagonal, and too large to be so by chance. One of zeros is not."""
    if matrix.shape[-1] != matrix.shape[-2] or matrix.shape[-1] < _LEAST_DIAGONAL:
        return False
    diagonal = matrix.diagonal(dim1=-2, dim2=-1).count_nonzero()
    return int(matrix.count_nonzero()) == int(diagonal) > matrix.shape[-1] // 2
