"""Generation for small decoders on a GPU: a decode step is a CUDA graph that the host replays without waiting for it.

A model of some million parameters takes less time for a step than Python needs to start its kernels. So everything that
a step reads and writes stays on the device (decode_state.py): it draws its own tokens, and notes by itself which
sequences ended. The host replays STEPS of them and then looks at what the STEPS before did, while the GPU is busy:
it collects what ended and fills the free slots.

A step has one row per sequence. Graphs exist for all slots, half of them, a quarter and an eighth; rows point to slots,
so that the last sequences of a rollout move into a small graph without moving their keys. Without CUDA the same steps
run one by one, for tests.
"""

from __future__ import annotations

import heapq
from collections import deque
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from transformers import PretrainedConfig

from drkernel.policy.attention import to_device
from drkernel.policy.engine import BaseEngine, Completion, Request
from drkernel.policy.engines.decode_state import Next, Read, State, head_size
from drkernel.policy.engines.sampling import uniforms
from drkernel.policy.model import Policy
from drkernel.policy.transfer import copy_weights, whole_copy
from drkernel.types import DrKernelError

STEPS = 8
"""Most decode steps that are launched together."""
REFILL = 8
"""Prompts are read when this part of the slots (one in REFILL) is free, or all that wait find room: reading a few takes
as long as reading many."""
PROMPT_TOKENS = 32_768
"""Most prompt tokens of one forward."""
GRAPH_SIZES = 4
"""Graphs for all slots, half of them, and so on."""
SYNCHRONOUS_ROPE = ("dynamic", "longrope")
"""Rotary embeddings that wait for the device in every forward."""
MAX_HEAD = 256


@dataclass
class _Sequence:
    request: Request
    prompt: NDArray[np.int64]
    uniforms: NDArray[np.float64]
    """One for each token that may be drawn."""
    slot: int = -1
    left: int = 0
    """Most tokens that it may still draw after the steps that were launched."""


@dataclass
class _Flight:
    """Decode steps that were launched together."""

    sequences: dict[int, _Sequence]
    """By slot."""
    flags: Tensor
    """On the host, once they have `landed`: who is alive and how many tokens each has drawn, int64 [2, slots + 1]."""
    landed: torch.cuda.Event | None


def unsupported(config: PretrainedConfig) -> str | None:
    """What of a decoder does not work in a CUDA graph; None where it is supported."""
    experts = [name for name in ("num_experts", "num_local_experts", "n_routed_experts") if getattr(config, name, 0)]
    if experts:
        return f"a mixture of experts ({experts[0]}={getattr(config, experts[0])})"
    others = set(getattr(config, "layer_types", None) or ()) - {"full_attention"}
    if others:
        return f"layers of type {', '.join(sorted(others))}"
    rope = (getattr(config, "rope_parameters", None) or {}).get("rope_type", "default")
    if rope in SYNCHRONOUS_ROPE:
        return f"rotary embeddings of type {rope}"
    return f"heads of {head_size(config)}" if head_size(config) > MAX_HEAD else None


