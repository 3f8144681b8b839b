"""A shipped policy in the shape of a large model: it writes the same kernels, at the large model's cost.

    python benchmarks/enlarged.py OUT [--policy assets/seed] [--shape 8b]
    python train.py policy=qwen3_8b_lora policy.path=OUT policy.prompts=compact judge.share=true ...

So the whole loop is seen at the size of billions of parameters without their weights: completions that end, verdicts
and rewards that differ. OUT is a folder in Hugging Face's format, in bfloat16. What the small policy does not have is
zero, and what depends on a width is scaled:

    RMSNorm      the mean is over more elements: the weight is times sqrt(small / large), epsilon times small / large
    attention    the scale of wider heads is undone in the norm of queries; a pair of dimensions that RoPE turns lies
                 where the large head has its frequency; a group of query heads stays with its head of keys
    vocabulary   one dimension of the residual stream is a small constant, by which the head gives tokens that the
                 small policy lacks a logit so low that none is sampled

The logits are the small policy's up to bfloat16 (tests/training/test_benchmarks.py).
"""

from __future__ import annotations

import argparse
import math
import shutil
from pathlib import Path
from typing import Any

import torch
from shapes import config_of
from torch import Tensor
from transformers import AutoModelForCausalLM, Qwen3ForCausalLM

_CONSTANT, _NEVER = 2**-7, -(2.0**20)
"""The constant, and what the head multiplies it by for tokens that the small policy lacks."""


def enlarged(small: Any, config: Any) -> dict[str, Tensor]:
    """Weights by name, bfloat16 on the CPU, of a Qwen3 of `config` that computes what the Qwen3 `small` does."""
    with torch.device("meta"):
        shapes = Qwen3ForCausalLM(config).state_dict()
    fill = lambda name: float(name.endswith("norm.weight"))
    made = {name: torch.full(weight.shape, fill(name), dtype=torch.bfloat16) for name, weight in shapes.items()}
    tokens, width, heads = small.config.vocab_size, small.config.hidden_size, _head_rows(small.config, config)
    wider = config.head_dim / small.config.head_dim
    for name, weight in small.state_dict().items():
        target, kind = made[name], name.split(".")[-2]
        if kind in ("q_norm", "k_norm"):
            scale = 1.0 if kind == "q_norm" else wider**-0.5  # of queries it meets the scale of wider heads
            target.zero_()[_rotated(small.config.head_dim, config.head_dim)] = (weight * scale).bfloat16()
        elif kind.endswith("norm"):
            target[:width] = (weight * math.sqrt(width / config.hidden_size)).bfloat16()
        elif kind in ("q_proj", "k_proj", "v_proj"):
            target[heads[kind], :width] = weight.bfloat16()
        elif kind == "o_proj":
            target[:width, heads[kind]] = weight.bfloat16()
        else:  # embedding, head, and the three matrices of an MLP
            target[: weight.shape[0], : weight.shape[1]] = weight.bfloat16()
    made["model.embed_tokens.weight"][:, width] = _CONSTANT
    made["lm_head.weight"][tokens:, width] = _NEVER
    return made


def _rotated(small: int, large: int) -> Tensor:
    """Where the dimensions of a small head go: its i-th pair turns as the (i large / small)-th of the large one."""
    pairs = torch.arange(small // 2) * (large // small)
    return torch.cat([pairs, large // 2 + pairs])


def _head_rows(small: Any, large: Any) -> dict[str, Tensor]:
    """Where the rows of each head's projections go; of values and outputs without the order of rotated pairs."""
    group, wide = _group(small), _group(large)
    queries = torch.tensor([h // group * wide + h % group for h in range(small.num_attention_heads)])
    keys = torch.arange(small.num_key_value_heads)
    rotated, plain = _rotated(small.head_dim, large.head_dim), torch.arange(small.head_dim)
    rows = lambda of, order: (of[:, None] * large.head_dim + order).flatten()
    return {
        "q_proj": rows(queries, rotated),
        "k_proj": rows(keys, rotated),
        "v_proj": rows(keys, plain),
        "o_proj": rows(queries, plain),
    }


def enlarged_config(small: Any, shape: str) -> Any:
    """The shape's, with the small policy's rotation, end of text and epsilon. Raises ValueError: it does not fit in."""
    config = config_of(shape)
    config.rope_parameters = dict(small.rope_parameters)
    config.eos_token_id, config.pad_token_id = small.eos_token_id, small.pad_token_id
    config.rms_norm_eps = small.rms_norm_eps * small.hidden_size / config.hidden_size
    config.tie_word_embeddings = False  # the head has a column that the embedding has not
    for key in ("vocab_size", "hidden_size", "intermediate_size", "num_hidden_layers", "num_key_value_heads"):
        if getattr(small, key) >= getattr(config, key):
            raise ValueError(f"{key}: {getattr(small, key)} of the policy in {getattr(config, key)} of {shape}")
    if config.head_dim % small.head_dim or _group(small) > _group(config):
        raise ValueError(f"heads of {small.head_dim}, {_group(small)} to a key, in {config.head_dim}, {_group(config)}")
    return config


def _group(config: Any) -> int:
    return config.num_attention_heads // config.num_key_value_heads


def main(out: Path, policy: Path, shape: str) -> None:
    small = AutoModelForCausalLM.from_pretrained(policy, dtype=torch.float32)
    config = enlarged_config(small.config, shape)
    config.dtype = "bfloat16"
    with torch.device("meta"):
        large = Qwen3ForCausalLM(config)
    large.load_state_dict(enlarged(small, config), assign=True)
    large.save_pretrained(out)
    for file in policy.glob("*token*.json"):
        shutil.copy(file, out / file.name)
    shutil.copy(policy / "generation_config.json", out / "generation_config.json")
    print(f"{out}: {sum(weight.numel() for weight in large.parameters()) / 1e9:.2f} billion parameters")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=Path)
    parser.add_argument("--policy", type=Path, default=Path("assets/seed"))
    parser.add_argument("--shape", default="8b", choices=("0.6b", "1.7b", "4b", "8b"))
    options = parser.parse_args()
    main(options.out, options.policy, options.shape)
