"""The reference's model, with weights of its own, with others, or with constants that are slightly off."""

from __future__ import annotations

import enum
from dataclasses import dataclass, field

from torch import Tensor, nn

from drkernel.judge.boundary.construction import perturbed_construction
from drkernel.judge.trusted.weight_perturbation import assign, beyond_half, of_a_batch, perturbed
from drkernel.tasks.module import Reference


class Perturbation(enum.Enum):
    """How the weights of a model differ from the defaults; see weight_perturbation."""

    NONE = enum.auto()
    OVERWRITE = enum.auto()
    """They are overwritten after construction."""
    CONSTRUCTION = enum.auto()
    """Constants get noise while the model is constructed."""


@dataclass
class ReferenceModel:
    """The reference's model, for one model of a submission with the same constructor arguments and weights."""

    reference: Reference
    model: nn.Module
    seed: int
    """Of torch's generator during construction."""
    perturbation: Perturbation
    initial_weights: dict[str, Tensor] = field(default_factory=dict)
    """With OVERWRITE: parameters and buffers as construction gives them."""
    perturbed_weights: dict[str, Tensor] = field(default_factory=dict)
    """With OVERWRITE: the model's own tensors whose values have replaced them."""
    copies: dict[str, nn.Module] = field(default_factory=dict)
    """Copies of the model for other precision: `exact` and `noisy`."""
    has_counts: bool = False
    """Whether an operator of a run with noise may have given whole numbers; see Noise."""

    @property
    def perturbed_at_construction(self) -> bool:
        return self.perturbation is Perturbation.CONSTRUCTION


def build(
    reference: Reference, seed: int, perturbation: Perturbation = Perturbation.NONE, wide: bool = False
) -> ReferenceModel:
    """Builds the reference's model under a seed; `wide`: where weights are overwritten, with `beyond_half`."""
    with perturbed_construction(perturbation is Perturbation.CONSTRUCTION):
        model = reference.model(seed)
    built = ReferenceModel(reference, model, seed, perturbation)
    if perturbation is Perturbation.OVERWRITE:
        named = (*model.named_parameters(), *model.named_buffers())
        built.initial_weights = {name: tensor.detach().clone() for name, tensor in named}
        assign(model, values := (beyond_half if wide else dict)(perturbed(model, seed)))
        assign(model, of_a_batch(model, lambda: reference.forward(model, reference.inputs(seed))))
        built.perturbed_weights = {name: tensor.detach() for name, tensor in named if name in values}
    return built
