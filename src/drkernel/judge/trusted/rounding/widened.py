"""A run of a reference in wider numbers than its own."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import torch
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils._python_dispatch import TorchDispatchMode


@contextlib.contextmanager
def run(dtype: torch.dtype | None, mode: TorchDispatchMode | None) -> Iterator[None]:
    """A run of a reference whose inputs and weights are of `dtype`, with a mode that changes its operators. None: they
    are its own."""
    before = torch.get_default_dtype()
    torch.set_default_dtype(dtype or before)
    try:
        plain_attention = sdpa_kernel(SDPBackend.MATH) if mode else contextlib.nullcontext()
        wide = _Widened(dtype) if dtype else contextlib.nullcontext()
        with plain_attention, wide, mode or contextlib.nullcontext():
            yield
    finally:
        torch.set_default_dtype(before)


_ROUNDED = (torch.float32, torch.float16, torch.bfloat16)


class _Widened(TorchDispatchMode):
    """What a reference asks for in fp32 or 16 bits, as by `x.float()` or `x.bfloat16()`, is as wide as its weights:
    what it rounds to 16 bits and computes in them has the errors of a task that has 16 bits from the start. Random
    numbers are the same."""

    def __init__(self, dtype: torch.dtype):
        super().__init__()
        self._dtype = dtype

    def __torch_dispatch__(self, func: Any, types: Any, args: tuple = (), kwargs: dict | None = None) -> Any:
        kwargs = kwargs or {}
        if kwargs.get("dtype") in _ROUNDED and "rand" not in func.overloadpacket.__name__:
            kwargs = kwargs | {"dtype": self._dtype}
        return func(*args, **kwargs)
