"""How fast an update was and what memory a step took, as metrics: `tokens_per_second`, `mfu`, `memory/peak_gib`."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from drkernel.policy.model import Policy
from drkernel.training.flops import peak_of, update_flops
from drkernel.training.packing import rows_that_train
from drkernel.training.update import trained
from drkernel.types import Batch

GIB = 2**30


def update_speed(policy: Policy, batch: Batch, seconds: float, gpus: int) -> dict[str, float]:
    """`describe` of an update on the rows of a batch that train."""
    _, rows = rows_that_train(batch)
    return describe(policy, rows.cu_seqlens.diff().tolist(), int(rows.loss_mask.sum()), seconds, gpus)


def describe(policy: Policy, lengths: Sequence[int], sampled: int, seconds: float, gpus: int) -> dict[str, float]:
    """Metrics of an update that took `seconds`, and the most memory since the last call. No collective.

    lengths: tokens of each row; sampled: tokens with a loss; gpus: how many worked on them.

    tokens_per_second: over all GPUs. mfu: the operations of one forward and backward (flops.py) as a share of what the
    GPUs could have done meanwhile; where their peak is known, and the policy has a gated MLP. memory/peak_gib: the most
    that torch had allocated on this rank's GPU; on a GPU only.
    """
    found = {"tokens_per_second": sum(lengths) / seconds}
    if policy.device.type != "cuda":
        return found
    peak, config = peak_of(torch.cuda.get_device_name(policy.device)), policy.model.config
    if peak and hasattr(config, "head_dim") and hasattr(config, "intermediate_size"):
        adapters = sum(p.numel() for p in trained(policy)) if policy.lora else None
        found["mfu"] = update_flops(config, lengths, sampled, adapters) / (seconds * gpus * peak)
    found["memory/peak_gib"] = torch.cuda.max_memory_allocated(policy.device) / GIB
    torch.cuda.reset_peak_memory_stats(policy.device)
    return found
