"""What a run takes of a GPU's memory, from shapes and settings, before anything is loaded.

    python train.py policy=qwen3_8b trainer.gpus=7 plan=true      prints the table and does nothing else

Bytes of one rank, P parameters, R ranks (1 where each has the policy whole: below WHOLE), T tokens in the largest
micro-batch, L blocks of width h, q = query heads x head size, k = key heads x head size, i = width of the feed-forward
part, V tokens in the vocabulary:

    state           16 P / R: float32 weights, gradients and two moments (8 P / R with trainer.offload=optimizer, and
                    two chunks of training/offload.py); below 2**33 bytes gradients stay whole: 4 P
                    with LoRA 2 P / R of the frozen base, and the 16 of its adapters: whole gradients below 2**33 bytes
    reference       4 P / R where algo.kl_coef needs a second policy: none with LoRA, whose base is there
    engine          2 P / engine.tensor_parallel (vLLM), 2 P (graphs) or 4 P (transformers, float32); none in a
                    supervised stage that plays no task
    cache           engine.kv_cache_gib of vLLM, else all slots: 2 L k engine.max_tokens numbers each
    activations     2 T (4 h + 3 q + 3 k + 3 i) for each block that keeps them, 2 T h for each that computes them again;
                    2 T (4 h + 3 q + 3 k + 3 i) for the one that does so now; 2 T (2 i + 2 h) for its gradients;
                    with LoRA 2 T rank more for each adapter of a block that keeps them
                    while generating: the forward pass of engine_gap, T = PROBES (PROMPT_TOKENS + PROBE_TOKENS), which
                    keeps nothing: 2 T (2 h + 3 i), a head of 2 h V, two gathered blocks
    head            6 h V (bfloat16 copy and float32 gradient; 2 h V with LoRA) and 2 V for each of 4,096 tokens' logits
                    and with policy.fp32_head 8 h V (4 with LoRA) and 2 V more
    blocks          8 bytes per parameter of a block: two gathered in bfloat16, one whole gradient; 4 with LoRA
    judge           JUDGE_GIB where it measures on the GPUs that train
    CUDA            OVERHEAD_GIB: contexts, NCCL, vLLM's graphs and buffers

Measured on an H200 (results/training-h200/update.md): 88.8 GiB for 0.6B at 65,536 tokens, 90.7 GiB for 1.7B at 32,768,
both compiled, without engine and judge; the formula says 89.0 and 91.2. Without trainer.compile blocks keep more.
8B with LoRA, a row of 32,768 (results/training-h200/lora.md): 38.4 compiled and 34.9 without; the formula says 34.8.
"""

from __future__ import annotations

import dataclasses
import importlib.util
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch
from rich.console import Console
from rich.table import Table
from transformers import AutoConfig

from drkernel.config import Config
from drkernel.judge.devices.simulated.gpus import GPUS
from drkernel.policy.lora import pairs
from drkernel.policy.transfer import PROBE_TOKENS, PROBES
from drkernel.training.group_engine import expect_groups
from drkernel.training.judging import placed
from drkernel.training.loading import RANDOM
from drkernel.training.offload import CHUNK_BYTES
from drkernel.training.ranks import Ranks
from drkernel.training.sft_sources import sources
from drkernel.training.update import WHOLE_GRADIENTS
from drkernel.types import DrKernelError

GIB = 2**30
OVERHEAD_GIB = 5.0
JUDGE_GIB = 17.0
"""What a judge that shares a GPU keeps there: areas for the arguments and results of tasks at published sizes."""
PROMPT_TOKENS = 2048
"""Tokens of the prompt after which engine and trainer are compared, which a plan has not read: more than most have."""
LOGITS = 4096
"""Tokens whose logits exist at a time: `chunk` of policy/model.py."""
WHOLE = 3e8
"""Parameters below which each GPU has a policy whole, computing under autocast, and gradients alone are added up. FSDP
and DTensors cost such a policy more than its arithmetic."""
MARGIN = 0.1
"""How far the estimate may be off. A run that is further above the card is refused."""
MORE_GPUS = (2, 4, 7, 8, 16, 32)


