"""The update step on one GPU: tokens/s, model FLOPs utilisation, peak memory beside the plan's, and whether loss and
gradients are right.

    python benchmarks/update_step.py OUT [--shape 0.6b 1.7b] [--trl] [--variants fsdp:32768:compile ...] [--seconds 540]

Fixed data: 64 rows, a prompt of 512 random tokens and a completion of log-normal length (median 2,048, sigma 0.6, in
256 to 8,192; of seeds, the one whose total is 204,512 tokens), advantages N(0, 1). Random weights (std 0.02) in the
shapes of Qwen3 (shapes.py); float32 master weights, bfloat16 compute, fused AdamW, gradients clipped at 1. Per
variant two warm-ups and five timed steps (--warm-ups, --timed): median and range. A variant is
PRECISION:TOKENS[:compile][:recompute=SHARE][:flash2][:offload]:

    fsdp        FSDP2 over one GPU, bfloat16 weights in the forward       TOKENS      most tokens of a micro-batch
    autocast    plain modules under autocast                             recompute   share of blocks computed again
    flash2      FlashAttention 2, also where version 4 is installed
    offload     AdamW's moments in the host's memory, as trainer.offload=optimizer has them

--trl: TRL's GRPOTrainer.compute_loss on the same data in the same process (benchmarks/update_step_trl.py).
Loss and gradients are compared, on the two shortest rows and the longest but one quarter, with float32, each row alone,
transformers' own attention and full logits. OUT/update.json and update.md are written after every variant; a variant
that fails says so in its row. No variant is begun after --seconds.
"""

from __future__ import annotations

import argparse
import gc
import json
import math
import statistics
import sys
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import torch
from expectations import planned_gib, relative_error, shown, utilisation
from shapes import SHAPES, config_of
from torch import Tensor
from transformers import AutoModelForCausalLM, PreTrainedModel

from drkernel.objective.loss import count, policy_loss, token_weights
from drkernel.policy import attention
from drkernel.policy.attention import ATTENTION
from drkernel.policy.model import Policy
from drkernel.policy.varlen import flash4_works
from drkernel.training import offload, update
from drkernel.training.flops import update_flops
from drkernel.training.packing import pack, select
from drkernel.training.ranks import Ranks, init_distributed
from drkernel.training.sharding import shard
from drkernel.types import Batch, Trajectory, Turn

VARIANTS = (
    "fsdp:32768:compile",
    "fsdp:16384:compile",
    "fsdp:65536:compile:recompute=0.5",
    "fsdp:32768",
    "autocast:32768:compile",
    "fsdp:65536:compile",
    "fsdp:8192:compile",
    "fsdp:32768:compile:recompute=1",
)
TRL_TOKENS_PER_SECOND = {"0.6b": 17_500, "1.7b": 11_400}
"""TRL 1.16 on one H200 on 2026-11-21, the best of micro-batches of 2, 4 and 8 rows: used where --trl is not given."""
WARM_UPS, TIMED = 2, 5
MAX_NORM = 1.0


def main() -> None:
    options = parse()
    options.out.mkdir(parents=True, exist_ok=True)
    deadline = time.monotonic() + options.seconds
    ranks = init_distributed()
    report: dict[str, Any] = {"command": sys.argv, "machine": machine(ranks.device), "rows": []}
    contenders: list[tuple[str, str, Callable]] = []
    steps = (options.warm_ups, options.timed)
    for shape in options.shape:
        contenders += [(shape, name, contender(name, steps)) for name in options.variants]
        if options.trl:
            import update_step_trl

            contenders += [(shape, f"trl:{rows} rows", update_step_trl.contender(rows)) for rows in options.trl_rows]
    for shape, name, run in contenders:
        row: dict[str, Any] = {"shape": shape, "variant": name}
        if time.monotonic() > deadline:
            row["failed"] = "no time left"
        else:
            row |= attempt(lambda: run(shape, batch_of(shape), ranks.device))  # noqa: B023
        report["rows"].append(row)
        print(json.dumps(row), flush=True)
        (options.out / "update.json").write_text(json.dumps(report, indent=1) + "\n")
        (options.out / "update.md").write_text(markdown(report))
    print((options.out / "update.md").read_text())


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("out", type=Path)
    parser.add_argument("--shape", nargs="+", default=["0.6b", "1.7b"], choices=SHAPES)
    parser.add_argument("--variants", nargs="+", default=VARIANTS)
    parser.add_argument("--trl", action="store_true")
    parser.add_argument("--trl-rows", nargs="+", type=int, default=[2, 4, 8])
    parser.add_argument("--seconds", type=float, default=540)
    parser.add_argument("--warm-ups", type=int, default=WARM_UPS)
    parser.add_argument("--timed", type=int, default=TIMED)
    return parser.parse_args()


