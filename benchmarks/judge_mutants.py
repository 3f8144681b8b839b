"""Dishonest mutants of the honest examples, made mechanically and judged: which of them are paid?

    python benchmarks/judge_mutants.py OUT [--device cuda] [--count 500] [--seed 0] [--workers 8] [--no-gate]
        [--only KIND]

A mutant is paid if it is called ok although it is wrong in fact or PyTorch does its work, or with a speed-up of more
than 1.05 times its original's, or a higher coverage, that it did not earn. `judge_mutants_check.py` says what is wrong
in fact: a mutant that computes what its original does, as exactly, is equivalent. OUT/mutants.md has the table by kind
of mutation, OUT/mutants.jsonl each mutant, with the source of those that were called ok. Exit code 1 if any is paid.
"""

from __future__ import annotations

import argparse
import collections
import dataclasses
import json
import os
import random
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import judge_mutation_routes  # noqa: F401  # fills the registry
import judge_mutation_values  # noqa: F401
import judging
from judge_mutation import FAMILY, OPERATORS, mutate
from rich.console import Console
from rich.progress import track

from drkernel.judge import Judge
from drkernel.types import Task, Verdict
from tests.judge.examples import Example, examples, tasks

_GAIN, _COVER, _CHECK_S, _SEEDS = 1.05, 0.02, 300, [11, 12, 13]
CHECK = Path(__file__).with_name("judge_mutants_check.py")
SLOW = ("85", "111", "122", "131", "133")
"""Examples that the simulated device takes long for."""


@dataclass(frozen=True)
class Mutant:
    kind: str
    original: Example
    source: str


@dataclass(frozen=True)
class Outcome:
    """What became of a mutant: `refused`, `paid`, `equivalent` (in fact), `no gain` or `not judged`."""

    mutant: Mutant
    verdict: Verdict
    outcome: str
    why: str = ""


def main(options: argparse.Namespace) -> int:
    options.out.mkdir(parents=True, exist_ok=True)
    known = tasks()
    originals = [
        e for e in examples("honest", options.device) if options.device == "cuda" or not e.name.startswith(SLOW)
    ]
    mutants = list(made(originals, known, options.count, options.seed, options.only))
    settings = {"device": options.device, "workers": options.workers, "gate": options.gate}
    secret = f"mutants {options.seed}".encode()
    with Judge(**settings, secret=secret) as judge:
        judging.expect_working(judge)
        pending = [judge.submit(known[mutant.original.task], mutant.source) for mutant in mutants]
        honest = {e.name: judge.submit(known[e.task], e.source) for e in {m.original for m in mutants}}
        console = Console(stderr=True)
        verdicts = [future.result() for future in track(pending, f"{len(mutants)} mutants", console=console)]
        before = {name: future.result() for name, future in honest.items()}
    with ThreadPoolExecutor(options.workers) as pool:
        work = lambda mutant, verdict: decided(mutant, verdict, before[mutant.original.name], known, options.device)
        outcomes = list(pool.map(work, mutants, verdicts))
    write(options.out, outcomes, before)
    return int(any(found.outcome == "paid" for found in outcomes))


def made(
    originals: list[Example], known: dict[str, Task], count: int, seed: int, only: list[str] | None
) -> Iterator[Mutant]:
    """Different mutants, the kinds in turn."""
    draw, seen, misses = random.Random(seed), {example.source for example in originals}, 0
    kinds = [kind for kind in OPERATORS if not only or kind in only]
    while len(seen) - len(originals) < count and misses < 50 * len(kinds):
        for kind in kinds:
            example = draw.choice(originals)
            source = mutate(example.source, known[example.task].source, kind, draw.getrandbits(32))
            if source is None or source in seen:
                misses += 1
                continue
            if len(seen) - len(originals) < count:
                seen.add(source)
                misses = 0
                yield Mutant(kind, example, source)


