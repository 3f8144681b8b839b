"""Records what one forward does on a real GPU: Triton launches by site, ATen operators by kind and size, with times.

It runs in a submission's process, and for the reference in the examiner's. Launches go through two patched methods of
Triton's, operators through a dispatch mode. A launch can be left out, which shows whether the outputs depend on it.
"""

from __future__ import annotations

import contextlib
import functools
import math
import statistics
from collections.abc import Callable, Collection, Iterator, Sequence
from typing import Any

import torch
from torch.utils._python_dispatch import _get_current_dispatch_mode

from drkernel.judge.boundary.aten import Recorder, moves_data, without_compiler
from drkernel.judge.boundary.custom_operators import record_without_modes
from drkernel.judge.boundary.graph_capture import CaptureMode
from drkernel.judge.boundary.op_trace import OpTrace, Row, site_of

MODULE = "submission"
"""Kernels that this module defines count as the submission's own."""
MAX_NAME = 200
_REPEATS = 5
_CLOCK_HZ, _MAX_SLEEP_S = 2e9, 0.05


class Session:
    """One recording.

    Args:
        skip: sites of kernels whose launches are counted and not executed.
        timed: also record how long each launch and operator takes.
        brief: record names and counts alone, which takes little time. CUDA graphs are replayed as they are.
    """

    def __init__(self, skip: Collection[str] = (), timed: bool = False, brief: bool = False):
        self.trace, self.skip, self.brief = OpTrace(), frozenset(skip), brief
        self.spans: list[tuple[str, bool, torch.cuda.Event, torch.cuda.Event]] | None = [] if timed else None
        self.recorder = _Recorder(self)
        self._rows: dict[str, Row] = {}

    def row(self, name: str, site: str, triton: bool = True) -> Row:
        if site not in self._rows:
            self._rows[site] = Row(name[:MAX_NAME], site[:MAX_NAME], triton)
            self.trace.rows.append(self._rows[site])
        return self._rows[site]

    def operator(self, operator: Any) -> None:
        self.row(_name(operator), _name(operator), triton=False).calls += 1

    def note(self, step: functools.partial) -> None:
        """Counts what a CUDA graph does at this step: a partial of replay_operator, or of a kernel's `run`."""
        kernel = getattr(step.func, "__self__", None)
        if kernel is None:
            self.operator(step.args[0])
        else:
            row = self.row(kernel.fn.__name__, site_of(kernel))
            row.calls, row.programs = row.calls + 1, row.programs + 1

    @contextlib.contextmanager
    def span(self, name: str, triton: bool) -> Iterator[None]:
        """Times what the block enqueues, if this recording is a timed one."""
        if self.spans is None:
            yield
            return
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        start.record()
        yield
        end.record()
        self.spans.append((name, triton, start, end))


class _State:
    """What the patches of this process share."""

    session: Session | None = None
    """The innermost recording."""
    capture: list[Callable[[], None]] | None = None
    """The steps of the CUDA graph that is being captured."""
    paused = False
    """Whether launches are not recorded, since an autotuner makes them."""
    installed = False


@without_compiler
class _Recorder(Recorder):
    """Tells a session of each ATen operator."""

    def __init__(self, session: Session):
        super().__init__(session.trace)
        self._session = session

    def __torch_dispatch__(self, func: Any, types: Any, args: tuple = (), kwargs: dict | None = None) -> Any:
        kwargs = kwargs or {}
        if not moves_data(func):
            return func(*args, **kwargs)
        with self._session.span(_name(func), False):
            result = func(*args, **kwargs)
        if self._session.brief:
            self._session.operator(func)
        else:
            self._record(func, args, kwargs, result)
        return result


def _name(operator: Any) -> str:
    return operator._overloadpacket.__name__


@contextlib.contextmanager
def record(skip: Collection[str] = (), budget: float = math.inf, brief: bool = False) -> Iterator[OpTrace]:
    """Counts the Triton launches and ATen operators of the block.

    Args:
        skip: sites of kernels whose launches are counted and not executed.
        budget: ignored. On a GPU, timeouts bound the work instead.
        brief: see Session.
    """
    with _recording(Session(skip, brief=brief)) as session:
        yield session.trace


@contextlib.contextmanager
def _recording(session: Session) -> Iterator[Session]:
    outer, _State.session = _State.session, session
    try:
        with session.recorder:
            yield session
    finally:
        _State.session = outer


def times(forward: Callable[[], Any], empty_us: float, ahead_s: float) -> list[tuple[str, bool, int, float]]:
    """(name or site, whether it is an own kernel, calls, microseconds) of everything that one forward enqueues.

    The device idles for `ahead_s` seconds while that happens, so that no span contains the host's time. `empty_us` is
    what a span without work measures.
    """
    torch.cuda._sleep(int(min(ahead_s, _MAX_SLEEP_S) * _CLOCK_HZ))
    with _recording(Session(timed=True)) as session:
        forward()
    torch.cuda.synchronize()
    rows: dict[tuple[str, bool], list[float]] = {}
    for name, triton, start, end in session.spans or ():
        rows.setdefault((name, triton), []).append(max(0.0, 1e3 * start.elapsed_time(end) - empty_us))
    return [(name, triton, len(spans), sum(spans)) for (name, triton), spans in rows.items()]


def empty_span() -> float:
    """Microseconds between two events with nothing between them."""
    spans = []
    for _ in range(_REPEATS):
        torch.cuda._sleep(200_000)
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        start.record()
        end.record()
        end.synchronize()
        spans.append(1e3 * start.elapsed_time(end))
    return statistics.median(spans)


