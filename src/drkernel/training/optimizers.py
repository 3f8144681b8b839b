"""What a supervised stage steps with: AdamW, or Muon on matrices."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Sequence
from typing import Any, cast

import torch
from torch import Tensor
from torch.distributed.tensor import DTensor

from drkernel.policy.model import Policy
from drkernel.training import update

BETAS = (0.9, 0.95)
"""AdamW's in supervised stages, as in the paper's published scripts."""


class StackedMuon(torch.optim.Muon):
    """Muon as torch has it, but for all matrices of a shape at once: with twelve blocks a twelfth of the launches.

    Its state and options are torch's, with adjust_lr_fn="match_rms_adamw". Sharded matrices take torch's own step, one
    by one.
    """

    @torch.no_grad()
    def step(self, closure: Any = None) -> None:  # type: ignore[override]
        if any(isinstance(p, DTensor) for group in self.param_groups for p in group["params"]):
            super().step()
            return
        for group in self.param_groups:
            alike = defaultdict[torch.Size, list[Tensor]](list)
            for parameter in group["params"]:
                if parameter.grad is not None:
                    alike[parameter.shape].append(parameter)
            for parameters in alike.values():
                self._step(group, parameters)

    def _step(self, group: dict[str, Any], parameters: list[Tensor]) -> None:
        """One step of matrices of one shape."""
        gradients = [cast(Tensor, parameter.grad) for parameter in parameters]
        for parameter, gradient in zip(parameters, gradients, strict=True):
            if "momentum_buffer" not in self.state[parameter]:
                self.state[parameter]["momentum_buffer"] = torch.zeros_like(gradient)
        buffers = [self.state[parameter]["momentum_buffer"] for parameter in parameters]
        torch._foreach_lerp_(buffers, gradients, 1 - group["momentum"])
        updates = torch._foreach_lerp(gradients, buffers, group["momentum"]) if group["nesterov"] else buffers
        stack = torch.stack(list(updates)).bfloat16()
        stack = orthogonal(stack, group["ns_coefficients"], group["ns_steps"], group["eps"]).to(parameters[0].dtype)
        torch._foreach_mul_(parameters, 1 - group["lr"] * group["weight_decay"])
        scale = 0.2 * math.sqrt(max(parameters[0].shape))  # adjust_lr_fn="match_rms_adamw"
        torch._foreach_add_(parameters, list(stack.unbind()), alpha=-group["lr"] * scale)


def orthogonal(stack: Tensor, coefficients: tuple[float, float, float], steps: int, eps: float) -> Tensor:
    """Matrices [n, a, b] with their singular values brought near one by Muon's Newton-Schulz iteration."""
    a, b, c = coefficients
    tall = stack.shape[1] > stack.shape[2]
    x = stack.mT if tall else stack
    x = x / x.norm(dim=(1, 2), keepdim=True).clamp(min=eps)
    for _ in range(steps):
        gram = x @ x.mT
        x = torch.baddbmm(x, torch.baddbmm(gram, gram, gram, beta=b, alpha=c), x, beta=a)
    return x.mT if tall else x


class MuonWithAdamW(torch.optim.Optimizer):
    """Muon on some matrices and AdamW on all other parameters: one optimizer for loop and checkpoints.

    Muon's steps have the root mean square of AdamW's (`match_rms_adamw`), so one learning rate fits both. On sharded
    matrices it computes with DTensors, whose sums in bfloat16 depend on the number of ranks.
    """

    def __init__(self, matrices: Sequence[Tensor], others: list[dict[str, Any]], lr: float, weight_decay: float):
        self._muon = StackedMuon(matrices, lr=lr, weight_decay=weight_decay, adjust_lr_fn="match_rms_adamw")
        self._adamw = torch.optim.AdamW(others, lr=lr, betas=BETAS, fused=True)
        super().__init__([*self._muon.param_groups, *self._adamw.param_groups], {})
        self._share()

    def _share(self) -> None:
        """Both optimizers work on the groups and the state of this one."""
        self._muon.param_groups, self._adamw.param_groups = self.param_groups[:1], self.param_groups[1:]
        self._muon.state = self._adamw.state = self.state

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        super().load_state_dict(state_dict)
        self._share()

    def step(self, closure: Any = None) -> None:  # type: ignore[override]
        self._muon.step()
        self._adamw.step()


def adamw(policy: Policy, lr: float, weight_decay: float) -> torch.optim.Optimizer:
    """AdamW over what trains, with decay on matrices only."""
    return update.make_optimizer(policy, lr, weight_decay, BETAS)


def muon(policy: Policy, lr: float, weight_decay: float) -> torch.optim.Optimizer:
    """Muon over the matrices that train, but for embedding and head; AdamW over these and all vectors."""
    embedding = cast(Any, policy.model).get_input_embeddings().weight
    apart = {id(embedding), id(policy.head.weight)}
    matrices = [p for p in update.trained(policy) if p.ndim == 2 and id(p) not in apart]
    tables = [p for p in update.trained(policy) if p.ndim == 2 and id(p) in apart]
    vectors = [p for p in update.trained(policy) if p.ndim != 2]
    decays = ((tables, weight_decay), (vectors, 0.0))
    others = [{"params": params, "weight_decay": decay} for params, decay in decays if params]
    return MuonWithAdamW(matrices, others, lr, weight_decay)


OPTIMIZERS: dict[str, Callable[[Policy, float, float], torch.optim.Optimizer]] = {"adamw": adamw, "muon": muon}
"""What `sft.optimizer` may be: (policy, learning rate, weight decay) -> optimizer. Shard the policy first."""
