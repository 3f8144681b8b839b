"""A training run as one HTML file that works offline: curves, and from a step to what the policy wrote in it.

    python -m drkernel.training.view RUN                     writes RUN/view.html
    python -m drkernel.training.view RUN --turns 20000       with the texts of more completions

The page has every step's numbers, and every group's task and reward. Of a run with more than `--turns` turns it has the
texts of a sample: steps at equal distances, in each of them groups from the worst to the best. All others are in
RUN/completions/ (training/completions.py). A run may be looked at while it trains.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import math
import sys
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml
from pyarrow import parquet

from drkernel.config import AlgoConfig
from drkernel.training import page
from drkernel.training.run import BEST, COMPLETIONS, write_text
from drkernel.types import DrKernelError

TURNS = 4000
"""Most turns with their texts, unless told otherwise: about 10 MB where completions are long."""
PER_GROUP = 4
"""Most trajectories of a group with their texts, where not all turns have them."""
FILES = 40
"""Most steps and validations with texts, where not all turns have them."""
TEXTS = ("prompt", "completion", "source", "detail", "verdict")
"""The columns that are read of a sample only."""
SCALING = ("dom", "parts", "highlight")
"""Scripts of the page of studies that this one has, too."""


def write(run: Path, out: Path, turns: int = TURNS) -> str:
    """Write the page of a run folder to `out`, whose folder is made if need be. Returns a line for the user.

    Raises DrKernelError where `run` is no run folder, a file of completions is damaged or `out` cannot be written.
    """
    path = run / "metrics.jsonl"
    if not path.exists():
        inside = sorted(found.parent.name for found in run.glob("*/metrics.jsonl") if found.stat().st_size)
        there = f", such as {run / inside[0]}" if inside else ""
        raise DrKernelError(f"{path}: not found; expected the folder of a training run{there}")
    metrics = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines() if line.endswith("}")]
    if not metrics:
        raise DrKernelError(f"{path}: found no steps; expected a run that has taken one")
    files = sorted((run / COMPLETIONS).glob("*_*.parquet"), key=_order)
    sizes = {file: _read(file, ["turn"]).num_rows for file in files}
    with_text = set(sizes) if sum(sizes.values()) <= turns else set(_spread(files, FILES))
    share = turns if sum(sizes.values()) <= turns else turns // max(len(with_text), 1)
    listed, details, shown = [], [], 0
    for number, file in enumerate(files):
        rows = _read(file, [name for name in _read(file, []).schema_names if name not in TEXTS]).rows
        groups = _groups(rows)
        chosen = _choose(groups, share if file in with_text else 0, everything=share >= sizes[file])
        shown += len(chosen)
        texts = _read(file, list(TEXTS)).rows if chosen else []
        listed.append(_summary(file, rows) | {"texts": len(chosen)})
        told = [_group(group, chosen, texts) for group in groups]
        told.sort(key=lambda group: not any("text" in turn for turn in group["turns"]))  # what can be read comes first
        details.append(page.hidden(f"file-{number}", told))
    said = f"{shown:,} of {sum(sizes.values()):,} completions with their texts"
    core = {"metrics": metrics, "files": listed, "said": said, "texts": shown, **_about(run)}
    scripts = [page.read("drkernel.scaling", f"{name}.js") for name in SCALING]
    scripts += [page.read("drkernel.training", f"{name}.js") for name in ("curves", "run")]
    style = page.read("drkernel.scaling", "style.css") + page.read("drkernel.training", "run.css")
    elsewhere = "metrics.jsonl and completions/ of the run folder have the data"
    text = page.fill(core["title"], style, scripts, core, details, elsewhere)
    try:
        out.parent.mkdir(parents=True, exist_ok=True)
        write_text(out, text)
    except OSError as error:
        raise DrKernelError(f"{out}: {error.strerror}; expected a file that can be written") from None
    return f"{out}: {len(metrics)} steps, {said}, {len(text.encode()) / 1e6:.1f} MB"


class _Table:
    """Some columns of a file of completions."""

    def __init__(self, table: Any, names: list[str]):
        self.num_rows, self.schema_names, self._table = table.num_rows, names, table

    @property
    def rows(self) -> list[dict[str, Any]]:
        return self._table.to_pylist()


def _read(file: Path, columns: list[str]) -> _Table:
    try:
        return _Table(parquet.read_table(file, columns=columns), parquet.read_schema(file).names)
    except (OSError, ValueError) as error:
        raise DrKernelError(f"{file}: found no table of completions ({error}); expected parquet") from None


def _order(file: Path) -> tuple[int, str]:
    """By step; the validation of a step comes after it."""
    kind, _, step = file.stem.rpartition("_")
    return int(step), kind


def _spread(values: Sequence[Any], number: int) -> list[Any]:
    """At most `number` of the values at equal distances, the first and the last among them.

    >>> _spread(range(10), 4), _spread(range(3), 9), _spread(range(9), 1)
    ([0, 3, 6, 9], [0, 1, 2], [8])
    """
    if number >= len(values) or number < 2:
        return list(values if number >= len(values) else values[len(values) - number :])
    return [values[round(k * (len(values) - 1) / (number - 1))] for k in range(number)]


def _groups(rows: Iterable[dict[str, Any]]) -> list[list[tuple[int, dict[str, Any]]]]:
    """The rows of each group, with their places in the file."""
    found: dict[int, list[tuple[int, dict[str, Any]]]] = {}
    for place, row in enumerate(rows):
        found.setdefault(row["group"], []).append((place, row))
    return list(found.values())


def _choose(groups: Sequence[Sequence[tuple[int, dict[str, Any]]]], turns: int, everything: bool) -> set[int]:
    """The places of the rows that are shown with their texts, about `turns` of them."""
    if everything:
        return {place for group in groups for place, _ in group}
    chosen: set[int] = set()
    if not groups or not turns:
        return chosen
    samples = {row["sample"] for _, row in groups[0]}
    each = max(1, min(PER_GROUP, len(samples)) * len(groups[0]) // len(samples))
    for group in _spread(sorted(groups, key=_mean_reward), max(1, turns // each)):
        returns: dict[int, float] = {}
        for _, row in group:
            returns[row["sample"]] = returns.get(row["sample"], 0.0) + (row["reward"] or 0.0)
        kept = set(_spread(sorted(returns, key=lambda sample: returns[sample]), PER_GROUP))
        chosen |= {place for place, row in group if row["sample"] in kept}
    return chosen


def _mean_reward(group: Sequence[tuple[int, dict[str, Any]]]) -> float:
    rewards = [row["reward"] for _, row in group if row["reward"] is not None]
    return sum(rewards) / len(rewards) if rewards else -1.0


def _summary(file: Path, rows: list[dict[str, Any]]) -> dict[str, Any]:
    """What the list of steps says of a step or a validation."""
    kind, _, step = file.stem.rpartition("_")
    return {
        "kind": kind,
        "step": int(step),
        "turns": len(rows),
        "trajectories": len({(row["group"], row["sample"]) for row in rows}),
        "groups": len({row["group"] for row in rows}),
        "trained": sum(row["trained"] > 0 for row in rows),
        "reward": _mean_reward([(0, row) for row in rows]),
        "statuses": Counter(row["status"] for row in rows if row["status"]),
    }


def _group(
    group: Sequence[tuple[int, dict[str, Any]]], chosen: set[int], texts: list[dict[str, Any]]
) -> dict[str, Any]:
    """A group: all its turns in short, and the texts of those that were chosen."""
    short = ("sample", "turn", "status", "reason", "speedup", "coverage", "reward", "advantage", "trained", "why_not")
    turns = []
    for place, row in group:
        turn = {name: _rounded(row[name]) for name in (*short, "finished", "tokens", "prompt_tokens")}
        if place in chosen:
            turn["text"] = _text(texts[place])
        turns.append(turn)
    first = group[0][1]
    return {"group": first["group"], "task": first["task"], "reward": _rounded(_mean_reward(group)), "turns": turns}


def _rounded(value: Any) -> Any:
    return float(f"{value:.6g}") if isinstance(value, float) and math.isfinite(value) else value


def _text(row: Mapping[str, Any]) -> dict[str, Any]:
    verdict = json.loads(row["verdict"] or "{}")
    kept = ("reference_ms", "submission_ms", "device", "seconds")
    evidence = {name: value for name, value in verdict.get("evidence", {}).items() if name != "timing"}
    sides = {name: _profile(verdict.get(name, ())) for name in ("profile", "reference_profile")}
    texts = {name: row[name] for name in ("prompt", "completion", "source", "detail")}
    return texts | {name: verdict.get(name) for name in kept} | sides | {"evidence": evidence}


def _profile(rows: Iterable[Mapping[str, Any]]) -> dict[str, Any]:
    """The total in microseconds, and [name, calls, microseconds, own Triton kernel] of each row."""
    each = [[row["name"], row["calls"], round(row["microseconds"], 3), row["triton"]] for row in rows]
    return {"total": sum(row[2] for row in each), "rows": each}


def _about(run: Path) -> dict[str, Any]:
    """What the page says of the run as a whole."""
    read = lambda name: json.loads((run / name).read_text(encoding="utf-8")) if (run / name).exists() else None
    path = run / "config.yaml"
    config = yaml.safe_load(path.read_text(encoding="utf-8")) if path.exists() else {}
    part = lambda group, key: config.get(group, {}).get(key)
    filters = [name for name, value in config.get("filters", {}).items() if value]
    about = {
        "policy": part("policy", "path"),
        "tasks": part("tasks", "source"),
        "algorithm": _algorithm(config.get("algo", {})),
        "reward": part("reward", "name"),
        "filters": ", ".join(filters) or "none",
        "learning rate": f"{part('policy', 'lr')} {part('trainer', 'lr_schedule') or ''}",
        "step": " x ".join(f"{part('trainer', name)} {name}" for name in ("prompts", "samples", "turns")),
    }
    title = f"{run.resolve().parent.name}/{run.resolve().name}"
    return {"title": title, "about": about if config else {}, "best": read(BEST), "report": read("report.json")}


def _algorithm(options: Mapping[str, Any]) -> str:
    """The estimator of a run's config, and what else is not as it is by default.

    >>> _algorithm({"advantage": "grpo", "ratio_level": "turn_geometric", "clip_low": 0.2})
    'grpo, ratio_level=turn_geometric'
    """
    usual = dataclasses.asdict(AlgoConfig())
    others = [key for key in options if key != "advantage" and options[key] != usual.get(key, options[key])]
    return ", ".join([options.get("advantage", ""), *(f"{key}={options[key]}" for key in others)])


def main(arguments: list[str] | None = None) -> int:
    said = (__doc__ or "").splitlines()[0]
    parser = argparse.ArgumentParser(prog="python -m drkernel.training.view", description=said)
    parser.add_argument("run", type=Path, help="the folder of a training run")
    parser.add_argument("--out", type=Path, help="the file to write; RUN/view.html unless given")
    parser.add_argument("--turns", type=int, default=TURNS, help=f"most turns with their texts ({TURNS})")
    given = parser.parse_args(arguments)
    try:
        print(write(given.run, given.out or given.run / "view.html", given.turns))
    except DrKernelError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
