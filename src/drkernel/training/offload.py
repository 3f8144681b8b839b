"""An optimizer whose state is in the host's memory (`trainer.offload=optimizer`).

AdamW's two moments are 8 of the 16 bytes that a parameter takes of the GPUs, and only a step needs them. So it brings
them to the GPU some parameters at a time, lets the optimizer step on these, and takes them back. It computes what it
computes without, bit for bit. The price is that state travels both ways once per step: about a second for 16 GB.

torch's CPUOffloadPolicy also moves weights and gradients and steps on the CPU. It would bring the weights to the GPU
in every micro-batch, and to the engine through the host.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, cast

import torch
from torch import Tensor

from drkernel.policy.dtensor import local

CHUNK_BYTES = 2**29
"""State, and with it parameters, that a step brings to the GPU at a time; a larger parameter comes alone."""


def placed(optimizer: torch.optim.Optimizer, where: str) -> torch.optim.Optimizer:
    """The optimizer, its state where `trainer.offload` says."""
    return cast(torch.optim.Optimizer, HostOptimizer(optimizer)) if where == "optimizer" else optimizer


class HostOptimizer:
    """An optimizer that keeps the tensors of a parameter's shape in its state in the host's memory, pinned.

    Parameters must have a state of their own: what a step does to one may not depend on others.
    """

    def __init__(self, optimizer: torch.optim.Optimizer, chunk_bytes: int = CHUNK_BYTES):
        self._optimizer, self._chunk_bytes = optimizer, chunk_bytes

    def __getattr__(self, name: str) -> Any:
        return getattr(self._optimizer, name)

    def step(self, closure: Callable[[], float] | None = None) -> None:
        assert closure is None, "a closure would compute gradients for one chunk at a time"
        groups = self._optimizer.param_groups
        whole = [group["params"] for group in groups]
        try:
            for chunk in list(self._chunks()):  # before the groups change
                for group, parameters in zip(groups, whole, strict=True):
                    group["params"] = [parameter for parameter in parameters if parameter in chunk]
                self._step(chunk)
        finally:
            for group, parameters in zip(groups, whole, strict=True):
                group["params"] = parameters
        if torch.cuda.is_available():
            torch.cuda.synchronize()  # what is on the way to the host may be read from now on

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Takes over a state whose large tensors `empty_like` has made."""
        order = [parameter for group in self._optimizer.param_groups for parameter in group["params"]]
        self._optimizer.load_state_dict({"state": {}, "param_groups": state_dict["param_groups"]})
        for position, values in state_dict["state"].items():
            parameter = order[position]
            small = lambda value, to=parameter.device: value.to(to) if isinstance(value, Tensor) else value
            kept = {key: value if _is_large(value, parameter) else small(value) for key, value in values.items()}
            self._optimizer.state[parameter] = kept

    def empty_like(self, parameter: Tensor) -> Tensor:
        """Room for a tensor of a parameter's state."""
        made = _to_host(parameter.detach())
        if torch.cuda.is_available():
            torch.cuda.synchronize()
        return made

    def _chunks(self) -> Iterator[set[Tensor]]:
        chunk, size = set[Tensor](), 0
        for parameter in (each for group in self._optimizer.param_groups for each in group["params"]):
            large = 2 * local(parameter).nbytes  # two moments; with one the chunks are smaller than they might be
            if chunk and size + large > self._chunk_bytes:
                yield chunk
                chunk, size = set(), 0
            chunk.add(parameter)
            size += large
        if chunk:
            yield chunk

    @torch.no_grad()
    def _step(self, chunk: set[Tensor]) -> None:
        """All copies and kernels are on one stream, so memory that a copy reads is not used again before it is done."""
        state, host = self._optimizer.state, dict[tuple[Tensor, str], Tensor]()
        for parameter in chunk & state.keys():
            for key, value in state[parameter].items():
                if _is_large(value, parameter):
                    host[parameter, key] = value
                    state[parameter][key] = value.to(parameter.device, non_blocking=True, copy=True)
        self._optimizer.step()
        for parameter in chunk & state.keys():
            for key, value in state[parameter].items():
                if not _is_large(value, parameter):
                    continue
                if (parameter, key) in host:
                    kept = host[parameter, key]
                    local(kept).copy_(local(value), non_blocking=True)
                else:
                    kept = _to_host(value)  # the first step has made it
                state[parameter][key] = kept


def _is_large(value: Any, parameter: Tensor) -> bool:
    """Whether it has a parameter's shape: step counts have not."""
    return isinstance(value, Tensor) and value.shape == parameter.shape


def _to_host(tensor: Tensor) -> Tensor:
    """A copy in the host's memory, pinned where the tensor is on a GPU. It is on its way."""
    return tensor.to("cpu", non_blocking=True, copy=True)
