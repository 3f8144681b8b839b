"""Do two devices agree about the honest examples of the tests? Speed-ups of two runs of judge_cases.py.

    python benchmarks/judge_agreement.py MEASURED.jsonl MODELLED.jsonl OUT

Each file has verdicts as judge_cases.py writes them; of a measured one, what waits for the GPU is left out, since its
times are those of the judge's own processes. OUT/table.md has rank correlation, errors, how many lie on the same side
of 1.2, and the examples that differ most.
"""

from __future__ import annotations

import argparse
import json
import math
import sys
from pathlib import Path
from statistics import median

import judging
import numpy
from simulated_vs_gpu import spearman

from tests.judge.examples import examples

FAST, NEAR, WORST = 1.2, 1.25, 25


def honest(path: Path) -> dict[str, dict]:
    """Verdicts of honest examples that have a speed-up, by name."""
    names = {example.name for example in examples("honest")}
    verdicts = map(json.loads, path.read_text().splitlines())
    return {v["example"]: v for v in verdicts if v["example"] in names and v["speedup"] and not waits(v)}


def waits(verdict: dict) -> bool:
    return verdict["evidence"].get("timing", {}).get("launch_latency_hidden") is False


def main(options: argparse.Namespace) -> int:
    measured, modelled = honest(options.measured), honest(options.modelled)
    names = sorted(measured.keys() & modelled.keys())
    pair = lambda name, key: (measured[name][key], modelled[name][key])
    error = {name: math.log(ours / real) for name in names for real, ours in [pair(name, "speedup")]}
    real, ours = (list(values) for values in zip(*(pair(name, "speedup") for name in names), strict=True))
    rank = spearman(numpy.array(real), numpy.array(ours))
    share = lambda chosen: f"{100 * sum(chosen) / len(names):.0f} %"
    off = lambda key: median(abs(math.log(b / a)) for a, b in (pair(name, key) for name in names))
    lines = [f"{len(names)} honest examples on {measured[names[0]]['device']} and {modelled[names[0]]['device']}", ""]
    lines += [
        "| Spearman | median error | reference | submission | within 1.25x | same side of 1.2x |",
        "|---|---|---|---|---|---|",
    ]
    lines += [
        f"| {rank:.3f} | {100 * math.expm1(median(map(abs, error.values()))):.0f} % "
        f"| {100 * math.expm1(off('reference_ms')):.0f} % | {100 * math.expm1(off('submission_ms')):.0f} % "
        f"| {share([abs(e) < math.log(NEAR) for e in error.values()])} "
        f"| {share([(a >= FAST) == (b >= FAST) for a, b in zip(real, ours, strict=True)])} |",
        "",
        "| example | measured | modelled | reference us | submission us |",
        "|---|---|---|---|---|",
    ]
    for name in sorted(names, key=lambda name: -abs(error[name]))[:WORST]:
        cells = ["{:.2f} | {:.2f}".format(*pair(name, "speedup"))]
        cells += [
            "{:.1f}, {:.1f}".format(*(1e3 * ms for ms in pair(name, key))) for key in ("reference_ms", "submission_ms")
        ]
        lines.append(f"| {name} | {' | '.join(cells)} |")
    judging.write_table(options.out, lines)
    print("\n".join(lines))
    return 0


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name in ("measured", "modelled", "out"):
        parser.add_argument(name, type=Path)
    sys.exit(main(parser.parse_args()))
