"""LoRA for a policy: each chosen linear layer keeps its frozen weight and gets two small matrices that train.

    y = W x + scale B A x        W [out, in] frozen; A [rank, in], B [out, rank] float32

A new adapter has B = 0, so the policy starts as its base. The modules are named as in peft (`q_proj.lora_A.weight`),
and `export_adapters` writes peft's format. The engine gets W + scale B A (`merged`), the trainer's W stays untouched.
Adapters are added before a policy is sharded; then rows of B are split as those of W are, so each rank merges its own.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, cast

import torch
import torch.nn.functional as F
from safetensors.torch import save_file
from torch import Tensor, nn

from drkernel.config import LoraConfig
from drkernel.policy.dtensor import fill, local
from drkernel.policy.model import Policy, plain_name
from drkernel.seeds import weight_seed
from drkernel.types import DrKernelError

GOLDEN = -1_640_531_535
"""2**32 over the golden ratio, as int32: its multiples modulo 2**32 are spread evenly."""
PEFT_PREFIX = "base_model.model."
"""What peft puts before the name of a module of the transformers model."""


class LoraLinear(nn.Linear):
    """A linear layer with an adapter; it takes over the weight and bias of the layer that it replaces."""

    def __init__(self, layer: nn.Linear, settings: LoraConfig):
        nn.Module.__init__(self)
        self.in_features, self.out_features = layer.in_features, layer.out_features
        self.weight, self.bias = layer.weight, layer.bias
        self.scale, self.dropout = settings.scale, settings.dropout
        self.lora_A = _matrix(layer.in_features, settings.rank, layer.weight.device)
        self.lora_B = _matrix(settings.rank, layer.out_features, layer.weight.device)

    def forward(self, input: Tensor) -> Tensor:
        # Dropout acts where there will be a backward: scores without a gradient are those of the whole adapter.
        dropped = F.dropout(input, self.dropout, training=torch.is_grad_enabled()) if self.dropout else input
        return F.linear(input, self.weight, self.bias) + self.lora_B(self.lora_A(dropped)) * self.scale


def add_adapters(policy: Policy, settings: LoraConfig) -> Policy:
    """Freeze the policy's weights and give the chosen linear layers of its blocks adapters, in place.

    Matrices A and B are not yet set: `draw_adapters` does that. Raises DrKernelError where a target is no linear layer.
    """
    settings.check()
    policy.requires_grad_(False)
    blocks = cast(nn.Module, policy.body.layers)
    linear = {name: module for name, module in blocks.named_modules() if isinstance(module, nn.Linear)}
    known = sorted({_last(name) for name in linear})
    wanted = known if settings.targets is None else settings.targets
    if not known or set(wanted) - set(known):
        missing = ", ".join(sorted(set(wanted) - set(known))) or "no linear layer"
        raise DrKernelError(f"policy.lora.targets: found {missing}; expected some of {', '.join(known) or 'any'}")
    for name, layer in linear.items():
        if _last(name) in wanted:
            parent, _, own = name.rpartition(".")
            setattr(blocks.get_submodule(parent), own, LoraLinear(layer, settings))
    policy.lora = settings
    return policy


@torch.no_grad()
def draw_adapters(policy: Policy, seed: int) -> None:
    """A uniform within 1 / sqrt(in), as peft has it; B = 0. A function of seed and name alone, not of the ranks."""
    for name, layer in adapted(policy.model):
        generator = torch.Generator().manual_seed(weight_seed(seed, name))
        bound = layer.in_features**-0.5
        drawn = torch.empty(layer.lora_A.weight.shape).uniform_(-bound, bound, generator=generator)
        fill(layer.lora_A.weight, drawn)
        fill(layer.lora_B.weight, torch.zeros(layer.lora_B.weight.shape))


def adapted(model: nn.Module) -> Iterator[tuple[str, LoraLinear]]:
    """(plain name, layer) of every layer with an adapter."""
    for name, module in model.named_modules():
        if isinstance(module, LoraLinear):
            yield plain_name(name), module


def is_adapter(name: str) -> bool:
    """Whether a weight's name is that of A or B.

    >>> is_adapter("model.layers.0.mlp.up_proj.lora_A.weight"), is_adapter("model.layers.0.mlp.up_proj.weight")
    (True, False)
    """
    return name.endswith((".lora_A.weight", ".lora_B.weight"))


@torch.no_grad()
def merged(layer: LoraLinear, a: Tensor, dtype: torch.dtype, first_row: int = 0) -> Tensor:
    """This rank's rows of W + scale B A, added up in float32 and then cast.

    a: the whole float32 A [rank, in]; first_row: where in W the rows of this rank begin.
    """
    weight, b = local(layer.weight), local(layer.lora_B.weight)
    assert len(weight) == len(b), "rows of B are split as those of W"
    if not layer.scale:
        return weight.to(dtype)
    total = torch.addmm(weight.float(), b.float(), a, alpha=layer.scale)
    return dithered(total, first_row) if dtype == torch.bfloat16 else total.to(dtype)


def dithered(rows: Tensor, first_row: int) -> Tensor:
    """float32 [n, in] as bfloat16, rounded up or down so that the mean error is zero; the same each time.

    A base in bfloat16 needs this: to the nearest, W + d is W again while d is below half a unit in W's last place. The
    engine would sample from the base for dozens of steps (benchmarks/lora_rounding.py: 3 % of the first step at a
    learning rate of 1e-5 reach it, 97 % with dithering). What is added before the lower 16 bits are cut off
    depends on the place in the whole matrix alone (multiples of the golden ratio): ranks agree, and a weight moves only
    where d does.
    """
    first = first_row * rows.shape[1]
    bits = torch.arange(first, first + rows.numel(), dtype=torch.int32, device=rows.device).view(rows.shape)
    bits.mul_(GOLDEN).bitwise_right_shift_(16).bitwise_and_(0xFFFF)
    return bits.add_(rows.view(torch.int32)).bitwise_and_(~0xFFFF).view(torch.float32).bfloat16()


@contextlib.contextmanager
def without_adapters(policy: Policy) -> Iterator[None]:
    """The policy is its base meanwhile."""
    layers = [layer for _, layer in adapted(policy.model)]
    scales = [layer.scale for layer in layers]
    for layer in layers:
        layer.scale = 0.0
    try:
        yield
    finally:
        for layer, scale in zip(layers, scales, strict=True):
            layer.scale = scale


def write_adapters(policy: Policy, folder: str | Path, weights: dict[str, Tensor]) -> None:
    """adapter_config.json and adapter_model.safetensors of whole adapters by name, as peft's PeftModel loads them."""
    assert policy.lora is not None
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    tensors = {f"{PEFT_PREFIX}{name}": tensor.contiguous() for name, tensor in weights.items()}
    save_file(tensors, folder / "adapter_model.safetensors", metadata={"format": "pt"})
    text = json.dumps(peft_config(policy, policy.lora), indent=2)
    (folder / "adapter_config.json").write_text(text + "\n", encoding="utf-8")


