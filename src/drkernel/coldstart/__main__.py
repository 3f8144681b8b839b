"""Judged trajectories of generated tasks as a parquet file that `stage=sft` and `stage=coldstart` train on.

    python -m drkernel.coldstart --tasks 1000 --out trajectories.parquet
    python train.py stage=sft policy=qwen3_0.6b sft.data=trajectories.parquet

The columns are those of the paper's published cold-start set, and the messages are plain, for any policy's prompts
(`trajectories.SCHEMA`, `trajectories.record`). Verdicts are kept beside the file, in OUT.verdicts.jsonl, so that the
same command goes on where it was stopped, and one with more tasks judges the new ones alone.
"""

from __future__ import annotations

import argparse
import dataclasses
import sys
from collections.abc import Sequence
from pathlib import Path

from rich.console import Console

from drkernel.coldstart.dataset import Options, make
from drkernel.config import ColdstartConfig, Config, JudgeConfig
from drkernel.judge.service import DEVICES, GPUS
from drkernel.tasks.generators import DEFAULT, GENERATORS
from drkernel.tasks.generators.operators.families import DTYPES
from drkernel.tasks.splits import SPLITS
from drkernel.training.progress import Progress, make_console
from drkernel.types import DrKernelError


def run(given: argparse.Namespace, console: Console) -> None:
    """Make the set, and print what was made."""
    options = Options(**{field.name: getattr(given, field.name) for field in dataclasses.fields(Options)})
    config = Config(seed=given.seed, judge=JudgeConfig(device=given.device, gpu=given.gpu, workers=given.workers))
    with Progress(console) as progress:
        made = make(given.out, options, config, progress)
    console.print(f"{given.out}: ", end="", highlight=False)
    for line in made.lines:
        console.print(line, highlight=False)
    for table in made.counts.tables():
        console.print(table)


def arguments(words: Sequence[str] | None) -> argparse.Namespace:
    """The command line; defaults are those of `stage=coldstart`."""
    defaults = ColdstartConfig()
    parser = argparse.ArgumentParser(
        prog="python -m drkernel.coldstart", description=(__doc__ or "").partition("\n")[0]
    )
    option = parser.add_argument
    option("--tasks", type=int, required=True, help="how many tasks are judged")
    option("--out", type=Path, required=True, help="the parquet file")
    option("--split", choices=SPLITS, default="train", help="whose tasks; train")
    option("--seed", type=int, default=0, help="of tasks, draws and hidden inputs; 0")
    option("--generator", default=DEFAULT, help=f"what draws: {', '.join(GENERATORS)}; {DEFAULT}")
    option("--dtypes", nargs="+", choices=DTYPES, default=list(DTYPES[:1]), help="of inputs and weights; float32")
    option("--turns", type=int, default=3, help="per trajectory; 3")
    option("--trajectories", type=int, default=defaults.trajectories, help="per task; 8")
    option("--unjudged", type=int, default=0, help="further tasks, whose right solutions are not judged; 0")
    option("--unjudged-trajectories", type=int, default=1, help="per task that is not judged, of one turn; 1")
    option("--mistakes", type=int, default=defaults.mistakes, help="mistaken solutions per task; 2")
    option("--fused-share", type=float, default=defaults.fused_share, help="of the best solutions; 0.15")
    option("--plain", action="store_true", help="solutions in one style, which small policies learn sooner")
    option("--families", nargs="+", help="of the generator, in turn; all")
    option("--canonical", action="store_true", help="messages in canonical form, for policy.prompts=compact")
    option("--device", choices=DEVICES, default="auto", help="what measures; auto")
    option("--gpu", choices=GPUS, default="H200", help="what the simulated device models; H200")
    option("--workers", type=int, help="processes that judge")
    given = parser.parse_args(words)
    for name in ("tasks", "turns", "trajectories"):
        if getattr(given, name) < 1:
            parser.error(f"--{name} is {getattr(given, name)}, expected at least 1")
    return given


def main(words: Sequence[str] | None = None) -> int:
    given, console = arguments(words), make_console()
    try:
        run(given, console)
    except DrKernelError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
