"""What every process of the CUDA judge does before it touches the GPU, and right after.

Examiners, runners and compile workers run it.
"""

from __future__ import annotations

import os
import re
from pathlib import Path

import torch

from drkernel.judge.boundary import tf32
from drkernel.judge.boundary.cuda import recorder
from drkernel.tasks import module

ENVIRONMENT = {
    "CUDA_CACHE_DISABLE": "1",  # no files in a home folder
    "CUDA_DEVICE_MAX_CONNECTIONS": "1",  # a context in 60 ms instead of 120, and twice as many per second
    "CUDA_MODULE_LOADING": "LAZY",
    "GLIBC_TUNABLES": "glibc.malloc.hugetlb=1",  # CUDA unpacks kernels into memory: half as many page faults
    "PYTORCH_NVML_BASED_CUDA_CHECK": "1",  # asking for a GPU does not initialise CUDA, which would not survive a fork
    "TRITON_INTERPRET": "0",
}
"""Of examiners and runners."""
COMPILING = {"CUDA_VISIBLE_DEVICES": "", "TRITON_INTERPRET": "0"}
"""Of compile workers."""
DEVICES = "DRKERNEL_DEVICES"
"""Environment variable with the device files that a runner may open."""


def start(everywhere: bool) -> None:
    """Creates the CUDA context. From then on references are built on the GPU, and products of fp32 stay fp32 until
    `boundary.tf32` says otherwise.

    Args:
        everywhere: make all tensors on the GPU unless a device is named. It makes each call of torch slower.
    """
    torch.cuda.init()
    if everywhere:
        torch.set_default_device("cuda")
    module.DEVICE = "cuda"
    tf32.allow(False)
    torch.zeros(1, device="cuda")
    seed_both_generators()
    recorder.install()


def seed_both_generators() -> None:
    """Makes torch.manual_seed seed two generators and nothing else; by itself it walks all backends."""
    cpu, gpu = torch.default_generator, torch.cuda.default_generators[torch.cuda.current_device()]

    def manual_seed(seed: int) -> torch.Generator:
        gpu.manual_seed(int(seed))
        return cpu.manual_seed(int(seed))

    torch.manual_seed = manual_seed


def only(gpu: str, root: Path = Path("/")) -> dict[str, str]:
    """The environment of a runner on one GPU. CUDA then looks at no other GPU, which would take time.

    Where the driver does not say which device file is this GPU's, the runner gets those of all GPUs.

    Args:
        gpu: its UUID.
    """
    files = [path for path in (root / "dev").glob("nvidia*") if not path.is_dir()]
    for facts in (root / "proc/driver/nvidia/gpus").glob("*/information"):
        text = facts.read_text()
        number = re.search(r"Device Minor:\s*(\d+)", text)
        if gpu in text and number and (own := root / "dev" / f"nvidia{number[1]}") in files:
            needed = [path for path in files if path == own or not re.fullmatch(r"nvidia\d+", path.name)]
            return {DEVICES: os.pathsep.join(map(str, needed)), "CUDA_VISIBLE_DEVICES": f"GPU-{gpu}"}
    return {DEVICES: os.pathsep.join(map(str, files))}


def visible(gpu: str) -> dict[str, str]:
    """The environment of a process that sees one GPU."""
    return {**ENVIRONMENT, "CUDA_VISIBLE_DEVICES": gpu}
