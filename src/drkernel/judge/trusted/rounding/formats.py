"""The reference run again with the factors of its products rounded, as kernels of lower precision round them.

TF32 on numbers of one sign has errors that cancel in long sums down to the size of honest ones. Their pattern stays: it
tells the two apart (`lowering.Lowering`).
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from drkernel.judge.trusted.rounding.gradient_operators import in_parts
from drkernel.types import Precision

Lower = Callable[[Callable, tuple, int], Tensor]
"""From an operator that multiplies, its arguments and the place of its first factor to what lower precision makes of
it."""
PRODUCTS = {
    "mm": 0, "bmm": 0, "mv": 0, "dot": 0, "addmm": 1, "addmv": 1, "baddbmm": 1, "addbmm": 1, "convolution": 0,
    "addmm_": 1, "addmv_": 1, "baddbmm_": 1, "addbmm_": 1, "conv_tbc": 0, "cudnn_convolution": 0, "_convolution": 0,
}  # fmt: skip
"""Operators that multiply, and the place of the first of their two factors among the arguments."""


class Lowered(TorchDispatchMode):
    """Products as lower precision computes them, all else as it is: `lower` is a value of LOWERINGS or FORMATS."""

    def __init__(self, lower: Lower):
        super().__init__()
        self._lower = lower

    def __torch_dispatch__(self, func: Any, types: Any, args: tuple = (), kwargs: dict | None = None) -> Any:
        if (parts := in_parts(func)) is not None:
            with self:
                return parts(*args, **(kwargs or {}))
        first = PRODUCTS.get(func.overloadpacket.__name__)
        call = functools.partial(func, **(kwargs or {}))
        return call(*args) if first is None else self._lower(call, args, first)


def _tf32(call: Callable, args: tuple, first: int) -> Tensor:
    """Factors with 10 bits of mantissa."""
    return call(*with_factors(args, first, lambda factor: _to_bits(factor, 13)))


def _tf32_cut(first_too: bool, second_too: bool) -> Lower:
    """The same, but further bits of one factor or of both are cut off, as tensor cores do; the other's are rounded."""

    def change(factor: Tensor, cut: bool) -> Tensor:
        if not cut:
            return _to_bits(factor, 13)
        return (factor.float().view(torch.int32) & -(1 << 13)).view(torch.float32).to(factor.dtype)

    def lower(call: Callable, args: tuple, first: int) -> Tensor:
        factors = change(args[first], first_too), change(args[first + 1], second_too)
        return call(*args[:first], *factors, *args[first + 2 :])

    return lower


def _halves(dtype: torch.dtype) -> tuple[Lower, ...]:
    """Factors in a 16-bit format; then products too, as PyTorch's own have it, before or after a summand is added."""
    cast = lambda values: values.to(torch.float32).to(dtype).to(values.dtype)
    whole: Lower = lambda call, args, first: call(*with_factors(args, first, cast))

    def product(call: Callable, args: tuple, first: int) -> Tensor:
        alone = whole(call, _without_summand(args, first), first)
        return cast(alone) + (whole(call, args, first) - alone)

    return whole, product, lambda call, args, first: cast(whole(call, args, first))


def _bf16x3(call: Callable, args: tuple, first: int) -> Tensor:
    """Factors in two pieces of bf16, without the product of the low pieces."""
    high = lambda factor: _to_bits(factor, 16)
    low = lambda factor: _to_bits(factor - high(factor), 16)
    whole = call(*with_factors(args, first, lambda factor: high(factor) + low(factor)))
    return whole - call(*_without_summand(with_factors(args, first, low), first))


FORMATS: dict[str, tuple[Lower, ...]] = {
    "TF32": (_tf32, _tf32_cut(True, True), _tf32_cut(True, False), _tf32_cut(False, True)),
    "bf16": _halves(torch.bfloat16),
    "fp16": _halves(torch.float16),
    "fp8": _halves(torch.float8_e4m3fn)[:1],
}
"""Formats of factors, and how products in them may be computed."""
ALLOWED: dict[Precision, tuple[Lower, ...]] = {
    "ieee": (),
    "tf32": FORMATS["TF32"],
    "low": (*FORMATS["TF32"], *FORMATS["bf16"]),
}
"""How products may be computed in a precision, beside fp32. Equal factors are rounded alike: their errors do not cancel
as those of noise do."""
USUAL: dict[Precision, tuple[Lower, ...]] = {
    "ieee": (),
    "tf32": FORMATS["TF32"][:2],
    "low": (*FORMATS["TF32"][:2], *FORMATS["bf16"][:2]),
}
"""Those of which errors count as noise in every case; the others where that decides."""
ALLOWED_SHARE = 0.4
"""How much of these errors counts as noise, of which an output may have `tolerance.K_NOISE` times as much."""
LOWERINGS: dict[Precision, dict[str, Lower]] = {
    "ieee": {"TF32": _tf32, "three products of bf16": _bf16x3},
    "tf32": {"bf16": FORMATS["bf16"][0]},
    "low": {"fp8": FORMATS["fp8"][0]},
}
"""What a task of each precision refuses by the pattern of its errors."""
FORBIDDEN: dict[Precision, tuple[str, ...]] = {
    "ieee": ("TF32", "bf16", "fp16", "fp8"), "tf32": ("bf16", "fp16", "fp8"), "low": ("fp8",)
}  # fmt: skip
"""The formats of FORMATS that a precision does not allow."""


def _without_summand(args: tuple, first: int) -> tuple:
    """The arguments with zeros instead of what is added to the product: an addmm's first, a convolution's third."""
    if first == 1:
        return (torch.zeros_like(args[0]), *args[1:])
    return (*args[:2], None, *args[3:]) if len(args) > 3 else args


def _to_bits(values: Tensor, drop: int) -> Tensor:
    """fp32 values with their last bits rounded away."""
    bits = values.float().view(torch.int32)
    odd = (bits >> drop) & 1
    return ((bits + ((1 << (drop - 1)) - 1) + odd) & -(1 << drop)).view(torch.float32).to(values.dtype)


def with_factors(args: tuple, first: int, change: Callable[[Tensor], Tensor]) -> tuple:
    """The arguments of a product with both factors changed."""
    return (*args[:first], change(args[first]), change(args[first + 1]), *args[first + 2 :])
