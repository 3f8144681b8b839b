"""Every cheating and honest example of the tests, judged several times under fresh secrets.

    python benchmarks/judge_cases.py OUT [--device cuda] [--runs 3] [--workers 8] [--no-gate] [--only 44 p05 ...]

OUT/verdicts.jsonl has each verdict as soon as it is there, and at the end its problem if it has one; OUT/table.md one
row per example (expected, found, seconds, speed-up), and OUT/cases.png how long each class takes. Exit code 1 if any
verdict is not the expected one; without the gate, if any hack gains something.
"""

from __future__ import annotations

import argparse
import collections
import json
import statistics
import sys
from pathlib import Path

import judging
from rich.progress import track

from drkernel.judge import Judge
from drkernel.types import Verdict
from tests.judge.examples import TAMED, Example, as_expected, examples, gains, honest_speedups, tasks


def main(options: argparse.Namespace) -> int:
    options.out.mkdir(parents=True, exist_ok=True)
    honest = examples("honest", options.device)
    hacks = [*examples("hacks", options.device), *examples("attacks", options.device)]
    if options.only:
        hacks = [example for example in hacks if example.name.startswith(tuple(options.only))]
        asked = {hack.task for hack in hacks}
        honest = [e for e in honest if e.task in asked or e.name.startswith(tuple(options.only))]
    chosen = [*hacks, *honest]
    runs: list[dict[str, Verdict]] = []
    for number in range(options.runs):
        runs.append(judged(chosen, options, number))
        problems = {
            example.name: [problem(example, run, honest, hacks, options.gate) for run in runs] for example in chosen
        }
        write(options.out, chosen, runs, problems)  # after each run, since the next may be cut off
    plot(chosen, runs, problems, options.out / "cases.png")
    return int(any(any(found) for found in problems.values()))


def write(out: Path, chosen: list[Example], runs: list[dict[str, Verdict]], problems: dict[str, list[str]]) -> None:
    with open(out / "verdicts.jsonl", "w", encoding="utf-8") as file:
        for number, run in enumerate(runs):
            for name, verdict in run.items():
                record = {"run": number, "example": name, "problem": problems[name][number]}
                file.write(json.dumps(record | verdict.to_dict()) + "\n")
    lines = table(chosen, runs, problems)
    judging.write_table(out, lines)
    print("\n".join(line for line in lines if "**" in line) or "all as expected")


def judged(chosen: list[Example], options: argparse.Namespace, run: int) -> dict[str, Verdict]:
    known = tasks()
    settings = {"device": options.device, "workers": options.workers, "timeout_s": options.timeout}
    with Judge(**settings, gate=options.gate, screen=options.screen) as judge:
        judging.expect_working(judge)
        pending = {example.name: judge.submit(known[example.task], example.source) for example in chosen}
        verdicts = {}
        with open(options.out / "verdicts.jsonl", "w" if run == 0 else "a", encoding="utf-8") as file:
            for name in track(pending, f"run {run + 1} of {options.runs}"):
                verdicts[name] = pending[name].result()
                file.write(json.dumps({"run": run, "example": name} | verdicts[name].to_dict()) + "\n")
                file.flush()  # a command that is cut off keeps these
        return verdicts


def problem(
    example: Example, verdicts: dict[str, Verdict], honest: list[Example], hacks: list[Example], gate: bool
) -> str:
    """Why a verdict is not as expected, or an empty string."""
    verdict = verdicts[example.name]
    best = honest_speedups(verdicts, honest).get(example.task)
    if gate or example in honest:
        return as_expected(example, verdict, best)
    if example.statuses == ("no",):
        return as_expected(example, verdict)
    tamed = example.name.startswith(TAMED) or "ok" in example.statuses
    return gains(example, verdict, best) or ("" if tamed or not verdict.ok else f"{example.name}: ok without the gate")


def table(chosen: list[Example], runs: list[dict[str, Verdict]], problems: dict[str, list[str]]) -> list[str]:
    bad = sum(any(found) for found in problems.values())
    lines = [f"{len(chosen)} examples, {len(runs)} runs on {runs[0][chosen[0].name].device}: {bad} not as expected", ""]
    lines += ["| example | task | expected | found | seconds | speed-up |", "|---|---|---|---|---|---|"]
    for example in chosen:
        verdicts = [run[example.name] for run in runs]
        found = collections.Counter(f"{v.status} {v.reason}" for v in verdicts)
        text = ", ".join(word + (f" x{number}" if len(found) > 1 else "") for word, number in found.items())
        text = f"**{text}**" if any(problems[example.name]) else text
        expected = f"{'/'.join(example.statuses)} {example.reason}".strip()
        seconds = statistics.median(v.seconds for v in verdicts)
        speedups = [v.speedup for v in verdicts if v.speedup is not None]
        spread = f"{min(speedups):.3g} to {max(speedups):.3g}" if speedups else ""
        lines.append(f"| {example.name} | {example.task} | {expected} | {text} | {seconds:.2f} | {spread} |")
    return lines


def plot(chosen: list[Example], runs: list[dict[str, Verdict]], problems: dict[str, list[str]], path: Path) -> None:
    figure, axis = judging.pyplot().subplots(figsize=(8, 0.14 * len(chosen) + 1), constrained_layout=True)
    for place, example in enumerate(chosen):
        for run, found in zip(runs, problems[example.name], strict=True):
            color = "tab:red" if found else "tab:green" if "ok" in example.statuses else "tab:blue"
            axis.scatter(run[example.name].seconds + 1e-3, place, s=8, color=color)
    axis.set_yticks(range(len(chosen)), [example.name for example in chosen], fontsize=5)
    axis.set(xscale="log", xlabel="seconds from submission to verdict, waiting included", ylim=(-1, len(chosen)))
    axis.set_title("green: honest, blue: refused as expected, red: not as expected", fontsize=8)
    figure.savefig(path, dpi=130)


if __name__ == "__main__":
    parser = judging.parser(__doc__)
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--timeout", type=float, default=8.0)
    parser.add_argument("--no-gate", dest="gate", action="store_false")
    parser.add_argument("--no-screen", dest="screen", action="store_const", const=False, help="a GPU decides it all")
    parser.add_argument(
        "--only", nargs="*", default=[], help="names that start so, and the honest examples of their tasks"
    )
    sys.exit(judging.run(main, parser.parse_args()))