@dataclass(frozen=True)
class Shape:
    """A decoder's sizes."""

    hidden: int
    layers: int
    heads: int
    kv_heads: int
    head_size: int
    intermediate: int
    vocabulary: int
    tied: bool

    @property
    def linear(self) -> dict[str, tuple[int, int]]:
        """(inputs, outputs) of the linear layers of one block, by Qwen3's names."""
        queries, keys = self.heads * self.head_size, self.kv_heads * self.head_size
        attention = {"q_proj": (self.hidden, queries), "k_proj": (self.hidden, keys), "v_proj": (self.hidden, keys)}
        feed_forward = dict.fromkeys(("gate_proj", "up_proj"), (self.hidden, self.intermediate))
        outputs = {"o_proj": (queries, self.hidden), "down_proj": (self.intermediate, self.hidden)}
        return attention | feed_forward | outputs

    @property
    def block(self) -> int:
        """Parameters of one block, as Qwen3 has them."""
        queries, keys = self.heads * self.head_size, self.kv_heads * self.head_size
        attention = self.hidden * (2 * queries + 2 * keys) + 2 * self.head_size
        return attention + 3 * self.hidden * self.intermediate + 2 * self.hidden

    @property
    def parameters(self) -> int:
        embeddings = (1 if self.tied else 2) * self.vocabulary * self.hidden
        return self.layers * self.block + embeddings + self.hidden

    @property
    def kept(self) -> int:
        """Numbers per token that the backward of one block needs."""
        queries, keys = self.heads * self.head_size, self.kv_heads * self.head_size
        return 4 * self.hidden + 3 * queries + 3 * keys + 3 * self.intermediate


QWEN3 = {
    "Qwen/Qwen3-0.6B": Shape(1024, 28, 16, 8, 128, 3072, 151_936, tied=True),
    "Qwen/Qwen3-1.7B": Shape(2048, 28, 16, 8, 128, 6144, 151_936, tied=True),
    "Qwen/Qwen3-4B": Shape(2560, 36, 32, 8, 128, 9728, 151_936, tied=True),
    "Qwen/Qwen3-8B": Shape(4096, 36, 32, 8, 128, 12288, 151_936, tied=False),
    "Qwen/Qwen3-14B": Shape(5120, 40, 40, 8, 128, 17408, 151_936, tied=False),
}
"""The presets' shapes, so that a plan needs no network."""


def shape_of(path: str) -> Shape | None:
    """The shape of a policy; None where its config cannot be read or has no such sizes."""
    if path in QWEN3:
        return QWEN3[path]
    try:
        config: Any = AutoConfig.from_pretrained(path.removeprefix(RANDOM))
        heads = config.num_attention_heads
        return Shape(
            hidden=config.hidden_size,
            layers=config.num_hidden_layers,
            heads=heads,
            kv_heads=getattr(config, "num_key_value_heads", None) or heads,
            head_size=getattr(config, "head_dim", None) or config.hidden_size // heads,
            intermediate=config.intermediate_size,
            vocabulary=config.vocab_size,
            tied=config.tie_word_embeddings,
        )
    except (OSError, ValueError, AttributeError):  # loading the policy says what is wrong with it
        return None


def is_whole(config: Config, shape: Shape) -> bool:
    """Whether every GPU has the whole policy instead of a shard of it."""
    return shape.parameters < WHOLE and not config.policy.lora.rank


def memory(config: Config, shape: Shape, ranks: int) -> dict[str, tuple[float, float]]:
    """GiB of one rank by part, while it generates and while it updates. An engine that sleeps gives up its part."""
    engine, cache = _engine(config, shape)
    awake = 0.0 if config.engine.sleep else 1.0
    judge = JUDGE_GIB if config.judge.share and _measures(config) else 0.0
    shards = 1 if is_whole(config, shape) else ranks
    state = _state(config, shape, shards) / GIB
    second = config.algo.kl_coef and config.stage == "rl" and not config.policy.lora.rank
    reference = 4 * shape.parameters / shards / GIB if second else 0.0
    return {
        "state": (state, state),
        **({"reference policy": (reference, reference)} if reference else {}),
        **({"engine weights": (engine / GIB, awake * engine / GIB)} if config.generates else {}),
        **({"key-value cache": (cache / GIB, awake * cache / GIB)} if config.generates else {}),
        "activations at the longest row": (_agreement(config, shape) / GIB, _activations(config, shape) / GIB),
        "judge": (judge, judge),
        "CUDA and vLLM": (OVERHEAD_GIB, OVERHEAD_GIB),
    }


def total(parts: dict[str, tuple[float, float]]) -> float:
    """GiB at the larger of the two times."""
    return max(sum(generating for generating, _ in parts.values()), sum(updating for _, updating in parts.values()))


def adapters(config: Config, shape: Shape) -> int | None:
    """Parameters of LoRA's adapters; None: all weights train."""
    lora = config.policy.lora
    return shape.layers * pairs(shape.linear, lora) if lora.rank else None


def _state(config: Config, shape: Shape, ranks: int) -> float:
    trained = adapters(config, shape) or shape.parameters
    whole = 4 * trained <= WHOLE_GRADIENTS
    frozen = 2 * shape.parameters / ranks if config.policy.lora.rank else 0.0
    moments = 2 * CHUNK_BYTES if config.trainer.offload == "optimizer" else 8 * trained / ranks
    return frozen + 4 * trained / ranks + moments + 4 * trained / (1 if whole else ranks)


