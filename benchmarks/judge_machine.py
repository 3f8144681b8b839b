"""The facts about a GPU machine that decided how the CUDA judge is built, measured anew.

    python benchmarks/judge_machine.py OUT

Each fact is measured in a process of its own, the whole takes less than a minute; what fails is a row that says so.
OUT/machine.md is one table (question, measured, what the judge does about it), OUT/machine.json has all numbers.
"""

from __future__ import annotations

import argparse
import contextlib
import ctypes
import functools
import itertools
import json
import multiprocessing
import os
import platform
import re
import signal
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

LIBRARY, BUDGET_S, LIMIT_S, REPEATS, LOOP_S = "libcuda.so.1", 58.0, 30.0, 5, 2.5
SMALL, LARGE = 2**26, 2**32
"""Bytes of the areas that a confined process opens."""
TINY_CALLS, TINY_S, SETTLED_S = 200, 3.0, 0.3
STREAM_S, STREAM_BLOCK, STREAM_CYCLES = 1.6, 200, 8_000_000
"""Short kernels are enqueued in blocks while the GPU sleeps, for so many cycles (about 2e9 a second)."""


def call(name: str, *arguments: object) -> None:
    if status := getattr(ctypes.CDLL(LIBRARY), name)(*arguments):
        raise RuntimeError(f"{name}: error {status} of the CUDA driver")


def make_context() -> float:
    """A primary context that has memory; returns the seconds that it took after cuInit."""
    device, context, address = ctypes.c_int(), ctypes.c_void_p(), ctypes.c_uint64()
    call("cuDeviceGet", ctypes.byref(device), 0)
    began = time.perf_counter()
    call("cuDevicePrimaryCtxRetain", ctypes.byref(context), device)
    call("cuCtxSetCurrent", context)
    call("cuMemAlloc_v2", ctypes.byref(address), ctypes.c_size_t(4))
    return time.perf_counter() - began


def one_context() -> dict[str, float]:
    """Milliseconds of each step in this process."""
    ctypes.CDLL(LIBRARY)
    began = time.perf_counter()
    call("cuInit", 0)
    init_ms = 1e3 * (time.perf_counter() - began)
    context_ms = 1e3 * make_context()
    began = time.perf_counter()
    call("cuDevicePrimaryCtxReset_v2", ctypes.c_int(0))
    return {"init_ms": init_ms, "context_ms": context_ms, "reset_ms": 1e3 * (time.perf_counter() - began)}


def use_context() -> None:
    call("cuInit", 0)
    make_context()


def forked(work: Callable[[], Any]) -> Any:
    """What `work` returns in a child process, which is killed right after, as runners are; the child is gone by then.

    Raises:
        RuntimeError: it failed, or died.
    """
    reading, writing = os.pipe()
    pid = os.fork()
    if not pid:
        try:
            answer = {"value": work()}
        except BaseException as error:
            answer = {"error": f"{type(error).__name__}: {error}"}
        os.write(writing, json.dumps(answer).encode())
        os.kill(os.getpid(), signal.SIGKILL)
    os.close(writing)
    with open(reading, "rb") as pipe:
        data = pipe.read()
    os.waitpid(pid, 0)
    answer = json.loads(data or b'{"error": "the child died"}')
    if "error" in answer:
        raise RuntimeError(answer["error"])
    return answer["value"]


def contexts(connections: int) -> dict[str, float]:
    """Medians over fresh processes, while another process holds the GPU."""
    os.environ["CUDA_DEVICE_MAX_CONNECTIONS"] = str(connections)
    with neighbour("hold"):
        laps = [forked(one_context) for _ in range(REPEATS)]
    return {key: statistics.median(lap[key] for lap in laps) for key in laps[0]}


def loop(gpu: str, seconds: float) -> int:
    """How many contexts were made and ended."""
    os.environ["CUDA_VISIBLE_DEVICES"] = gpu
    count, deadline = 0, time.monotonic() + seconds
    while time.monotonic() < deadline:
        forked(use_context)
        count += 1
    return count


