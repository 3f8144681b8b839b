"""What benchmarks/real_models.sh measured, as tables: update steps, steps of the loop, and how each run ended.

    python benchmarks/real_models.py OUT

Reads OUT/runs.jsonl and the folders beside it, and writes OUT/real_models.md and .json. Of a run of the loop, seconds
are medians and shares are means over its steps, the first two left out (of three steps the first one). `tokens/s` are
those of the batch that trains, per second of a whole step. MRS and PRS: the shares that they reject, of the sampled
tokens and of the rewarded turns. Planned is what the plan counts without CUDA's own memory, of which PyTorch does not
know.
"""

from __future__ import annotations

import contextlib
import json
import math
import statistics
import sys
from pathlib import Path
from typing import Any, cast

from expectations import relative_error, shown
from omegaconf import OmegaConf
from step_ranks import PARTS

from drkernel.config import Config
from drkernel.training import plan

MISMATCH = {
    "gap": "engine_gap",
    "abs delta": "mismatch/abs_delta",
    "delta": "mismatch/delta",
    "KL": "mismatch/kl",
    "ESS": "mismatch/ess",
    "not finite": "mismatch/not_finite",
}
"""Between engine and trainer, nats per token; the gap is that of the check after a sync."""
REJECTED = {"MRS": "mrs/kept", "vetoed": "mismatch/vetoed", "PRS": "prs/kept", "groups": "zero_variance/kept"}


def main(out: Path) -> None:
    runs = list({run["name"]: run for run in lines_of(out / "runs.jsonl")}.values())  # the last of each name
    found = {"updates": updates(out), "loops": [loop for run in runs if (loop := loop_of(out / run["name"]))]}
    (out / "real_models.json").write_text(json.dumps({"runs": runs, **found}, indent=1) + "\n")
    text = "\n".join([update_table(found["updates"]), *loop_tables(found["loops"]), run_table(out, runs)])
    (out / "real_models.md").write_text(text)
    print(text)


def lines_of(path: Path) -> list[dict[str, Any]]:
    """The lines of a file, without one that a killed run has not finished."""
    found = []
    for line in path.read_text().splitlines() if path.exists() else ():
        with contextlib.suppress(json.JSONDecodeError):
            found.append(json.loads(line))
    return found


# Update steps


def updates(out: Path) -> list[dict[str, Any]]:
    """The rows of benchmarks/update_step.py and the results of update_step_lora.py."""
    rows = []
    for path in sorted(out.glob("*/update.json")):
        report = json.loads(path.read_text())
        rows += [{"run": path.parent.name, "machine": report["machine"], **row} for row in report["rows"]]
    for path in sorted(out.glob("*/update_lora_*.json")):
        result = json.loads(path.read_text())
        rows.append({"run": path.parent.name, "variant": f"LoRA, {result['tokens_per_step']:,} tokens", **result})
    return rows


def update_table(rows: list[dict[str, Any]]) -> str:
    lines = [f"Update steps on {', '.join(sorted({row['machine'] for row in rows})) or 'nothing'}", ""]
    lines += ["| run | shape | variant | s/step | tokens/s (range) | MFU | peak GiB | planned GiB | error | cosine |"]
    lines += ["|---|---|---|" + "---:|" * 7]
    for row in rows:
        start = f"| {row['run']} | {row['shape']} | {row['variant']} |"
        if "failed" in row:
            lines.append(f"{start} {row['failed']} | | | | | | |")
            continue
        low, high = row["range"]
        planned, peak = row.get("planned_gib"), row["peak_gib"]
        lines.append(
            f"{start} {row['last_step']['tokens'] / row['tokens_per_second']:.2f} "
            f"| {row['tokens_per_second']:,.0f} ({low:,.0f} to {high:,.0f}) | {shown(row['mfu'], '.1%')} "
            f"| {shown(peak, '.1f')} | {shown(planned, '.1f')} | {shown(relative_error(planned, peak), '+.1%')} "
            f"| {shown(row.get('gradient_cosine'), '.6f')} |"
        )
    return "\n".join(lines) + "\n"


# Steps of the loop


