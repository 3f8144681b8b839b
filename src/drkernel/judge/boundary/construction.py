"""What the examiner and the runner do alike with a model: seed it, perturb constant parameters, and set its mode."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor, nn

_INITIALISERS = ("ones_", "zeros_", "constant_")


def seed_one_generator() -> None:
    """Makes torch.manual_seed seed the CPU's generator alone: for every absent device it would log a stack trace."""
    torch.manual_seed = lambda seed: torch.default_generator.manual_seed(int(seed))


def in_mode(model: nn.Module, train: bool) -> nn.Module:
    """The model in training or evaluation mode. Where it is in it, `train` is not called: what a submission keeps of
    its weights until its mode changes stays."""
    return model if model.training == train else model.train(train)


def with_noise(tensor: Tensor, generator: torch.Generator) -> Tensor:
    """Values of the same sign and scale: `x * u` with u in [0.5, 1.5], and values in [-0.25, 0.25] where x is 0."""
    noise = torch.rand(tensor.shape, generator=generator, dtype=torch.float64, device=tensor.device)
    return torch.where(tensor == 0, (noise - 0.5) / 2, tensor.double() * (0.5 + noise)).to(tensor.dtype)


@contextlib.contextmanager
def perturbed_construction(active: bool = True) -> Iterator[None]:
    """Parameters that would start as a constant start as that constant with noise, the same in every process.

    The noise depends on the number of elements alone. No global generator is used, so all other draws stay the same.
    """
    if not active:
        yield
        return
    new, initialisers = nn.Parameter.__new__, {name: getattr(nn.init, name) for name in _INITIALISERS}

    def add_noise(tensor: Any) -> Any:
        generator = torch.Generator(tensor.device).manual_seed(tensor.numel())
        with torch.no_grad():
            return tensor.copy_(with_noise(tensor.detach(), generator))

    def parameter(cls: type, data: Any = None, requires_grad: bool = True) -> Any:
        if (
            type(data) is Tensor
            and data.is_floating_point()
            and data.numel()
            and bool((data == data.reshape(-1)[0]).all())
        ):
            data = add_noise(data.clone())
        return new(cls, data, requires_grad)

    def noisy(name: str) -> Any:
        return lambda tensor, *args, **kwargs: add_noise(initialisers[name](tensor, *args, **kwargs))

    nn.Parameter.__new__ = parameter  # type: ignore[method-assign]
    for name in initialisers:
        setattr(nn.init, name, noisy(name))
    try:
        yield
    finally:
        nn.Parameter.__new__ = new  # type: ignore[method-assign]
        for name, function in initialisers.items():
            setattr(nn.init, name, function)
