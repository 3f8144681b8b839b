"""A policy over several GPUs: FSDP2 by hand, with float32 master weights and gradients that are sums over ranks.

Every block is an FSDP group. Norm and head (and the embedding, where it is tied to the head) belong to the root group.
The root stays whole from its forward to the end of its backward, so `Policy.backward` can apply the head in chunks in
between, each with its own backward into the whole head. The root is `Policy` itself, since FSDP's hooks run when that
module is called; the causal LM inside is never called itself.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Mapping
from typing import Any, cast

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.algorithms._checkpoint.checkpoint_wrapper import checkpoint_wrapper
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.fsdp import FSDPModule, MixedPrecisionPolicy, fully_shard

from drkernel.policy.model import Policy, plain_name
from drkernel.training.ranks import Ranks, init_process_group


def compute_dtype(device: torch.device) -> torch.dtype:
    """What forward and backward compute in, and frozen weights are kept in."""
    return torch.bfloat16 if device.type == "cuda" else torch.float32


def shard(
    policy: Policy,
    ranks: Ranks,
    *,
    reshard_after_forward: bool = True,
    activation_checkpointing: float = 0.0,
    compile: Mapping[str, Any] | None = None,
    dtype: torch.dtype | None = None,
) -> Policy:
    """Shard a policy in place over all ranks (also over one) and return it. To be done before an optimizer is made.

    The policy's parameters (float32, on any device, also `meta`) become DTensors; forward and backward compute in
    `dtype` and add gradients up in float32. After a backward, gradients are the sums over ranks, not the means.
    Frozen weights (policy/lora.py) may have `dtype` themselves.

    reshard_after_forward: free each block's whole weights between forward and backward; False keeps them and saves an
        all-gather: 2 bytes per parameter.
    activation_checkpointing: share of the blocks, in [0, 1], whose activations are computed again in the backward.
    compile: options of torch.compile, applied to each block, e.g. {"fullgraph": True}; None: not compiled.
    dtype: bfloat16 on GPUs and float32 elsewhere where it is None.
    """
    dtype = dtype or compute_dtype(ranks.device)
    precision = MixedPrecisionPolicy(param_dtype=dtype, reduce_dtype=torch.promote_types(dtype, torch.float32))
    options: dict[str, Any] = {"mesh": mesh(ranks), "mp_policy": precision}
    for layer in prepare_blocks(policy, activation_checkpointing, compile):
        fully_shard(layer, reshard_after_forward=reshard_after_forward, **options)
    if not tied(policy):
        fully_shard(
            cast(Any, policy.model).get_input_embeddings(), reshard_after_forward=reshard_after_forward, **options
        )
        policy.register_forward_hook(_head_takes_part)
    fully_shard(policy, reshard_after_forward=False, **options)
    # Policy returns a view, which FSDP must warn of; nobody works in place on it.
    warnings.filterwarnings("ignore", message="FSDP2-wrapped module .* returned a view tensor")
    for module in _groups(policy):
        # Neither is recursive. The second avoids NCCL's pre-multiplied sum, which gloo does not have.
        module.set_gradient_divide_factor(1.0)
        module.set_force_sum_reduction_for_comms(True)
    policy.register_forward_pre_hook(lambda module, _: reshard(module), prepend=True)
    return policy


def prepare_blocks(
    policy: Policy, activation_checkpointing: float = 0.0, compile: Mapping[str, Any] | None = None
) -> nn.ModuleList:
    """The policy's blocks, which are wrapped and compiled in place as `shard` says."""
    draws = bool(policy.lora and policy.lora.dropout)  # a block computed again must drop the same inputs
    layers = cast(nn.ModuleList, policy.body.layers)
    for index in range(len(layers)):
        if int((index + 1) * activation_checkpointing) > int(index * activation_checkpointing):
            layers[index] = checkpoint_wrapper(layers[index], preserve_rng_state=draws)
        if compile is not None:
            layers[index].compile(**compile)
    return layers


def mesh(ranks: Ranks) -> DeviceMesh:
    """All ranks in a line. A single rank without a process group gets a group of one."""
    if not dist.is_initialized():
        init_process_group(ranks.device, dist.HashStore(), rank=0, size=1)
    return init_device_mesh(ranks.device.type, (ranks.size,))


def reshard(policy: Policy) -> None:
    """Drop whole weights that a forward without a backward left behind; an optimizer step would not update them."""
    for module in _groups(policy):
        module.reshard()


def set_gradient_sync(policy: Policy, enabled: bool) -> None:
    """Whether the next backward adds gradients up over ranks. The last backward of an optimizer step must.

    Without it a backward saves its reduce-scatter and keeps whole float32 gradients: 4 bytes per parameter.
    """
    for module in _groups(policy):
        module.set_requires_gradient_sync(enabled, recurse=False)


def parameters(policy: Policy) -> Iterator[tuple[str, Tensor]]:
    """(name, parameter) of a policy, sharded or not, tied ones once; names do not depend on how it is sharded."""
    reshard(policy)
    for name, parameter in policy.named_parameters():
        yield plain_name(name), parameter


def tied(policy: Policy) -> bool:
    return policy.head.weight is cast(Any, policy.model).get_input_embeddings().weight


def _groups(policy: nn.Module) -> list[FSDPModule]:
    return [module for module in policy.modules() if isinstance(module, FSDPModule)]


def _head_takes_part(policy: Policy, _: Any, hidden: Tensor) -> None:
    """A batch without sampled tokens leaves an untied head without a gradient. The root's reduce-scatter must still
    have the same length on all ranks, so it gets a gradient of zero when the body's backward begins."""

    def fill(_: Tensor) -> None:
        for weight in (w for w in policy.head.parameters() if w.requires_grad):
            weight.grad = torch.zeros_like(weight) if weight.grad is None else weight.grad

    if hidden.requires_grad:
        hidden.register_hook(fill)
