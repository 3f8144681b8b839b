"""Loads a sharded policy with no whole copy of it on any host: built without storage, sharded, then filled.

load_policy("Qwen/Qwen3-8B", ranks)                a hub id or local folder; each rank reads its own slices
load_policy("random:conf/shapes/qwen3", ranks)     a folder with a config.json, weights drawn from `seed`
"""

from __future__ import annotations

import contextlib
import hashlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, TypeVar, cast

import huggingface_hub
import torch
import torch.distributed.checkpoint as dcp
from safetensors import safe_open
from torch import Tensor
from torch.distributed.checkpoint import HuggingFaceStorageReader
from torch.distributed.checkpoint.api import CheckpointException
from torch.distributed.tensor import DTensor
from transformers import AutoConfig, AutoModelForCausalLM, GenerationConfig, PretrainedConfig

from drkernel.config import LoraConfig
from drkernel.policy.attention import ATTENTION
from drkernel.policy.dtensor import fill, local
from drkernel.policy.lora import add_adapters, draw_adapters, is_adapter
from drkernel.policy.model import Base, Policy
from drkernel.seeds import weight_seed
from drkernel.training.checkpoint import one_line
from drkernel.training.ranks import Ranks
from drkernel.training.sharding import compute_dtype, parameters, shard
from drkernel.types import DrKernelError

M = TypeVar("M")
RANDOM = "random:"
BITS_AT_ONCE = 2**24
"""Elements of a weight that `base_digest` takes together: 16 bytes each while it does."""
HUB_FILES = ("*.json", "*.safetensors", "*.txt", "*.jinja")
"""What is downloaded of a hub repository: weights, configs, tokenizer."""


def load_policy(
    source: str | Path,
    ranks: Ranks,
    *,
    seed: int = 0,
    lora: LoraConfig | None = None,
    lora_seed: int = 0,
    **options: Any,
) -> Policy:
    """A policy from a local Hugging Face folder, a hub id, or `random:<folder with config.json>`, sharded over ranks.

    lora: the settings of adapters that train alone, drawn from `lora_seed`; None: all weights train.
    options: those of drkernel.training.sharding.shard. Collective. Weights become float32, whatever they are stored as;
    frozen ones get the type in which they compute.
    Raises DrKernelError on all ranks where something is missing, damaged or of another shape.
    """
    source = str(source)
    if source.startswith(RANDOM):
        config = _on_every_rank(ranks, source, lambda: AutoConfig.from_pretrained(source.removeprefix(RANDOM)))
        policy = random_policy(config, ranks, seed=seed, lora=lora, **options)
        return set_adapters(policy, source, lora_seed, ranks)
    folder = _local(source, ranks)
    config = _on_every_rank(ranks, source, lambda: AutoConfig.from_pretrained(folder))
    policy = _empty(config, ranks, options, lora)
    weights = {name.removeprefix("model."): weight.detach() for name, weight in _base_weights(policy)}
    _on_every_rank(ranks, source, lambda: _check(folder, weights))
    with _clear_errors(source):
        dcp.load(weights, storage_reader=HuggingFaceStorageReader(str(folder)))
    if (folder / "generation_config.json").exists():
        cast(Any, policy.model).generation_config = GenerationConfig.from_pretrained(folder)
    return set_adapters(policy, source, lora_seed, ranks)


def set_adapters(policy: Policy, source: str, seed: int, ranks: Ranks) -> Policy:
    """Draw the adapters of a policy, if it has some, and note which weights they belong to. Collective."""
    if policy.lora:
        draw_adapters(policy, seed)
        policy.base = Base(source, base_digest(policy, ranks))
    return policy


@torch.no_grad()
def base_digest(policy: Policy, ranks: Ranks) -> str:
    """16 hex digits over names, shapes, types and bits of all weights but the adapters'. Collective.

    A weight counts by the sum over its elements of bits x (1 + place mod 65,521), modulo 2**64: the same for any number
    of ranks, and a second for 8B on a GPU.
    """
    weights = _base_weights(policy)
    sums = torch.stack([_weighted_bits(weight, ranks) for _, weight in weights])
    totals = ranks.all_reduce_sum(sums).tolist()
    parts = [(name, tuple(w.shape), str(w.dtype), total) for (name, w), total in zip(weights, totals, strict=True)]
    return hashlib.sha256(repr(parts).encode()).hexdigest()[:16]


