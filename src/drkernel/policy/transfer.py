"""Weights from the trainer's policy, sharded or not, to an engine; and the proof that they arrived.

Sharded weights travel in buckets: every rank casts its own rows to the engine's type, packs those of many weights into
one flat tensor, and a single all-gather brings everyone the bucket. A 1.7B policy is seven all-gathers instead of 310.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterator
from copy import deepcopy
from dataclasses import dataclass
from pathlib import Path

import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed.fsdp import FSDPModule
from torch.distributed.tensor import DTensor
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from drkernel.policy.attention import ATTENTION
from drkernel.policy.engine import Engine, Request
from drkernel.policy.lora import adapted, is_adapter, merged, write_adapters
from drkernel.policy.model import Policy, autocast, plain_name
from drkernel.types import Batch, DrKernelError

BUCKET_BYTES = 512 * 2**20
all_gather = getattr(dist, "all_gather_single", dist.all_gather_into_tensor)
"""One flat tensor from each rank into one flat tensor; torch 2.13 renamed it."""
PROBES, PROBE_TOKENS = 16, 8
"""How many completions `check_agreement` samples, and how long: enough tokens for a mean, few steps of the engine."""


def weights(policy: Policy, dtype: torch.dtype, bucket_bytes: int = BUCKET_BYTES) -> Iterator[tuple[str, Tensor]]:
    """(Hugging Face name, whole tensor) of every weight, tied ones once; floating ones in `dtype`.

    Adapters are added to the weights that they belong to, in float32; the policy's own stay as they are.
    bucket_bytes: most bytes of one gathered bucket; a weight that is larger travels alone. The tensors stay valid and
    may be the policy's own, so do not write to them. Collective for a sharded policy: every rank iterates to the end.
    """
    yield from _whole(_merged(policy, dtype), dtype, bucket_bytes)


def whole_copy(model: PreTrainedModel, dtype: torch.dtype) -> PreTrainedModel:
    """A whole model of the same shape and device, for an engine; FSDP's cannot be copied. `copy_weights` fills it."""
    whole = (kind for kind in type(model).__mro__ if not issubclass(kind, FSDPModule))
    kind = next(kind for kind in whole if issubclass(kind, PreTrainedModel))
    head = model.get_output_embeddings().weight
    with torch.random.fork_rng(devices=[]):
        own = kind._from_config(deepcopy(model.config), dtype=dtype, attn_implementation=ATTENTION)
    return own.to(head.device).eval().requires_grad_(False)


@torch.no_grad()
def copy_weights(policy: Policy, model: PreTrainedModel, dtype: torch.dtype) -> None:
    """Overwrites the weights of a `whole_copy` in place. Collective for a sharded policy."""
    own = model.state_dict()
    for name, tensor in weights(policy, dtype):
        own[name].copy_(tensor)


def adapters(policy: Policy) -> Iterator[tuple[str, Tensor]]:
    """(name in the transformers model, whole float32 tensor) of every A and B. Collective, as `weights`."""
    return _whole((s for s in _shards(policy) if is_adapter(s.name)), torch.float32, BUCKET_BYTES)


def _whole(shards: Iterator[_Shard], dtype: torch.dtype, bucket_bytes: int) -> Iterator[tuple[str, Tensor]]:
    bucket: list[_Shard] = []
    size = 0
    for shard in shards:
        if shard.group is None and (shard.local.dtype == dtype or not shard.local.is_floating_point()):
            yield shard.name, shard.local
            continue
        bytes_ = shard.room * shard.ranks * dtype.itemsize
        if bucket and (shard.group is not bucket[0].group or size + bytes_ > bucket_bytes):
            yield from _gather(bucket, dtype)
            bucket, size = [], 0
        bucket.append(shard)
        size += bytes_
    if bucket:
        yield from _gather(bucket, dtype)