def contender(variant: str, steps: tuple[int, int] = (WARM_UPS, TIMED)) -> Callable[[str, Batch, torch.device], dict]:
    """Ours, in one of its settings."""
    precision, tokens, *rest = variant.split(":")
    recompute = next((float(word.removeprefix("recompute=")) for word in rest if word.startswith("recompute=")), 0.0)
    compiled = {"fullgraph": True, "dynamic": True} if "compile" in rest else {}

    def run(shape: str, batch: Batch, device: torch.device) -> dict:
        torch._dynamo.reset()
        subset = comparable(batch)
        expected = reference(shape, subset, device)
        attention.flash4_works = (lambda device: False) if "flash2" in rest else flash4_works
        policy = make_policy(shape, device)
        ranks = Ranks(device=device)
        if precision == "fsdp":
            shard(policy, ranks, activation_checkpointing=recompute, compile=compiled or None)
        else:
            assert not recompute, "recomputation comes with shard"
            for layer in policy.body.get_submodule("layers").children() if compiled else ():
                layer.compile(**compiled)
        found = agreement(expected, gradients_of(policy, subset, int(tokens)))
        del expected
        where = "optimizer" if "offload" in rest else "none"
        optimizer = offload.placed(update.make_optimizer(policy, lr=1e-6, weight_decay=0.0), where)
        longest = max(int(tokens), int(batch.cu_seqlens.diff().max()))
        found["planned_gib"] = planned_gib(config_of(shape), longest, recompute=recompute, offload=where)
        return found | timed(
            lambda: update.step(
                policy, optimizer, batch, objective(batch, device), max_tokens=int(tokens), max_grad_norm=MAX_NORM
            ),
            shape,
            batch,
            device,
            steps,
        )

    return run


def timed(
    step: Callable[[], dict],
    shape: str,
    batch: Batch,
    device: torch.device,
    steps: tuple[int, int] = (WARM_UPS, TIMED),
) -> dict:
    """Seconds per step, and what follows from them."""
    reset_peak(device)
    seconds = []
    for _ in range(sum(steps)):
        synchronize(device)
        start = time.perf_counter()
        metrics = step()
        synchronize(device)
        seconds.append(time.perf_counter() - start)
    kept = sorted(seconds[steps[0] :])
    flops = update_flops(config_of(shape), batch.cu_seqlens.diff().tolist(), int(batch.loss_mask.sum()))
    tokens = len(batch.tokens)
    return {
        "tokens_per_second": tokens / statistics.median(kept),
        "range": [tokens / kept[-1], tokens / kept[0]],
        "seconds": seconds,
        "mfu": utilisation(flops / statistics.median(kept), device),
        "peak_gib": peak_gib(device),
        "last_step": metrics,
    }


# Data, weights, loss