def _engine(config: Config, shape: Shape) -> tuple[float, float]:
    """Bytes of its weights and of its cache."""
    if not config.generates:
        return 0.0, 0.0
    if is_vllm(config):
        return 2 * shape.parameters / config.engine.tensor_parallel, config.engine.kv_cache_gib * GIB
    size = 4 if config.engine.name == "transformers" else 2
    per_token = 2 * shape.layers * shape.kv_heads * shape.head_size
    return size * shape.parameters, size * per_token * config.engine.slots * config.engine.max_tokens


def is_vllm(config: Config) -> bool:
    """Whether vLLM generates. On a machine without a GPU the plan is for one that has both; `auto` is `graphs` on one
    that has no vLLM."""
    if not config.generates:
        return False
    absent = torch.cuda.is_available() and importlib.util.find_spec("vllm") is None
    return config.engine.name == "vllm" or (config.engine.name == "auto" and not absent)


def _activations(config: Config, shape: Shape) -> float:
    tokens = max(config.trainer.micro_batch_tokens, longest(config))
    again, lora = int(shape.layers * config.trainer.recompute), config.policy.lora
    kept = shape.kept + lora.rank * len(shape.linear if lora.targets is None else lora.targets)
    numbers = (shape.layers - again) * kept + again * shape.hidden + bool(again) * kept
    numbers += 2 * shape.intermediate + 2 * shape.hidden
    gradients = 0 if lora.rank else 4  # bytes of each weight's whole float32 gradient
    head = (2 + gradients) * shape.hidden * shape.vocabulary + 2 * shape.vocabulary * min(LOGITS, tokens)
    if config.policy.fp32_head:
        head += (4 + gradients) * shape.hidden * shape.vocabulary + 2 * shape.vocabulary * min(LOGITS, tokens)
    return 2 * tokens * numbers + head + (4 + gradients) * shape.block


def _agreement(config: Config, shape: Shape) -> float:
    """Bytes of the forward pass that compares the policy with an engine that is awake, `check_agreement`."""
    if config.stage != "rl" or config.engine.name == "transformers":
        return 0.0
    tokens = PROBES * (min(PROMPT_TOKENS, config.engine.max_tokens) + PROBE_TOKENS)
    head = (6 if config.policy.fp32_head else 2) * shape.hidden * shape.vocabulary
    logits = (4 if config.policy.fp32_head else 2) * shape.vocabulary * PROBES * PROBE_TOKENS
    return 2 * tokens * (2 * shape.hidden + 3 * shape.intermediate) + head + logits + 4 * shape.block


def longest(config: Config) -> int:
    """Most tokens of a trajectory that trains."""
    return (config.stage != "rl" and config.sft.max_length) or config.engine.max_tokens


def _measures(config: Config) -> bool:
    """Whether the judge measures on GPUs: one that shares them does wherever there are any, and a plan assumes some."""
    shares = config.judge.share and config.judge.device == "auto"
    return config.generates and (shares or placed(config)[0] == "cuda")


def remedy(config: Config, shape: Shape, ranks: int, card: float) -> str:
    """The first change of settings, in the order of what it costs, with which a run fits; else what does not help."""
    for changed, gpus in _changes(config, shape, ranks, card):
        if total(memory(changed, shape, gpus)) <= card:
            return f"{_difference(config, changed)} fits"
    adapters = "" if config.policy.lora.rank else "adapters (policy.lora.rank=32), "
    return f"no setting makes it fit: take {adapters}a smaller policy, or more or larger GPUs"


def _changes(config: Config, shape: Shape, ranks: int, card: float) -> Iterator[tuple[Config, int]]:
    """Configs to try, and the ranks of each."""
    least = 2 * shape.layers * shape.kv_heads * shape.head_size * 2 * config.engine.max_tokens / GIB
    trainer = lambda c, **values: dataclasses.replace(c, trainer=dataclasses.replace(c.trainer, **values))
    engine = lambda c, **values: dataclasses.replace(c, engine=dataclasses.replace(c.engine, **values))
    for gpus in (ranks, *(number for number in MORE_GPUS if number > ranks)):
        here = config if gpus == ranks else trainer(config, gpus=gpus)
        recomputing = trainer(here, recompute=1.0, micro_batch_tokens=longest(here))
        sleeping = [engine(here, sleep=True), engine(recomputing, sleep=True)] if is_vllm(config) else []
        elsewhere = [trainer(changed, offload="optimizer") for changed in (here, recomputing, *sleeping)]
        together = [
            engine(changed, tensor_parallel=n)
            for n in _groups(config, shape, gpus)
            for changed in (*sleeping, *elsewhere)
        ]
        for changed in (here, recomputing, *sleeping, *elsewhere, *together):
            yield changed, gpus
            if not is_vllm(config):
                continue
            spare = card - total(memory(engine(changed, kv_cache_gib=0.0), shape, gpus))
            if (cache := min(int(spare), int(changed.engine.kv_cache_gib))) >= max(1.0, 4 * least):
                yield engine(changed, kv_cache_gib=float(cache)), gpus