def _weighted_bits(weight: Tensor, ranks: Ranks) -> Tensor:
    """int64 scalar: this rank's part of a weight's sum; of a weight that is not sharded the first rank has it all."""
    flat = local(weight).detach().flatten()
    total = torch.zeros((), dtype=torch.int64, device=flat.device)
    if not isinstance(weight, DTensor) and not ranks.is_main:
        return total
    start = ranks.rank * -(-weight.shape[0] // ranks.size) * weight.shape[1:].numel()
    for part in flat.split(BITS_AT_ONCE):
        bits = part.view(torch.int16 if part.element_size() == 2 else torch.int32).long()
        place = torch.arange(start, start + len(part), device=part.device) % 65_521
        total += (bits * (1 + place)).sum()
        start += len(part)
    return total


def _base_weights(policy: Policy) -> list[tuple[str, Tensor]]:
    return [(name, weight) for name, weight in parameters(policy) if not is_adapter(name)]


def random_policy(
    config: PretrainedConfig, ranks: Ranks, *, seed: int = 0, lora: LoraConfig | None = None, **options: Any
) -> Policy:
    """Matrices from N(0, initializer_range), norms 1, biases 0; the whole tensors are a function of seed and device
    kind alone, not of the number of ranks. Adapters are not set."""
    policy = _empty(config, ranks, options, lora)
    for name, parameter in _base_weights(policy):
        whole = torch.empty(parameter.shape, device=ranks.device)
        if whole.ndim > 1:
            generator = torch.Generator(ranks.device).manual_seed(weight_seed(seed, name))
            whole.normal_(0.0, config.initializer_range, generator=generator)
        else:
            whole.fill_(0.0 if name.endswith("bias") else 1.0)
        fill(parameter, whole)
    return policy


def _empty(config: PretrainedConfig, ranks: Ranks, options: dict[str, Any], lora: LoraConfig | None) -> Policy:
    """Sharded, on the ranks' devices, its weights not yet set."""
    dtype = (options.get("dtype") or compute_dtype(ranks.device)) if lora else torch.float32
    with torch.device("meta"):
        policy = Policy(AutoModelForCausalLM.from_config(config, dtype=dtype, attn_implementation=ATTENTION))
    if lora:
        ranks.all_gather_object(lambda: add_adapters(policy, lora) and None)  # all ranks raise what one does
    shard(policy, ranks, **options)
    policy.to_empty(device=ranks.device)
    _fill_buffers(policy, ranks.device)
    return policy


def _fill_buffers(policy: Policy, device: torch.device) -> None:
    """Buffers that are not stored with the weights (rotary frequencies) get the values of a new module."""
    for module in list(policy.modules()):
        computed = module._non_persistent_buffers_set
        if not computed:
            continue
        try:
            fresh = type(module)(policy.body.config).to(device)
        except Exception as error:
            kind, model = type(module).__name__, cast(Any, policy.model)
            raise DrKernelError(f"model {model.config.model_type}: cannot fill the buffers of {kind}") from error
        for name in computed:
            module._buffers[name] = fresh._buffers[name]


def _local(source: str, ranks: Ranks) -> Path:
    """The folder of a source on this node; a hub id is downloaded once per node."""
    if Path(source).is_dir():
        return Path(source)
    fetch = lambda: Path(huggingface_hub.snapshot_download(source, allow_patterns=list(HUB_FILES)))
    _on_every_rank(ranks, source, lambda: fetch() if ranks.local_rank == 0 else None)
    return _on_every_rank(ranks, source, fetch)


def _check(folder: Path, weights: dict[str, Tensor]) -> None:
    """Whether the safetensors files of a folder are whole and hold these weights."""
    stored: dict[str, tuple[int, ...]] = {}
    files = sorted(folder.glob("*.safetensors"))
    if not files:
        raise FileNotFoundError("no .safetensors file")
    for path in files:
        try:
            with safe_open(path, framework="pt") as file:
                stored |= {name: tuple(file.get_slice(name).get_shape()) for name in file.keys()}  # noqa: SIM118
        except Exception as error:
            raise ValueError(f"{path.name}: {error}") from None
    for name, tensor in weights.items():
        if stored.get(name) != tuple(tensor.shape):
            raise ValueError(f"{name}: found {stored.get(name, 'nothing')}, expected shape {tuple(tensor.shape)}")


def _on_every_rank(ranks: Ranks, source: str, make: Callable[[], M]) -> M:
    """What `make` returns on this rank. If it fails on any, all raise one DrKernelError. Collective."""
    made: list[M] = []

    def guarded() -> None:
        with _clear_errors(source):
            made.append(make())

    ranks.all_gather_object(guarded)
    return made[0]


@contextlib.contextmanager
def _clear_errors(source: str) -> Iterator[None]:
    # Files from elsewhere: transformers and safetensors raise a dozen unrelated types there.
    try:
        yield
    except (Exception, CheckpointException) as error:
        kind = "folder" if Path(source.removeprefix(RANDOM)).exists() else "folder or hub id"
        raise DrKernelError(
            f"policy {kind} {source!r}: not loadable ({one_line(error)}); "
            "expected config.json, .safetensors and tokenizer files"
        ) from error
