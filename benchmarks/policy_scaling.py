"""Share of tasks solved against the rows, the parameters and the tokens of a supervised training, from random weights.

    python benchmarks/coldstart_sets.py OUT/sets --parts 500 --tasks 120
    python benchmarks/policy_scaling.py OUT [--at-once 4] [--workers 4] [--seeds 2] [--only NAME ...] [--studies ...]

`GRID` lists the trainings. Each is followed by one try at temperature 0 on tasks by other authors (the development half
of the handwritten ones, the validation split of the written ones), judged on the simulated H200. All have the tokenizer
of the shipped 8M policy. What is done stays, so the same command goes on. OUT/rows.jsonl has the results, to which a
further run adds its own; OUT/table.md and OUT/scaling.png show them.
"""

import argparse
import json
import os
import queue
import subprocess
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import judging
import numpy
import torch
from transformers import AutoTokenizer

from drkernel.objective.intervals import wilson
from drkernel.policy.model import new_policy
from drkernel.policy.transfer import export

TOKENIZER = Path(__file__).parents[1] / "assets" / "seed_8m"
SHAPES = {
    "3M": {"hidden": 192, "layers": 6, "kv_heads": 1},
    "8M": {"hidden": 320, "layers": 6, "kv_heads": 1},
    "25M": {"hidden": 512, "layers": 8, "kv_heads": 2},
    "60M": {"hidden": 640, "layers": 12, "kv_heads": 5},
}
RATES = {"3M": 3e-3, "8M": 2.5e-3, "25M": 2e-3, "60M": 1.5e-3}
"""Learning rates of Muon: those of conf/coldstart for 8M and 60M, and what lies beside and between."""
STUDIES = {
    "development": ("tasks=handwritten", "tasks.eval_source=handwritten:development", "tasks.eval_count=50"),
    "validation": ("tasks=written", "split=validation", "tasks.eval_count=183"),
}


@dataclass(frozen=True)
class Training:
    """One of them.

    Args:
        shape: a key of SHAPES.
        part: every so manieth file of the set trains.
        epochs: passes over these.
    """

    shape: str
    part: int
    epochs: int
    seed: int

    @property
    def name(self) -> str:
        return f"{self.shape}-1of{self.part}-{self.epochs}-seed{self.seed}"


GRID = [
    *(("8M", 1, 3), ("8M", 4, 12), ("8M", 16, 48)),
    *(("60M", 1, 3), ("25M", 1, 3), ("3M", 1, 3)),
    *(("8M", 1, 1), ("8M", 1, 6)),
]
"""Shape, part of the rows, epochs: fewer rows, of the same tokens in all; fewer and more tokens; other shapes."""


def main(options: argparse.Namespace) -> int:
    trainings = [Training(*each, seed) for seed in range(options.seeds) for each in GRID]
    names = [each.name for each in trainings]
    if unknown := [name for name in options.only or () if name not in names]:
        sys.exit(f"--only {unknown[0]}: no such training; there are {', '.join(names)}")
    trainings = [each for each in trainings if not options.only or each.name in options.only]
    if options.report:
        done = lambda each: all(is_evaluated(options.out, each, study) for study in options.studies)
        return report(options.out, filter(done, trainings), options.studies)
    gpus: queue.SimpleQueue[str] = queue.SimpleQueue()
    for place in range(options.at_once):
        gpus.put(str(place % max(1, torch.cuda.device_count())))

    def play(training: Training) -> None:
        gpu = gpus.get()
        try:
            train(options.out, training, gpu)
            for study in options.studies:
                evaluate(options.out, training, study, gpu, options)
        finally:
            gpus.put(gpu)

    with ThreadPoolExecutor(options.at_once) as pool:
        list(pool.map(play, trainings))
    return report(options.out, trainings, options.studies)


