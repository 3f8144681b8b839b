"""A reference run on tensors that have shapes and no data: it takes neither memory nor arithmetic."""

from __future__ import annotations

import contextlib
import warnings
from collections.abc import Iterator
from typing import Any
from unittest import mock

import torch
from torch import Tensor
from torch.utils._pytree import tree_map_only

from drkernel.tasks import module


@contextlib.contextmanager
def without_data() -> Iterator[None]:
    """Whatever creates tensors in this block creates such ones. What reads a value back fails."""
    from torch._subclasses import fake_tensor

    class Mode(fake_tensor.FakeTensorMode):
        def __deepcopy__(self, memo: dict) -> Mode:
            return self  # of a copied module (nn.TransformerEncoder) and its input, too

        def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            with contextlib.suppress(AssertionError):  # of a tensor that it does not know
                return super().__torch_dispatch__(func, types, args, kwargs)
            known = lambda t: self.from_tensor(t) if t.is_meta and not self.is_our_fake(t) else t
            args, kwargs = tree_map_only(Tensor, known, (args, kwargs or {}))  # torch.tensor(1.0, device="meta")
            return super().__torch_dispatch__(func, types, args, kwargs)

    fake_tensor.log.disabled = True  # it would say at length what does not run
    try:
        converting = mock.patch.object(torch.utils, "swap_tensors", _becomes)
        drawing = mock.patch.object(torch.nn.init, "_no_grad_trunc_normal_", _is_drawn)
        with warnings.catch_warnings(), torch.random.fork_rng(devices=[]), torch.no_grad(), converting, drawing, Mode():
            warnings.simplefilter("ignore")  # of copies, whose memory it asks for
            yield
    finally:
        fake_tensor.log.disabled = False


@contextlib.contextmanager
def on_meta() -> Iterator[None]:
    """Another way to run without data: on the device that torch has for it."""
    before, module.DEVICE = module.DEVICE, "meta"
    try:
        yield
    finally:
        module.DEVICE = before


DRY_RUNS = (without_data, on_meta)
"""Both ways, in the order in which they are tried."""


def _is_drawn(tensor: Tensor, *bounds: Any, generator: Any = None) -> Tensor:
    """For `nn.init.trunc_normal_`, which reads back whether all numbers are inside its bounds."""
    return tensor.normal_(generator=generator)


def _becomes(tensor: Tensor, other: Tensor) -> None:
    """For modules that convert themselves (`.half()`): a fake tensor cannot be swapped while its mode knows it."""
    tensor.data = other
