"""Autotuning without a clock, in the place of what `triton.autotune` does at a launch. Runs in simulated runners.

A GPU tries configurations on the arguments of the launch, many times, and may choose any of them. So a launch with a
new key runs once as a trial: what it adds to and nobody has zeroed, or restored, is wrong then. And at other shapes
than the published one another configuration is chosen: all must be right.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

import torch
from triton.runtime import autotuner, errors

from drkernel.judge.untrusted.simulated.compiled import CompiledKernel


class Choice:
    """Which configuration of those that fit is chosen."""

    first = 0
    """Its place, counted around."""
    tries = True
    """Whether a launch with a new key runs as a trial, too."""


@contextlib.contextmanager
def choosing(first: int, tries: bool = True) -> Iterator[None]:
    """A block in which this configuration is the first that is tried."""
    before = Choice.first, Choice.tries
    Choice.first, Choice.tries = first, tries
    try:
        yield
    finally:
        Choice.first, Choice.tries = before


def run_one_configuration(self: autotuner.Autotuner, *args: Any, **kwargs: Any) -> CompiledKernel:
    """Launches the first configuration left after pruning that a GPU has the shared memory for, or another one at other
    shapes (`Choice`), chosen once per key.

    As on a GPU, `reset_to_zero`, `restore_value` and the pre-hook act when the choice is made, not at every launch.
    """
    self.nargs = dict(zip(self.arg_names, args, strict=False))
    arguments = {name: value for name, value in {**self.nargs, **kwargs}.items() if name in self.arg_names}
    dtypes = [str(value.dtype) for value in arguments.values() if hasattr(value, "dtype")]
    key = (*(arguments[name] for name in self.keys if name in arguments), *dtypes)
    fresh = key not in self.cache
    found: list[Any] = list(self.prune_configs(kwargs)) if fresh else [self.cache[key]]
    first = Choice.first % len(found)
    *others, last = [*found[first:], *found[:first]]
    for config in others:
        with contextlib.suppress(errors.OutOfResources):
            return _run_configuration(self, config, key, fresh, args, kwargs)
    return _run_configuration(self, last, key, fresh, args, kwargs)


def _run_configuration(
    self: autotuner.Autotuner, config: Any, key: tuple, fresh: bool, args: tuple, kwargs: dict
) -> CompiledKernel:
    """A launch with one configuration; `fresh`: it has just been chosen."""
    self.best_config = self.cache[key] = config
    if clash := sorted(kwargs.keys() & config.kwargs.keys()):
        raise ValueError(f"Conflicting meta-parameters: {clash} given by the call and by the configuration")
    everything = {**self.nargs, **kwargs, **config.all_kwargs()}
    run = lambda: self.fn.run(*args, **kwargs, **config.all_kwargs())
    if fresh and len(self.configs) > 1:
        if Choice.tries:
            _try(self, config, everything, run)
        if self.user_defined_pre_hook:
            self.pre_hook(everything, reset_only=True)
        else:
            _reset(self, everything)
    if config.pre_hook is not None:
        config.pre_hook(everything)
    compiled = run()
    self.nargs = None
    return compiled


def _try(self: autotuner.Autotuner, config: Any, everything: dict[str, Any], run: Callable[[], Any]) -> None:
    """A launch as a trial, with what Triton does around it."""
    kept: list[tuple[torch.Tensor, torch.Tensor]] = []
    if config.pre_hook is not None:
        config.pre_hook(everything)
    if self.user_defined_pre_hook:
        self.pre_hook(everything)
    else:
        _reset(self, everything)
        if not self.user_defined_post_hook:
            kept = [(everything[name], torch.Tensor.clone(everything[name])) for name in self.restore_value]
    run()
    if self.user_defined_post_hook:
        self.post_hook(everything, exception=None)
    for tensor, before in kept:
        torch.Tensor.copy_(tensor, before)


def _reset(self: autotuner.Autotuner, everything: dict[str, Any]) -> None:
    for tensor in [everything[name] for name in self.reset_to_zero]:
        torch.Tensor.zero_(tensor)  # recorded: a key may be fresh in every call
