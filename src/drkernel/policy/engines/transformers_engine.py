"""Continuous batching over a Hugging Face model, fast on a CPU and reproducible to the bit there.

Every step admits waiting requests into free slots, reads their prompts, and decodes one token for all slots in use.
A completed sequence leaves its slot; its keys and values are kept until a later turn extends it or it is released, and
a prompt that many requests share is read once.

Bits: a token's result may depend on its own sequence alone. Attention is per sequence (kv.py), random numbers are per
request (sampling.py), and everything else works row by row except matrix products, whose kernel may change with the
number of rows. `_row_step` finds out, on this machine and for this model's matrices, whether it does.
"""

from __future__ import annotations

import heapq
from collections import OrderedDict, deque
from dataclasses import dataclass, field

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from drkernel.policy.engine import BaseEngine, Completion, Request
from drkernel.policy.engines.kv import Decode, Prefill, Slots
from drkernel.policy.engines.sampling import sample, uniforms
from drkernel.policy.model import Policy
from drkernel.policy.transfer import copy_weights, whole_copy
from drkernel.types import DrKernelError

SHARED_PROMPTS = 32
"""How many prompts' keys and values are kept for requests with the same prompt."""
PREFILL_ROWS = 1024
"""Most prompt tokens read in one forward, unless one prompt alone has more."""
ROW_STEP = 16
"""Forwards are padded to a multiple of this many rows: GEMM kernels treat fewer rows differently."""


@dataclass
class _Sequence:
    request: Request
    slot: int
    tokens: list[int]
    uniforms: list[float]
    cached: int = 0
    """Tokens whose keys and values are in the slot; while decoding, all but the last one."""
    logprobs: list[float] = field(default_factory=list)

    @property
    def unread(self) -> int:
        return len(self.tokens) - 1 - self.cached