class GraphsEngine(BaseEngine):
    """drkernel.policy.engine.Engine over a model of its own with the policy's weights, bfloat16 on a GPU.

    stop_ids end a completion; slots: sequences that decode together; context: most tokens of a sequence, all turns;
    eager: no CUDA graphs. Requests with top_p, top_k or min_p decode without graphs, and so do those beside them. A
    later turn is read whole again. Raises DrKernelError for a decoder that is not supported.
    """

    own_kernels = True

    def __init__(self, policy: Policy, stop_ids: set[int], slots: int = 64, context: int = 2048, eager: bool = False):
        config = policy.model.config
        if found := unsupported(config):
            raise DrKernelError(f"engine.name=graphs: the policy has {found}, which only other engines support")
        self.context = min(context, config.max_position_embeddings)
        self.stop_ids = frozenset(stop_ids)
        head = policy.model.get_output_embeddings().weight
        self._dtype = torch.bfloat16 if head.is_cuda else head.dtype
        self.model = whole_copy(policy.model, self._dtype)
        self._state = State(config, slots, self.context, self._dtype, policy.device, self.stop_ids)
        self._sizes = sorted({-(-slots // 2**halvings) for halvings in range(GRAPH_SIZES)})
        self._rows = torch.full((slots,), slots, device=policy.device)
        self._shown: list[int] = []
        """What `_rows` has at the moment."""
        self._free = list(range(slots))
        self._waiting: deque[_Sequence] = deque()
        self._running: dict[int, _Sequence] = {}
        self._flight: _Flight | None = None
        self._graphs: dict[int, torch.cuda.CUDAGraph] = {}
        self._side = torch.cuda.Stream(policy.device) if self._state.kernels else None
        """Brings results to the host beside the decode steps; what ended is not written any more."""
        if self._state.kernels:
            from drkernel.policy.engines.decode_fusion import fuse

            fuse(self.model)
        self.sync(policy)
        if self._state.kernels and not eager:
            self._capture()

    @property
    def busy(self) -> bool:
        return bool(self._waiting or self._running)

    def add(self, request: Request) -> None:
        request.check(self.context)
        # Prepared here, where the device has work to do meanwhile.
        room = min(request.max_tokens, self.context - len(request.prompt_ids))
        prompt = np.array(request.prompt_ids, dtype=np.int64)
        self._waiting.append(_Sequence(request, prompt, np.array(uniforms(request.seed, room)), left=room))

    def release(self, id: str) -> None:
        """Nothing to forget: no keys are kept for later turns."""

    def sync(self, policy: Policy) -> None:
        """Collective for a sharded policy."""
        assert not self.busy, "weights change only between rollouts"
        copy_weights(policy, self.model, self._dtype)

    def close(self) -> None:
        self._waiting.clear()
        self._running.clear()
        self._flight = None
        self._graphs.clear()

    @torch.inference_mode()
    def step(self) -> list[Completion]:
        """Launches more decode steps, which nobody waits for, and collects what those of the last call completed."""
        before, self._flight = self._flight, None
        if self._state.kernels:  # else nothing goes on while the host looks
            self._flight = self._launch()
        ended = self._collect(before) if before else []
        self._admit()
        self._flight = self._flight or self._launch()
        return [self._completion(*each) for each in ended]

    def _collect(self, flight: _Flight) -> list[tuple[_Sequence, Tensor, Tensor]]:
        """Sequences that ended, with their tokens and log-probabilities on the host; their slots are free."""
        if flight.landed is not None:
            flight.landed.synchronize()
        alive, counts = flight.flags.tolist()
        # A later flight may have begun with a sequence that had ended already.
        flown = [slot for slot, sequence in flight.sequences.items() if self._running.get(slot) is sequence]
        ended = [slot for slot in flown if not alive[slot]]
        if not ended:
            return []
        with torch.cuda.stream(self._side):
            tokens, logprobs = self._state.results(ended, max(counts[slot] for slot in ended))
        collected = []
        for row, slot in enumerate(ended):
            length = counts[slot]
            collected.append((self._running.pop(slot), tokens[row, :length], logprobs[row, :length]))
            heapq.heappush(self._free, slot)
        return collected

    def _completion(self, sequence: _Sequence, tokens: Tensor, logprobs: Tensor) -> Completion:
        token_ids = tokens.tolist()
        return Completion(sequence.request.id, token_ids, logprobs.tolist(), token_ids[-1] in self.stop_ids)

    def _admit(self) -> None:
        """Waiting requests take free slots in order of arrival; all but their last token is read here."""
        slots = self._state.count
        if not self._waiting or len(self._free) < min(len(self._waiting), max(1, slots // REFILL)):
            return
        arrived = [self._waiting.popleft() for _ in range(min(len(self._waiting), len(self._free)))]
        for sequence in arrived:
            sequence.slot = heapq.heappop(self._free)
            self._running[sequence.slot] = sequence
        self._read(arrived)
        self._begin(arrived)

    def _read(self, arrived: list[_Sequence]) -> None:
        """Each distinct prompt is read once, for all slots that have it; many prompts in one forward."""
        prompts: dict[bytes, list[_Sequence]] = {}
        for sequence in arrived:
            prompts.setdefault(sequence.prompt.tobytes(), []).append(sequence)
        groups: list[list[list[_Sequence]]] = []
        tokens = 0
        for sharing in prompts.values():
            length = len(sharing[0].prompt) - 1
            if length and (not groups or tokens + length > PROMPT_TOKENS):
                groups.append([])
                tokens = 0
            if length:
                groups[-1].append(sharing)
                tokens += length
        for group in groups:
            self._forward_prompts(group)

    def _forward_prompts(self, group: list[list[_Sequence]]) -> None:
        device = self._state.cache.device
        lengths = [len(sharing[0].prompt) - 1 for sharing in group]
        ends = np.cumsum([0, *lengths])
        tokens = np.concatenate([sharing[0].prompt[:-1] for sharing in group])
        places = np.concatenate([np.arange(length) for length in lengths])
        targets = [
            np.stack([np.arange(start, start + length), np.full(length, sequence.slot), np.arange(length)])
            for sharing, start, length in zip(group, ends, lengths, strict=False)
            for sequence in sharing
        ]
        source, slots, written = to_device(torch.from_numpy(np.concatenate(targets, axis=1)), device)
        input_ids, position_ids = to_device(torch.from_numpy(np.stack([tokens, places])), device)
        layout = Read(self._state, torch.from_numpy(ends.astype(np.int32)), source, slots, written)
        self._hidden(input_ids, position_ids, layout)

    def _begin(self, arrived: list[_Sequence]) -> None:
        """Fills in the slots' entries of the state."""
        device = self._state.cache.device
        rows = [(1, 0, int(s.prompt[-1]), len(s.prompt) - 1, s.left, s.request.sampling.top_k) for s in arrived]
        settings = [s.request.sampling for s in arrived]
        floats = [(each.temperature, each.top_p, each.min_p) for each in settings]
        numbers = np.zeros((len(arrived), max(s.left for s in arrived)))
        for row, sequence in enumerate(arrived):
            numbers[row, : sequence.left] = sequence.uniforms
        self._state.begin(
            to_device(torch.tensor([s.slot for s in arrived]), device),
            to_device(torch.tensor(rows).T.contiguous(), device),
            to_device(torch.tensor(floats, dtype=torch.float32).T.contiguous(), device),
            to_device(torch.from_numpy(numbers), device),
        )

    def _launch(self) -> _Flight | None:
        """Starts up to STEPS decode steps of all sequences that may have tokens left to draw."""
        sequences = {slot: s for slot, s in sorted(self._running.items()) if s.left > 0}
        if not sequences:
            return None
        size = next(size for size in self._sizes if size >= len(sequences))
        self._show([*sequences, *[self._state.count] * (size - len(sequences))])
        steps = min(STEPS, max(sequence.left for sequence in sequences.values()))
        truncated = any(s.request.sampling.truncates for s in sequences.values())
        graph = None if truncated else self._graphs.get(size)
        for _ in range(steps):
            if graph is not None:
                graph.replay()
            else:
                self._decode(size, truncated)
        for sequence in sequences.values():
            sequence.left -= steps
        return self._flight_of(sequences)

    def _flight_of(self, sequences: dict[int, _Sequence]) -> _Flight:
        """Copies the flags as they are after the steps that were launched, without waiting for them."""
        flags = self._state.integers[:2]
        if not flags.is_cuda:
            return _Flight(sequences, flags.clone(), None)
        landed = torch.cuda.Event()
        on_host = torch.empty(flags.shape, dtype=flags.dtype, pin_memory=True)
        on_host.copy_(flags, non_blocking=True)
        landed.record()
        return _Flight(sequences, on_host, landed)

    def _show(self, rows: list[int]) -> None:
        if rows != self._shown:
            self._rows[: len(rows)] = to_device(torch.tensor(rows), self._rows.device)
            self._shown = rows

    def _decode(self, size: int, truncated: bool) -> None:
        """One token for each of the first `size` rows. Nothing in it waits for a GPU."""
        rows = self._rows[:size]
        state = self._state
        hidden = self._hidden(state.tokens[rows], state.positions[rows], Next(state, rows))
        state.advance(self.model.get_output_embeddings()(hidden), rows, truncated)

    def _hidden(self, tokens: Tensor, positions: Tensor, layout: Read | Next) -> Tensor:
        """tokens and positions int64 [T] -> hidden states [T, hidden]."""
        output = self.model.base_model(
            input_ids=tokens.unsqueeze(0), position_ids=positions.unsqueeze(0), layout=layout, use_cache=False
        )
        return output.last_hidden_state[0]

    @torch.inference_mode()
    def _capture(self) -> None:
        """Captures a graph per size. No row has a sequence yet, so that nothing is drawn."""
        with torch.cuda.device(self._rows.device):
            stream, pool = torch.cuda.Stream(), torch.cuda.graph_pool_handle()
            for size in reversed(self._sizes):  # the largest first: the others fit into its memory
                # Before the capture kernels are compiled and libraries allocate what they keep.
                stream.wait_stream(torch.cuda.current_stream())
                with torch.cuda.stream(stream):
                    for _ in range(2):
                        self._decode(size, False)
                torch.cuda.current_stream().wait_stream(stream)
                torch.cuda.synchronize()
                self._graphs[size] = graph = torch.cuda.CUDAGraph()
                # Other threads (NCCL's, the judge's) may go on calling CUDA.
                with torch.cuda.graph(graph, pool=pool, stream=stream, capture_error_mode="thread_local"):
                    self._decode(size, False)
            torch.cuda.synchronize()
