"""The config group `trainer`: the size of a step and of a run, learning rate, checkpoints, validation."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass
class TrainerConfig:
    """The size of a step and of a run."""

    gpus: int = 1
    """Ranks that `python train.py` starts on this machine, one per GPU (without GPUs, CPU processes). torchrun and srun
    of several start their own, whatever this says."""
    steps: int = 300
    """Steps of the run. A step is one rollout and its update, of `algo.updates` optimizer steps (at stage=sft of one).
    All keys and metrics that count steps count these, but for `skipped` and `updates`, which count optimizer steps."""
    prompts: int = 16
    """Groups per step."""
    samples: int = 16
    """Trajectories per group."""
    turns: int = 3
    """Turns per trajectory."""
    overlap: bool = False
    """Generate the first turns of the next step while verdicts of this one are due; the judge examines them during the
    update. They are of the weights before it, so `algo.importance_cap` must correct them (training/overlap.py)."""
    weight_decay: float = 0.01
    """AdamW weight decay, on matrices only."""
    lr_schedule: str = "constant"
    """The learning rate after the warm-up: `constant`, or `linear` or `cosine` from policy.lr down to `lr_end`."""
    lr_warmup: int = 0
    """Steps over which the learning rate rises linearly to policy.lr."""
    lr_steps: int | None = None
    """`linear` and `cosine` only: the step, counted from 1, from which the learning rate stays at `lr_end`. Not
    `steps`, which a resumed run may change."""
    lr_end: float = 0.1
    """`linear` and `cosine` only: the last learning rate, as a share of policy.lr."""
    max_grad_norm: float = 1.0
    """Gradients are clipped to this norm; an optimizer step with a non-finite norm is skipped and counted."""
    micro_batch_tokens: int = 8192
    """Most tokens in one forward and backward pass."""
    compile: bool = False
    """On GPUs: torch.compile of each block. Costs a minute at the start; worth it for policies of 0.6B and more."""
    bfloat16: bool = False
    """On CPUs: matrix products in bfloat16, as GPUs always have them. Faster on processors with AVX512-BF16 or AMX."""
    recompute: float = 0.0
    """Activation checkpointing: the share of the blocks whose activations are computed again in the backward."""
    offload: str = "none"
    """`optimizer`: AdamW's moments, 8 bytes per trained parameter, are in the host's memory but for a moment in each
    step (training/offload.py). Results are the same bit for bit."""
    layout: str = "trajectory"
    """One packed row per `trajectory` (all turns share their prefix), or per `turn`."""
    save_every: int = 5
    """Steps between checkpoints."""
    keep: int = 2
    """Newest checkpoints kept; the best one of the validation is kept besides."""
    keep_every: int | None = None
    """Checkpoints whose step this divides are made and kept for ever, besides; None: none."""
    save_async: bool = False
    """Write checkpoints behind the steps that follow, from a copy in the host's memory (training/saving.py)."""
    validate_every: int = 0
    """Steps between validations: `tasks.eval_count` tasks of the validation split, played as for the table at the end.
    0: none."""
    validate_first: bool = True
    """Validate the policy that the run begins with, too, as step 0; it may then be the best."""
    best_by: str = "reward"
    """The measure of the validation, at the last turn, that makes a checkpoint the best."""
    stop_below: float | None = None
    """End the run where that measure is below this share of its best, e.g. 0.5; None: go on whatever it does."""
    eval_samples: int = 4
    """Trajectories per task in a validation and in the before/after table."""
    eval_turns: int | None = None
    """Turns per trajectory there; None: as many as in training."""
    threads: int | None = None
    """CPU threads of the trainer; None takes all cores, and four where it trains on a GPU. Results are bit for bit the
    same only for the same number."""