def train(out: Path, training: Training, gpu: str) -> None:
    """OUT/NAME/policy, trained from random weights."""
    folder = out / training.name
    start = folder / "start"
    if (folder / "policy").exists():
        return
    if not start.exists():
        tokenizer = AutoTokenizer.from_pretrained(TOKENIZER)
        ids = {"eos_token_id": tokenizer.eos_token_id, "pad_token_id": tokenizer.pad_token_id}
        export(new_policy(len(tokenizer), seed=training.seed, **SHAPES[training.shape], **ids), start, tokenizer)
    files = ",".join(str(path) for path in sorted((out / "sets").glob("*.parquet"))[:: training.part])
    run(
        *("train.py", "stage=sft", f"policy.path={start}", "policy.prompts=canonical", f"sft.data=[{files}]"),
        *("sft.optimizer=muon", "sft.loss_on=right", "sft.batch_tokens=65536", f"sft.epochs={training.epochs}"),
        *(f"sft.lr={RATES[training.shape]}", "sft.lr_warmup_share=0.05", "sft.lr_end=0.05", "sft.held_out=0.01"),
        *("trainer.micro_batch_tokens=69632", "trainer.compile=true", "trainer.gpus=1", f"seed={training.seed}"),
        *("logger=none", f"hydra.run.dir={folder}"),
        gpu=gpu,
        log=out / f"{training.name}.log",
    )


def evaluate(out: Path, training: Training, study: str, gpu: str, options: argparse.Namespace) -> None:
    """OUT/NAME/STUDY, a study's folder."""
    folder = out / training.name
    if is_evaluated(out, training, study):
        return
    run(
        *("evaluate.py", f"policy.path={folder / 'policy'}", "policy.prompts=canonical", "judge=simulated"),
        *(f"judge.workers={options.workers}", "scaling=single", "engine.temperature=0", "engine.max_tokens=4096"),
        *("engine.max_answer_tokens=2000", f"hydra.run.dir={folder / study}", *STUDIES[study], *options.evaluate),
        gpu=gpu,
        log=out / f"{training.name}-{study}.log",
    )


def is_evaluated(out: Path, training: Training, study: str) -> bool:
    return (out / training.name / study / "report").exists()


def run(*command: str, gpu: str, log: Path) -> None:
    environment = os.environ | {
        "CUDA_VISIBLE_DEVICES": gpu if torch.cuda.is_available() else "",
        "OMP_NUM_THREADS": "1",
    }
    with open(log, "a") as file:
        subprocess.run([sys.executable, *command], check=True, stdout=file, stderr=subprocess.STDOUT, env=environment)