def _merged(policy: Policy, dtype: torch.dtype) -> Iterator[_Shard]:
    """What each rank has of every weight, with its rows of the adapter added; adapters themselves are left out."""
    layers = {f"{name}.weight": layer for name, layer in adapted(policy.model)}
    matrices = (s for s in _shards(policy) if s.name.endswith("lora_A.weight"))
    a = dict(_whole(matrices, torch.float32, BUCKET_BYTES))
    for shard in _shards(policy):
        if layer := layers.get(shard.name):
            matrix = a[shard.name.removesuffix("weight") + "lora_A.weight"]
            yield dataclasses.replace(shard, local=merged(layer, matrix, dtype, shard.first_row))
        elif not is_adapter(shard.name):
            yield shard


def export_adapters(policy: Policy, folder: str | Path) -> None:
    """Writes a folder in peft's format. Collective for a sharded policy; rank 0 writes."""
    first = not dist.is_initialized() or dist.get_rank() == 0
    state = {name: _on_host(tensor) for name, tensor in adapters(policy)}
    if first:
        write_adapters(policy, folder, state)


def export(
    policy: Policy, folder: str | Path, tokenizer: PreTrainedTokenizerBase, dtype: torch.dtype = torch.float32
) -> None:
    """Writes a Hugging Face folder (config, safetensors, tokenizer) that transformers and vLLM load; adapters merged.

    dtype: what the weights are stored as. Collective for a sharded policy: rank 0 gathers all weights in its host's
    memory and writes them.
    """
    first = not dist.is_initialized() or dist.get_rank() == 0
    state = {name: _on_host(tensor) if first else None for name, tensor in weights(policy, dtype)}
    if first:
        policy.model.save_pretrained(folder, state_dict=state)
        config = deepcopy(policy.model.config)
        config.dtype = dtype  # transformers names that of the policy, whatever the state's is
        config.save_pretrained(folder)
        tokenizer.save_pretrained(folder)


def export_dtype(device: torch.device) -> torch.dtype:
    """What a policy on that device is exported as: what its engine generates with."""
    return torch.bfloat16 if device.type == "cuda" else torch.float32


def _on_host(tensor: Tensor) -> Tensor:
    """A weight in memory of its own: what shares a bucket with others would be taken for tied to them."""
    tensor = tensor.cpu()
    return tensor if tensor.untyped_storage().nbytes() == tensor.nbytes else tensor.clone()


def check_agreement(engine: Engine, policy: Policy, token_ids: list[int], bound: float) -> float:
    """Mean |log-probability in the engine - in the trainer| of tokens that the engine samples after `token_ids`.

    Sampling goes the way of every rollout (prefix cache and decoding included), so wrong weights and keys of old ones
    both show; let `token_ids` be the same after each sync and some hundred tokens long, since prefix caches work in
    blocks. Two bf16 implementations differ by 0.01 to 0.03. Collective: all ranks return their largest difference.

    Raises DrKernelError, on all ranks, where it is above `bound` or not a number.
    """
    batch, theirs = sampled(engine, token_ids, policy.device)
    with autocast(policy):
        ours = policy.logprobs(batch).logprobs[batch.loss_mask]
    difference = (ours - theirs).abs().mean().nan_to_num(nan=math.inf)
    if dist.is_initialized() and dist.get_world_size() > 1:
        dist.all_reduce(difference, dist.ReduceOp.MAX)
    found = difference.item()
    if found > bound:
        raise DrKernelError(
            f"engine: after the weight sync its log-probabilities differ from the trainer's by {found:.4f} on average "
            f"(over {len(theirs)} tokens), expected at most {bound:g}: it does not hold the trainer's weights or "
            "serves keys and values of older ones, and what it samples would be trained on with wrong ratios"
        )
    return found


def sampled(engine: Engine, token_ids: list[int], device: torch.device) -> tuple[Batch, Tensor]:
    """PROBES completions of PROBE_TOKENS tokens of `token_ids` that the engine samples now, a row each, and its
    log-probabilities float32 [N] of the sampled tokens, in their order; both on `device`."""
    requests = [Request(f"agreement.{i}", token_ids, PROBE_TOKENS, seed=i) for i in range(PROBES)]
    for request in requests:
        engine.add(request)
    completions = []
    while engine.busy:
        completions += engine.step()
    for request in requests:
        engine.release(request.id)
    batch = _rows(token_ids, [c.token_ids for c in completions]).to(device)
    return batch, torch.tensor([p for c in completions for p in c.logprobs], device=device)


