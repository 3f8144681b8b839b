"""A long run of hostile submissions with honest ones among them: does anything reach the next submission or the host?

    python benchmarks/judge_hostile.py OUT [--device cuda] [--count 2000] [--timeout 1.5] [--workers 16] [--gate]

The hostile ones crash, hang, kill, hog or forge. They come in random order, each made new by a comment, and every tenth
submission is honest. Static gate and screen are off (--gate switches them on). The checks:

    the status and reason of each honest submission stay what they were, its speed-up within 10 % of its median
    no hostile submission gets a higher speed-up than an honest one
    no process, file or memory is left

The host is examined while the judge is idle: at first, half-way and at the end. By half-way examiners have met every
task, so that their GPU memory should not grow any more.
OUT/verdicts.jsonl has every outcome as it comes, OUT/host.jsonl the host's state over time, OUT/table.md the counts,
OUT/hostile.png both. The table is there with the last verdict; its line on the closed judge follows. Exit code 1 if a
check fails.
"""

from __future__ import annotations

import argparse
import collections
import contextlib
import json
import os
import random
import statistics
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import as_completed
from pathlib import Path

import judging
from rich.progress import Progress

from drkernel.judge import Judge
from drkernel.types import Verdict
from tests.judge.examples import Example, descendants, examples, tasks

HOSTILE = {28, 41, 53, *range(43, 49), *range(62, 67), *range(70, 84), 203, 205, 206, 208, 212, 213, 215, 216, 217}
HONEST = ("84_elementwise", "87_online_softmax", "106_try", "98_atomics", "103_workspace", "112_graph")
HONEST_SHARE, MAX_DEVIATION, MAX_GAIN = 0.1, 0.1, 1.15
MEMORY_GROWTH, GPU_GROWTH_MIB = 1.3, 64
_PERIOD_S, _IDLE_S, _END_S = 1.0, 4.0, 10.0


def campaign(count: int, device: str, seed: int) -> Iterator[tuple[Example, str]]:
    """(example, source) in random order."""
    draw = random.Random(seed)
    hostile = [example for example in examples("hacks", device) if example.number in HOSTILE]
    honest = [example for example in examples("honest", device) if example.name in HONEST]
    for number in range(count):
        pool = honest if draw.random() < HONEST_SHARE else hostile
        example = draw.choice(pool)
        yield example, f"{example.source}\n# {number}\n"


class Watch:
    """Samples the state of the host while a judge works."""

    def __init__(self) -> None:
        self.samples: list[dict] = []
        self.done = 0
        self._start, self._over = time.monotonic(), threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        while not self._over.wait(_PERIOD_S):
            self.samples.append({"seconds": time.monotonic() - self._start, "done": self.done} | state())

    def stop(self) -> None:
        self._over.set()
        self._thread.join()


def state() -> dict:
    """Processes below this one and their resident memory, files in the shared folders, and memory used on GPUs."""
    workers = descendants()
    resident = sum(_resident_mib(pid) for pid in workers)
    return {"processes": len(workers), "resident_mib": resident, "files": len(files()), "gpu_mib": gpu_mib()}


def _resident_mib(pid: int) -> float:
    with contextlib.suppress(OSError, IndexError, ValueError):
        return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE") / 2**20
    return 0.0


def files() -> set[str]:
    return {f"{folder}/{name}" for folder in ("/tmp", "/dev/shm", "/var/tmp") for name in os.listdir(folder)}


def gpu_mib() -> float | None:
    """Memory in use on all GPUs; None where nvidia-smi does not say."""
    command = ["nvidia-smi", "--query-gpu=memory.used", "--format=csv,noheader,nounits"]
    try:
        answer = subprocess.run(command, capture_output=True, text=True, timeout=10, check=True).stdout
        return sum(float(line) for line in answer.splitlines())
    except (OSError, subprocess.SubprocessError, ValueError):
        return None


