"""Autotuning without a clock, in the place of what `triton.autotune` does at a launch. Runs in simulated runners."""

from __future__ import annotations

import contextlib
from typing import Any

import torch
from triton.runtime import autotuner, errors

from drkernel.judge.untrusted.simulated.compiled import CompiledKernel


def run_first_configuration(self: autotuner.Autotuner, *args: Any, **kwargs: Any) -> CompiledKernel:
    """Launches the first configuration left after pruning that a GPU has the shared memory for, chosen once per key.

    As on a GPU, `reset_to_zero` and the pre-hook act when the choice is made, not at every launch.
    """
    self.nargs = dict(zip(self.arg_names, args, strict=False))
    arguments = {name: value for name, value in {**self.nargs, **kwargs}.items() if name in self.arg_names}
    dtypes = [str(value.dtype) for value in arguments.values() if hasattr(value, "dtype")]
    key = (*(arguments[name] for name in self.keys if name in arguments), *dtypes)
    fresh = key not in self.cache
    *others, last = self.prune_configs(kwargs) if fresh else [self.cache[key]]
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
    if fresh and len(self.configs) > 1:
        if self.user_defined_pre_hook:
            self.pre_hook(everything, reset_only=True)
        else:
            for tensor in [everything[name] for name in self.reset_to_zero]:
                torch.Tensor.zero_(tensor)  # recorded: a key may be fresh in every call
    if config.pre_hook is not None:
        config.pre_hook(everything)
    compiled = self.fn.run(*args, **kwargs, **config.all_kwargs())
    self.nargs = None
    return compiled