@dataclass(frozen=True)
class _Shard:
    """What this rank has of one weight: FSDP2 gives each rank ceil(rows / ranks) rows, the last ones less or none."""

    name: str
    local: Tensor
    shape: torch.Size
    group: dist.ProcessGroup | None
    """The ranks that share it; None where `local` is the whole weight."""

    @property
    def ranks(self) -> int:
        return self.group.size() if self.group else 1

    @property
    def first_row(self) -> int:
        """Where this rank's rows begin."""
        return -(-self.shape[0] // self.ranks) * dist.get_rank(self.group) if self.group else 0

    @property
    def room(self) -> int:
        """Elements of the largest shard: what each rank's bucket holds of it, padded."""
        return self.shape.numel() if self.group is None else -(-self.shape[0] // self.ranks) * self.shape[1:].numel()


def _shards(policy: Policy) -> Iterator[_Shard]:
    seen = set()
    # keep_vars: the parameters themselves, by which tied weights are known. An empty shard has no address to compare.
    for name, tensor in policy.model.state_dict(keep_vars=True).items():
        if id(tensor) in seen:
            continue
        seen.add(id(tensor))
        name = plain_name(name)
        tensor = tensor.detach()
        if isinstance(tensor, DTensor):
            yield _Shard(name, tensor.to_local(), tensor.shape, _group(name, tensor))
        else:
            yield _Shard(name, tensor, tensor.shape, None)


def _group(name: str, tensor: DTensor) -> dist.ProcessGroup | None:
    split = [axis for axis, placement in enumerate(tensor.placements) if not placement.is_replicate()]
    if any(not tensor.placements[axis].is_shard(0) for axis in split) or len(split) > 1:
        raise DrKernelError(f"weight {name}: found placements {tensor.placements}, expected one Shard(0) at most")
    return tensor.device_mesh.get_group(split[0]) if split and tensor.device_mesh.size(split[0]) > 1 else None


def _gather(bucket: list[_Shard], dtype: torch.dtype) -> Iterator[tuple[str, Tensor]]:
    """One cast, one all-gather; the gathered rows of a weight lie apart by rank and are put together by one copy."""
    rooms, group, ranks = [shard.room for shard in bucket], bucket[0].group, bucket[0].ranks
    packed = torch.empty(sum(rooms), dtype=dtype, device=bucket[0].local.device)
    filled = [(part, shard.local.flatten()) for part, shard in zip(packed.split(rooms), bucket, strict=True)]
    filled = [(part[: rows.numel()], rows) for part, rows in filled if rows.numel()]
    if filled:
        torch._foreach_copy_([part for part, _ in filled], [rows for _, rows in filled])
    if group is not None:
        whole = packed.new_empty(ranks * len(packed))
        all_gather(whole, packed, group=group)
        packed = whole
    parts = packed.view(ranks, -1).split(rooms, dim=1)
    for shard, part in zip(bucket, parts, strict=True):
        yield shard.name, part.reshape(-1)[: shard.shape.numel()].view(shard.shape)


def _rows(prompt: list[int], completions: list[list[int]]) -> Batch:
    """One packed row per completion, which is what is scored."""
    rows = [torch.tensor(prompt + completion) for completion in completions]
    positions = torch.cat([torch.arange(len(row)) for row in rows])
    ends = torch.tensor([0] + [len(row) for row in rows]).cumsum(0).int()
    zeros = torch.zeros(len(positions))
    return Batch(
        tokens=torch.cat(rows),
        positions=positions,
        cu_seqlens=ends,
        loss_mask=positions >= len(prompt),
        advantages=zeros,
        rollout_logprobs=zeros,
        turn_ids=zeros.long(),
        trajectory_ids=zeros.long(),
    )
