"""Other baselines of a speed-up than the judge's: eager PyTorch with TF32, and torch.compile. Measured once and kept.

    python -m drkernel.judge.devices.cuda.baselines STORE.jsonl TASK.py [TASK.py ...] [--gpu 0] [--force]
    python -m drkernel.judge.devices.cuda.baselines STORE.jsonl --source generated --split validation --count 40

The judge times a submission against eager PyTorch, with TF32 where the task's precision allows it. A row of the store
has that time too, measured interleaved with the others. So a row adds ratios: a verdict's speed-up over torch.compile
is its speed-up over eager times compile / eager.

A row counts only for the task, GPU, driver and library versions that it was measured with, and only while two fixed
kernels (the probe) are as fast as they were then. Tasks that have such a row are left out, unless --force is given.
Exit status 2 where an argument is wrong or a task could not be measured.
"""

from __future__ import annotations

import argparse
import contextlib
import ctypes
import dataclasses
import datetime
import json
import statistics
import sys
import warnings
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, NoReturn, cast, get_type_hints

import msgspec
import torch
import triton
from msgspec import Meta
from rich.console import Console
from rich.progress import track
from rich.table import Table
from torch import nn

from drkernel.hardware.visible import visible_gpus
from drkernel.judge.boundary import tf32
from drkernel.judge.devices.cuda.gpu_lock import gpu_lock
from drkernel.judge.devices.cuda.interleaving import flush_buffer, median_interval
from drkernel.judge.devices.cuda.stopwatch import PROBES, Variant, interleave, probe
from drkernel.judge.trusted.cases import modes
from drkernel.tasks import load_tasks, read_task, with_precision
from drkernel.tasks.module import Reference
from drkernel.types import PRECISIONS, DrKernelError, Precision, Task

DRIFT = 0.02
"""Largest relative difference of a probe between then and now."""
VARIANTS = ("eager", "eager_tf32", "compile")
_SEED, _MAX_ERROR = 1, 500

Microseconds = Annotated[float, Meta(gt=0, le=sys.float_info.max, description="a positive number")]
Interval = Annotated[list[Microseconds], Meta(min_length=2, max_length=2)]
Text = Annotated[str, Meta(description="text")]
"""The types of a row's values; a type's description says what was expected where a value does not fit."""


@dataclass(frozen=True)
class Machine:
    """The GPU and the software that a time was measured with. Machines that differ in `uuid` alone are equal."""

    gpu: str
    uuid: str = field(compare=False)
    driver: str
    torch: str
    triton: str
    cuda: str


@dataclass(frozen=True)
class Row:
    """One measurement of one task; a line of the store."""

    task: Text
    digest: Text
    gpu: Text
    uuid: Text
    driver: Text
    torch: Text
    triton: Text
    cuda: Text
    date: Text
    """UTC, ISO 8601."""
    probe: Annotated[
        dict[Annotated[str, Meta(pattern=rf"^({'|'.join(PROBES)})\Z")], Microseconds],
        Meta(min_length=2, description=f"positive numbers under {' and '.join(PROBES)}"),
    ]
    """Microseconds of the two fixed kernels, right before."""
    train: Annotated[bool, Meta(description="true or false")]
    """Whether the task was run in training mode: the mode that the judge tries first."""
    eager_us: Microseconds
    """Median device time of one forward without TF32, launch latency hidden, cold L2 cache."""
    eager_tf32_us: Microseconds
    compile_us: Annotated[Microseconds | None, Meta(description="a positive number or null")]
    """With torch.compile in its default mode, static shapes; with TF32 where the task's precision allows it."""
    compile_error: Annotated[str | None, Meta(description="text or null")]
    intervals: Annotated[
        dict[Annotated[str, Meta(pattern=rf"^({'|'.join(VARIANTS)})\Z")], Interval],
        Meta(description=f"[low, high] under some of {', '.join(VARIANTS)}"),
    ]
    """95 % interval of each median, in microseconds."""

    @property
    def machine(self) -> Machine:
        return Machine(**{f.name: getattr(self, f.name) for f in dataclasses.fields(Machine)})