def rate(loops: int) -> dict[str, float]:
    """Contexts per second that are made, each in a forked process, and ended by so many loops at once, on all GPUs."""
    gpus = itertools.cycle(os.environ.get("CUDA_VISIBLE_DEVICES", "0").split(","))
    with neighbour("hold"), multiprocessing.get_context("fork").Pool(loops) as pool:
        began = time.monotonic()
        counts = pool.starmap(loop, zip(gpus, [LOOP_S] * loops, strict=False), chunksize=1)
        return {"contexts": sum(counts), "per_second": sum(counts) / (time.monotonic() - began)}


@contextlib.contextmanager
def neighbour(part: str) -> Iterator[subprocess.Popen]:
    """Another process that does what `part` says, from when it is ready; killed at the end."""
    process = subprocess.Popen([sys.executable, __file__, "--part", part], stdout=subprocess.PIPE, text=True)
    try:
        if not process.stdout or process.stdout.readline() != "ready\n":
            raise RuntimeError(f"the neighbour ({part}) does not start")
        yield process
        if process.poll() is not None:
            raise RuntimeError(f"the neighbour ({part}) ended too early")
    finally:
        process.kill()
        process.wait()


def hold(_: int) -> None:
    """Has a context and does nothing."""
    use_context()
    print("ready", flush=True)
    signal.pause()


def products(_: int) -> None:
    """Large matrix products for ever, with a few milliseconds of them enqueued."""
    import torch

    x = torch.randn(8192, 8192, device="cuda", dtype=torch.bfloat16)
    y = torch.empty_like(x)

    def enqueue() -> torch.cuda.Event:
        for _ in range(4):
            torch.mm(x, x, out=y)
        event = torch.cuda.Event()
        event.record()
        return event

    enqueue().synchronize()
    print("ready", flush=True)
    last = enqueue()
    while True:
        following = enqueue()
        last.synchronize()
        last = following


def tiny(_: int) -> dict[str, float]:
    """Microseconds of a tiny kernel: on a free GPU, beside products, and beside the same process when it is stopped."""
    for _ in range(20):
        tiny_us()
    found = tiny_times("free")
    with neighbour("products") as process:
        time.sleep(SETTLED_S)
        found |= tiny_times("beside")
        os.kill(process.pid, signal.SIGSTOP)
        time.sleep(SETTLED_S)
        found |= tiny_times("stopped")
    return found


def tiny_times(name: str) -> dict[str, float]:
    times, deadline = list[float](), time.monotonic() + TINY_S
    while len(times) < TINY_CALLS and time.monotonic() < deadline:
        times.append(tiny_us())
    return {f"{name}_us": statistics.median(times), f"{name}_max_us": max(times), f"{name}_calls": len(times)}


def tiny_us() -> float:
    import torch

    began = time.perf_counter()
    torch.zeros(1, device="cuda")
    torch.cuda.synchronize()
    return 1e6 * (time.perf_counter() - began)


def stream(_: int) -> dict[str, float]:
    """Short kernels of this process on a free GPU, and while two loops make and end contexts on it."""
    import torch

    x = torch.rand(2**20, device="cuda")
    events = [torch.cuda.Event(enable_timing=True) for _ in range(STREAM_BLOCK + 1)]
    spans(x, events)
    found = distribution("alone", x, events)
    command = [sys.executable, __file__, "--part", "rate", "--number", "2"]
    here = os.environ | {"CUDA_VISIBLE_DEVICES": os.environ.get("CUDA_VISIBLE_DEVICES", "0").split(",")[0]}
    loops = subprocess.Popen(command, env=here, stdout=subprocess.PIPE, text=True)
    time.sleep(0.7)
    found |= distribution("beside", x, events)
    if loops.poll() is not None:
        raise RuntimeError("the loops ended too early")
    return found | json.loads(loops.communicate()[0])


