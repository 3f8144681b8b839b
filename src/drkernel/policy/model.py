"""The policy: a Hugging Face causal LM that scores packed rows without ever holding all logits.

`forward` returns hidden states, so that FSDP's hooks run on it; the head is then applied in chunks to sampled tokens
alone. Training uses `backward`: per chunk head -> loss -> backward at once, then one backward through the body, as
torchtitan's ChunkedLossWrapper does. That needs losses that are sums over tokens, which policy gradients are.
"""

from __future__ import annotations

import contextlib
import textwrap
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple, TypeVar, cast

import torch
from torch import Tensor, nn
from torch.distributed.fsdp import FSDPModule
from torch.nn import functional
from transformers import (
    AutoModelForCausalLM,
    AutoTokenizer,
    GenerationConfig,
    PreTrainedModel,
    PreTrainedTokenizerBase,
    Qwen3Config,
)
from transformers.utils import logging

from drkernel.config import LoraConfig
from drkernel.policy.attention import ATTENTION, Packed, to_device
from drkernel.policy.scoring import token_scores
from drkernel.types import Batch, DrKernelError

M = TypeVar("M")
WRAPPERS = ("_checkpoint_wrapped_module.", "_orig_mod.")
"""What activation checkpointing and torch.compile put into the names of weights."""
logging.disable_progress_bar()  # the entry points have progress bars of their own


@dataclass(frozen=True)
class Base:
    """The frozen weights that adapters belong to."""

    source: str
    """A folder, a hub id or `random:<folder>`."""
    digest: str
    """16 hex digits over the weights as they were loaded (training/loading.py)."""


class Scores(NamedTuple):
    """Per token of a batch, 0 outside its loss mask."""

    logprobs: Tensor  # float32 [T]
    entropy: Tensor  # float32 [T], no gradient
    loss: Tensor  # float32 scalar, the sum of the token losses (0 without a loss)


class Policy(nn.Module):
    """A causal LM over packed rows. `chunk` is the number of tokens whose logits exist at the same time."""

    model: PreTrainedModel
    lora: LoraConfig | None = None
    """The settings of its adapters (policy/lora.py); None: all weights train."""
    base: Base | None = None
    """Which weights its adapters belong to."""
    fp32_head: bool = False
    """Compute logits in float32, from hidden states and head as they are, whatever the rest computes in."""
    bfloat16_on_cpu: bool = False
    """Matrix products in bfloat16 there, as on a GPU."""

    def __init__(self, model: PreTrainedModel, chunk: int = 4096):
        super().__init__()
        self.model = model.eval()  # however it was loaded: dropout would change what is scored and what trains
        self.chunk = chunk

    @classmethod
    def load(
        cls, source: str | Path, dtype: torch.dtype = torch.float32, device: str = "cpu", chunk: int = 4096
    ) -> Policy:
        """From a local Hugging Face folder or a hub id. Raises DrKernelError where it is missing or damaged."""
        model = _pretrained(
            "policy", source, AutoModelForCausalLM.from_pretrained, dtype=dtype, attn_implementation=ATTENTION
        )
        return cls(model, chunk).to(device)

    @property
    def body(self) -> nn.Module:
        return self.model.base_model

    @property
    def head(self) -> nn.Module:
        return self.model.get_output_embeddings()

    @property
    def device(self) -> torch.device:
        return next(self.head.parameters()).device

    def forward(self, batch: Batch) -> Tensor:
        """Hidden states [T, hidden] of the packed rows. From a batch on the CPU nothing waits for the device."""
        device = self.device
        output = self.body(
            input_ids=to_device(batch.tokens, device).unsqueeze(0),
            position_ids=to_device(batch.positions, device).unsqueeze(0),
            layout=Packed(batch.cu_seqlens, device),
            use_cache=False,
        )
        return output.last_hidden_state[0]

    def _logits(self, hidden: Tensor) -> Tensor:
        if not self.fp32_head:
            return self.head(hidden)
        weight, bias = (
            None if each is None else cast(Tensor, each).float() for each in (self.head.weight, self.head.bias)
        )
        assert weight is not None
        with torch.autocast(hidden.device.type, enabled=False):
            return functional.linear(hidden.float(), weight, bias)

    @torch.no_grad()
    def logprobs(self, batch: Batch, temperature: float = 1.0) -> Scores:
        """log pi(token) at each sampled token, no gradient."""
        return self._score(batch, self(batch), temperature)

    def backward(
        self,
        batch: Batch,
        token_loss: Callable[[Tensor, Tensor], Tensor],
        temperature: float = 1.0,
        *,
        entropy_bonus: Tensor | None = None,
        see_all: Callable[[Tensor], None] | None = None,
    ) -> Scores:
        """Adds the gradient of a loss that is a sum over tokens to the parameters' `.grad`; returns what was scored.

        token_loss(logprobs float32 [n], index int64 [n]) -> scalar: the summed loss of the tokens at `index` of the
        batch, already weighted and normalised. A batch without sampled tokens runs the same backward with a zero
        gradient, so that sharded ranks stay in step.

        entropy_bonus: float32 [T], how much each token's entropy takes off the loss.
        see_all: gets all log-probabilities of the batch, float32 [T], before the losses are asked for. For losses of
        tokens that depend on other tokens of their row; it costs the head twice, and the body once.
        """
        hidden = self(batch)
        if see_all:
            with torch.no_grad():
                see_all(self._score(batch, hidden.detach(), temperature).logprobs)
        gradient = torch.zeros_like(hidden)
        scores = self._score(batch, hidden.detach(), temperature, token_loss, gradient, entropy_bonus)
        hidden.backward(gradient)
        return scores

    def _score(
        self,
        batch: Batch,
        hidden: Tensor,
        temperature: float,
        token_loss: Callable[[Tensor, Tensor], Tensor] | None = None,
        gradient: Tensor | None = None,
        entropy_bonus: Tensor | None = None,
    ) -> Scores:
        """Chunk by chunk; with a loss also its gradient, for the head at once and for `hidden` into `gradient`."""
        index = batch.loss_mask.nonzero().squeeze(1)
        assert not (batch.positions[index] == 0).any(), "a row's first token has nothing that predicts it"
        index, tokens = to_device(index, hidden.device), to_device(batch.tokens, hidden.device)
        scores = Scores(*(torch.zeros(n, device=hidden.device) for n in (len(tokens), len(tokens), ())))
        for part in index.split(self.chunk) if len(index) else ():
            before = hidden[part - 1].requires_grad_(token_loss is not None)
            taken, entropy = token_scores(self._logits(before), tokens[part], temperature)
            scores.logprobs[part] = taken.detach()
            scores.entropy[part] = entropy.detach()
            if token_loss is not None and gradient is not None:
                loss = token_loss(taken, part)
                if entropy_bonus is not None:
                    loss = loss - (entropy_bonus[part] * entropy).sum()
                loss.backward()
                scores.loss.add_(loss.detach().float())
                assert before.grad is not None
                gradient[part - 1] = before.grad
        return scores