def batch_of(shape: str) -> Batch:
    """The 64 rows as a packed batch with an advantage per row; for `tiny`, rows a hundredth as long."""
    vocabulary, shrink = SHAPES[shape]["vocab_size"], 100 if shape == "tiny" else 1
    lengths = (2048 * (0.6 * torch.randn(64, generator=torch.Generator().manual_seed(1351))).exp()).clip(256, 8192)
    draw = torch.Generator().manual_seed(0)

    def take(number: int) -> list[int]:
        return torch.randint(0, vocabulary, (max(1, number // shrink),), generator=draw).tolist()

    rows = [(take(512), take(int(length))) for length in lengths]
    batch = pack([Trajectory("t", i, 0, [Turn(p, a, [0.0] * len(a))]) for i, (p, a) in enumerate(rows)])
    assert shrink > 1 or len(batch.tokens) == 204_512
    batch.advantages = torch.randn(64, generator=draw)[batch.trajectory_ids] * batch.loss_mask
    return batch


def comparable(batch: Batch) -> Batch:
    """A few rows whose float32 logits fit: the two shortest, and one from the third quarter of lengths."""
    lengths = batch.cu_seqlens.diff().tolist()
    order = sorted(range(len(lengths)), key=lengths.__getitem__)
    return select(batch, sorted([order[0], order[1], order[3 * len(order) // 4]]))[1]


def objective(batch: Batch, device: torch.device) -> Callable[[Tensor, Tensor], Tensor]:
    """The policy loss of train.py with one step per rollout: ratio 1, mean over tokens."""
    weights = token_weights("token_mean", batch.loss_mask, batch.turn_ids, count(batch.loss_mask, batch.turn_ids))
    weights, advantages = weights.to(device), batch.advantages.to(device)
    return lambda logp, at: policy_loss(logp, logp.detach(), advantages[at], weights[at])[0]


def make_model(shape: str, device: torch.device, attention: str) -> PreTrainedModel:
    torch.manual_seed(0)
    with device:
        model = AutoModelForCausalLM.from_config(config_of(shape), dtype=torch.float32, attn_implementation=attention)
    return model.train()


def make_policy(shape: str, device: torch.device) -> Policy:
    return Policy(make_model(shape, device, ATTENTION))


# Against float32


def reference(shape: str, subset: Batch, device: torch.device) -> tuple[float, dict[str, Tensor]]:
    """Loss and gradients of the subset in float32, each row alone, full logits, no packing. The gradients are on the
    CPU, so that policy and reference need not fit together."""
    model = make_model(shape, device, "sdpa")
    model.gradient_checkpointing_enable()  # attention scores in float32, of all layers of 4B, do not fit
    loss = reference_loss(model, subset)
    return loss, {name: gradient.cpu() for name, gradient in named_gradients(model).items()}


def agreement(expected: tuple[float, dict[str, Tensor]], found: tuple[float, dict[str, Tensor]]) -> dict:
    return {"loss": found[0], "loss_float32": expected[0], "gradient_cosine": cosine(found[1], expected[1])}


def reference_loss(model: PreTrainedModel, batch: Batch) -> float:
    """Forward and backward of each row alone with full logits, as transformers does it; gradients add up in `model`."""
    torch.backends.cuda.matmul.allow_tf32 = False
    device, total, sampled = model.device, 0.0, int(batch.loss_mask.sum())
    for start, end in zip(batch.cu_seqlens[:-1].tolist(), batch.cu_seqlens[1:].tolist(), strict=True):
        tokens, mask = batch.tokens[start:end].to(device), batch.loss_mask[start:end].to(device)
        logits = model(input_ids=tokens.unsqueeze(0), use_cache=False).logits[0, :-1]
        logp = -torch.nn.functional.cross_entropy(logits, tokens[1:], reduction="none")[mask[1:]]
        loss = -((logp - logp.detach()).exp() * batch.advantages[start:end].to(device)[mask]).sum() / sampled
        loss.backward()
        total += loss.item()
        del logits, logp, loss
    return total


def gradients_of(policy: Policy, batch: Batch, max_tokens: int) -> tuple[float, dict[str, Tensor]]:
    """Loss and gradients by the very step that is timed, without its clipping and with a learning rate of zero."""
    optimizer = torch.optim.SGD(policy.parameters(), lr=0.0)
    loss = objective(batch, policy.device)
    metrics = update.step(policy, optimizer, batch, loss, max_tokens=max_tokens, max_grad_norm=math.inf)
    gradients = named_gradients(policy.model)
    optimizer.zero_grad(set_to_none=True)
    return metrics["loss"], gradients


def named_gradients(model: torch.nn.Module) -> dict[str, Tensor]:
    """Whole gradients by Hugging Face's names, whatever shards and wraps the model."""
    found: dict[str, Tensor] = {}
    for name, parameter in model.named_parameters():
        gradient = parameter.grad
        assert gradient is not None, name
        gradient = gradient.full_tensor() if hasattr(gradient, "full_tensor") else gradient
        found[name.replace("_checkpoint_wrapped_module.", "").replace("_orig_mod.", "")] = gradient
    return found


def cosine(ours: dict[str, Tensor], expected: dict[str, Tensor]) -> float:
    """Cosine of all gradients as one vector."""
    assert ours.keys() == expected.keys(), ours.keys() ^ expected.keys()
    dot = squares = expected_squares = 0.0
    for name, gradient in ours.items():
        one, other = gradient.double(), expected[name].to(gradient.device).double()
        dot += float((one * other).sum())
        squares += float(one.square().sum())
        expected_squares += float(other.square().sum())
    return dot / math.sqrt(squares * expected_squares)


# The machine, failures, the table


def attempt(run: Callable[[], dict]) -> dict:
    """A benchmark goes on after a variant that fails, and says what happened to it."""
    try:
        return run()
    except torch.OutOfMemoryError:
        return {"failed": "out of memory"}
    except Exception as error:
        text = str(error).strip().splitlines() or [""]
        return {"failed": f"{type(error).__name__}: {text[0][:300]}"}
    finally:
        gc.collect()
        if torch.cuda.is_available():
            torch.cuda.empty_cache()


def machine(device: torch.device) -> str:
    name = torch.cuda.get_device_name(device) if device.type == "cuda" else "CPU"
    return f"{name}, torch {torch.__version__}"


def synchronize(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def reset_peak(device: torch.device) -> None:
    gc.collect()
    if device.type == "cuda":
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats(device)


def peak_gib(device: torch.device) -> float | None:
    return torch.cuda.max_memory_allocated(device) / 2**30 if device.type == "cuda" else None


def markdown(report: dict[str, Any]) -> str:
    lines = [
        f"`{' '.join(report['command'])}` on {report['machine']}",
        "",
        "| shape | variant | tokens/s (range) | x TRL | MFU | peak GiB | planned GiB | error | loss - fp32's "
        "| gradient cosine |",
        "| --- | --- |" + " ---: |" * 8,
        *(line(row, report["rows"]) for row in report["rows"]),
    ]
    return "\n".join(lines) + "\n"


def line(row: dict[str, Any], rows: Iterable[dict[str, Any]]) -> str:
    start = f"| {row['shape']} | {row['variant']} |"
    if "failed" in row:
        return f"{start} {row['failed']} | | | | | | | |"
    low, high = row["range"]
    peak, planned = row["peak_gib"], row.get("planned_gib")  # there is no plan of TRL's memory
    rivals = [r for r in rows if r["shape"] == row["shape"] and r["variant"].startswith("trl") and "failed" not in r]
    rival = max((r["tokens_per_second"] for r in rivals), default=TRL_TOKENS_PER_SECOND.get(row["shape"], math.nan))
    memory = f"{shown(peak, '.1f')} | {shown(planned, '.1f')} | {shown(relative_error(planned, peak), '+.1%')}"
    return (
        f"{start} {row['tokens_per_second']:,.0f} ({low:,.0f} to {high:,.0f}) | {row['tokens_per_second'] / rival:.2f} "
        f"| {shown(row['mfu'], '.1%')} | {memory} "
        f"| {row['loss'] - row['loss_float32']:+.1e} | {row['gradient_cosine']:.6f} |"
    )


if __name__ == "__main__":
    main()
