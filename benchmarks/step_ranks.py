"""Where the seconds of whole steps of train.py go, on several GPUs at fixed work per GPU.

    python benchmarks/step_ranks.py OUT --gpus 1 2 4 --train engine=vllm trainer.compile=true

Random weights in the shape of Qwen3 with the seed policy's tokenizer: no completion is code, so each is as long as
allowed (400 tokens, three turns), the judge has nothing to do, and the work per GPU is the same: 8 prompts x 8 samples.
`peers` is what the first rank waits for others that still play. What `judge` takes in a run that learns,
results/training-h200/README.md says. The first two steps are left out.
OUT/steps.json collects the runs, OUT/steps.md shows medians.
"""

from __future__ import annotations

import argparse
import json
import shutil
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

import torch
from shapes import SHAPES, config_of
from transformers import AutoModelForCausalLM

ROOT = Path(__file__).parents[1]
SEED = ROOT / "assets/seed"
WARM_UPS = 2
PARTS = {
    "generate": ("time/generate",),
    "judge": ("time/judge",),
    "update": ("time/update",),
    "sync": ("time/sync",),
    "peers": ("time/peers",),
    "other": ("time/rollout", "time/prepare"),
}


def main(options: argparse.Namespace) -> None:
    options.out.mkdir(parents=True, exist_ok=True)
    path = options.out / "steps.json"
    runs = json.loads(path.read_text()) if path.exists() else []
    with tempfile.TemporaryDirectory() as folder:
        policy = make_policy(Path(folder) / "policy", options.shape)
        for gpus in options.gpus:
            steps = play(policy, Path(folder) / f"run{gpus}", gpus, options)[WARM_UPS:]
            run = {name: statistics.median(sum(s[key] for key in keys) for s in steps) for name, keys in PARTS.items()}
            run |= {"shape": options.shape, "gpus": gpus, "tokens": statistics.median(s["tokens"] for s in steps)}
            runs = [r for r in runs if (r["shape"], r["gpus"]) != (options.shape, gpus)] + [run]
            path.write_text(json.dumps(runs, indent=1) + "\n")
            (options.out / "steps.md").write_text(table(runs))
    print((options.out / "steps.md").read_text())


def make_policy(folder: Path, shape: str) -> Path:
    config = config_of(shape)
    config.vocab_size = json.loads((SEED / "config.json").read_text())["vocab_size"]
    torch.manual_seed(0)
    with torch.device("cuda" if torch.cuda.is_available() else "cpu"):
        model = AutoModelForCausalLM.from_config(config, dtype=torch.bfloat16)
    model.save_pretrained(folder)
    for file in SEED.glob("tokenizer*"):
        shutil.copy(file, folder)
    return folder


def play(policy: Path, run: Path, gpus: int, options: argparse.Namespace) -> list[dict]:
    sizes = [f"trainer.prompts={options.prompts * gpus}", f"trainer.steps={options.steps}", f"trainer.gpus={gpus}"]
    sizes += ["trainer.micro_batch_tokens=32768", "trainer.save_every=1000", "tasks.eval_count=1"]
    command = [sys.executable, "train.py", f"hydra.run.dir={run}", f"policy.path={policy}", "judge=simulated", *sizes]
    command += ["filters=none", "logger=none", "trainer.eval_samples=1", *options.train]
    subprocess.run(command, cwd=ROOT, check=True)
    return [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]


def table(runs: list[dict]) -> str:
    lines = [f"`{' '.join(sys.argv)}`: medians of whole steps, seconds", ""]
    lines += ["| shape | GPUs | tokens per step | " + " | ".join(PARTS) + " | step | share of other | efficiency |"]
    lines += ["|---|---:|---:|" + "---:|" * (len(PARTS) + 3)]
    for run in sorted(runs, key=lambda r: (r["shape"], r["gpus"])):
        whole = sum(run[part] for part in PARTS)
        single = next((r for r in runs if (r["shape"], r["gpus"]) == (run["shape"], 1)), None)
        rate = lambda r: r["tokens"] / r["gpus"] / sum(r[part] for part in PARTS)
        efficiency = f"{rate(run) / rate(single):.1%}" if single else ""
        cells = " | ".join(f"{run[part]:.2f}" for part in PARTS)
        lines.append(
            f"| {run['shape']} | {run['gpus']} | {run['tokens']:,.0f} | {cells} | {whole:.2f} "
            f"| {run['other'] / whole:.1%} | {efficiency} |"
        )
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=Path)
    parser.add_argument("--gpus", type=int, nargs="+", default=[1, 2, 4])
    parser.add_argument("--shape", default="0.6b", choices=SHAPES)
    parser.add_argument("--prompts", type=int, default=8, help="per GPU")
    parser.add_argument("--steps", type=int, default=6)
    parser.add_argument("--train", nargs="*", default=[], help="overrides: engine=vllm trainer.compile=true")
    main(parser.parse_args())