_FIELDS = get_type_hints(Row, include_extras=True)


class Store:
    """Rows in a file of JSON lines.

    Raises:
        DrKernelError: no such file, or a line that is no row, with its number and key.
    """

    def __init__(self, path: str | Path):
        self._path = Path(path)
        self._rows: list[Row] = []
        try:
            lines = self._path.read_text(encoding="utf-8").splitlines()
        except (OSError, UnicodeDecodeError) as error:
            raise DrKernelError(f"baselines {path}: cannot be read: {error}") from error
        for number, line in enumerate(lines, 1):
            if line.strip():
                self._rows.append(_parsed(line, f"baselines {path}: line {number}"))

    def find(self, task: Task, machine: Machine, probe: dict[str, float]) -> Row | None:
        """The latest row of a task that was measured on such a machine while it was as fast as it is now (`probe`)."""
        for row in reversed(self._rows):
            if row.digest == task.digest and row.machine == machine and not drifted(row.probe, probe):
                return row
        return None

    def add(self, row: Row) -> None:
        """Appends a row, to the file in one piece.

        Raises:
            DrKernelError: the file cannot be written.
        """
        line = (json.dumps(dataclasses.asdict(row)) + "\n").encode()
        try:
            with open(self._path, "ab", buffering=0) as out:
                out.write(line)
        except OSError as error:
            raise DrKernelError(f"baselines {self._path}: cannot be written: {error.strerror}") from error
        self._rows.append(row)


def drifted(then: dict[str, float], now: dict[str, float]) -> bool:
    """Whether a GPU is slower or faster than it was.

    >>> drifted({"copy_us": 100.0, "matmul_us": 200.0}, {"copy_us": 101.0, "matmul_us": 205.0})
    True
    """
    return any(abs(then[name] / now[name] - 1) > DRIFT for name in PROBES)


def speedup_over(row: Row, speedup: float, precision: Precision = "ieee") -> dict[str, float]:
    """A speed-up over the judge's own baseline as speed-ups over the others. The judge's is eager, with TF32 where the
    task's precision allows it."""
    others = {"eager_tf32": row.eager_tf32_us, "compile": row.compile_us}
    own_us = row.eager_tf32_us if tf32.allowed_by(precision) else row.eager_us
    return {name: round(speedup * us / own_us, 4) for name, us in others.items() if us is not None}


def add_speedups(store: Store, task: Task, answer: dict[str, Any]) -> None:
    """Puts `speedup_over` into the evidence of an examiner's verdict, where it has times and the store has a row; also
    into what the evidence says of the other criterion."""
    evidence, facts = answer["verdict"]["evidence"], dict(answer.get("machine") or {})
    theirs = evidence.get("kernelbench", {})
    first = evidence.get("timed_shapes", {}).get("shapes", [answer["verdict"]])[0]  # rows are of the published shape
    own = {"speedup": first.get("speedup"), "training": evidence.get("training", theirs.get("training"))}
    timed = [(into, of) for into, of in ((evidence, own), (theirs, theirs)) if of.get("speedup") is not None]
    if not facts or not timed:
        return
    probe = facts.pop("probe")
    row = store.find(task, Machine(**facts), probe)
    for into, of in timed:
        if row is not None and row.train == of.get("training"):
            into["speedup_over"] = speedup_over(row, of["speedup"], task.precision)


def today() -> dict[str, Any]:
    """What an examiner reports of its GPU: the fields of `Machine`, and `probe`. Nothing else may run on the GPU."""
    return {**dataclasses.asdict(machine()), "probe": probe()}


def machine() -> Machine:
    """The current GPU and the software around it."""
    gpu = torch.cuda.get_device_properties(torch.cuda.current_device())
    versions = map(str, (torch.__version__, triton.__version__, torch.version.cuda))
    return Machine(gpu.name, str(gpu.uuid), _driver_version(), *versions)


