"""Parameters of other signs and sizes than those they start with: a scale may become negative, a slope more than one.

A maximum may be taken before a channel's scale, and a PReLU is one, as long as weights keep the sign and the size that
construction gives them. So in each perturbed model some numbers of vectors of one sign have the other one
(`boundary.construction.with_turned_signs`). Single numbers have other values in models of their own, `plans.SINGLES`: a
gate that is closed would hide all that stands behind it. Where a reference takes roots or logarithms of a parameter,
all stays as it is.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Hashable, Iterator, Mapping
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.modules.conv import _ConvNd

from drkernel.judge.boundary.construction import with_turned_signs
from drkernel.judge.trusted.cases.weight_perturbation import assign, share_that_differs
from drkernel.judge.trusted.outputs import is_float, leaves
from drkernel.tasks.module import Reference
from drkernel.types import DrKernelError

_DISTURBED = 2.0**-10
"""By how much of their size parameters are changed, to see how far outputs follow."""
_WORSE = 16.0
"""How many times as far outputs may follow where signs are turned."""
_LOOKED_AT = 2**22
"""Numbers of each output that are looked at."""

Outputs = Callable[[nn.Module, int], object]


def of_vectors(model: nn.Module, seed: int) -> dict[str, Tensor]:
    """Other values for the parameters that are vectors of one sign, by name."""
    values = {name: weight.detach() for name, weight in model.named_parameters() if weight.is_floating_point()}
    turned = {name: with_turned_signs(v, seed + i) for i, (name, v) in enumerate(values.items())}
    return {name: value for name, value in turned.items() if value is not values[name]}


def of_singles(model: nn.Module, factor: float) -> dict[str, Tensor]:
    """Parameters of one number times a factor, by name, but for those of linear layers and convolutions, which start as
    numbers of both signs."""
    layers = [layer for layer in model.modules() if isinstance(layer, (nn.Linear, _ConvNd))]
    known = {id(weight) for layer in layers for weight in layer.parameters(recurse=False)}
    single = lambda weight: weight.numel() == 1 and weight.is_floating_point() and id(weight) not in known
    return {name: weight.detach() * factor for name, weight in model.named_parameters() if single(weight)}


def that_differ(model: nn.Module, other: nn.Module) -> dict[str, Tensor]:
    """The parameters of another model that are not those of this one, by name."""
    own = dict(model.named_parameters())
    return {name: w.detach() for name, w in other.named_parameters() if not torch.equal(w, own[name])}


def fit(reference: Reference, key: Hashable, turned: Mapping[str, Tensor], outputs: Outputs, model: nn.Module) -> bool:
    """Whether a reference takes these values for parameters of a model; found out once for a key. Its outputs must be
    finite where they were, and follow errors in these parameters about as far as before."""
    if not turned:
        return False
    if key not in reference.of_weights:
        own = {name: weight.detach().clone() for name, weight in model.named_parameters() if name in turned}
        with _left_as_it_is(model, own):
            reference.of_weights[key] = False
            with contextlib.suppress(DrKernelError):
                given, before = _followed(model, own, outputs)
                found, after = _followed(model, turned, outputs)
                same = len(given) == len(found) and all(map(torch.equal, given, found))
                reference.of_weights[key] = same and (before != before or after <= _WORSE * max(1.0, before))
    return reference.of_weights[key]


def _followed(model: nn.Module, values: Mapping[str, Tensor], outputs: Outputs) -> tuple[list[Tensor], float]:
    """Where outputs are finite with these parameters, and how many times as much they change as the parameters do; NaN
    where they are no floating numbers, or all 0."""
    assign(model, values)
    first = _looked_at(outputs(model, 0))
    assign(model, {name: _disturbed(value) for name, value in values.items()})
    second = _looked_at(outputs(model, 0))
    finite = [value.isfinite() for value in first]
    numbers = ([value.nan_to_num(0.0, 0.0, 0.0) for value in some] for some in (first, second))
    return finite, share_that_differs(*numbers) / _DISTURBED


def _looked_at(outputs: Any) -> list[Tensor]:
    floats = [value for _, value in leaves(outputs) if isinstance(value, Tensor) and is_float(value)]
    return [value.reshape(-1)[:_LOOKED_AT].clone() for value in floats]


def _disturbed(value: Tensor) -> Tensor:
    """Numbers that are larger and smaller in turn."""
    signs = 1 - 2 * (torch.arange(value.numel(), device=value.device) % 2).view(value.shape)
    return value * (1 + _DISTURBED * signs)


@contextlib.contextmanager
def _left_as_it_is(model: nn.Module, own: Mapping[str, Tensor]) -> Iterator[None]:
    """The model in evaluation; afterwards these parameters, its buffers and its mode are what they were."""
    kept = {name: buffer.detach().clone() for name, buffer in model.named_buffers()}
    was_training = model.training
    try:
        model.eval()
        yield
    finally:
        model.train(was_training)
        assign(model, {**kept, **own})
