"""Makes `kernel[grid](...)` run on the CPU, by Triton's interpreter and our builder. Runs in simulated runners.

It differs from Triton's own interpreter in more than the builder. The language is patched once, instead of at every
launch and call of a helper. Arguments are not copied. `triton.autotune` works without a driver: the first configuration
that survives pruning runs. Reductions with any combine function are vectorised. Errors name the kernel, the line and
its text. What a launch does is counted.
"""

from __future__ import annotations

import contextlib
import functools
import gc
import inspect
import linecache
import sys
import weakref
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import torch
import triton
import triton.language as tl
from torch.overrides import TorchFunctionMode, _get_current_function_mode_stack
from torch.utils._python_dispatch import _get_current_dispatch_mode
from triton.language.semantic import TritonSemantic
from triton.runtime import autotuner, errors
from triton.runtime import interpreter as upstream
from triton.tools.tensor_descriptor import TensorDescriptor

from drkernel.judge.boundary.aten import keep_fused_operators_whole
from drkernel.judge.boundary.custom_operators import record_without_modes
from drkernel.judge.boundary.op_trace import STORES_UNKNOWN, Grid, OpTrace, Row
from drkernel.judge.untrusted.simulated import autotuning, block_pointers, limits, opaque, sampled
from drkernel.judge.untrusted.simulated import builder as batched
from drkernel.judge.untrusted.simulated.bounds import MemoryFault
from drkernel.judge.untrusted.simulated.builder import BatchBuilder, BlockValue, Divergence
from drkernel.judge.untrusted.simulated.compiled import CompiledKernel
from drkernel.judge.untrusted.simulated.loops import LoopTransformer, LoopValue, static_range, use_own_names
from drkernel.judge.untrusted.simulated.meter import Meter, WorkBudgetExceeded
from drkernel.judge.untrusted.simulated.recorder import Session, plain
from drkernel.judge.untrusted.simulated.semantic import BatchSemantic
from drkernel.judge.untrusted.simulated.shared_memory import stages_of
from drkernel.judge.untrusted.simulated.unsupported_syntax import LAUNCH_OPTIONS, refuse_what_does_not_compile

BATCH_ELEMENTS = 1 << 16
"""Elements that an array of a batch should have: enough for numpy to be fast, few enough for the CPU's cache."""

NESTED_SPLITS = 8
"""How often a batch may split into groups that split again. Each split starts the programs anew."""

LAUNCH_BUDGET = 1e9
"""Work (see Meter) that a launch outside of a recording may cost."""


