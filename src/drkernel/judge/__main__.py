"""The command line of the judge: `drkernel-judge`, or `python -m drkernel.judge` where nothing is installed.

    drkernel-judge TASK.py SUBMISSION.py [--json]
    drkernel-judge --batch PAIRS.jsonl --out VERDICTS.jsonl [--workers N]
    drkernel-judge --serve HOST:PORT [--token-file FILE]

A line of PAIRS is {"task": path, "submission": path}. A line of VERDICTS is the verdict on the pair with that `index`,
in the order of the pairs. Where a pair or its task is unusable, the line has `error` instead. Exit status: 0 when all
verdicts were reached, whatever they are; 1 where the judge failed (status `judge_failure`); 2 where a task is unusable
or an argument is wrong. A server (network/server.py) runs until SIGTERM or Ctrl-C, and then ends with 0.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import re
import signal
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import Future
from pathlib import Path
from typing import Any, NoReturn

from rich.console import Console
from rich.progress import track
from rich.table import Table

from drkernel.judge.boundary.framing import MAX_SOURCE
from drkernel.judge.network.connection import read_token
from drkernel.judge.network.server import HttpServer
from drkernel.judge.options import TIMEOUT_S, WORDS
from drkernel.judge.service import Judge
from drkernel.judge.trusted.processes.worker_process import NotPrepared
from drkernel.tasks import read_task
from drkernel.tasks.precision import AUTO, with_precision
from drkernel.types import PRECISIONS, DrKernelError, KernelTime, Task, Verdict

_COLOURS = {"ok": "green", "hack": "red", "suspicious": "magenta", "judge_failure": "blue"}
_SHOWN = 80
"""Characters of a line that is no pair."""


def main(arguments: list[str] | None = None) -> int:
    """Judges what the arguments name (by default those of the process) and returns the exit status."""
    try:
        options = _parse(arguments)
        if options.serve:
            return _serve(options)
        if options.batch:
            return _batch(options)
        task, source = _task(options.task, options.precision), _submission(options.submission, must_exist=True)
        with _judge(options, workers=1) as judge:
            judge.check_task(task)
            verdict = source if isinstance(source, Verdict) else judge.judge(task, source)
    except DrKernelError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1 if isinstance(error, NotPrepared) else 2
    if options.json:
        print(json.dumps(verdict.to_dict()))
    else:
        show(verdict, options.submission)
    return int(verdict.is_judge_failure)


def _serve(options: argparse.Namespace) -> int:
    """Answers requests until a signal ends it; a second signal ends it at once."""
    found = re.fullmatch(r"\[?([^\[\]]+)\]?:(\d{1,5})", options.serve)
    if not found or int(found[2]) >= 2**16:
        raise DrKernelError(f"--serve: found {options.serve}, expected HOST:PORT, e.g. 127.0.0.1:8000")
    token = read_token(options.token_file) if options.token_file else None
    with (
        _first_signal() as ended,
        _judge(options, options.workers) as judge,
        HttpServer(judge, found[1], int(found[2]), token) as server,
    ):
        about = f"measures on {server.about.device}, {judge.options.workers} workers"
        if token is None:
            about += "; without a token, whoever is on this machine may have tasks run as this user"
        print(f"judge: serves {server.url}, {about}", flush=True)
        ended.wait()
    return 0


@contextlib.contextmanager
def _first_signal() -> Iterator[threading.Event]:
    """Is set by the first SIGTERM or Ctrl-C; later ones do what they did before."""
    ended = threading.Event()
    before: dict[signal.Signals, Any] = {}

    def restore() -> None:
        for number, handler in before.items():
            signal.signal(number, handler)

    def handle(*_: Any) -> None:
        ended.set()
        restore()

    for number in (signal.SIGTERM, signal.SIGINT):
        before[number] = signal.signal(number, handle)
    try:
        yield ended
    finally:
        restore()


def show(verdict: Verdict, name: str) -> None:
    """Prints a verdict on one screen."""
    console = Console()
    colour = _COLOURS.get(verdict.status, "yellow")
    console.print(
        f"[bold {colour}]{verdict.status}[/] {verdict.reason}  [dim]{name} on {verdict.device}[/]", highlight=False
    )
    if verdict.detail:
        console.print(verdict.detail, markup=False, highlight=False)
    if verdict.speedup is not None:
        numbers = f"speed-up {verdict.speedup:.2f}   coverage {verdict.coverage:.2f}   "
        numbers += f"reference {verdict.reference_ms:.4f} ms   submission {verdict.submission_ms:.4f} ms"
        if (share := verdict.evidence.get("roofline", {}).get("share")) is not None:
            numbers += f"   {100 * share:.0f} % of the GPU's limit"
        console.print(numbers + ("" if verdict.general else "   (fails on other shapes)"), highlight=False)
        _show_shapes(console, verdict)
        console.print(_table("submission", verdict.profile))
        console.print(_table("reference", verdict.reference_profile))
    precision = verdict.evidence.get("precision", "unknown")
    console.print(f"precision {precision}, judged in {verdict.seconds:.2f} s", style="dim", highlight=False)


def _show_shapes(console: Console, verdict: Verdict) -> None:
    """Prints the times at several shapes, where there are such."""
    found = verdict.evidence.get("timed_shapes")
    if not found:
        return
    table = Table("inputs", "speed-up", "reference us", "submission us", title="shapes", title_justify="left")
    for row in found["shapes"]:
        inputs = ", ".join("x".join(map(str, shape)) for shape in row["inputs"] or [])
        times = [f"{row[key]:.2f}" if row[key] else "refused" for key in ("reference_us", "submission_us")]
        table.add_row(inputs, f"{row['speedup']:.2f}", *times)
    console.print(table)
    if missing := found.get("missing"):
        console.print(missing, style="dim", highlight=False)


def _table(title: str, rows: tuple[KernelTime, ...]) -> Table:
    table = Table("kernel", "calls", "us", "", title=title, title_justify="left")
    for row in rows:
        table.add_row(row.name, str(row.calls), f"{row.microseconds:.2f}", "triton" if row.triton else "")
    return table


def _batch(options: argparse.Namespace) -> int:
    lines = [(i, text) for i, text in enumerate(_text(options.batch, "--batch").splitlines()) if text.strip()]
    if not lines:
        raise DrKernelError(f"{options.batch}: no pairs in it")
    problems, failures = [], 0
    _write_nothing(options.out)
    with Path(options.out).open("w") as out, _judge(options, options.workers) as judge:
        pending = [(number, *_begin(judge, options.precision, text)) for number, text in lines]
        for index, (number, pair, result) in enumerate(track(pending, "judging", console=Console(stderr=True))):
            try:
                if isinstance(result, DrKernelError):
                    raise result
                verdict = result.result() if isinstance(result, Future) else result
                record = {"index": index, **pair, **verdict.to_dict()}
                failures += verdict.is_judge_failure
            except DrKernelError as error:
                problems.append(f"{options.batch} line {number + 1}: {error}")
                record = {"index": index, **pair, "error": str(error)}
            out.write(json.dumps(record) + "\n")
            out.flush()
    for problem in problems:
        print(f"error: {problem}", file=sys.stderr)
    return 2 if problems else int(failures > 0)


def _write_nothing(path: str) -> None:
    """Empties the file, so that one that cannot be written is an error before any work is done."""
    try:
        Path(path).write_text("")
    except OSError as error:
        raise DrKernelError(f"--out {path}: {error.strerror}") from error


def _begin(judge: Judge, precision: str, text: str) -> tuple[dict, Any]:
    """A pair and the future of its verdict, or the verdict on an unreadable file, or the error of its line."""
    try:
        pair = json.loads(text)
        if not isinstance(pair, dict) or not all(isinstance(pair.get(key), str) for key in ("task", "submission")):
            raise ValueError
    except ValueError:
        found = text if len(text) <= _SHOWN else f"{text[:_SHOWN]}..."
        return {}, DrKernelError(f'found {found.strip()}, expected {{"task": path, "submission": path}}')
    pair = {key: pair[key] for key in ("task", "submission")}
    try:
        task, source = _task(pair["task"], precision), _submission(pair["submission"])
    except DrKernelError as error:
        return pair, error
    return pair, source if isinstance(source, Verdict) else judge.submit(task, source)


def _task(path: str, precision: str) -> Task:
    """The task of a file, as a training run reads it: with its SMALL, and `auto` by its dtypes."""
    task = read_task(path, str(path))
    return task if precision == AUTO else with_precision(task, precision)


def _submission(path: str, must_exist: bool = False) -> str | Verdict:
    """The source, or the verdict on a file that has none."""
    if must_exist and not Path(path).is_file():
        raise DrKernelError(f"submission {path}: no such file")
    try:
        if Path(path).stat().st_size > 4 * MAX_SOURCE:
            return Verdict("invalid", "too_large", f"the file has more than {4 * MAX_SOURCE} bytes")
        return Path(path).read_bytes().decode()
    except UnicodeDecodeError:
        return Verdict("invalid", "unreadable", "the file is not UTF-8 text")
    except OSError as error:
        return Verdict("invalid", "unreadable", f"the file cannot be read: {error.strerror}")


def _text(path: str, what: str) -> str:
    try:
        return Path(path).read_text()
    except OSError as error:
        raise DrKernelError(f"{what} {path}: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise DrKernelError(f"{what} {path}: not a text file") from error


def _judge(options: argparse.Namespace, workers: int | None) -> Judge:
    return Judge(
        device=options.device,
        gpu=options.gpu,
        gpus=options.gpus.split(",") if options.gpus else None,
        workers=workers,
        timeout_s=options.timeout,
        shapes=options.shapes,
        timed_shapes=options.timed_shapes,
        across_shapes=options.across_shapes,
        criterion=options.criterion,
        lazy_below=options.lazy_below,
        degenerate=options.degenerate,
        price_hacks=options.price_hacks,
        memory_gib=options.memory_gib,
        host_memory_mib=options.host_memory_mib,
        screen=options.screen,
        baselines=options.baselines,
        secret=_secret(options.secret_file) if options.secret_file else None,
    )


def _secret(path: str) -> bytes:
    """The key of hidden inputs, from a file."""
    if not (text := _text(path, "--secret-file").strip()):
        raise DrKernelError(f"--secret-file {path}: found nothing in it, expected a long random text")
    return text.encode()


class _Parser(argparse.ArgumentParser):
    """Raises DrKernelError for wrong arguments, so that they are reported like every other error."""

    def error(self, message: str) -> NoReturn:
        raise DrKernelError(message)


def _program() -> str:
    """The command that this process was called by."""
    return "drkernel-judge" if Path(sys.argv[0]).stem == "drkernel-judge" else "python -m drkernel.judge"


def _parse(arguments: list[str] | None) -> argparse.Namespace:
    timeouts = f"default: {TIMEOUT_S['simulated']:g}, on a GPU {TIMEOUT_S['cuda']:g}"
    parser = _Parser(
        _program(),
        usage="%(prog)s TASK.py SUBMISSION.py [--json] [OPTIONS]\n"
        "       %(prog)s --batch PAIRS.jsonl --out VERDICTS.jsonl [--workers N] [OPTIONS]\n"
        "       %(prog)s --serve HOST:PORT [--token-file FILE] [--workers N] [OPTIONS]",
        description="Judge submissions against tasks: right, honest, how fast, and by whose work.",
        epilog="Exit status: 0 when all verdicts were reached, whatever they are; 1 where the judge failed; 2 where a "
        "task is unusable or an argument is wrong. drkernel/judge/README.md explains the verdicts.",
    )
    parser.add_argument("task", nargs="?", metavar="TASK.py", help="a reference in KernelBench's format")
    parser.add_argument("submission", nargs="?", metavar="SUBMISSION.py", help="a file that defines ModelNew")
    parser.add_argument("--batch", metavar="PAIRS.jsonl", help='lines of {"task": path, "submission": path}')
    parser.add_argument("--out", metavar="VERDICTS.jsonl", help="the file for the verdicts of --batch")
    parser.add_argument("--serve", metavar="HOST:PORT", help="answer requests of other programs and machines")
    parser.add_argument("--token-file", metavar="FILE", help="with --serve: what requests must know, one line")
    device = "what measures; auto: every visible GPU, without one the simulated device"
    parser.add_argument("--device", choices=WORDS["device"], default="auto", help=device)
    parser.add_argument("--gpu", choices=WORDS["gpu"], default="H200", help="the GPU that the simulated device models")
    parser.add_argument("--gpus", metavar="0,1", help="the GPUs that --device cuda measures on; default: all")
    parser.add_argument(
        "--workers",
        type=int,
        metavar="N",
        help="submissions of --batch or --serve judged at a time; default: by the machine",
    )
    parser.add_argument("--timeout", type=float, metavar="SECONDS", help=f"for one call of a submission; {timeouts}")
    parser.add_argument(
        "--shapes",
        choices=WORDS["shapes"],
        default="reject",
        help="what it means to fail on another legal shape; penalise: the speed-up counts as at most 1",
    )
    parser.add_argument(
        "--timed-shapes", type=int, default=1, metavar="N", help="time at N shapes of the task, up to 4; default: 1"
    )
    parser.add_argument(
        "--across-shapes", choices=WORDS["across_shapes"], default="geometric", help="the speed-up over several shapes"
    )
    parser.add_argument(
        "--criterion",
        choices=WORDS["criterion"],
        default="drkernel",
        help="whose rule decides; both: KernelBench's is evidence",
    )
    parser.add_argument(
        "--precision", choices=PRECISIONS, default=AUTO, help="what arithmetic a task allows; auto: by its dtypes"
    )
    lazy = "speed-ups under this count as no real gain; default: 1.05"
    parser.add_argument("--lazy-below", type=float, default=1.05, metavar="SPEEDUP", help=lazy)
    degenerate = "a task that trivial outputs would pass: an error, or its verdicts say so"
    parser.add_argument("--degenerate", choices=WORDS["degenerate"], default="refuse", help=degenerate)
    parser.add_argument("--price-hacks", action="store_true", help="time hacks with right outputs, too")
    parser.add_argument("--memory-gib", type=float, metavar="GIB", help="of each GPU; default: nearly all")
    host = "that a submission may allocate on the host; default: 4096"
    parser.add_argument("--host-memory-mib", type=int, default=4096, metavar="MIB", help=host)
    screen = "with --device cuda, refuse by Triton's interpreter on a CPU first; default: where the options allow it"
    parser.add_argument("--screen", action=argparse.BooleanOptionalAction, help=screen)
    parser.add_argument("--baselines", metavar="FILE", help="a file of drkernel.judge.devices.cuda.baselines")
    secret = "what hidden inputs and shapes derive from; default: drawn anew"
    parser.add_argument("--secret-file", metavar="FILE", help=secret)
    parser.add_argument("--json", action="store_true", help="print the verdict as JSON")
    options = parser.parse_args(arguments)
    if sum(map(bool, (options.batch, options.task, options.serve))) != 1 or bool(options.batch) != bool(options.out):
        parser.error("give TASK.py and SUBMISSION.py, or --batch with --out, or --serve")
    if options.token_file and not options.serve:
        parser.error("--token-file needs --serve")
    if options.task and not options.submission:
        parser.error("SUBMISSION.py is missing")
    return options


if __name__ == "__main__":
    sys.exit(main())
