"""The same engine protocol over vLLM (0.24 and later) in this process: one engine per GPU, no tensor parallelism.

Later turns are served from vLLM's prefix cache, so `parent` needs no work. Seeds make a request's draws its own, but
vLLM's kernels depend on the batch: unlike the transformers engine on a CPU, results agree only to rounding.
With top_p or top_k below all, vLLM renormalises the log-probabilities; training samples without them.
"""

from __future__ import annotations

import contextlib
import copy
import os
import random
import tempfile
from collections.abc import Iterator

import numpy as np
import torch
import torch.distributed as dist

from drkernel.policy.engine import Completion, Request
from drkernel.policy.model import Policy


class VllmEngine:
    """drkernel.policy.engine.Engine. Under torch.distributed every rank must construct its own at the same time.

    kv_cache_gib: size of the key-value cache, given and not estimated: the same on each rank, and not fooled by other
    processes on the GPU.
    """

    def __init__(
        self, policy: Policy, stop_ids: set[int], slots: int = 256, context: int = 32768, kv_cache_gib: float = 16.0
    ):
        # Before the import: only without its own process can vLLM take weights from this one.
        os.environ["VLLM_ENABLE_V1_MULTIPROCESSING"] = "0"
        from vllm import EngineArgs, LLMEngine

        self.context, self.stop_ids = context, frozenset(stop_ids)
        self.dtype = torch.bfloat16 if torch.cuda.is_available() else torch.float32
        spread = dist.is_initialized() and dist.get_world_size() > 1
        with tempfile.TemporaryDirectory() as folder, _random_state_kept():
            config = copy.deepcopy(policy.model.config)
            config.architectures = [type(policy.model).__name__]  # without it vLLM takes the model for an encoder
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
                distributed_executor_backend="external_launcher" if spread else None,
                seed=dist.get_rank() if spread else 0,
                # The default, raw_logprobs, ignores the temperature: every ratio would be wrong.
                logprobs_mode="processed_logprobs",
                disable_log_stats=True,
            )
            self._engine = LLMEngine.from_engine_args(arguments)
        self.sync(policy)

    @property
    def busy(self) -> bool:
        return self._engine.has_unfinished_requests()

    def add(self, request: Request) -> None:
        from vllm import SamplingParams
        from vllm.sampling_params import RequestOutputKind

        request.check(self.context)
        sampling = request.sampling
        parameters = SamplingParams(
            temperature=sampling.temperature,
            top_p=sampling.top_p,
            top_k=sampling.top_k,
            seed=request.seed,
            max_tokens=min(request.max_tokens, self.context - len(request.prompt_ids)),
            stop_token_ids=sorted(self.stop_ids),
            ignore_eos=True,  # stop_token_ids say it all
            logprobs=0,  # that of the sampled token alone
            flat_logprobs=True,
            detokenize=False,
            output_kind=RequestOutputKind.FINAL_ONLY,
        )
        self._engine.add_request(request.id, {"prompt_token_ids": request.prompt_ids}, parameters)

    def step(self) -> list[Completion]:
        if not self.busy:
            return []
        completed = []
        for output in self._engine.step():
            if output.finished:
                answer = output.outputs[0]
                tokens = list(answer.token_ids)
                logprobs = [answer.logprobs.logprobs[first] for first in answer.logprobs.start_indices]
                completed.append(Completion(output.request_id, tokens, logprobs, tokens[-1] in self.stop_ids))
        return completed

    def release(self, id: str) -> None:
        """Nothing to forget: the prefix cache evicts by itself."""

    def sync(self, policy: Policy) -> None:
        assert not self.busy, "weights change only between rollouts"
        weights = ((name, tensor.to(self.dtype)) for name, tensor in policy.weights())
        if torch.cuda.is_available():
            self._engine.apply_model(lambda model: len(model.load_weights(weights)))
        else:  # vLLM's CPU backend has packed its matrices and must do so again
            self._engine.collective_rpc("reload_weights", kwargs={"weights_iterator": weights})
        # load_weights leaves the prefix cache alone; keys and values of the old weights would be served from it.
        if not self._engine.reset_prefix_cache():
            raise RuntimeError("vLLM did not reset its prefix cache")

    def close(self) -> None:
        del self._engine
        if torch.cuda.is_available():
            torch.cuda.empty_cache()


@contextlib.contextmanager
def _random_state_kept() -> Iterator[None]:
    """vLLM seeds the global generators of torch, numpy and Python when it starts; this puts them back."""
    python, numpy = random.getstate(), np.random.get_state()
    with torch.random.fork_rng():
        yield
    random.setstate(python)
    np.random.set_state(numpy)
