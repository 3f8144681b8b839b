"""One attention function for every Hugging Face decoder: it hands q, k and v to a layout that knows who sees whom.

`ATTENTION` is registered with transformers' AttentionInterface, which then builds no masks. A forward passes
`layout=...`: the trainer's is `Packed` (rows end to end, each causal, none sees another), the engine's are in `kv.py`.
"""

from __future__ import annotations

from typing import Any, Protocol

import torch
import torch.nn.functional as F
from torch import Tensor
from transformers import AttentionInterface

from drkernel.policy.varlen import flash4_works, varlen
from drkernel.types import DrKernelError

ATTENTION = "drkernel"


class Layout(Protocol):
    def attend(self, layer: int, query: Tensor, key: Tensor, value: Tensor, scale: float) -> Tensor:
        """query [T, Hq, D], key and value [T, Hkv, D] -> [T, Hq, D]."""


class Packed:
    """Causal attention within each row of a packed sequence; exact, and without a T x T mask.

    cu_seqlens int32 [R + 1]: row r is tokens cu_seqlens[r] : cu_seqlens[r + 1]. If it lies on the CPU nothing waits for
    the device, and compiled blocks can call `attend`: there it reads a tensor on the device and one integer.
    """

    def __init__(self, cu_seqlens: Tensor, device: torch.device | None = None):
        self.bounds = cu_seqlens.tolist()
        self.cu_seqlens = to_device(cu_seqlens, device or cu_seqlens.device)
        self.flash4 = flash4_works(self.cu_seqlens.device)
        longest = max(end - start for start, end in zip(self.bounds, self.bounds[1:], strict=False))
        # The kernel wants an upper bound. A power of two takes few values, so a compiled block is not compiled again.
        self.longest = 1 << (longest - 1).bit_length()

    def attend(self, layer: int | None, query: Tensor, key: Tensor, value: Tensor, scale: float) -> Tensor:
        if query.is_cuda and value.dtype in (torch.bfloat16, torch.float16):
            # Under autocast the norms return float32 queries and keys beside half-precision values.
            query, key = query.to(value.dtype), key.to(value.dtype)
            return varlen(query, key, value, self.cu_seqlens, self.longest, scale, self.flash4)
        rows = [
            causal(query[start:end], key[start:end], value[start:end], scale)
            for start, end in zip(self.bounds, self.bounds[1:], strict=False)
        ]
        return torch.cat(rows)


def causal(query: Tensor, key: Tensor, value: Tensor, scale: float) -> Tensor:
    """One row: query [n, Hq, D], key and value [n, Hkv, D] -> [n, Hq, D]."""
    q, k, v = (x.transpose(0, 1).unsqueeze(0) for x in (query, key, value))
    out = F.scaled_dot_product_attention(q, k, v, is_causal=True, scale=scale, enable_gqa=q.shape[1] != k.shape[1])
    return out[0].transpose(0, 1)


def attention(
    module: Any,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    scaling: float | None = None,
    dropout: float = 0.0,
    layout: Layout | None = None,
    **options: Any,
) -> tuple[Tensor, None]:
    """transformers' attention interface: query [1, Hq, T, D], key and value [1, Hkv, T, D] -> ([1, T, Hq, D], None)."""
    if layout is None:
        raise DrKernelError("attention 'drkernel': the forward got no layout; go through drkernel.policy.Policy")
    if options.get("sliding_window") or options.get("softcap") or options.get("s_aux") is not None or dropout:
        raise DrKernelError(
            f"model {module.config.model_type}: sliding windows, soft caps, sinks and dropout are not supported"
        )
    assert query.shape[0] == 1 and attention_mask is None
    q, k, v = (x[0].transpose(0, 1) for x in (query, key, value))
    scale = query.shape[-1] ** -0.5 if scaling is None else scaling
    # Who reads the block's number when compiled is compiled once per block.
    if isinstance(layout, Packed):
        output = layout.attend(None, q, k, v, scale)
    else:
        output = layout.attend(module.layer_idx, q, k, v, scale)
    return output.unsqueeze(0), None


def to_device(tensor: Tensor, device: torch.device) -> Tensor:
    """Onto the device without waiting for what runs there: from pinned memory if it comes from the CPU."""
    if device.type == "cuda" and not tensor.is_cuda and tensor.numel():
        return tensor.pin_memory().to(device, non_blocking=True)
    return tensor.to(device)


AttentionInterface.register(ATTENTION, attention)