def peft_config(policy: Policy, settings: LoraConfig) -> dict[str, Any]:
    """What peft's LoraConfig needs to build these adapters again."""
    return {
        "peft_type": "LORA",
        "task_type": "CAUSAL_LM",
        "base_model_name_or_path": policy.base.source if policy.base else None,
        "r": settings.rank,
        "lora_alpha": settings.alpha,
        "lora_dropout": settings.dropout,
        "use_rslora": settings.rslora,
        "target_modules": sorted({_last(name) for name, _ in adapted(policy.model)}),
        "bias": "none",
        "fan_in_fan_out": False,
        "init_lora_weights": True,
        "inference_mode": True,
    }


def _matrix(inputs: int, outputs: int, device: torch.device) -> nn.Linear:
    """Not yet set; nothing is drawn, so the global random state stays."""
    return nn.Linear(inputs, outputs, bias=False, device="meta", dtype=torch.float32).to_empty(device=device)


def _last(name: str) -> str:
    return name.rpartition(".")[2]


def pairs(shapes: Mapping[str, tuple[int, int]], settings: LoraConfig) -> int:
    """Parameters of the adapters of some linear layers; shapes: (inputs, outputs) by the layer's last name.

    >>> pairs({"q_proj": (8, 4), "v_proj": (8, 2)}, LoraConfig(rank=2, targets=["q_proj"]))
    24
    """
    chosen = shapes if settings.targets is None else settings.targets
    return settings.rank * sum(sum(shapes[name]) for name in chosen if name in shapes)