def install() -> None:
    """Patches Triton's launches and autotuner, CUDA graphs and custom operators in this process, for good."""
    if _State.installed:
        return
    _State.installed = True
    from triton.compiler import CompiledKernel
    from triton.runtime.jit import JITFunction

    JITFunction.run = _counted(JITFunction.run)
    CompiledKernel.__getitem__ = _counted_compiled(CompiledKernel.__getitem__)
    _shorten_autotuning()
    _follow_graphs()
    record_without_modes(_suspended)


def _suspended() -> list[Any]:
    """The recorder, where torch has taken it off its stack."""
    session = _State.session
    return [session.recorder] if session and _get_current_dispatch_mode() is not session.recorder else []


def _counted(run: Callable) -> Callable:
    @functools.wraps(run)
    def counted(self: Any, *args: Any, grid: Any, warmup: bool, **kwargs: Any) -> Any:
        session, own = _State.session, self.fn.__module__ == MODULE
        if warmup or _State.paused or not own:
            return run(self, *args, grid=grid, warmup=warmup, **kwargs)
        if _State.capture is not None:
            _State.capture.append(functools.partial(self.run, *args, grid=grid, warmup=False, **kwargs))
        if session is None:
            return run(self, *args, grid=grid, warmup=False, **kwargs)
        row = session.row(self.fn.__name__, site_of(self))
        row.calls += 1
        if row.site in session.skip:
            if callable(grid):  # what a grid function computes is no work of the kernel
                defaults = {parameter.name: parameter.default for parameter in self.params if parameter.has_default}
                grid(defaults | dict(zip(self.arg_names, args, strict=False)) | kwargs)
            return run(self, *args, grid=grid, warmup=True, **kwargs)

        def sizes(bound: Any) -> Any:
            given = grid(bound) if callable(grid) else grid
            row.programs += math.prod(int(size) for size in given)
            return given

        with session.span(row.site, True):
            return run(self, *args, grid=sizes, warmup=False, **kwargs)

    return counted


class _Launch:
    """Launches of a compiled kernel, as `kernel.warmup(...)` gives it, on one grid: Triton does not ask the kernel.

    Args:
        kernel: the kernel that was compiled.
        launch: launch(*args) makes one.
    """

    def __init__(self, kernel: Any, grid: Sequence[int], launch: Callable):
        self.fn, self._programs, self._launch = kernel.fn, math.prod(int(size) for size in grid), launch

    def run(self, *args: Any, stream: Any = None) -> None:
        session = _State.session
        if _State.capture is not None:
            _State.capture.append(functools.partial(self.run, *args))
        if session is None or _State.paused:
            return self._launch(*args, stream=stream)
        row = session.row(self.fn.__name__, site_of(self))
        row.calls += 1
        if row.site not in session.skip:
            row.programs += self._programs
            with session.span(row.site, True):
                self._launch(*args, stream=stream)


def _counted_compiled(launches: Callable) -> Callable:
    @functools.wraps(launches)
    def counted(self: Any, grid: Any) -> Callable:
        launch, kernel = launches(self, grid), getattr(self.src, "fn", None)
        own = kernel is not None and kernel.fn.__module__ == MODULE
        return _Launch(kernel, grid, launch).run if own else launch

    return counted


def _shorten_autotuning() -> None:
    """Makes autotuning take a few launches per configuration instead of an eighth of a second.

    They are not recorded. What hooks and grid functions compute is.
    """
    from triton.runtime.autotuner import Autotuner

    bench = Autotuner._bench

    @functools.wraps(bench)
    def paused(self: Any, *args: Any, **kwargs: Any) -> Any:
        outer, _State.paused = _State.paused, True
        try:
            self.__dict__["do_bench"] = _quick_bench
            return bench(self, *args, **kwargs)
        finally:
            _State.paused = outer

    Autotuner._bench = paused


def _quick_bench(call: Callable[[], Any], quantiles: Any = None, **__: Any) -> Any:
    """In the place of triton.testing.do_bench."""
    spans = []
    for _ in range(_REPEATS + 1):
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        torch.cuda._sleep(50_000)
        start.record()
        call()
        end.record()
        end.synchronize()
        spans.append(start.elapsed_time(end))
    median = statistics.median(spans[1:])
    return [median] * len(quantiles) if quantiles else median


def _follow_graphs() -> None:
    """Makes CUDA graphs remember their steps.

    A replay launches nothing that can be counted or left out. So recordings execute the steps one by one instead, and
    brief ones note them and replay.
    """
    graph = torch.cuda.CUDAGraph
    begin, end, replay = graph.capture_begin, graph.capture_end, graph.replay

    def capture_begin(self: Any, *args: Any, **kwargs: Any) -> None:
        begin(self, *args, **kwargs)
        self.steps = _State.capture = []
        self.mode = CaptureMode(self.steps)
        self.mode.__enter__()

    def capture_end(self: Any) -> None:
        _State.capture = None
        self.mode.__exit__(None, None, None)
        end(self)

    def replayed(self: Any) -> None:
        session = _State.session
        if session and not session.brief and _State.capture is None:
            for step in self.steps:
                step()
            return
        if session:
            for step in self.steps:
                session.note(step)
        replay(self)

    replaced = {"capture_begin": capture_begin, "capture_end": capture_end, "replay": replayed}
    for name, function in replaced.items():
        setattr(graph, name, function)