def main(options: argparse.Namespace) -> int:
    options.out.mkdir(parents=True, exist_ok=True)
    known, listed = tasks(), list(campaign(options.count, options.device, options.seed))
    before, files_before = state(), files()
    checks = {"gate": options.gate, "screen": None if options.gate else False}
    states, verdicts, wall, watch = {"before the judge": before}, list[Verdict](), 0.0, Watch()
    with Judge(device=options.device, workers=options.workers, timeout_s=options.timeout, **checks) as judge:
        for example in {example for example, _ in listed if example.name in HONEST}:
            judge.judge(known[example.task], example.source)
        time.sleep(_IDLE_S)
        states["warm"] = state()
        with open(options.out / "verdicts.jsonl", "w", encoding="utf-8") as file, Progress() as progress:
            bar = progress.add_task("judging both halves", total=len(listed))
            halves = (listed[: len(listed) // 2], listed[len(listed) // 2 :])
            for name, part in zip(("half-way", "after the last verdict"), halves, strict=True):
                start = time.monotonic()
                pending = {judge.submit(known[example.task], source): example for example, source in part}
                for future in as_completed(pending):
                    file.write(json.dumps(record(pending[future], future.result())) + "\n")
                    file.flush()
                    watch.done += 1
                    progress.advance(bar)
                verdicts += [future.result() for future in pending]
                wall += time.monotonic() - start
                if len(verdicts) == len(listed):  # whoever waits need not wait for what follows
                    conclude(options, listed, verdicts, states, [], wall)
                time.sleep(_IDLE_S)
                states[name] = state()
        watch.stop()
    deadline = time.monotonic() + _END_S
    while (closed := state())["processes"] > before["processes"] and time.monotonic() < deadline:
        time.sleep(0.2)
    states["closed"] = closed
    problems = conclude(options, listed, verdicts, states, sorted(files() - files_before), wall)
    with open(options.out / "host.jsonl", "w", encoding="utf-8") as file:
        file.writelines(json.dumps(sample) + "\n" for sample in watch.samples)
    plot(listed, verdicts, watch.samples, options.out / "hostile.png")
    return int(bool(problems))


def conclude(
    options: argparse.Namespace, listed: list, verdicts: list[Verdict], states: dict, new_files: list[str], wall: float
) -> list[str]:
    """Writes and prints the table. Returns the problems."""
    problems = [*of_verdicts(listed, verdicts), *of_states(states, new_files)]
    lines = table(listed, verdicts, states, new_files, problems, wall)
    judging.write_table(options.out, lines)
    print("\n".join(lines), flush=True)
    return problems


def of_verdicts(listed: list, verdicts: list[Verdict]) -> Iterator[str]:
    """Why verdicts are not as they should be."""
    groups = by_honest(listed, verdicts)
    medians: dict[str, float] = {}
    for name, found in groups.items():
        words = collections.Counter((v.status, v.reason) for v in found)
        if len({(v.status, v.lazy) for v in found}) > 1 or found[0].status != "ok":
            yield f"{name}: " + ", ".join(f"{' '.join(word)} x{n}" for word, n in words.items())
        if speedups := speedups_of(found):
            medians[name] = statistics.median(speedups)
            off = [s for s in speedups if abs(s / medians[name] - 1) > MAX_DEVIATION]
            if off:
                yield f"{name}: {len(off)} of {len(speedups)} speed-ups over 10 % from {medians[name]:.3g}: {off[:5]}"
    plain = medians.get("106_try")
    for (example, _), verdict in zip(listed, verdicts, strict=True):
        if verdict.is_judge_failure:
            yield f"{example.name}: judge_failure {verdict.reason}: {verdict.detail}"
        hostile = example.name not in HONEST and example.task == "relu" and plain
        if hostile and verdict.ok and (verdict.speedup or 0.0) > MAX_GAIN * (plain or 0.0):
            yield f"{example.name}: ok at {verdict.speedup:.3g}x, an honest submission gets {plain:.3g}x"


def speedups_of(verdicts: list[Verdict]) -> list[float]:
    return [v.speedup for v in verdicts if v.ok and v.speedup is not None]


def by_honest(listed: list, verdicts: list[Verdict]) -> dict[str, list[Verdict]]:
    groups = collections.defaultdict(list)
    for (example, _), verdict in zip(listed, verdicts, strict=True):
        if example.name in HONEST:
            groups[example.name].append(verdict)
    return dict(groups)


def of_states(states: dict[str, dict], new_files: list[str]) -> Iterator[str]:
    """Why the host is not as it should be; nothing is said of states that are still to come."""
    before, warm = states["before the judge"], states["warm"]
    half, after, closed = (states.get(name) for name in ("half-way", "after the last verdict", "closed"))
    if closed and closed["processes"] > before["processes"]:
        yield f"{closed['processes'] - before['processes']} processes outlive the judge"
    if after and after["processes"] > warm["processes"]:
        yield f"{after['processes'] - warm['processes']} more processes after the campaign than before it"
    if after and after["resident_mib"] > MEMORY_GROWTH * warm["resident_mib"]:
        yield f"resident memory grew from {warm['resident_mib']:.0f} to {after['resident_mib']:.0f} MiB"
    known = half and after and None not in (half["gpu_mib"], after["gpu_mib"])
    if half and after and known and after["gpu_mib"] > half["gpu_mib"] + GPU_GROWTH_MIB:
        yield f"GPU memory grew from {half['gpu_mib']:.0f} to {after['gpu_mib']:.0f} MiB in the second half"
    if left := [name for name in new_files if "drkernel" in name and not name.endswith(".lock")]:
        yield f"files left: {', '.join(left[:10])}"


def record(example: Example, verdict: Verdict) -> dict:
    keys = ("status", "reason", "detail", "speedup", "seconds", "evidence")
    found = {"example": example.name, "honest": example.name in HONEST}
    return found | {key: getattr(verdict, key) for key in keys}


def table(
    listed: list, verdicts: list[Verdict], states: dict, new_files: list[str], problems: list[str], wall: float
) -> list[str]:
    lines = [f"{len(listed)} submissions on {verdicts[0].device} in {wall:.0f} s: {len(problems)} problems", ""]
    lines += [f"- {problem}" for problem in problems]
    lines += ["", "| | processes | resident MiB | files | GPU MiB |", "|---|---|---|---|---|"]
    for name, now in states.items():
        gpu = "" if now["gpu_mib"] is None else f"{now['gpu_mib']:.0f}"
        lines.append(f"| {name} | {now['processes']} | {now['resident_mib']:.0f} | {now['files']} | {gpu} |")
    lines += ["", f"New files in the shared folders, whoever made them: {', '.join(new_files[:20]) or 'none'}", ""]
    lines += ["| honest | verdicts | status | median speed-up | most off |", "|---|---|---|---|---|"]
    for name, found in sorted(by_honest(listed, verdicts).items()):
        speedups = speedups_of(found) or [float("nan")]
        median = statistics.median(speedups)
        off = max(abs(s / median - 1) for s in speedups)
        words = collections.Counter(f"{v.status} {v.reason}" for v in found)
        text = ", ".join(f"{word} x{n}" for word, n in words.items())
        lines.append(f"| {name} | {len(found)} | {text} | {median:.3f} | {100 * off:.1f} % |")
    lines += ["", "| hostile | verdicts | found |", "|---|---|---|"]
    groups: dict[str, collections.Counter[str]] = collections.defaultdict(collections.Counter)
    for (example, _), verdict in zip(listed, verdicts, strict=True):
        if example.name not in HONEST:
            groups[example.name][f"{verdict.status} {verdict.reason}"] += 1
    for name, words in sorted(groups.items()):
        text = ", ".join(f"{word} x{n}" for word, n in words.items())
        lines.append(f"| {name} | {words.total()} | {text} |")
    return lines


def plot(listed: list, verdicts: list[Verdict], samples: list[dict], path: Path) -> None:
    figure, axes = judging.pyplot().subplots(2, 2, figsize=(10, 6), constrained_layout=True)
    places: dict[str, list[tuple[int, float]]] = collections.defaultdict(list)
    for place, ((example, _), verdict) in enumerate(zip(listed, verdicts, strict=True)):
        if example.name in HONEST and verdict.ok and verdict.speedup is not None:
            places[example.name].append((place, verdict.speedup))
    for name, points in sorted(places.items()):
        median = statistics.median(speedup for _, speedup in points)
        axes[0, 0].plot(*zip(*((place, s / median) for place, s in points), strict=True), ".", markersize=4, label=name)
    axes[0, 0].set(ylabel="honest speed-up / its median", xlabel="submission", ylim=(0.8, 1.2))
    axes[0, 0].legend(fontsize=6)
    for axis, key in zip(list(axes.flat)[1:], ("processes", "resident_mib", "gpu_mib"), strict=True):
        shown = [(sample["done"], sample[key]) for sample in samples if sample[key] is not None]
        if shown:
            axis.plot(*zip(*shown, strict=True), linewidth=1)
        axis.set(ylabel=key, xlabel="verdicts", ylim=(0, None))
    figure.savefig(path, dpi=130)


if __name__ == "__main__":
    parser = judging.parser(__doc__)
    parser.add_argument("--count", type=int, default=2000)
    parser.add_argument("--timeout", type=float, default=1.5)
    parser.add_argument("--gate", action="store_true")
    parser.add_argument("--seed", type=int, default=7)
    sys.exit(main(parser.parse_args()))
