"""What a step takes, in seconds by part, from shapes and settings: to choose sizes by, before anything is loaded.

How long completions will be is not known. They are taken to have half of `engine.max_answer_tokens` in the mean, and
the longest all of it; tasks PROMPT tokens. P parameters, R ranks, n = trajectories of a rank's engine, T turns:

    generation   prefill, at the MFU of the update, and decoding. The longest trajectory sets the number of decode
                 steps: T x max_answer_tokens, and more where n is larger than `engine.slots`. Each reads all weights
                 and the cache of those that still decode (half, in the mean), and takes the host HOST_S
    judge        what its verdicts take beyond generation, during which it works, and LAST_S for the last ones
    update       training/flops.py at MFU of the peak; a forward more, a third (with LoRA half) of the whole, where
                 blocks compute twice, for MRS, TIS or several optimizer steps, and for algo.kl_coef; 4 % are lost to
                 others
    sync         the engine's weights, at SYNC bytes per second

An H200 took (results/training-h200): for generation of 0.6B 92 s (here 83) and 4.4 s (5.2); for updates of 204,512
tokens of 0.6B 2.1 s (1.9) and of 1.7B 4.3 s (4.6); for one of 32,768 tokens of 8B with LoRA 4.9 s (5.9). A whole step
of 8B with LoRA has been measured with short completions alone.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from rich.console import Console
from rich.table import Table
from transformers import Qwen3Config

from drkernel.config import Config
from drkernel.judge.devices.simulated.gpus import GPUS, Gpu
from drkernel.objective.filters import TOKEN_FILTERS
from drkernel.training.flops import peak_of, update_flops
from drkernel.training.plan import Shape, adapters, is_vllm, longest, shape_of

PROMPT = 1200
"""Tokens of a task with its instructions: assumed."""
MFU = 0.5
"""Of the compiled update with FlashAttention 4: 0.48 for 0.6B, 0.55 for 1.7B."""
LOST = 0.04
"""Of an update on several GPUs: four reach 96 % of four times one (results/training-h200/ranks.md)."""
HOST_S = {True: 2.5e-3, False: 0.5e-3}
"""Of a decode step: vLLM's scheduler, and `graphs`."""
SYNC = 85e9
"""Bytes per second: 41 ms for 1.7B."""
VERDICTS = 6.0
"""Per second of a judge with a GPU and 16 cores; the simulated device is taken to be as fast."""
LAST_S = 7.0
"""What a rollout with a judge takes longer, whatever its length (results/training-h200/generation.md)."""
REACHED = 0.77
"""Of the peak, what large products reach on an H200 (`Gpu.flops`)."""


@dataclass(frozen=True)
class Lengths:
    """Tokens of prompts, of completions in the mean, of the longest completions, and of feedback."""

    prompt: int
    completion: float
    longest: int
    feedback: int

    @classmethod
    def assumed(cls, config: Config) -> Lengths:
        most = config.engine.max_answer_tokens
        return cls(PROMPT, most / 2, most, config.judge.feedback_tokens)


def seconds(config: Config, shape: Shape, ranks: int, gpu: Gpu, lengths: Lengths | None = None) -> dict[str, float]:
    """Of a step of reinforcement learning, by part.

    Args:
        ranks: GPUs, each of which generates and trains.
        gpu: their kind.
        lengths: as known from other runs; None: assumed.
    """
    lengths = lengths or Lengths.assumed(config)
    trajectories = math.ceil(config.trainer.prompts * config.filters.oversample) * config.trainer.samples
    generated = generation(config, shape, trajectories / ranks, gpu, lengths)
    verdicts = trajectories * config.trainer.turns / VERDICTS
    return {
        "generation": generated,
        "judge": max(0.0, verdicts - generated) + LAST_S,
        "update": update(config, shape, ranks, gpu, lengths),
        "weight sync": 2 * shape.parameters / SYNC,
    }


def generation(config: Config, shape: Shape, trajectories: float, gpu: Gpu, lengths: Lengths) -> float:
    """Seconds in which each engine plays its trajectories; ranks with one engine together have theirs together."""
    together, turns = config.engine.tensor_parallel, config.trainer.turns
    number = trajectories * together
    rest = max(0.0, number / config.engine.slots - 1)  # waits until others have ended
    steps = turns * (lengths.longest + rest * lengths.completion)
    decoding = number * turns * lengths.completion / steps
    context = lengths.prompt + turns * (lengths.completion + lengths.feedback) / 2
    cache = 2 * 2 * shape.layers * shape.kv_heads * shape.head_size * context * decoding
    read = (2 * shape.parameters + cache) / (gpu.bandwidth * together)
    prefilled = number * (lengths.prompt + turns * lengths.feedback)
    prefill = 2 * shape.parameters * prefilled / (MFU * gpu.flops["half"] * together)
    return prefill + steps * (read + HOST_S[is_vllm(config)])


def update(config: Config, shape: Shape, ranks: int, gpu: Gpu, lengths: Lengths) -> float:
    """Seconds of forward and backward over all trajectories, and of the passes that score them before."""
    turns, number = config.trainer.turns, config.trainer.prompts * config.trainer.samples
    each = [lengths.prompt + k * lengths.completion + (k - 1) * lengths.feedback for k in range(1, turns + 1)]
    rows = [min(int(row), longest(config)) for row in (each if config.trainer.layout == "turn" else each[-1:])]
    sampled = min(turns * lengths.completion, rows[-1])
    trained = adapters(config, shape)
    needed = update_flops(_as_config(shape), rows * number, int(sampled * number), trained)
    again = 1 + (config.trainer.recompute + _scored(config)) / (3 if trained is None else 2)
    peak = peak_of(gpu.sheet) or gpu.flops["half"] / REACHED
    return again * needed / (MFU * peak * ranks * (1 if ranks == 1 else 1 - LOST))


def _scored(config: Config) -> int:
    """Forward passes over the batch without a backward: train.py's `correct_mismatch` and `learn`."""
    before = config.filters.chosen(TOKEN_FILTERS) or config.algo.importance_cap or config.algo.updates > 1
    return bool(before) + bool(config.algo.kl_coef)


def _as_config(shape: Shape) -> Qwen3Config:
    return Qwen3Config(
        num_hidden_layers=shape.layers,
        hidden_size=shape.hidden,
        intermediate_size=shape.intermediate,
        vocab_size=shape.vocabulary,
        head_dim=shape.head_size,
        num_attention_heads=shape.heads,
        num_key_value_heads=shape.kv_heads,
    )


def show(config: Config, ranks: int, console: Console) -> None:
    """Prints the seconds as a table. Nothing for a supervised stage, and for GPUs whose rates are not known."""
    shape, gpu = shape_of(config.policy.path), _gpu(config)
    if config.stage != "rl" or shape is None or gpu is None:
        return
    lengths, parts = Lengths.assumed(config), seconds(config, shape, ranks, gpu)
    table = Table("part", "seconds")
    table.columns[1].justify = "right"
    for part, number in parts.items():
        table.add_row(part, f"{number:.1f}")
    table.add_section()
    table.add_row("a step", f"{sum(parts.values()):.0f}")
    said = f"{lengths.completion:.0f} tokens in the mean, {lengths.longest} the longest"
    console.print(f"an estimate of a step on {gpu.name}, if completions have {said}", highlight=False)
    console.print(table)


def _gpu(config: Config) -> Gpu | None:
    """The GPU of this machine, or the one of the simulated device where there is none."""
    if not torch.cuda.is_available():
        return GPUS[config.judge.gpu]
    return next((gpu for gpu in GPUS.values() if gpu.name in torch.cuda.get_device_name(0)), None)