@contextlib.contextmanager
def autocast(policy: Policy) -> Iterator[None]:
    """What the trainer computes in: bfloat16 matrix products on a GPU or where the policy says so, else float32. Master
    weights stay float32; a sharded policy casts by itself."""
    needed = (policy.device.type == "cuda" or policy.bfloat16_on_cpu) and not isinstance(policy, FSDPModule)
    with torch.autocast(policy.device.type, torch.bfloat16, enabled=needed):
        yield


def new_policy(
    vocab_size: int,
    hidden: int = 192,
    layers: int = 6,
    heads: int | None = None,
    kv_heads: int = 2,
    positions: int = 4096,
    seed: int = 0,
    eos_token_id: int | None = None,
    pad_token_id: int | None = None,
) -> Policy:
    """A Qwen3-shaped policy from scratch: heads of 64 (as many as fill the width, at least four), a gated MLP of
    3 x hidden, tied embeddings.

    With a vocabulary of 2,048: hidden 192 and 6 layers are 3.3M parameters, hidden 256 and 8 layers 6.8M.
    Fewer kv_heads make generation on a CPU faster: reading keys and values is most of its time beyond 200 tokens.
    """
    config = Qwen3Config(
        vocab_size=vocab_size,
        hidden_size=hidden,
        intermediate_size=3 * hidden,
        num_hidden_layers=layers,
        num_attention_heads=heads or max(4, hidden // 64),
        num_key_value_heads=kv_heads,
        head_dim=64,
        max_position_embeddings=positions,
        tie_word_embeddings=True,
        bos_token_id=None,
        eos_token_id=eos_token_id,
        pad_token_id=pad_token_id,
    )
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return Policy(AutoModelForCausalLM.from_config(config, dtype=torch.float32, attn_implementation=ATTENTION))


def plain_name(name: str) -> str:
    """A weight's or layer's name in the transformers model, whatever wraps its block."""
    for wrapper in WRAPPERS:
        name = name.replace(wrapper, "")
    return name


def load_tokenizer(source: str | Path) -> PreTrainedTokenizerBase:
    """The tokenizer of a local folder or hub id. Raises DrKernelError where it is missing or damaged."""
    return _pretrained("tokenizer", source, AutoTokenizer.from_pretrained)


def stop_tokens(source: str | Path) -> set[int]:
    """The tokens that end a completion by generation_config.json, which may name several; none without such a file."""
    try:
        found = GenerationConfig.from_pretrained(source).eos_token_id
    except (OSError, ValueError):
        return set()
    return set(found) if isinstance(found, list | tuple) else {found} - {None}


_OFFLINE = " of what policy.path names; without a network fill the cache and set HF_HUB_OFFLINE=1"


def _pretrained(what: str, source: str | Path, load: Callable[..., M], **options: Any) -> M:
    if (Path(source) / "adapter_config.json").exists() and not (Path(source) / "config.json").exists():
        raise DrKernelError(
            f"{what} folder {str(source)!r}: found peft's adapter_config.json, expected a whole policy's config.json; "
            "a run with adapters writes one to policy/ (policy.lora.export_merged=true)"
        )
    # Loading a folder that others wrote is a process border: transformers raises a dozen unrelated types there.
    try:
        return load(source, **options)
    except Exception as error:
        reason = textwrap.shorten(str(error), 200, placeholder=" ...") or type(error).__name__
        kind = "folder" if Path(source).exists() else "folder or hub id"
        raise DrKernelError(
            f"{what} {kind} {str(source)!r}: not loadable ({reason}); "
            f"expected config.json, model.safetensors and tokenizer files{'' if kind == 'folder' else _OFFLINE}"
        ) from error
