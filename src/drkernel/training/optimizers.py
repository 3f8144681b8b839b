"""What a supervised stage steps with: AdamW, or Muon on matrices."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, cast

import torch
from torch import Tensor

from drkernel.policy.model import Policy
from drkernel.training import update

BETAS = (0.9, 0.95)
"""AdamW's in supervised stages, as in the paper's published scripts."""


class MuonWithAdamW(torch.optim.Optimizer):
    """torch.optim.Muon on some matrices and AdamW on all other parameters: one optimizer for loop and checkpoints.

    Muon's steps have the root mean square of AdamW's (`match_rms_adamw`), so one learning rate fits both. On sharded
    matrices it computes with DTensors, whose sums in bfloat16 depend on the number of ranks.
    """

    def __init__(self, matrices: Sequence[Tensor], others: list[dict[str, Any]], lr: float, weight_decay: float):
        self._muon = torch.optim.Muon(matrices, lr=lr, weight_decay=weight_decay, adjust_lr_fn="match_rms_adamw")
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
