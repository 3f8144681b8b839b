"""Runs a script and notes how much memory of its GPU PyTorch had allocated at most.

    python benchmarks/peak_memory.py FILE train.py engine=vllm trainer.steps=8

The script runs as by `python train.py ...`. Engine and trainer are in one process, so the peak is that of both, without
CUDA's own memory. FILE gets {"peak_gib": ...} at the end, also after an error; of several ranks the first one's.
Nothing is written without a GPU.
"""

from __future__ import annotations

import json
import os
import runpy
import sys
from pathlib import Path

import torch


def main(file: Path, arguments: list[str]) -> None:
    sys.argv, sys.path[0] = arguments, str(Path(arguments[0]).resolve().parent)
    try:
        runpy.run_path(arguments[0], run_name="__main__")
    finally:
        # What only starts ranks has not used its GPU.
        if torch.cuda.is_initialized() and os.environ.get("RANK", "0") == "0":
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(json.dumps({"peak_gib": torch.cuda.max_memory_allocated() / 2**30}) + "\n")


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2:])