class TransformersEngine(BaseEngine):
    """drkernel.policy.engine.Engine over a model of its own with the policy's weights.

    stop_ids end a completion; slots: sequences that decode together; context: most tokens of a sequence, all turns.
    """

    own_kernels = False

    def __init__(self, policy: Policy, stop_ids: set[int], slots: int = 64, context: int = 2048):
        self.model = whole_copy(policy.model, policy.model.get_output_embeddings().weight.dtype)
        self.context = min(context, self.model.config.max_position_embeddings)
        self.stop_ids = frozenset(stop_ids)
        head = self.model.get_output_embeddings().weight
        self._slots = Slots(self.model.config, slots, self.context, head.dtype, head.device)
        self._free = list(range(slots))
        self._row_step = _row_step(self.model, slots)
        self._waiting: deque[Request] = deque()
        self._running: dict[int, _Sequence] = {}
        self._kept: dict[str, tuple[list[int], tuple[Tensor, Tensor]]] = {}
        self._prompts: OrderedDict[tuple[int, ...], tuple[Tensor, Tensor]] = OrderedDict()
        self.sync(policy)

    @property
    def busy(self) -> bool:
        return bool(self._waiting or self._running)

    def add(self, request: Request) -> None:
        request.check(self.context)
        if request.parent is not None:
            if request.parent not in self._kept:
                raise DrKernelError(f"request {request.id}: parent {request.parent!r} is not there to be extended")
            tokens, _ = self._kept[request.parent]
            if request.prompt_ids[: len(tokens)] != tokens:
                raise DrKernelError(f"request {request.id}: the prompt does not extend parent {request.parent!r}")
        self._waiting.append(request)

    def release(self, id: str) -> None:
        self._kept.pop(id, None)

    def sync(self, policy: Policy) -> None:
        """Collective for a sharded policy."""
        assert not self.busy, "weights change only between rollouts"
        copy_weights(policy, self.model, self._slots.keys.dtype)
        self._kept.clear()
        self._prompts.clear()

    def close(self) -> None:
        self._waiting.clear()
        self._running.clear()
        self._kept.clear()

    @torch.inference_mode()
    def step(self) -> list[Completion]:
        self._admit()
        return self._decode() if self._running else []

    def _admit(self) -> None:
        """Waiting requests take free slots in order of arrival; all but their last token is read here."""
        arrived = []
        while self._waiting and self._free:
            request, slot = self._waiting.popleft(), heapq.heappop(self._free)
            room = min(request.max_tokens, self.context - len(request.prompt_ids))
            arrived.append(_Sequence(request, slot, list(request.prompt_ids), uniforms(request.seed, room)))
        later = [s for s in arrived if s.request.parent is not None]
        for sequence in later:
            assert sequence.request.parent is not None
            sequence.cached = self._slots.put(sequence.slot, self._kept.pop(sequence.request.parent)[1])
        self._prefill(later)
        self._read_prompts([s for s in arrived if s.request.parent is None])
        self._running.update((s.slot, s) for s in arrived)

    def _read_prompts(self, sequences: list[_Sequence]) -> None:
        """Each distinct prompt is read once, in the slot of the first that has it; the others get a copy."""
        first = {tuple(s.tokens): s for s in reversed(sequences) if tuple(s.tokens) not in self._prompts}
        for sequence in first.values():
            self._slots.put(sequence.slot, None)
        self._prefill(list(first.values()))
        for prompt, sequence in first.items():
            self._prompts[prompt] = self._slots.take(sequence.slot, sequence.cached)
        for sequence in sequences:
            prompt = tuple(sequence.tokens)
            self._prompts.move_to_end(prompt)
            if sequence is not first.get(prompt):
                sequence.cached = self._slots.put(sequence.slot, self._prompts[prompt])
        while len(self._prompts) > SHARED_PROMPTS:
            self._prompts.popitem(last=False)

    def _prefill(self, sequences: list[_Sequence]) -> None:
        """Reads the prompts' new tokens, many sequences at once where the number of rows does not change bits."""
        groups: list[list[_Sequence]] = []
        for sequence in (s for s in sequences if s.unread):
            if groups and self._row_step and sum(s.unread for s in groups[-1]) + sequence.unread <= PREFILL_ROWS:
                groups[-1].append(sequence)
            else:
                groups.append([sequence])
        for group in groups:
            segments = [(s.slot, s.cached, s.unread) for s in group]
            tokens = [token for s in group for token in s.tokens[s.cached : -1]]
            positions = [position for s in group for position in range(s.cached, len(s.tokens) - 1)]
            rows = _round_up(len(tokens), self._row_step or 1)
            self._forward(tokens, positions, Prefill(self._slots, segments), rows)
            for sequence in group:
                sequence.cached += sequence.unread

    def _decode(self) -> list[Completion]:
        sequences = [self._running[slot] for slot in sorted(self._running)]
        positions = [s.cached for s in sequences]
        layout = Decode(self._slots, [s.slot for s in sequences], positions)
        rows = _round_up(len(sequences), self._row_step or self._slots.count)
        hidden = self._forward([s.tokens[-1] for s in sequences], positions, layout, rows)
        logits = self.model.get_output_embeddings()(hidden)[: len(sequences)]
        draws = [s.uniforms[len(s.logprobs)] for s in sequences]
        tokens, logprobs = sample(logits, draws, [s.request.sampling for s in sequences])
        completed = []
        for sequence, token, logprob in zip(sequences, tokens, logprobs, strict=True):
            sequence.tokens.append(token)
            sequence.logprobs.append(logprob)
            sequence.cached += 1
            if token in self.stop_ids or len(sequence.logprobs) == len(sequence.uniforms):
                completed.append(self._retire(sequence))
        return completed

    def _retire(self, sequence: _Sequence) -> Completion:
        request = sequence.request
        self._kept[request.id] = (sequence.tokens, self._slots.take(sequence.slot, sequence.cached))
        del self._running[sequence.slot]
        heapq.heappush(self._free, sequence.slot)
        tokens = sequence.tokens[len(request.prompt_ids) :]
        return Completion(request.id, tokens, sequence.logprobs, tokens[-1] in self.stop_ids)

    def _forward(self, tokens: list[int], positions: list[int], layout: Prefill | Decode, rows: int) -> Tensor:
        """Hidden states [rows, hidden]; rows beyond the tokens are padding."""
        padding = [0] * (rows - len(tokens))
        device = self._slots.keys.device
        output = self.model.base_model(
            input_ids=torch.tensor([tokens + padding], device=device),
            position_ids=torch.tensor([positions + padding], device=device),
            layout=layout,
            use_cache=False,
        )
        return output.last_hidden_state[0]


def _round_up(count: int, step: int) -> int:
    return -(-count // step) * step


@torch.no_grad()
def _row_step(model: nn.Module, slots: int) -> int | None:
    """ROW_STEP if a row's product with each of the model's matrices has the same bits at any place in any multiple of
    ROW_STEP rows; else None, and the engine always decodes the same number of rows and reads every prompt alone.

    On CUDA no such promise is made, and this is ROW_STEP.
    """
    weights = {m.weight.shape: m.weight for m in model.modules() if isinstance(m, nn.Linear)}.values()
    if any(weight.is_cuda for weight in weights):
        return ROW_STEP
    counts = sorted({*range(ROW_STEP, _round_up(slots, ROW_STEP) + 1, ROW_STEP), PREFILL_ROWS // 2, PREFILL_ROWS})
    generator = torch.Generator().manual_seed(0)
    for weight in weights:
        rows = torch.randn(counts[-1], weight.shape[1], generator=generator).to(weight.dtype)
        expected = F.linear(rows, weight)
        if not torch.equal(F.linear(rows.flip(0), weight).flip(0), expected):
            return None
        if not all(torch.equal(F.linear(rows[:count], weight), expected[:count]) for count in counts):
            return None
    return ROW_STEP
