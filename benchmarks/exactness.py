"""Is the fast update the right one? Gradients of the same loss computed in different ways, as cosines.

    python benchmarks/exactness.py OUT [--shape mid]

Six trajectories of three turns, random weights. OUT/exactness.json and .md have each comparison with its bound; the
exit code is 1 if one is missed. Names say what is compared; the reference is float32, each row alone, transformers' own
attention and full logits. On a GPU policies are sharded over one rank, which is how they are trained there.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path

import torch
import update_step as bench
from shapes import SHAPES
from torch import Tensor

from drkernel.policy.attention import Packed
from drkernel.training.packing import pack, to_tokens
from drkernel.training.ranks import Ranks, init_distributed
from drkernel.training.sharding import shard
from drkernel.types import Batch, Trajectory, Turn

WHOLE = 10**9
Gradients = dict[str, Tensor]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("out", type=Path)
    parser.add_argument("--shape", default="mid", choices=SHAPES)
    options = parser.parse_args()
    device = init_distributed().device
    rows = [
        {"comparison": name, "found": found, "bound": bound, "ok": found >= bound}
        for name, (found, bound) in comparisons(options.shape, device).items()
    ]
    report = {"command": sys.argv, "machine": bench.machine(device), "shape": options.shape, "rows": rows}
    options.out.mkdir(parents=True, exist_ok=True)
    (options.out / "exactness.json").write_text(json.dumps(report, indent=1) + "\n")
    table = ["| comparison | cosine | at least | |", "| --- | ---: | ---: | --- |"]
    table += [f"| {r['comparison']} | {r['found']:.8f} | {r['bound']} | {'' if r['ok'] else 'missed'} |" for r in rows]
    text = f"`{' '.join(sys.argv)}` on {report['machine']}\n\n" + "\n".join(table) + "\n"
    (options.out / "exactness.md").write_text(text)
    print(text)
    return 0 if all(row["ok"] for row in rows) else 1


def comparisons(shape: str, device: torch.device) -> dict[str, tuple[float, float]]:
    """Comparison -> (cosine, the least that is right)."""
    merged, separate = batches(shape)
    exact, half = torch.float32, torch.bfloat16
    reference = alone(shape, merged, device)
    whole = gradients(shape, merged, device, exact)
    found = {
        "packed = rows alone, float32": (bench.cosine(whole, reference), 0.9999),
        "packed = rows alone, bfloat16": (bench.cosine(gradients(shape, merged, device, half), reference), 0.999),
        "merged turns = a row per turn, float32": (
            bench.cosine(gradients(shape, separate, device, exact), whole),
            0.9999,
        ),
        "merged turns = a row per turn, bfloat16": (
            bench.cosine(gradients(shape, separate, device, half), reference),
            0.999,
        ),
        "chunked head = one chunk, float32": (
            bench.cosine(gradients(shape, merged, device, exact, chunk=37), whole),
            0.9999,
        ),
        "micro-batches = one, float32": (
            bench.cosine(gradients(shape, merged, device, exact, max_tokens=len(merged.tokens) // 4), whole),
            0.9999,
        ),
    }
    if device.type == "cuda":
        found["packed attention with grouped heads = rows alone, bfloat16"] = (attention_cosine(device), 0.999)
    return found


def batches(shape: str) -> tuple[Batch, Batch]:
    """The same trajectories with all turns in a row, and with a row per turn."""
    draw = torch.Generator().manual_seed(0)
    unit = 4 if shape == "tiny" else 64

    def take(most: int) -> list[int]:
        length = unit + int(torch.randint(0, most, (), generator=draw))
        return torch.randint(0, SHAPES[shape]["vocab_size"], (length,), generator=draw).tolist()

    trajectories = []
    for index in range(6):
        turns = [(take(2 * unit), take(4 * unit)) for _ in range(3)]
        trajectories.append(Trajectory("t", index, 0, [Turn(p, a, [0.0] * len(a)) for p, a in turns]))
    advantages = torch.randn(6, 3, generator=draw)
    laid_out = pack(trajectories), pack(trajectories, layout="turn")
    for batch in laid_out:
        batch.advantages = to_tokens(advantages, batch)
    return laid_out


def gradients(
    shape: str, batch: Batch, device: torch.device, dtype: torch.dtype, chunk: int = WHOLE, max_tokens: int = WHOLE
) -> Gradients:
    """By the update step of training."""
    policy = bench.make_policy(shape, device)
    policy.chunk = chunk
    if device.type == "cuda":
        shard(policy, Ranks(device=device), dtype=dtype)
    else:
        policy.to(dtype)
    return bench.gradients_of(policy, batch, max_tokens)[1]


def alone(shape: str, batch: Batch, device: torch.device) -> Gradients:
    """The reference."""
    model = bench.make_model(shape, device, "sdpa")
    bench.reference_loss(model, batch)
    return bench.named_gradients(model)


def attention_cosine(device: torch.device) -> float:
    """Output and gradients of one packed attention beside float32 attention of each row."""
    bounds = torch.tensor([0, 300, 301, 1000, 2048], dtype=torch.int32)
    draw = torch.Generator(device).manual_seed(0)
    shapes = ((2048, 16, 128), (2048, 8, 128), (2048, 8, 128), (2048, 16, 128))
    *qkv, weight = (torch.randn(shape, device=device, generator=draw).bfloat16() for shape in shapes)
    fast = [x.clone().requires_grad_() for x in qkv]
    slow = [x.float().requires_grad_() for x in qkv]
    scale = 128**-0.5
    layout = Packed(bounds, device)
    sides = []
    for query, key, value in (fast, slow):  # float32 goes row by row
        output = layout.attend(None, query, key, value, scale)
        loss = (output.float() * weight.float()).sum()
        sides.append((output, *torch.autograd.grad(loss, (query, key, value))))
    return min(bench.cosine({"": x}, {"": y}) for x, y in zip(*sides, strict=True))


if __name__ == "__main__":
    sys.exit(main())