class Machine:
    """The simulated device of this process: the recording, graph capture and fake CUDA that launches act on."""

    def __init__(self) -> None:
        self.session: Session | None = None
        self.fake_cuda: TorchFunctionMode | None = None
        self.capture: list[Callable[[], None]] | None = None
        self.addresses = 0
        """What is added to the address of a tensor to make the one that submissions see; see cpu_as_cuda."""
        self.seed = 0
        """Decides which programs run in a dry run."""
        self._sampled: dict[Any, dict] = {}
        """By kernel and launch: what a program executes there; see `sampled`."""
        self.builder = BatchBuilder()
        self.semantic = BatchSemantic(self.builder)

    def suspended(self) -> list[Any]:
        """The recorder and the fake-CUDA mode where torch has taken them off their stacks."""
        modes: list[Any] = []
        if self.session is not None and _get_current_dispatch_mode() is not self.session.recorder:
            modes.append(self.session.recorder)
        if self.fake_cuda is not None and self.fake_cuda not in _get_current_function_mode_stack():
            modes.append(self.fake_cuda)
        return modes

    @contextlib.contextmanager
    def recording(self, session: Session) -> Iterator[None]:
        """A block whose launches and operators go to a session."""
        outer, self.session = self.session, session
        try:
            with session.watch() if outer is None else contextlib.nullcontext(), session.recorder, _collecting():
                yield
        finally:
            self.session = outer

    def launch(self, kernel: upstream.InterpretedFunction, args: tuple, kwargs: dict, grid: Any) -> None:
        """Runs a kernel on a grid, counts what it does, and adds it to the graph that is being captured.

        Hooks, the grid's function and arguments may execute PyTorch's operators. These are recorded as any others, and
        they are executed even where the launch is left out: they are not the kernel's work.
        """
        session = self.session or Session(OpTrace(), (), LAUNCH_BUDGET)
        if unknown := sorted(kwargs.keys() - set(kernel.arg_names) - LAUNCH_OPTIONS):
            raise errors.InterpreterError(f"kernel `{kernel.__name__}` has no parameter `{unknown[0]}`")
        limits.check_options(kernel.__name__, kwargs, kernel.arg_names)
        arguments = inspect.getcallargs(kernel.fn, *args, **{k: v for k, v in kwargs.items() if k in kernel.arg_names})
        sizes = limits.grid_sizes(kernel.__name__, grid(arguments) if callable(grid) else grid)
        if self.capture is not None:
            self.capture.append(lambda: self.launch(kernel, args, kwargs, sizes))
        for hook in kernel.pre_run_hooks:
            hook(*args, **kwargs)
        self.builder.stages = stages_of(kwargs, kernel.arg_names)
        row = session.row(kernel)
        row.calls += 1
        warps = limits.warps_of(kwargs, kernel.arg_names)
        row.warps = min(row.warps or warps, warps)
        if session.dry:
            row.programs += int(np.prod(sizes))
            row.add_grid(Grid(int(np.prod(sizes)), 0, False))
            self._sample(kernel, arguments, sizes, row)
            for _, tensor in _tensors(arguments):
                row.add_traffic(tensor.untyped_storage().nbytes() // tensor.element_size(), 0, 0, stored=False)
            return
        meter = Meter(row, list(_tensors(arguments)), session.budget, self.addresses)
        with self._metering(meter), np.errstate(all="ignore"):
            values = self._values(kernel, arguments)
            if row.site in session.skip or 0 in sizes:
                return
            row.programs += int(np.prod(sizes))
            self._run(kernel, values, sizes)
        session.budget -= meter.work
        meter.finish(int(np.prod(sizes)))

    def _sample(self, kernel: upstream.InterpretedFunction, arguments: dict, sizes: tuple, row: Row) -> None:
        """Adds what a launch without data does, of which some of its programs say."""
        if 0 in sizes:
            return
        known = self._sampled.setdefault(kernel, {})
        key = sizes, repr([a.dtype if isinstance(a, torch.Tensor) else a for a in arguments.values()])
        if key not in known and len(known) < sampled.LAUNCHES:

            def run(meter: Meter, place: np.ndarray) -> None:
                with self._metering(meter), np.errstate(all="ignore"):
                    self._place(sizes)
                    self._batch(_body(kernel), self._values(kernel, arguments), place)

            try:
                known[key] = sampled.work(run, sizes, self.seed, list(_given(arguments)))
            except Exception as error:
                raise _located(kernel, error) from error
        a_program = known[key] if key in known else np.mean(list(known.values()), axis=0)
        if key not in known:
            a_program[-2:] = STORES_UNKNOWN
        for name, number in zip(sampled.COUNTED, a_program, strict=True):
            kind = type(getattr(row, name))
            setattr(row, name, kind(min(getattr(row, name) + float(number) * int(np.prod(sizes)), STORES_UNKNOWN)))

    @contextlib.contextmanager
    def _metering(self, meter: Meter) -> Iterator[None]:
        outer, self.builder.meter = self.builder.meter, meter
        try:
            yield
        finally:
            self.builder.meter = outer

    def _values(self, kernel: upstream.InterpretedFunction, arguments: dict) -> dict:
        """The arguments as the kernel takes them."""
        constants = _constants(kernel)
        for name in constants:
            if isinstance(arguments.get(name), torch.Tensor):
                raise errors.InterpreterError(f"kernel `{kernel.__name__}`: the constant `{name}` is a tensor")
        for name in arguments.keys() - constants:
            limits.check_argument(kernel.__name__, name, arguments[name])
        return {n: a if n in constants else self._value(a) for n, a in arguments.items()}

    def _run(self, kernel: upstream.InterpretedFunction, values: dict, sizes: tuple) -> None:
        self._place(sizes)
        try:
            body = _body(kernel)
            start, total, batch = 0, int(np.prod(sizes)), 32
            while start < total:
                ids = np.arange(start, min(start + batch, total))
                shape = self.builder.grid_dim[::-1]
                self._batch(body, values, np.stack(np.unravel_index(ids, shape)[::-1], axis=1).astype(np.int32))
                start += len(ids)
                batch = max(1, min(BATCH_ELEMENTS // self.builder.meter.largest, 4096))
        except Exception as error:
            raise _located(kernel, error) from error

    def _place(self, sizes: tuple) -> None:
        self.builder.set_grid_dim(*sizes, *(1,) * (3 - len(sizes)))
        self.builder.order = np.random.default_rng(0)

    def _batch(self, body: Callable, values: dict, programs: np.ndarray, splits: int = 0) -> None:
        """Runs programs as one batch. Where they diverge, takes back their stores and runs each group by itself.

        Programs that leave a loop one by one split off one by one. After a few splits each runs alone.
        """
        builder, meter = self.builder, self.builder.meter
        builder.programs, builder.undo, builder.remembered, builder.loop = programs, [], 0, None
        meter.begin(programs @ self._strides())
        before = meter.snapshot()
        try:
            body(**values)
        except Divergence as split:
            builder.roll_back()
            meter.restore(before)
            alike = split.values if splits < NESTED_SPLITS else np.arange(len(programs))
            _, first, group = np.unique(alike, return_index=True, return_inverse=True)
            for index in np.argsort(first):
                self._batch(body, values, programs[group.reshape(-1) == index], splits + 1)

    def _strides(self) -> np.ndarray:
        """What a program's number in the launch grows by along each axis of the grid."""
        across, down, _ = self.builder.grid_dim
        return np.array([1, across, across * down])

    def _value(self, argument: Any) -> Any:
        """An argument as the interpreter takes it."""
        if isinstance(argument, bool):
            return argument
        if isinstance(argument, tuple):
            return upstream._tuple_create(argument, map(self._value, argument))
        value = upstream._implicit_cvt(argument)
        if isinstance(argument, int) and argument >= 2**31:
            value.handle.data = value.handle.data.astype(batched.np_dtype(value.type))  # not uint32 for an int64
        return value


@contextlib.contextmanager
def _collecting() -> Iterator[None]:
    """Garbage is collected in this block, and not around it where runners are: what it computes is recorded."""
    before = gc.isenabled()
    gc.enable()
    try:
        yield
    finally:
        if not before:
            gc.disable()


def _tensors(arguments: dict[str, Any]) -> Iterator[tuple[str, torch.Tensor]]:
    """The tensors among the arguments of a launch, each with the argument's name and nobody else's attributes."""
    return ((name, plain(tensor)) for name, tensor in _given(arguments))


def _given(arguments: dict[str, Any]) -> Iterator[tuple[str, torch.Tensor]]:
    """The tensors among the arguments as they are."""
    for name, value in arguments.items():
        for item in value if isinstance(value, tuple) else (value,):
            item = item.base if isinstance(item, (TensorDescriptor, triton.runtime.jit.TensorWrapper)) else item
            if isinstance(item, torch.Tensor):
                yield name, item


def _body(kernel: upstream.InterpretedFunction) -> Callable:
    """The kernel's function as the interpreter runs it, once it is known that the compiler would take it."""
    fn = kernel.fn
    body = _bodies.get(fn)
    if body is None:
        if not opaque.is_ours(fn.__code__.co_filename):
            refuse_what_does_not_compile(fn)
        body = _bodies[fn] = upstream.FunctionRewriter(fn, **kernel.kwargs).rewrite_ast()
    return body


_bodies: weakref.WeakKeyDictionary[Callable, Callable] = weakref.WeakKeyDictionary()
"""By the functions of kernels: those that run. No attribute of a kernel leads here."""


def _located(kernel: upstream.InterpretedFunction, error: Exception) -> Exception:
    """The error with the kernel, the line of its file and the line's text, as the submission's author needs it."""
    file, line, trace = kernel.fn.__code__.co_filename, kernel.fn.__code__.co_firstlineno, error.__traceback__
    while trace is not None:
        if trace.tb_frame.f_code.co_filename == file:
            line = trace.tb_lineno
        trace = trace.tb_next
    line = getattr(error, "kernel_line", line)
    text = linecache.getline(file, line).strip()
    place = f"kernel `{kernel.__name__}` line {line}" + (f" `{text}`" if text else "")
    if isinstance(error, (MemoryFault, WorkBudgetExceeded, limits.LaunchLimitExceeded)):
        return type(error)(f"{place}: {error}")
    return errors.InterpreterError(f"{place}: {type(error).__name__}: {error}")


def build() -> Machine:
    """Patches Triton in this process; once."""
    machine = Machine()
    upstream.TensorHandle = BlockValue
    upstream._get_np_dtype = batched.np_dtype
    upstream.interpreter_builder = machine.builder
    upstream.interpreter_semantic = machine.semantic
    upstream.BlockPointerHandle.materialize_pointers = block_pointers.materialize_block_pointer
    upstream.TensorDescHandle.materialize_pointers = block_pointers.materialize_descriptor
    upstream.TensorDescHandle.validate = block_pointers.checked_descriptor
    upstream.FunctionRewriter.ast_transformer = LoopTransformer()
    use_own_names(machine.semantic)
    upstream.InterpretedFunction.run = lambda kernel, *args, **kwargs: _run(machine, kernel, args, **kwargs)
    upstream.InterpretedFunction.__call__ = lambda kernel, *args, **kwargs: _body(kernel)(*args, **kwargs)
    autotuner.Autotuner.run = autotuning.run_one_configuration
    _interpret_library()
    _patch_language(machine)
    triton.runtime.jit.mangle_type(torch.empty(0))  # imports what the first launch would, before workers are forked
    record_without_modes(machine.suspended)
    keep_fused_operators_whole()
    opaque.lock(*opaque.classes_of_triton(), LoopValue, BlockValue)
    return machine


def _run(
    machine: Machine, kernel: upstream.InterpretedFunction, args: tuple, grid: Any, warmup: bool = False, **kwargs: Any
) -> CompiledKernel:
    """In the place of the kernel's `run`: launches it, unless it shall only be compiled."""
    if not warmup:
        machine.launch(kernel, args, kwargs, grid)
    given = {**dict(zip(kernel.arg_names, args, strict=False)), **kwargs}
    fixed = {kernel.arg_names.index(name): given[name] for name in _constants(kernel) & given.keys()}
    return CompiledKernel(kernel.__name__, lambda *launch: machine.launch(kernel, *launch), kwargs, fixed)


def _constants(kernel: upstream.InterpretedFunction) -> set[str]:
    """The names of a kernel's constants."""
    return {name for name, kind in kernel.fn.__annotations__.items() if "constexpr" in str(kind)}


def _interpret_library() -> None:
    """Makes library functions (tl.sum, ...) interpreted where Triton was imported before TRITON_INTERPRET was set."""
    compiled = triton.runtime.jit.JITFunction
    interpreted = functools.cache(upstream.InterpretedFunction)
    modules = [module for name, module in sys.modules.items() if name.startswith("triton.language")]
    for holder in (*modules, tl.tensor):
        for name, value in list(vars(holder).items()):
            if isinstance(value, compiled):
                function = interpreted(value.fn)
                method = lambda *args, _function=function, **kwargs: _function(*args, **kwargs)
                setattr(holder, name, method if holder is tl.tensor else function)


def _patch_language(machine: Machine) -> None:
    """Binds triton.language to this interpreter, for good."""
    from triton.language.extra import libdevice as portable
    from triton.language.extra.cuda import libdevice

    from drkernel.judge.untrusted.simulated import reductions

    scope = upstream._LangPatchScope()
    for module in (tl, tl.core):
        _bind(module, machine.semantic)
        upstream._patch_lang_core(module, scope)
    for module in (tl, tl.core):
        module.static_range = static_range
        module.reduce = lambda *args, **options: reductions.reduce(
            machine, *args, **options
        )  # a partial has its `args`
        module.associative_scan = lambda *args, **options: reductions.scan(machine, *args, **options)
    for holder in (tl.tensor, tl.math, tl.core.tensor_descriptor_base, libdevice):
        _bind(holder, machine.semantic)
    for name, function in inspect.getmembers(portable, inspect.isfunction):
        setattr(portable, name, getattr(libdevice, name, function))
    scalar = machine.builder.scalar
    look_at = machine.semantic.look_at
    tl.tensor.__index__ = lambda self: look_at(self) or int(scalar(self.handle.data))
    tl.tensor.__bool__ = lambda self: look_at(self) or (self.handle.data.ndim > 1 or bool(scalar(self.handle.data)))
    tl.tensor.T = property(lambda self: machine.semantic.permute(self, (1, 0)))
    opaque.hide()


_BUILTIN_WRAPPER = tl.core.builtin(lambda: None).__code__


def _bind(holder: Any, semantic: TritonSemantic) -> None:
    """Gives every builtin of a module or class the interpreter's semantic."""
    for name, member in inspect.getmembers(holder):
        if tl.core.is_builtin(member):
            setattr(holder, name, _bound(member, semantic))


def _bound(member: Callable, semantic: TritonSemantic) -> Callable:
    function = vars(member)["__wrapped__"] if getattr(member, "__code__", None) is _BUILTIN_WRAPPER else member

    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        kwargs["_semantic"] = semantic
        return function(*args, **kwargs)

    return call