def report(out: Path, trainings: Iterable[Training], studies: Sequence[str]) -> int:
    path = out / "rows.jsonl"
    before = [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []
    found = {name_of(each): each for each in before} | {each.name: row(out, each, studies) for each in trainings}
    rows = sorted(found.values(), key=lambda each: (GRID.index(_setting(each)), each["seed"]))
    lines = [
        "| policy | rows | tokens | seed | held-out loss | right | at 1.2x | tasks |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for each in rows:
        right, fast = (_share(each[key]) for key in ("right", "fast"))
        lines.append(
            f"| {each['shape']} ({each['parameters'] / 1e6:.1f}M) | {each['rows']:,} | {each['tokens'] / 1e6:.0f}M "
            f"| {each['seed']} | {each['held_out']:.4f} | {right} | {fast} | {len(each['right'])} |"
        )
    judging.write_table(out, lines)
    path.write_text("".join(json.dumps(each) + "\n" for each in rows))
    plot(rows, out / "scaling.png")
    print("\n".join(lines))
    return 0


def _setting(row: Mapping[str, Any]) -> tuple[str, int, int]:
    return row["shape"], row["part"], row["epochs"]


def name_of(row: Mapping[str, Any]) -> str:
    return Training(*_setting(row), row["seed"]).name


def _share(found: list[bool]) -> str:
    mean = float(numpy.mean(found))
    low, high = wilson(mean, len(found))
    return f"{mean:.0%} [{100 * low:.0f}, {100 * high:.0f}]"


def row(out: Path, training: Training, studies: Sequence[str]) -> dict[str, Any]:
    """What a training is and solves; per task, whether the answer is right, and at least 1.2 times as fast."""
    folder = out / training.name
    steps = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    results = [each for study in studies for each in answers(folder / study)]
    config = json.loads((folder / "policy" / "config.json").read_text())
    return {
        "shape": training.shape,
        "part": training.part,
        "epochs": training.epochs,
        "seed": training.seed,
        "parameters": parameters(config),
        "rows": round(sum(step.get("rows", 0) for step in steps) / training.epochs),
        "tokens": sum(step.get("tokens", 0) for step in steps),
        "held_out": [step["held_out"] for step in steps if "held_out" in step][-1],
        "right": [ok for ok, _ in results],
        "fast": [fast for _, fast in results],
    }


def answers(folder: Path) -> Iterator[tuple[bool, bool]]:
    for line in (folder / "results.jsonl").read_text().splitlines():
        verdict = json.loads(line)["verdict"]
        ok = verdict["status"] == "ok"
        yield ok, ok and (verdict["speedup"] or 0.0) >= 1.2


def parameters(config: dict[str, Any]) -> int:
    hidden, heads = config["hidden_size"], config["num_attention_heads"] * config["head_dim"]
    kv = config["num_key_value_heads"] * config["head_dim"]
    layer = 2 * hidden * heads + 2 * hidden * kv + 3 * hidden * config["intermediate_size"]
    return config["vocab_size"] * hidden + config["num_hidden_layers"] * layer


def plot(rows: list[dict[str, Any]], path: Path) -> None:
    pyplot = judging.pyplot()
    figure, axes = pyplot.subplots(1, 3, figsize=(10, 3.4), sharey=True, constrained_layout=True)
    base = {"shape": "8M", "part": 1, "epochs": 3}
    free = {"rows": ("part", "epochs"), "parameters": ("shape",), "tokens": ("epochs",)}
    for axis, (name, keys) in zip(axes, free.items(), strict=True):
        shown = [each for each in rows if all(each[key] == value for key, value in base.items() if key not in keys)]
        shown = [each for each in shown if name != "rows" or each["part"] * 3 == each["epochs"]]
        for shift, (key, label) in zip((0.97, 1.03), (("right", "right"), ("fast", "and at 1.2x")), strict=True):
            of_seeds = [(each[name] * shift * 1.015 ** each["seed"], each[key]) for each in shown]
            ends = [wilson(float(numpy.mean(solved)), len(solved)) for _, solved in of_seeds]
            means = [100 * float(numpy.mean(solved)) for _, solved in of_seeds]
            off = [[abs(mean - 100 * end[side]) for mean, end in zip(means, ends, strict=True)] for side in (0, 1)]
            axis.errorbar([place for place, _ in of_seeds], means, off, fmt="o", markersize=4, capsize=2, label=label)
        places = [each[name] for each in shown if each["seed"] == 0]
        axis.set(xscale="log", xlabel=name, ylim=(0, 100))
        axis.set_xticks(places, [_short(place) for place in places])
        axis.minorticks_off()
        axis.grid(alpha=0.3)
    axes[0].set(ylabel="tasks, %")
    axes[0].legend(loc="upper left")
    figure.savefig(path, dpi=110)


def _short(number: float) -> str:
    return f"{number / 1e6:.0f}M" if number >= 1e6 else f"{number / 1e3:.1f}k"


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=Path)
    parser.add_argument("--at-once", type=int, default=4, help="trainings and studies, on all GPUs together")
    parser.add_argument("--workers", type=int, default=4, help="of each study's judge")
    parser.add_argument("--seeds", type=int, default=2)
    parser.add_argument("--only", nargs="+", metavar="NAME", help="of trainings, as their folders are called")
    parser.add_argument("--studies", nargs="+", choices=STUDIES, default=[*STUDIES])
    parser.add_argument("--report", action="store_true", help="of what is there; nothing is trained")
    parser.add_argument("evaluate", nargs="*", help="further overrides of evaluate.py")
    sys.exit(main(parser.parse_intermixed_args()))  # overrides may stand behind options