def _groups(config: Config, shape: Shape, gpus: int) -> list[int]:
    """Larger numbers of GPUs that could have one engine together."""
    return [n for n in (2, 4, 8) if config.engine.tensor_parallel < n <= gpus and not gpus % n | shape.kv_heads % n]


def _difference(before: Config, after: Config) -> str:
    """The overrides that lead from one config to the other."""
    said = []
    for group in ("trainer", "engine"):
        old, new = dataclasses.asdict(getattr(before, group)), dataclasses.asdict(getattr(after, group))
        said += [f"{group}.{key}={value}".lower() for key, value in new.items() if old[key] != value]
    return " ".join(said)


def check(config: Config, ranks: Ranks) -> str:
    """A warning where the run may not fit, else nothing; nothing without a GPU. Collective.

    Raises DrKernelError, on all ranks, where it is MARGIN above the card's memory, and where ranks cannot be divided
    into groups that generate together.
    """
    if config.generates:
        expect_groups(ranks, config.engine.tensor_parallel)
    return ranks.broadcast_object(lambda: _checked(config, ranks.size, ranks.device))


def _checked(config: Config, ranks: int, device: torch.device) -> str:
    shape = shape_of(config.policy.path) if device.type == "cuda" else None
    if shape is None:
        return ""
    card = torch.cuda.get_device_properties(device).total_memory / GIB
    return verdict(config, shape, ranks, card)


def verdict(config: Config, shape: Shape, ranks: int, card: float) -> str:
    """As `check`, for a card of so many GiB."""
    parts = memory(config, shape, ranks)
    needed = total(parts)
    if needed <= card:
        return ""
    most = max(parts, key=lambda name: max(parts[name]))
    line = f"plan: {config.policy.path} on {ranks} GPU{'s' * (ranks > 1)} needs about {needed:.0f} GiB on each, "
    line += f"expected at most {card:.0f} ({most} {max(parts[most]):.0f}); {remedy(config, shape, ranks, card)}"
    if needed > (1 + MARGIN) * card:
        raise DrKernelError(f"{line}; plan=true prints the parts")
    return line


def show(config: Config, ranks: int, console: Console) -> None:
    """Prints the plan as a table.

    Raises DrKernelError where the policy's shape is not known, and where the run would be refused: ranks or heads that
    engine.tensor_parallel does not divide, trajectories that are not here.
    """
    if config.stage == "sft" and config.sft.data:
        sources(config.sft.data)
    if (shape := shape_of(config.policy.path)) is None:
        raise DrKernelError(f"plan: {config.policy.path} has no config.json with a decoder's sizes; expected one")
    if config.generates:
        together = config.engine.tensor_parallel
        expect_groups(Ranks(size=ranks, local_size=ranks), together)
        if shape.heads % together:
            found = f"engine.tensor_parallel={together} with {shape.heads} attention heads"
            raise DrKernelError(f"config: {found}; expected a divisor of the heads")
    has_gpu = torch.cuda.is_available()
    card = torch.cuda.get_device_properties(0).total_memory / GIB if has_gpu else GPUS[config.judge.gpu].memory_gib
    name = torch.cuda.get_device_name(0) if has_gpu else config.judge.gpu
    parts = memory(config, shape, ranks)
    title = f"{config.policy.path}, {shape.parameters / 1e9:.2f} billion parameters, {ranks} GPU{'s' * (ranks > 1)}"
    console.print(f"{title}: GiB on each", highlight=False)
    table = Table()
    for column in ("part", "generating", "updating"):
        table.add_column(column, justify="right" if table.columns else "left")
    for part, numbers in parts.items():
        table.add_row(part, *(f"{number:.1f}" for number in numbers))
    table.add_section()
    table.add_row("total", *(f"{sum(numbers[time] for numbers in parts.values()):.1f}" for time in (0, 1)))
    table.add_row(f"one {name}", *[f"{card:.1f}"] * 2)
    console.print(table)
    fits = total(parts) <= card
    console.print("it fits" if fits else f"it does not fit; {remedy(config, shape, ranks, card)}", highlight=False)
