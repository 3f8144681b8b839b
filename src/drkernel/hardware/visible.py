"""The GPUs of this machine that a process sees."""

from __future__ import annotations

import os

import torch


def visible_gpus() -> list[str]:
    """What CUDA_VISIBLE_DEVICES lists, or all GPUs by number; CUDA is not initialised."""
    listed = os.environ.get("CUDA_VISIBLE_DEVICES")
    if listed is not None:
        return [name.strip() for name in listed.split(",") if name.strip()]
    return [str(number) for number in range(torch.cuda.device_count())]