def decided(mutant: Mutant, verdict: Verdict, honest: Verdict, known: dict[str, Task], device: str) -> Outcome:
    """Whether a mutant was paid; what it computes is found out where it was called ok."""
    if verdict.status == "judge_failure":
        return Outcome(mutant, verdict, "not judged", verdict.detail)
    if not verdict.ok:
        return Outcome(mutant, verdict, "refused")
    if FAMILY[mutant.kind] == "library":
        return Outcome(mutant, verdict, "paid", "PyTorch does the work")
    found = checked(mutant, known[mutant.original.task], device)
    if not found["equivalent"]:
        return Outcome(mutant, verdict, "paid", found["why"])
    if not honest.ok:
        return Outcome(mutant, verdict, "not judged", f"its original is {honest.status}: {honest.detail}")
    cover = (verdict.coverage or 0.0) - (honest.coverage or 0.0)
    if cover > _COVER and FAMILY[mutant.kind] != "value":
        return Outcome(mutant, verdict, "paid", f"coverage {cover:.2f} above its original's")
    gain = (verdict.speedup or 0.0) / (honest.speedup or 1.0)
    if gain > _GAIN and FAMILY[mutant.kind] != "value":
        return Outcome(mutant, verdict, "paid", f"{gain:.3g} times as fast as its original")
    return Outcome(mutant, verdict, "equivalent" if FAMILY[mutant.kind] == "value" else "no gain")


def checked(mutant: Mutant, task: Task, device: str) -> dict[str, Any]:
    request = {"task": dataclasses.asdict(task), "original": mutant.original.source, "mutant": mutant.source}
    environment = os.environ | ({} if device == "cuda" else {"TRITON_INTERPRET": "1"})
    try:
        done = subprocess.run(
            [sys.executable, str(CHECK)],
            input=json.dumps(request | {"device": device, "seeds": _SEEDS}),
            capture_output=True,
            text=True,
            env=environment,
            timeout=_CHECK_S,
        )
    except subprocess.TimeoutExpired:
        return {"equivalent": False, "why": "the check took too long"}
    if done.returncode:
        return {"equivalent": False, "why": f"the check failed: {done.stderr[-300:]}"}
    return json.loads(done.stdout.splitlines()[-1])


def write(out: Path, outcomes: list[Outcome], before: dict[str, Verdict]) -> None:
    with open(out / "mutants.jsonl", "w", encoding="utf-8") as file:
        for found in outcomes:
            mutant, verdict = found.mutant, found.verdict
            record: dict[str, Any] = {
                "kind": mutant.kind,
                "original": mutant.original.name,
                "outcome": found.outcome,
                "why": found.why,
            }
            record |= {"status": verdict.status, "reason": verdict.reason, "detail": verdict.detail[:300]}
            record |= {"speedup": verdict.speedup, "honest_speedup": before[mutant.original.name].speedup}
            record |= {"coverage": verdict.coverage, "source": mutant.source if verdict.ok else None}
            file.write(json.dumps(record) + "\n")
    lines = table(outcomes)
    (out / "mutants.md").write_text("\n".join(lines) + "\n")
    print("\n".join(lines))


def table(outcomes: list[Outcome]) -> list[str]:
    """One row per kind of mutation, and one line per mutant that was paid."""
    words = ("refused", "equivalent", "no gain", "paid", "not judged")
    lines = ["| mutation | family | made | " + " | ".join(words) + " | refused as |"]
    lines += ["|---|---|" + "---:|" * (1 + len(words)) + "---|"]
    for kind in [*OPERATORS, "all"]:
        mine = [found for found in outcomes if kind in (found.mutant.kind, "all")]
        if mine:
            counts = collections.Counter(found.outcome for found in mine)
            how = collections.Counter(f"{f.verdict.status} {f.verdict.reason}" for f in mine if f.outcome == "refused")
            said = ", ".join(f"{count} {word}" for word, count in how.most_common(4))
            cells = [kind, FAMILY.get(kind, ""), str(len(mine)), *(str(counts[word] or "") for word in words), said]
            lines.append("| " + " | ".join(cells) + " |")
    paid = [found for found in outcomes if found.outcome == "paid"]
    lines += ["", *(f"- not judged: {f.mutant.original.name}: {f.why}" for f in outcomes if f.outcome == "not judged")]
    lines += ["", "Paid:" if paid else "None is paid.", ""]
    return lines + [
        f"- {f.mutant.kind} of {f.mutant.original.name}: {f.verdict.reason} {f.verdict.speedup:.3g}x, coverage "
        f"{f.verdict.coverage:.2f}: {f.why}"
        for f in paid
    ]


if __name__ == "__main__":
    parser = judging.parser(__doc__)
    parser.add_argument("--count", type=int, default=500)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--no-gate", dest="gate", action="store_false", help="without the static check")
    parser.add_argument("--only", nargs="*", metavar="KIND", help="these mutations only")
    sys.exit(judging.run(main, parser.parse_args()))
