"""vLLM in the trainer's process: one engine per rank, fed request by request so that turns stream.

It starts with random weights, which the first sync replaces; no checkpoint is read. Ranks never wait for each other
while generating, unless several have one engine together (`tensor_parallel`): these must add the same requests between
the same steps (training/group_engine.py), and each takes its slice of the weights that a sync brings.

Start-up is a minute on a GPU, most of it compilation and CUDA graphs (`eager` skips both and decodes several times
slower). Weights are loaded in place, so neither is repeated.
"""

from __future__ import annotations

import contextlib
import copy
import gc
import importlib.util
import os
import random
import tempfile
from collections.abc import Iterator
from typing import TYPE_CHECKING

import numpy as np
import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed.fsdp import FSDPModule

from drkernel.policy.engine import BaseEngine, Completion, Request
from drkernel.policy.model import Policy
from drkernel.policy.transfer import weights
from drkernel.types import DrKernelError

if TYPE_CHECKING:
    from vllm import SamplingParams

SLEEP_LEVEL = 2
"""Weights and keys are dropped, not copied to the host: the sync that ends the sleep brings all weights."""


class VllmEngine(BaseEngine):
    """drkernel.policy.engine.Engine. Under torch.distributed every rank must construct its own at the same time.

    kv_cache_gib: size of the key-value cache, given and not estimated: the same on each rank, and not fooled by other
    processes on the GPU. tensor_parallel: so many consecutive ranks have one engine together, with such a cache on
    each of them. may_sleep: for `sleep`, which gives the GPU's memory to the trainer until the next sync.
    """

    own_kernels = True

    def __init__(
        self,
        policy: Policy,
        stop_ids: set[int],
        slots: int = 256,
        context: int = 32768,
        kv_cache_gib: float = 16.0,
        may_sleep: bool = False,
        eager: bool = False,
        tensor_parallel: int = 1,
    ):
        if not importlib.util.find_spec("vllm"):
            expected = (
                "expected vLLM to be installed (requirements.txt, for GPUs), or engine=auto, which takes what there"
            )
            raise DrKernelError(f"config: engine.name=vllm; {expected} is")
        # Before the import: only without its own process can vLLM take weights from this one.
        os.environ["VLLM_ENABLE_V1_MULTIPROCESSING"] = "0"
        from vllm import EngineArgs, LLMEngine
        from vllm.usage.usage_lib import UsageContext

        self.context, self.stop_ids = context, frozenset(stop_ids)
        self.dtype = torch.bfloat16 if torch.cuda.is_available() else torch.float32
        self._may_sleep, self._asleep = may_sleep, False
        self._trainers_group = dist.is_initialized()
        if not self._trainers_group and policy.device.index:
            found = f"cuda:{policy.device.index}"
            raise DrKernelError(f"engine: vLLM takes the first visible GPU, found {found}; set CUDA_VISIBLE_DEVICES")
        rank = dist.get_rank() if self._trainers_group else 0
        _expect_sleep_can_work(may_sleep)
        _expect_heads(policy, tensor_parallel)
        place = {"RANK": str(rank), "LOCAL_RANK": str(policy.device.index or 0)}
        with tempfile.TemporaryDirectory() as folder, _random_state_kept(), _environment(place):
            config = copy.deepcopy(policy.model.config)
            config.architectures = [_architecture(policy.model)]  # without it vLLM takes the model for an encoder
            config.save_pretrained(folder)
            arguments = EngineArgs(
                model=folder,
                skip_tokenizer_init=True,
                load_format="dummy",  # `sync` below brings the weights
                generation_config="vllm",
                dtype=str(self.dtype).removeprefix("torch."),
                max_model_len=context,
                max_num_seqs=slots,
                kv_cache_memory_bytes=int(kv_cache_gib * 2**30),
                # Only checked against the memory that is free at the start, where the trainer has taken its own.
                gpu_memory_utilization=0.02,
                # Takes the process group that there is, and from the environment which GPU is this rank's.
                distributed_executor_backend="external_launcher" if self._trainers_group else None,
                tensor_parallel_size=tensor_parallel,
                seed=rank // tensor_parallel,
                # Those of `Sampling`. The default, raw_logprobs, ignores the temperature: every ratio would be wrong.
                logprobs_mode="processed_logprobs",
                enable_sleep_mode=may_sleep,
                enforce_eager=eager,
                disable_log_stats=True,
                # A prompt read in pieces rewinds its request's random numbers, which vLLM cannot do on CPUs.
                **({} if torch.cuda.is_available() else {"enable_chunked_prefill": False}),
            )
            # The context of vLLM's own LLM class; without it prompts are read in pieces of 2,048 tokens.
            self._engine = LLMEngine.from_engine_args(arguments, usage_context=UsageContext.LLM_CLASS)
        self.sync(policy)

    @property
    def busy(self) -> bool:
        return self._engine.has_unfinished_requests()

    def add(self, request: Request) -> None:
        request.check(self.context)
        self._engine.add_request(request.id, {"prompt_token_ids": request.prompt_ids}, self.parameters(request))

    def parameters(self, request: Request) -> SamplingParams:
        """vLLM's SamplingParams of a request."""
        from vllm import SamplingParams
        from vllm.sampling_params import RequestOutputKind

        sampling = request.sampling
        return SamplingParams(
            temperature=sampling.temperature,
            top_p=sampling.top_p,
            top_k=sampling.top_k,
            min_p=sampling.min_p,
            seed=request.seed,
            max_tokens=min(request.max_tokens, self.context - len(request.prompt_ids)),
            stop_token_ids=sorted(self.stop_ids),
            ignore_eos=True,  # stop_token_ids say it all
            logprobs=0,  # that of the sampled token alone
            flat_logprobs=True,
            detokenize=False,
            output_kind=RequestOutputKind.FINAL_ONLY,
        )

    def step(self) -> list[Completion]:
        if not self.busy:
            return []
        assert not self._asleep, "the next sync ends the sleep"
        completed = []
        for output in self._engine.step():
            if output.finished:
                completion = output.outputs[0]
                tokens = list(completion.token_ids)
                logprobs = [completion.logprobs.logprobs[first] for first in completion.logprobs.start_indices]
                completed.append(Completion(output.request_id, tokens, logprobs, tokens[-1] in self.stop_ids))
        return completed

    def release(self, id: str) -> None:
        """Nothing to forget: the prefix cache evicts by itself."""

    def sync(self, policy: Policy) -> None:
        """Collective for a sharded policy. Ends a sleep: the weights come before there is a cache to fill wrongly."""
        assert not self.busy, "weights change only between rollouts"
        if self._asleep:
            torch.cuda.empty_cache()  # what the trainer keeps in reserve is what the engine now needs
            self._engine.wake_up(["weights"])
        arriving = weights(policy, self.dtype)
        if torch.cuda.is_available():
            self._engine.apply_model(lambda model: len(model.load_weights(arriving)))
        else:  # vLLM's CPU backend has packed its matrices, a tied head's too, and must do so again
            arriving = _with_tied_head(arriving, policy)
            self._engine.collective_rpc("reload_weights", kwargs={"weights_iterator": arriving})
        if self._asleep:
            self._engine.wake_up(["kv_cache"])
            self._asleep = False
        # load_weights leaves the prefix cache alone; keys and values of the old weights would be served from it.
        if not self._engine.reset_prefix_cache():
            raise RuntimeError("vLLM did not reset its prefix cache")

    def sleep(self) -> None:
        """With `may_sleep`: gives weights' and cache's memory back until the next sync. No request may be in flight.
        Nobody else may allocate on the GPU meanwhile: vLLM checks that its memory shrinks."""
        if not self._may_sleep:
            return
        assert not self.busy, "the engine sleeps only between rollouts"
        torch.cuda.synchronize()
        self._engine.sleep(SLEEP_LEVEL)
        torch.cuda.empty_cache()
        self._asleep = True

    def close(self) -> None:
        # Newer vLLM destroys the default process group together with its engine, whoever made it.
        finalizer = getattr(self._engine.engine_core, "_finalizer", None)
        if self._trainers_group and finalizer:
            finalizer.detach()
        del self._engine
        gc.unfreeze()  # vLLM froze what it made; frozen cycles would keep its memory
        gc.collect()
        if torch.cuda.is_available():
            torch.cuda.empty_cache()


