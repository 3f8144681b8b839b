"""What a measured step is compared with: the plan's GiB, and the arithmetic that its GPU could do."""

from __future__ import annotations

import tempfile

import torch
from transformers import PretrainedConfig

from drkernel.config import Config, LoraConfig
from drkernel.training import plan
from drkernel.training.flops import peak_of


def planned_gib(
    model: PretrainedConfig,
    tokens: int,
    *,
    recompute: float = 0.0,
    lora: LoraConfig | None = None,
    offload: str = "none",
) -> float:
    """GiB that the plan counts for an update step on one GPU without engine and judge: state and activations.

    tokens: those of the largest micro-batch; the other settings are those of `trainer` and `policy.lora`.
    """
    config = Config()
    config.policy.lora = lora or LoraConfig()
    config.engine.max_tokens = config.trainer.micro_batch_tokens = tokens
    config.trainer.recompute, config.trainer.offload = recompute, offload
    with tempfile.TemporaryDirectory() as folder:
        model.save_pretrained(folder)
        shape = plan.shape_of(folder)
    assert shape is not None
    parts = plan.memory(config, shape, ranks=1)
    return parts["state"][1] + parts["activations at the longest row"][1]


def relative_error(planned: float | None, measured: float | None) -> float | None:
    """How much larger the plan is than what was measured, as a share of that; None where one of them is not known."""
    return (planned - measured) / measured if planned is not None and measured else None


def utilisation(flops: float, device: torch.device) -> float | None:
    """Operations per second as a share of the GPU's peak; None on a CPU, and on a GPU whose peak is not known."""
    peak = peak_of(torch.cuda.get_device_name(device)) if device.type == "cuda" else None
    return flops / peak if peak else None


def shown(value: float | None, form: str) -> str:
    """A cell of a table, empty where there is no value."""
    return "" if value is None else format(value, form)