def distribution(name: str, x: Any, events: list) -> dict[str, float]:
    times, blocks, deadline = [], 0, time.monotonic() + STREAM_S
    while time.monotonic() < deadline:
        times += spans(x, events)
        blocks += 1
    if not times:
        raise RuntimeError(f"the GPU woke up too early in all of {blocks} blocks")
    times.sort()
    found = {"median_us": times[len(times) // 2], "p999_us": times[int(0.999 * len(times))], "max_us": times[-1]}
    found |= {"kernels": len(times), "hidden": len(times) / (blocks * STREAM_BLOCK)}
    return {f"{name}_{key}": value for key, value in found.items()}


def spans(x: Any, events: list) -> list[float]:
    """Microseconds from each kernel's end to the next one's; none where the GPU woke up before all were enqueued."""
    import torch

    woken = torch.cuda.Event()
    torch.cuda._sleep(STREAM_CYCLES)
    woken.record()
    events[0].record()
    for event in events[1:]:
        x.relu_()
        event.record()
    hidden = not woken.query()
    torch.cuda.synchronize()
    return [1e3 * one.elapsed_time(other) for one, other in itertools.pairwise(events)] if hidden else []


def confined(_: int) -> dict[str, Any]:
    """Whether a runner's locks let CUDA start and shared device memory be opened, and how long that takes."""
    from drkernel.judge.boundary.cuda import setup
    from drkernel.judge.boundary.cuda.device_memory import HEADER, DeviceArea
    from drkernel.judge.boundary.sandbox import Limits
    from drkernel.judge.trusted.processes.zygote import ProcessSpec, Zygote

    os.environ.update(setup.ENVIRONMENT)
    spec = ProcessSpec("drkernel.judge.untrusted.cuda.runner:prepare", "judge_machine:locked_in", areas=0, gpu=True)
    zygote = Zygote(Limits(host_memory_mib=8192, cpu_s=100), spec)
    missing = zygote.wait_ready()
    setup.start(everywhere=False)
    areas = [DeviceArea.make(size) for size in (SMALL, LARGE)]
    process = zygote.start()
    answer = process.request({"areas": [(a.ipc_handle().hex(), a.size) for a in areas]}, time.monotonic() + LIMIT_S)
    if "error" in answer:
        raise RuntimeError(answer["error"])
    arrived = all(area.bytes(HEADER, 8).tolist() == [42] * 8 for area in areas)
    process.end()
    works = "yes, and what it writes arrives" if arrived else "no: what it writes does not arrive"
    return answer | {"works": works, "missing": ", ".join(missing) or "none"}


def locked_in(connection: Any, areas: list, sandbox: Any) -> None:
    """The life of a confined process: in the order of the judge's runners."""
    from drkernel.judge.boundary.cuda import setup
    from drkernel.judge.untrusted import runner

    runner.leave_session()
    sandbox.confine()
    connection = runner.close_others(connection)
    began = time.perf_counter()
    try:
        setup.start(everywhere=True)
        answer: Callable[[Any], dict[str, Any]] = functools.partial(opened, 1e3 * (time.perf_counter() - began))
    except Exception as error:
        problem = {"error": f"CUDA does not start: {error}"}
        answer = lambda question: problem
    sandbox.seal()
    runner.serve(connection, answer)


def opened(start_ms: float, question: dict[str, Any]) -> dict[str, Any]:
    """Opens areas and writes into each of them."""
    from drkernel.judge.boundary.cuda.device_memory import HEADER, DeviceArea

    taken = []
    try:
        for handle, size in question["areas"]:
            began = time.perf_counter()
            area = DeviceArea.open(bytes.fromhex(handle), size)
            taken.append(1e3 * (time.perf_counter() - began))
            area.bytes(HEADER, 8).fill_(42)
            area.settle()
    except Exception as error:
        return {"error": f"shared memory is not opened: {error}"}
    return {"start_ms": start_ms, "small_ms": taken[0], "large_ms": taken[1]}


FACTS = {
    "contexts": (
        "What does a context cost beside another process, with CUDA_DEVICE_MAX_CONNECTIONS={}?",
        "cuInit {init_ms:.0f} ms, context {context_ms:.0f} ms, reset {reset_ms:.0f} ms",
        "runners get their contexts ahead of time, with one connection",
    ),
    "rate": (
        "How many contexts per second do loops make and end, {} at once, shared out among the GPUs?",
        "{per_second:.1f} per second",
        "this bounds the submissions per second of a GPU, since a runner serves once",
    ),
    "confined": (
        "Does CUDA start, and open another process's memory, in a confined and sealed process?",
        "{works}; CUDA ready in {start_ms:.0f} ms, 64 MiB opened in {small_ms:.2f} ms, 4 GiB in {large_ms:.2f} ms; "
        "missing locks: {missing}",
        "device memory is shared; a runner is confined, starts CUDA, is sealed, and opens the memory ahead of time",
    ),
    "tiny": (
        "How long does a tiny kernel take?",
        "{free_us:.0f} us on a free GPU, {beside_us:.0f} us beside matrix products, {stopped_us:.0f} us once they stop",
        "it is the probe for a free GPU; other runners are stopped, not killed, while the clock runs",
    ),
    "stream": (
        "What do contexts that come and go do to short kernels of another process?",
        "median, 99.9th percentile, maximum: {alone_median_us:.1f}, {alone_p999_us:.1f}, {alone_max_us:.1f} us alone; "
        "{beside_median_us:.1f}, {beside_p999_us:.1f}, {beside_max_us:.1f} us beside {per_second:.1f} contexts/s",
        "no runner starts or dies while the clock runs",
    ),
}
"""Of each part of this file: the question, what it finds, and what the judge does about it."""
NUMBERS = {"contexts": (1, 8), "rate": (1, 2, 4, 8)}
"""What these parts are called with."""


def measured(part: str, number: int, left_s: float) -> dict[str, Any]:
    """What a part of this file finds in a process of its own, or {"failed": why}."""
    limit = max(1.0, min(LIMIT_S, left_s))
    command = [sys.executable, __file__, "--part", part, "--number", str(number)]
    env, pipe = os.environ | {"CUDA_DEVICE_MAX_CONNECTIONS": "1"}, subprocess.PIPE
    process = subprocess.Popen(command, env=env, stdout=pipe, stderr=pipe, text=True, start_new_session=True)
    try:
        out, problem = process.communicate(timeout=limit)
    except subprocess.TimeoutExpired:
        return {"failed": f"not done after {limit:.0f} s"}
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
    try:
        return json.loads(out.splitlines()[-1])
    except (IndexError, ValueError):
        errors = re.findall(r"^[\w.]*(?:Error|PeerClosed|DeadlineExceeded)\b.*", problem, re.MULTILINE)
        return {"failed": "; ".join(errors)[:400] or f"exit status {process.returncode} without a word"}


def row(part: str, number: int, found: dict[str, Any]) -> str:
    question, words, consequence = FACTS[part]
    words = f"failed: {found['failed']}" if "failed" in found else words.format(**found)
    cells = question.format(number), words, consequence if number < 2 else "as above"
    return "| " + " | ".join(text.replace("|", "/") for text in cells) + " |"


def gpus() -> list[str]:
    """Names and drivers, by number."""
    query = ["nvidia-smi", "--query-gpu=name,driver_version", "--format=csv,noheader"]
    with contextlib.suppress(OSError, subprocess.TimeoutExpired):
        return subprocess.run(query, capture_output=True, text=True, timeout=5).stdout.splitlines()
    return []


def main(out: Path) -> None:
    out.mkdir(parents=True, exist_ok=True)
    began, found, names = time.monotonic(), {}, gpus() or ["no GPU"]
    os.environ.setdefault("CUDA_VISIBLE_DEVICES", ",".join(map(str, range(len(names)))))
    here = f"{names[0]}; Linux {platform.release()}, {len(os.sched_getaffinity(0))} cores"
    lines = [here, "", "| question | measured | what the judge does |", "|---|---|---|"]
    for part in FACTS:
        for number in NUMBERS.get(part, (0,)):
            name = f"{part} {number}" if number else part
            found[name] = measured(part, number, began + BUDGET_S - time.monotonic())
            lines.append(row(part, number, found[name]))
            print(lines[-1], flush=True)
            (out / "machine.md").write_text("\n".join(lines) + "\n")
            (out / "machine.json").write_text(json.dumps({"machine": here, "facts": found}, indent=1) + "\n")


if __name__ == "__main__":
    parts = {part.__name__: part for part in (contexts, rate, hold, products, tiny, stream, confined)}
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=Path, nargs="?")
    parser.add_argument("--part", choices=parts, help=argparse.SUPPRESS)
    parser.add_argument("--number", type=int, default=0, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.part:
        print(json.dumps(parts[options.part](options.number)))
    else:
        main(options.out or parser.error("OUT is needed"))
