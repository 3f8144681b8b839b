"""Causal attention over packed rows on a GPU, by the fastest kernels that are installed.

On an H200 flash-attn-4 reaches 469 TFLOP/s forward and 492 backward, FlashAttention 2 as torch has it 271 and 248
(results/training-h200). Only this file knows their versions.
"""

from __future__ import annotations

import functools
import importlib
import importlib.util
import inspect
import warnings
from typing import Any

import torch
from torch import Tensor
from torch.nn.attention.varlen import varlen_attn

FLASH4_HEADS = (64, 128)
"""Head dimensions for which its backward has been tried."""


def varlen(
    query: Tensor, key: Tensor, value: Tensor, cu_seqlens: Tensor, longest: int, scale: float, flash4: bool
) -> Tensor:
    """query [T, Hq, D], key and value [T, Hkv, D] in half precision, cu_seqlens int32 [R + 1] -> [T, Hq, D].

    longest: at least as many tokens as the longest row has. flash4: `flash4_works` on this device.
    """
    if flash4 and query.shape[-1] in FLASH4_HEADS:
        return torch.ops.drkernel.flash4(query, key, value, cu_seqlens, longest, scale)[0]
    return _flash2(query, key, value, cu_seqlens, longest, scale)


def flash4_works(device: torch.device) -> bool:
    """Whether flash-attn-4 is installed, runs on this device and can be imported: it needs a package of CUTLASS's."""
    fits = _FLASH4 and device.type == "cuda" and torch.cuda.get_device_capability(device)[0] in (9, 10)
    return fits and _imports("flash_attn.cute.interface")


@functools.cache
def _imports(module: str) -> bool:
    """Whether a module can be imported; says once why not."""
    try:
        importlib.import_module(module)
    except Exception as error:  # packages that do not fit each other raise anything
        reason = " ".join(f"{type(error).__name__}: {error}".split())
        warnings.warn(
            f"{module} is installed but cannot be imported ({reason}); slower attention is used", stacklevel=2
        )
        return False
    return True


def _installed(module: str) -> bool:
    try:
        return importlib.util.find_spec(module) is not None
    except ModuleNotFoundError:
        return False


_FLASH4 = _installed("flash_attn.cute")
if _FLASH4:
    warnings.filterwarnings("ignore", message="Argument aux_data")  # of its compiler, and nothing that we pass
    _INPUTS = "Tensor query, Tensor key, Tensor value, Tensor cu_seqlens, SymInt longest, float scale"

    @torch.library.custom_op("drkernel::flash4", mutates_args=(), schema=f"({_INPUTS}) -> (Tensor, Tensor)")
    def _flash4(
        query: Tensor, key: Tensor, value: Tensor, cu_seqlens: Tensor, longest: int, scale: float
    ) -> tuple[Tensor, Tensor]:
        """-> (output [T, Hq, D], log-sum-exp float32 [Hq, T])."""
        from flash_attn.cute.interface import _flash_attn_fwd

        return _flash_attn_fwd(query, key, value, return_lse=True, **_options(cu_seqlens, longest, scale))[:2]

    @_flash4.register_fake
    def _(
        query: Tensor, key: Tensor, value: Tensor, cu_seqlens: Tensor, longest: int, scale: float
    ) -> tuple[Tensor, Tensor]:
        return query.new_empty(query.shape), query.new_empty((query.shape[1], query.shape[0]), dtype=torch.float32)

    @torch.library.custom_op(
        "drkernel::flash4_backward",
        mutates_args=(),
        schema=f"(Tensor gradient, Tensor output, Tensor lse, {_INPUTS}) -> (Tensor, Tensor, Tensor)",
    )
    def _flash4_backward(
        gradient: Tensor,
        output: Tensor,
        lse: Tensor,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        cu_seqlens: Tensor,
        longest: int,
        scale: float,
    ) -> tuple[Tensor, ...]:
        from flash_attn.cute.interface import _flash_attn_bwd

        inputs = (x.contiguous() for x in (query, key, value, output, gradient))
        return tuple(_flash_attn_bwd(*inputs, lse, **_options(cu_seqlens, longest, scale)))

    @_flash4_backward.register_fake
    def _(
        gradient: Tensor, output: Tensor, lse: Tensor, query: Tensor, key: Tensor, value: Tensor, *bounds: Any
    ) -> tuple[Tensor, ...]:
        return tuple(x.new_empty(x.shape) for x in (query, key, value))

    def _options(cu_seqlens: Tensor, longest: int, scale: float) -> dict[str, Any]:
        bounds: dict[str, Any] = {"cu_seqlens_q": cu_seqlens, "cu_seqlens_k": cu_seqlens}
        return bounds | {"max_seqlen_q": longest, "max_seqlen_k": longest, "softmax_scale": scale, "causal": True}

    def _keep(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor]) -> None:
        query, key, value, cu_seqlens, ctx.longest, ctx.scale = inputs
        ctx.save_for_backward(*output, query, key, value, cu_seqlens)

    def _backward(ctx: Any, gradient: Tensor, _: Tensor) -> tuple[Tensor | None, ...]:
        gradients = torch.ops.drkernel.flash4_backward(gradient, *ctx.saved_tensors, ctx.longest, ctx.scale)
        return *gradients, None, None, None

    _flash4.register_autograd(_backward, setup_context=_keep)


if _installed("flash_attn.flash_attn_interface") and _imports("flash_attn"):
    from flash_attn import flash_attn_varlen_func

    def _flash2(query: Tensor, key: Tensor, value: Tensor, cu_seqlens: Tensor, longest: int, scale: float) -> Tensor:
        bounds = cu_seqlens, cu_seqlens, longest, longest
        return flash_attn_varlen_func(query, key, value, *bounds, softmax_scale=scale, causal=True)

else:
    # torch 2.11 takes fewer key heads as they are; from 2.12 on it wants to be told.
    _GROUPED: dict[str, Any] = {"enable_gqa": True} if "enable_gqa" in inspect.signature(varlen_attn).parameters else {}

    def _flash2(query: Tensor, key: Tensor, value: Tensor, cu_seqlens: Tensor, longest: int, scale: float) -> Tensor:
        bounds = cu_seqlens, cu_seqlens, longest, longest
        output = varlen_attn(query, key, value, *bounds, scale=scale, window_size=(-1, 0), **_GROUPED)
        assert isinstance(output, Tensor)
        return output
