"""Weights that are not the defaults: what a submission assumes about its parameters must not matter.

Default parameters hide errors (an affine of ones and zeros can be dropped unnoticed). Parameters are therefore
perturbed on both sides. Where a submission keeps them under the reference's names, or as equal, transposed, reshaped or
concatenated values, they are overwritten after construction. Where it packs them in ways that cannot be followed, both
sides are constructed anew with initialisers that do not give constants.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from typing import Any

import torch
from torch import Tensor, nn

_RUNNING = ("running_mean", "running_var")


def perturbed(model: nn.Module, seed: int) -> dict[str, Tensor]:
    """Other values for the floating parameters and running statistics of a model; signs and symmetry are kept.

    Element-wise `p * u` with u in [0.5, 1.5], and values in [-0.25, 0.25] where p is zero.
    """
    running = ((name, b) for name, b in model.named_buffers() if name.rpartition(".")[2] in _RUNNING)
    tensors = [(n, t.detach()) for n, t in (*model.named_parameters(), *running) if t.is_floating_point()]
    generators = {device: torch.Generator(device).manual_seed(seed) for device in {t.device for _, t in tensors}}
    return {name: _vary(tensor, generators[tensor.device]) for name, tensor in tensors}


def assign(model: nn.Module, values: Mapping[str, Tensor]) -> None:
    """Overwrites parameters and buffers in place."""
    targets = {**dict(model.named_parameters()), **dict(model.named_buffers())}
    with torch.no_grad():
        for name, value in values.items():
            targets[name].copy_(value)


def follow(
    reference: Mapping[str, Tensor], submission: Mapping[str, Tensor], values: Mapping[str, Tensor]
) -> dict[str, Tensor] | None:
    """What to write into a submission's tensors so that they follow the reference's from `reference` to `values`.

    Both sides were constructed under the same seed. None where some of `values` has no place in the submission.
    """
    writes: dict[str, Tensor] = {}
    unused = dict.fromkeys(values)
    for name, tensor in submission.items():
        if name in values and reference[name].shape == tensor.shape:
            writes[name] = values[name]
            unused.pop(name, None)
    for name, tensor in submission.items():
        if name not in writes and tensor.is_floating_point() and (found := _origin(tensor, reference, values, unused)):
            names, writes[name] = found
            for used in names:
                unused.pop(used, None)
    return None if unused else writes


def _origin(tensor: Tensor, reference: Mapping, values: Mapping, unused: Mapping) -> tuple[list[str], Tensor] | None:
    """The reference tensors whose values a submission's tensor holds, and the new values in its form."""
    for name in sorted(values, key=lambda name: name not in unused):
        old, new = reference[name], values[name]
        if old.numel() != tensor.numel():
            continue
        forms = [lambda t: t.reshape(tensor.shape)]
        if old.dim() > 1:
            forms.append(lambda t: t.transpose(-1, -2).reshape(tensor.shape))
        for form in forms:
            if _is(form(old), tensor):
                return [name], form(new)
    names = list(values)
    for first in range(len(names)):
        for last in range(first + 2, len(names) + 1):
            group = names[first:last]
            if any(reference[n].dim() == 0 or reference[n].shape[1:] != tensor.shape[1:] for n in group):
                break
            if _is(torch.cat([reference[n] for n in group]), tensor):
                return group, torch.cat([values[n] for n in group])
    return None


def _is(first: Tensor, second: Tensor) -> bool:
    return first.shape == second.shape and torch.equal(first.double(), second.double())


@contextlib.contextmanager
def varied_construction(active: bool = True) -> Iterator[None]:
    """Parameters that would start as constants start as that constant times noise, the same in every process.

    The noise depends on the number of elements alone; no global generator is used.
    """
    if not active:
        yield
        return
    new, filling = nn.Parameter.__new__, {name: getattr(nn.init, name) for name in ("ones_", "zeros_", "constant_")}

    def vary(tensor: Any) -> Any:
        generator = torch.Generator(tensor.device).manual_seed(tensor.numel())
        with torch.no_grad():
            return tensor.copy_(_vary(tensor.detach(), generator))

    def parameter(cls: type, data: Any = None, requires_grad: bool = True) -> Any:
        if (
            type(data) is Tensor
            and data.is_floating_point()
            and data.numel()
            and bool((data == data.reshape(-1)[0]).all())
        ):
            data = vary(data.clone())
        return new(cls, data, requires_grad)

    def filler(name: str) -> Any:
        return lambda tensor, *args, **kwargs: vary(filling[name](tensor, *args, **kwargs))

    nn.Parameter.__new__ = parameter
    for name in filling:
        setattr(nn.init, name, filler(name))
    try:
        yield
    finally:
        nn.Parameter.__new__ = new
        for name, function in filling.items():
            setattr(nn.init, name, function)


def _vary(tensor: Tensor, generator: torch.Generator) -> Tensor:
    noise = torch.rand(tensor.shape, generator=generator, dtype=torch.float64, device=tensor.device)
    return torch.where(tensor == 0, (noise - 0.5) / 2, tensor.double() * (0.5 + noise)).to(tensor.dtype)