def _architecture(model: torch.nn.Module) -> str:
    """The model's class as transformers knows it; FSDP puts one of its own in front."""
    return next(kind.__name__ for kind in type(model).__mro__ if not issubclass(kind, FSDPModule))


def _with_tied_head(arriving: Iterator[tuple[str, Tensor]], policy: Policy) -> Iterator[tuple[str, Tensor]]:
    for name, tensor in arriving:
        yield name, tensor
        if name.endswith("embed_tokens.weight") and policy.model.config.tie_word_embeddings:
            yield "lm_head.weight", tensor


def _expect_heads(policy: Policy, tensor_parallel: int) -> None:
    heads = policy.model.config.num_attention_heads
    if heads % tensor_parallel:
        found = f"engine.tensor_parallel={tensor_parallel} with {heads} attention heads"
        raise DrKernelError(f"config: {found}; expected a divisor of them")


def _expect_sleep_can_work(may_sleep: bool) -> None:
    # vLLM's allocator switches expandable segments off for itself, but looks at PYTORCH_CUDA_ALLOC_CONF alone.
    found = os.environ.get("PYTORCH_ALLOC_CONF", "")
    if may_sleep and "expandable_segments:True" in found:
        raise DrKernelError(f"engine: found PYTORCH_ALLOC_CONF={found}, expected no expandable segments with may_sleep")


@contextlib.contextmanager
def _environment(variables: dict[str, str]) -> Iterator[None]:
    before = {name: os.environ.get(name) for name in variables}
    os.environ.update(variables)
    try:
        yield
    finally:
        for name, value in before.items():
            os.environ.pop(name, None) if value is None else os.environ.update({name: value})


@contextlib.contextmanager
def _random_state_kept() -> Iterator[None]:
    """Puts back what vLLM changes when it starts: the global generators of torch, numpy and Python, torch's threads."""
    python, numpy, threads = random.getstate(), np.random.get_state(), torch.get_num_threads()
    own = [torch.cuda.current_device()] if torch.cuda.is_available() else []
    with torch.random.fork_rng(devices=own):  # not of all GPUs that are visible
        yield
    torch.set_num_threads(threads)
    random.setstate(python)
    np.random.set_state(numpy)
