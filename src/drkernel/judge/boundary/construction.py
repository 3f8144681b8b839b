"""What the examiner and the runner do alike with a model: seed it, perturb constant parameters, and set its mode."""

from __future__ import annotations

import contextlib
import importlib
import math
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _NormBase
from torch.nn.utils.parametrizations import _WeightNorm

_weight_norm: Any = importlib.import_module("torch.nn.utils.weight_norm")  # torch.nn.utils has a function of this name
_INITIALISERS = ("ones_", "zeros_", "constant_")
MEAN, VARIANCE = "running_mean", "running_var"
"""The last part of the names of running statistics."""
_SMALL, _RARE = 2.0**-10, 0.25
"""How small the running variance of some channels is, so that the epsilon beside it matters, and of how many."""
MOST_SMALL = 4
"""In so many layers: each makes values 16 times as large, and those of deep networks would overflow."""
_TURNED, _SLIGHT, _LARGER = 4, 0.5, 8.0
"""The sign of one number in so many of a vector is turned; where all are smaller than the second, as many are this much
larger, so that a slope lies above one."""


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


def with_turned_signs(values: Tensor, seed: int) -> Tensor:
    """A vector whose numbers have one sign, with other signs and sizes in some places; all else as it is. A scale of a
    channel starts at one, and training makes some negative. What is a vector does not hang on dimensions of one."""
    number = values.numel()
    if number < 2 or number > max(values.shape) or not (bool((values > 0).all()) or bool((values < 0).all())):
        return values
    order = torch.randperm(number, generator=torch.Generator("cpu").manual_seed(seed), device="cpu").to(values.device)
    some, changed = max(1, number // _TURNED), values.reshape(-1).clone()
    changed[order[:some]] *= -1
    if float(changed.abs().max()) < _SLIGHT:
        changed[order[some : 2 * some]] *= _LARGER
    return changed.view_as(values)


def with_running_noise(name: str, tensor: Tensor, generator: torch.Generator, small: bool = True) -> Tensor:
    """Values of a running statistic as `with_noise` makes them, some variances small if they may be."""
    values = with_noise(tensor, generator)
    if name == VARIANCE and small:
        rare = torch.rand(tensor.shape, generator=generator, device=tensor.device) < _RARE
        values = torch.where(rare, values * _SMALL, values)
    return values


@contextlib.contextmanager
def _larger_layers() -> Iterator[None]:
    gain = nn.init.calculate_gain
    nn.init.calculate_gain = lambda nonlinearity, param=None: gain(nonlinearity, param if param != math.sqrt(5) else 0)
    try:
        yield
    finally:
        nn.init.calculate_gain = gain


def _followed_by(initialiser: Callable, change: Callable) -> Callable:
    """An initialiser that changes its result once: a mode of functions (`torch.device`) makes some call themselves once
    more, by their name."""
    calls: list[Callable] = []

    def initialised(*args: Any, **kwargs: Any) -> Any:
        if calls:
            return initialiser(*args, **kwargs)
        calls.append(initialiser)
        try:
            return change(initialiser(*args, **kwargs))
        finally:
            calls.clear()

    return initialised


@contextlib.contextmanager
def perturbed_construction(
    active: bool = True, larger: bool = False, turned: bool = False, single: float = 1.0
) -> Iterator[None]:
    """Parameters and running statistics that would start as a constant start as that constant with noise, the same in
    every process; so do magnitudes of weight norm, which would start as those of the weights. Those on the meta device
    have no values.

    The noise depends on the number of elements, and on whether so many running variances were there before that
    further ones are not small. No global generator is used, so all other draws stay the same.

    Args:
        larger: whether layers draw matrices that keep the size of values through a ReLU, and not PyTorch's default of
            a sixth of their square.
        turned: whether constant vectors have other signs in some places, see `with_turned_signs`.
        single: what parameters of one number are multiplied by.
    """
    if not active:
        yield
        return
    new, initialisers = nn.Parameter.__new__, {name: getattr(nn.init, name) for name in _INITIALISERS}
    register, reset = nn.Module.register_buffer, _NormBase.reset_running_stats
    right_inverse, of_magnitude = _WeightNorm.right_inverse, _weight_norm.norm_except_dim

    seen: list[nn.Module] = []
    """The modules with a running variance, in the order of their construction."""

    def add_noise(tensor: Any) -> Any:
        if tensor.is_meta:
            return tensor
        generator = torch.Generator(tensor.device).manual_seed(tensor.numel())
        values = with_noise(tensor.detach(), generator) * (single if tensor.numel() == 1 else 1.0)
        with torch.no_grad():
            return tensor.copy_(with_turned_signs(values, tensor.numel()) if turned else values)

    def parameter(cls: type, data: Any = None, requires_grad: bool = True) -> Any:
        if (
            type(data) is Tensor
            and data.is_floating_point()
            and data.numel()
            and not data.is_meta
            and bool((data == data.reshape(-1)[0]).all())
        ):
            data = add_noise(data.clone())
        return new(cls, data, requires_grad)

    def add_running_noise(module: nn.Module, name: str) -> None:
        tensor = getattr(module, name, None)
        if (
            name in (MEAN, VARIANCE)
            and isinstance(tensor, Tensor)
            and tensor.is_floating_point()
            and not tensor.is_meta
        ):
            if not any(module is other for other in seen):
                seen.append(module)
            small = any(module is other for other in seen[:MOST_SMALL])
            generator = torch.Generator(tensor.device).manual_seed(tensor.numel())
            tensor.copy_(with_running_noise(name, tensor.detach(), generator, small))

    def registered(module: nn.Module, name: str, *args: Any, **kwargs: Any) -> None:
        register(module, name, *args, **kwargs)
        add_running_noise(module, name)

    def reset_with_noise(module: Any) -> None:
        reset(module)
        for name in (MEAN, VARIANCE):
            add_running_noise(module, name)

    def split(norm: Any, weight: Tensor) -> tuple[Tensor, Tensor]:
        magnitude, direction = right_inverse(norm, weight)
        return add_noise(magnitude), direction

    nn.Parameter.__new__ = parameter  # type: ignore[method-assign]
    nn.Module.register_buffer = registered  # type: ignore[method-assign, assignment]
    _NormBase.reset_running_stats = reset_with_noise  # type: ignore[method-assign, assignment]
    _WeightNorm.right_inverse = split  # type: ignore[method-assign]
    _weight_norm.norm_except_dim = lambda *args: add_noise(of_magnitude(*args))
    for name, function in initialisers.items():
        setattr(nn.init, name, _followed_by(function, add_noise))
    try:
        with _larger_layers() if larger else contextlib.nullcontext():
            yield
    finally:
        nn.Parameter.__new__ = new  # type: ignore[method-assign]
        nn.Module.register_buffer = register  # type: ignore[method-assign]
        _NormBase.reset_running_stats = reset  # type: ignore[method-assign]
        _WeightNorm.right_inverse = right_inverse  # type: ignore[method-assign]
        _weight_norm.norm_except_dim = of_magnitude
        for name, function in initialisers.items():
            setattr(nn.init, name, function)