def _driver_version() -> str:
    try:
        library, text = ctypes.CDLL("libnvidia-ml.so.1"), ctypes.create_string_buffer(80)
    except OSError:
        return "unknown"
    if library.nvmlInit_v2() or library.nvmlSystemGetDriverVersion(text, len(text)):
        return "unknown"
    return text.value.decode()


def measure(task: Task) -> Row:
    """Measures one task at its published sizes on the current GPU; the default device must be `cuda`.

    Raises:
        DrKernelError: the reference fails.
    """
    where, reference = machine(), Reference(task)
    train = modes.mode_alternatives(reference, _SEED)[0][0]
    model = reference.model(_SEED).train(train)
    flush = flush_buffer()
    variants = {"eager": Variant(reference, model, False, flush), "eager_tf32": Variant(reference, model, True, flush)}
    compiled, problem = _compiled(reference, model)
    if compiled is not None:
        variants["compile"] = Variant(reference, compiled, tf32.allowed_by(task.precision), flush)
    with _alone(where.uuid):
        fixed = probe()
        times = interleave(variants, reference, _SEED)
    medians = {name: statistics.median(values) for name, values in times.items()}
    return Row(
        task=task.id,
        digest=task.digest,
        **dataclasses.asdict(where),
        date=datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds"),
        probe=fixed,
        train=train,
        eager_us=round(medians["eager"], 3),
        eager_tf32_us=round(medians["eager_tf32"], 3),
        compile_us=round(medians["compile"], 3) if compiled is not None else None,
        compile_error=problem,
        intervals={name: [round(us, 3) for us in median_interval(values)] for name, values in times.items()},
    )


def _compiled(reference: Reference, model: nn.Module) -> tuple[nn.Module | None, str | None]:
    """The compiled model after its first calls, or why there is none."""
    tf32.allow(tf32.allowed_by(reference.task.precision))
    torch._dynamo.reset()
    module, inputs = cast(nn.Module, torch.compile(model, dynamic=False)), reference.inputs(_SEED)
    reference.forward(model, inputs)  # what fails here too is the task's fault
    try:
        for _ in range(3):
            reference.forward(module, inputs)
        torch.cuda.synchronize()
    except DrKernelError as error:
        return None, str(error)[:_MAX_ERROR]
    return module, None


@contextlib.contextmanager
def _alone(uuid: str) -> Iterator[None]:
    """A block in which no judge of this host times on the GPU."""
    lock = gpu_lock(uuid)
    lock.acquire(exclusive=True)
    try:
        yield
    finally:
        lock.release()


def _parsed(line: str, place: str) -> Row:
    try:
        record = json.loads(line)
    except json.JSONDecodeError as error:
        raise DrKernelError(f"{place}: not JSON: {error.msg}") from error
    if not isinstance(record, dict):
        raise DrKernelError(f"{place}: expected an object, found {type(record).__name__}")
    values = {}
    for key in (*_FIELDS, *record):
        if key not in record:
            raise DrKernelError(f"{place}: key {key!r} is missing")
        if key not in _FIELDS:
            raise DrKernelError(f"{place}: unknown key {key!r}; a row has {', '.join(_FIELDS)}")
        try:
            values[key] = msgspec.convert(record[key], _FIELDS[key], strict=True)
        except msgspec.ValidationError as error:
            expected = _FIELDS[key].__metadata__[-1].description
            raise DrKernelError(f"{place}: {key!r} is {record[key]!r}, expected {expected}") from error
    row = Row(**values)
    for name, (low, high) in row.intervals.items():
        if low > high:
            raise DrKernelError(f"{place}: 'intervals' has {[low, high]} for {name}, expected [low, high]")
    if (row.compile_us is None) == (row.compile_error is None):
        raise DrKernelError(f"{place}: expected either 'compile_us' or 'compile_error' to be null")
    return row


