"""TRL's side of update_step.py: GRPOTrainer.compute_loss and its gradients on the same rows.

As its users run it on one GPU: SDPA attention, gradient checkpointing, bfloat16 autocast over float32 weights, rows
padded to the longest of each micro-batch; rows in the order of the data, since TRL shuffles them. Loss
type `dapo` (mean over the step's tokens), no reference model, so it is the very loss of train.py with one step per
rollout. Same fused AdamW, same clipping. Needs trl 1.16 and datasets.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from itertools import pairwise

import torch
import update_step as ours
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from drkernel.types import Batch


def contender(rows: int) -> Callable[[str, Batch, torch.device], dict]:
    """TRL with micro-batches of `rows` rows."""

    def run(shape: str, batch: Batch, device: torch.device) -> dict:
        subset = ours.comparable(batch)
        expected = ours.reference(shape, subset, device)
        with tempfile.TemporaryDirectory() as folder:
            trainer = make_trainer(shape, device, rows, folder)
        model = trainer.model
        loss = accumulate(trainer, subset, rows, device)
        found = ours.agreement(expected, (loss, ours.named_gradients(model)))
        optimizer = torch.optim.AdamW(model.parameters(), lr=1e-6, weight_decay=0.0, fused=True)

        def step() -> dict:
            optimizer.zero_grad(set_to_none=True)
            loss = accumulate(trainer, batch, rows, device)
            norm = torch.nn.utils.clip_grad_norm_(model.parameters(), ours.MAX_NORM)
            optimizer.step()
            return {"loss": loss, "grad_norm": float(norm)}

        return found | ours.timed(step, shape, batch, device)

    return run


def make_trainer(shape: str, device: torch.device, rows: int, folder: str):
    from datasets import Dataset
    from tokenizers import Tokenizer, models
    from transformers import PreTrainedTokenizerFast
    from trl import GRPOConfig, GRPOTrainer

    tokenizer = Tokenizer(models.WordLevel({"<pad>": 0, "<eos>": 1}, unk_token="<pad>"))
    config = GRPOConfig(
        output_dir=folder,
        per_device_train_batch_size=rows,
        num_generations=2,
        loss_type="dapo",
        beta=0.0,
        bf16=True,
        use_cpu=device.type == "cpu",
        gradient_checkpointing=True,
        disable_dropout=True,
        report_to=[],
    )
    trainer = GRPOTrainer(
        model=ours.make_model(shape, device, "sdpa"),
        reward_funcs=lambda completions, **_: [0.0] * len(completions),
        args=config,
        train_dataset=Dataset.from_dict({"prompt": ["<pad>"] * 64}),
        processing_class=PreTrainedTokenizerFast(tokenizer_object=tokenizer, pad_token="<pad>", eos_token="<eos>"),
    )
    trainer.model.gradient_checkpointing_enable({"use_reentrant": False})
    trainer.model.train()
    # The loss is to be divided by the number of tokens alone: one generation batch is one optimizer step.
    trainer.current_gradient_accumulation_steps = trainer.args.steps_per_generation
    return trainer


def accumulate(trainer, batch: Batch, rows: int, device: torch.device) -> float:
    """Forward and backward of all micro-batches; the loss of the step."""
    total = torch.zeros((), device=device)
    for inputs in micro_batches(batch, rows, device):
        loss = trainer.compute_loss(trainer.model, inputs)
        loss.backward()
        total += loss.detach()
    return float(total)


def micro_batches(batch: Batch, rows: int, device: torch.device) -> list[dict[str, Tensor]]:
    spans = list(pairwise(batch.cu_seqlens.tolist()))
    sampled = batch.loss_mask.sum().to(device)
    return [padded(batch, spans[first : first + rows], sampled, device) for first in range(0, len(spans), rows)]


def padded(batch: Batch, spans: list[tuple[int, int]], sampled: Tensor, device: torch.device) -> dict[str, Tensor]:
    prompts, completions = [], []
    for start, end in spans:
        mask = batch.loss_mask[start:end]
        prompts.append(batch.tokens[start:end][~mask])
        completions.append(batch.tokens[start:end][mask])
    pad = lambda sequences: pad_sequence(sequences, batch_first=True).to(device)
    return {
        "prompt_ids": pad(prompts),
        "prompt_mask": pad([torch.ones_like(p) for p in prompts]),
        "completion_ids": pad(completions),
        "completion_mask": pad([torch.ones_like(c) for c in completions]),
        "advantages": torch.stack([batch.advantages[end - 1] for _, end in spans]).to(device),
        "num_items_in_batch": sampled,
    }
