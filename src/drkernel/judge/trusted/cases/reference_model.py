"""The reference's model, with weights of its own, with others, or with constants that are slightly off."""

from __future__ import annotations

import enum
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from torch import Tensor, nn

from drkernel.judge.boundary.construction import perturbed_construction
from drkernel.judge.trusted.cases import other_signs
from drkernel.judge.trusted.cases.rounds_that_show import that_remember
from drkernel.judge.trusted.cases.slow_decays import that_decay_slowly
from drkernel.judge.trusted.cases.weight_perturbation import (
    FOLLOWS,
    assign,
    beyond_half,
    of_a_batch,
    perturbed,
    scaled_rows,
    share_that_follows,
    that_keep_values,
)
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
    construction: dict[str, Any] = field(default_factory=dict)
    """With CONSTRUCTION: options of `perturbed_construction`."""
    copies: dict[str, nn.Module] = field(default_factory=dict)
    """Copies of the model for other precision: `exact` and `noisy`."""
    has_counts: bool = False
    """Whether an operator of a run with noise may have given whole numbers; see Noise."""

    @property
    def perturbed_at_construction(self) -> bool:
        return self.perturbation is Perturbation.CONSTRUCTION


def build(
    reference: Reference,
    seed: int,
    perturbation: Perturbation = Perturbation.NONE,
    wide: bool = False,
    single: float = 1.0,
) -> ReferenceModel:
    """Builds the reference's model under a seed.

    Args:
        wide: where weights are overwritten, with `beyond_half`.
        single: what parameters of one number are multiplied by, where weights are perturbed.
    """
    outputs = lambda model, draw: reference.forward(model, reference.inputs(seed + draw))
    if perturbation is Perturbation.CONSTRUCTION:
        return _built_otherwise(reference, seed, outputs, single)
    built = ReferenceModel(reference, model := reference.model(seed), seed, perturbation)
    if perturbation is Perturbation.OVERWRITE:
        named = (*model.named_parameters(), *model.named_buffers())
        built.initial_weights = {name: tensor.detach().clone() for name, tensor in named}
        assign(model, values := (beyond_half if wide else dict)(perturbed(model, seed)))
        if single != 1.0:
            assign(model, other_signs.of_singles(model, single))
        else:
            turned = other_signs.of_vectors(model, seed)
            assign(model, turned if other_signs.fit(reference, ("signs", seed), turned, outputs, model) else {})
        of_norms = of_a_batch(model, lambda: outputs(model, 0))
        if not wide or of_norms:
            assign(model, of_norms or that_keep_values(model, outputs) or _that_remember(built, outputs))
        built.perturbed_weights = {name: tensor.detach() for name, tensor in named if name in values}
    return built


def _that_remember(built: ReferenceModel, outputs: Callable[[nn.Module, int], object]) -> dict[str, Tensor]:
    """Weights under which early rounds of loops show. What takes long is found out once for a reference and a seed."""
    known, model, key = built.reference.of_weights, built.model, ("memory", built.seed)
    if key not in known:
        names, norm = that_remember(model, outputs, built.reference.task.precision)
        known[key] = names, norm, {} if names else that_decay_slowly(built.reference, model, built.seed)
    names, norm, others = known[key]
    weights = dict(model.named_parameters())
    return others or scaled_rows({name: weights[name].detach() for name in names}, norm)


def _built_otherwise(
    reference: Reference, seed: int, outputs: Callable[[nn.Module, int], object], single: float
) -> ReferenceModel:
    """The model with CONSTRUCTION; arguments as those of `build`."""
    options: dict[str, Any] = {"single": single}
    model = _constructed(reference, seed, options)
    if (own := share_that_follows(model, outputs)) < FOLLOWS:
        other = _constructed(reference, seed, options | {"larger": True})
        if share_that_follows(other, outputs) > own:
            model, options["larger"] = other, True
    if single == 1.0:
        other = _constructed(reference, seed, options | {"turned": True})
        turned = other_signs.that_differ(model, other)
        if other_signs.fit(reference, ("signs at construction", seed), turned, outputs, model):
            model, options["turned"] = other, True
    return ReferenceModel(reference, model, seed, Perturbation.CONSTRUCTION, construction=options)


def _constructed(reference: Reference, seed: int, options: dict[str, Any]) -> nn.Module:
    with perturbed_construction(**options):
        return reference.model(seed)