def main(arguments: list[str] | None = None) -> int:
    try:
        options = _parse(arguments)
        tasks = _tasks(options)
        _take_gpu(options.gpu)
        store = _opened(options.store)
        wanted = _without_row(store, tasks) if not options.force else tasks
        problems = _fill(store, wanted)
    except DrKernelError as error:
        problems = [str(error)]
    for problem in problems:
        print(f"error: {problem}", file=sys.stderr)
    return 2 if problems else 0


def _without_row(store: Store, tasks: list[Task]) -> list[Task]:
    """The tasks of which the store has no row that holds on this GPU at its present speed."""
    where = machine()
    with _alone(where.uuid):
        now = probe()
    wanted = [task for task in tasks if store.find(task, where, now) is None]
    print(f"{len(tasks) - len(wanted)} of {len(tasks)} tasks have a valid row already", file=sys.stderr)
    return wanted


def _fill(store: Store, tasks: list[Task]) -> list[str]:
    """Measures tasks into the store and shows their times. Returns why some could not be measured."""
    problems = []
    table = Table("task", *(f"{name} us" for name in VARIANTS))
    for task in track(tasks, "measuring baselines", console=Console(stderr=True)):
        try:
            row = measure(task)
        except DrKernelError as error:
            problems.append(str(error))
            continue
        finally:
            torch.cuda.empty_cache()
        store.add(row)
        compiled = f"{row.compile_us:.2f}" if row.compile_us is not None else "failed"
        table.add_row(row.task, f"{row.eager_us:.2f}", f"{row.eager_tf32_us:.2f}", compiled)
    if table.row_count:
        Console().print(table)
    return problems


def _take_gpu(name: str | None) -> None:
    """Makes a GPU of those that are visible the one to measure on."""
    gpus = visible_gpus()
    if not gpus or not torch.cuda.is_available():
        raise DrKernelError("baselines: this needs a GPU and none is visible")
    if name is not None and name not in gpus:
        raise DrKernelError(f"baselines: --gpu is {name!r}, expected one of {', '.join(gpus)}")
    warnings.simplefilter("ignore")
    torch.cuda.set_device(gpus.index(name or gpus[0]))
    torch.set_default_device("cuda")


def _opened(path: str) -> Store:
    """The store; a new file where there is none. Finds out whether it can be written before any work is done."""
    try:
        with open(path, "a"):
            pass
    except OSError as error:
        raise DrKernelError(f"baselines {path}: cannot be written: {error.strerror}") from error
    return Store(path)


def _tasks(options: argparse.Namespace) -> list[Task]:
    if options.tasks:
        return [with_precision(read_task(path), options.precision) for path in options.tasks]
    chosen = {"split": options.split, "count": options.count, "seed": options.seed}
    return load_tasks(options.source, precision=options.precision, **chosen)


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        raise DrKernelError(message)


def _parse(arguments: list[str] | None) -> argparse.Namespace:
    parser = _Parser(
        "python -m drkernel.judge.devices.cuda.baselines", description="Measure what speed-ups are stated over."
    )
    parser.add_argument("store", metavar="STORE.jsonl", help="where rows are looked up and added")
    parser.add_argument("tasks", nargs="*", metavar="TASK.py", help="references in KernelBench's format")
    parser.add_argument("--source", help="instead of files: generated, a folder, a .jsonl or .parquet file, hub:<id>")
    parser.add_argument("--split", default="validation", help="of --source: train, validation, test or all")
    parser.add_argument("--count", type=int, help="how many tasks of --source, by default all")
    parser.add_argument("--seed", type=int, default=0, help="which tasks of --source, where there are more")
    parser.add_argument(
        "--precision", choices=PRECISIONS, default=PRECISIONS[0], help="of all tasks, see tasks.precision"
    )
    parser.add_argument("--gpu", help="as CUDA_VISIBLE_DEVICES names it, by default the first")
    parser.add_argument("--force", action="store_true", help="measure tasks that have a valid row as well")
    options = parser.parse_args(arguments)
    if bool(options.tasks) == bool(options.source):
        parser.error("give task files or --source")
    return options


if __name__ == "__main__":
    sys.exit(main())