def loop_of(run: Path) -> dict[str, Any] | None:
    """One run folder of train.py; None where it took no step."""
    steps = lines_of(run / "metrics.jsonl")
    kept = steps[min(2, len(steps) // 3) :]
    if not kept:
        return None
    spent = lambda keys: statistics.median(sum(step.get(key, 0.0) for key in keys) for step in kept)
    whole = [sum(value for key, value in s.items() if key.startswith("time/")) for s in kept]
    peak = run / "peak.json"
    return {
        "run": run.name,
        "steps": len(kept),
        "groups": mean(kept, "groups/played"),
        "seconds": statistics.median(whole),
        "range": [min(whole), max(whole)],
        "parts": {part: spent(keys) for part, keys in PARTS.items()},
        "tokens_per_second": statistics.median(s["tokens"] / seconds for s, seconds in zip(kept, whole, strict=True)),
        "peak_gib": json.loads(peak.read_text())["peak_gib"] if peak.exists() else None,
        "planned_gib": planned_by(run / "config.yaml"),
        "rejected": {name: rejected(kept, key) for name, key in REJECTED.items()},
        "trained": mean(kept, "kept"),
        "skipped": sum(s["skipped"] for s in steps),
        "mismatch": {name: mean(kept, key) for name, key in MISMATCH.items()},
    }


def mean(steps: list[dict[str, Any]], key: str) -> float | None:
    """Over the steps that have a value: a share of nothing is not a number."""
    values = [step[key] for step in steps if math.isfinite(step.get(key, math.nan))]
    return statistics.fmean(values) if values else None


def rejected(steps: list[dict[str, Any]], key: str) -> float | None:
    share = mean(steps, key)
    return share if share is None or not key.endswith("/kept") else 1 - share


def planned_by(path: Path) -> float | None:
    """GiB that the plan counts for a run, less what is not PyTorch's."""
    if not path.exists():
        return None
    config = cast(Config, OmegaConf.to_object(OmegaConf.merge(OmegaConf.structured(Config), OmegaConf.load(path))))
    shape = plan.shape_of(config.policy.path)
    return plan.total(plan.memory(config, shape, config.trainer.gpus)) - plan.OVERHEAD_GIB if shape else None


def loop_tables(loops: list[dict[str, Any]]) -> list[str]:
    """Seconds and memory; what filters reject, and how far engine and trainer are apart."""
    times = ["Steps of the loop, seconds", ""]
    times += [f"| run | steps | groups | step (range) | {' | '.join(PARTS)} | tokens/s | peak GiB | planned GiB |"]
    times += ["|---|" + "---:|" * (len(PARTS) + 6)]
    shares = ["Shares rejected, and engine against trainer", ""]
    shares += [f"| run | {' | '.join(REJECTED)} | tokens that train | steps skipped | {' | '.join(MISMATCH)} |"]
    shares += ["|---|" + "---:|" * (len(REJECTED) + len(MISMATCH) + 2)]
    for loop in loops:
        low, high = loop["range"]
        parts = " | ".join(f"{value:.2f}" for value in loop["parts"].values())
        times.append(
            f"| {loop['run']} | {loop['steps']} | {shown(loop['groups'], '.1f')} | {loop['seconds']:.2f} "
            f"({low:.2f} to {high:.2f}) | {parts} | {loop['tokens_per_second']:,.0f} "
            f"| {shown(loop['peak_gib'], '.2f')} | {shown(loop['planned_gib'], '.2f')} |"
        )
        gone = " | ".join(shown(value, ".1%") for value in loop["rejected"].values())
        apart = " | ".join(shown(value, ".2e") for value in loop["mismatch"].values())
        shares.append(f"| {loop['run']} | {gone} | {shown(loop['trained'], '.1%')} | {loop['skipped']} | {apart} |")
    return ["\n".join(times) + "\n", "\n".join(shares) + "\n"]


# How runs ended


def run_table(out: Path, runs: list[dict[str, Any]]) -> str:
    lines = ["Runs", "", "| run | began, s | seconds | limit | ended | last line of a run that failed |"]
    lines += ["|---|---:|---:|---:|---|---|"]
    for run in runs:
        ended = {0: "well", 124: "out of time", 137: "killed"}.get(run["exit"], f"code {run['exit']}")
        last = last_line(out / f"{run['name']}.log") if run["exit"] else ""
        lines.append(f"| {run['name']} | {run['began']} | {run['seconds']} | {run['limit']} | {ended} | {last} |")
    return "\n".join(lines) + "\n"


def last_line(log: Path) -> str:
    text = log.read_text(errors="replace").strip() if log.exists() else ""
    return text.splitlines()[-1][:200].replace("|", "\\|") if text else ""


if __name__ == "__main__":
    main(Path(sys.argv[1]))
