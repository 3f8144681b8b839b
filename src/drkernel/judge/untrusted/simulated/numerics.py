"""Number formats that numpy lacks, and the functions of libdevice. Runs in simulated runners, within the interpreter.

Arrays of bfloat16 are uint16, and arrays of an 8-bit float are uint8.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import torch
from torch._subclasses.fake_tensor import unset_fake_temporarily

from drkernel.judge.boundary.custom_operators import unrecorded
from drkernel.judge.boundary.witness import executing


def bf16_to_fp32(bits: np.ndarray) -> np.ndarray:
    """Exact."""
    return (bits.astype(np.uint32) << np.uint32(16)).view(np.float32)


def fp32_to_bf16(values: np.ndarray) -> np.ndarray:
    """Round to nearest even, as `cvt.rn.bf16.f32` does; NaN stays NaN."""
    return np.where(np.isnan(values), np.uint16(0x7FC0), (_round_bits(values, 16) >> np.uint32(16)).astype(np.uint16))


FP8 = {"fp8e4nv": torch.float8_e4m3fn, "fp8e5": torch.float8_e5m2}
"""Triton's names of the formats that NVIDIA's GPUs have."""
_VALUES = {name: torch.arange(256, dtype=torch.uint8).view(dtype).float().numpy() for name, dtype in FP8.items()}
"""What each byte stands for. Tables, since an operator of PyTorch within a kernel would count as the submission's."""


def fp8_to_fp32(bits: np.ndarray, name: str) -> np.ndarray:
    """Exact. `name`: one of FP8."""
    return _VALUES[name][bits]


def fp32_to_fp8(values: np.ndarray, name: str) -> np.ndarray:
    """Rounds to nearest even; beyond the range to infinity, or to the largest number where the format has none.

    Args:
        name: one of FP8.
    """
    values, table = values.astype(np.float32), _VALUES[name][:128]
    finite = table[np.isfinite(table)].astype(np.float64)
    between = (finite[:-1] + finite[1:]) / 2  # each byte and the next one
    if np.isinf(table).any():
        between = np.append(between, (3 * finite[-1] - finite[-2]) / 2)
    size = np.abs(values)
    byte = np.searchsorted(between, size)
    is_tie = np.isin(size, between)
    byte = np.where(is_tie & (byte % 2 == 1), byte + 1, byte)
    return (np.where(np.isnan(values), 0x7F, byte) | np.where(np.signbit(values), 0x80, 0)).astype(np.uint8)


def round_to_tf32(values: np.ndarray) -> np.ndarray:
    """fp32 with the 10 mantissa bits that NVIDIA's tensor cores keep of it."""
    return np.where(np.isfinite(values), _round_bits(values, 13).view(np.float32), values)


def _round_bits(values: np.ndarray, drop: int) -> np.ndarray:
    """fp32 as uint32 with the last `drop` bits rounded away, to nearest even."""
    bits = np.ascontiguousarray(values, dtype=np.float32).view(np.uint32)
    odd = (bits >> np.uint32(drop)) & np.uint32(1)
    return (bits + np.uint32((1 << (drop - 1)) - 1) + odd) & np.uint32(0xFFFFFFFF ^ ((1 << drop) - 1))


_numpy, _from_numpy = torch.Tensor.numpy, torch.from_numpy
"""What does not copy: where the CPU stands for a GPU, others that do stand in their place."""


def from_torch(function: Callable) -> Callable[..., np.ndarray]:
    """A torch function on numpy arrays, invisible to the recorder, and executed in a dry run, too."""

    def call(*arrays: np.ndarray) -> np.ndarray:
        with unset_fake_temporarily():
            tensors = [_from_numpy(np.ascontiguousarray(array)) for array in arrays]
            with torch._C.DisableTorchFunction(), unrecorded(), executing(f"aten::{function.__name__}"):
                return _numpy(function(*tensors))

    return call


erf = from_torch(torch.erf)

LIBDEVICE: dict[str, Callable[..., np.ndarray]] = {
    "abs": np.abs, "acos": np.arccos, "acosh": np.arccosh, "add": np.add, "asin": np.arcsin, "asinh": np.arcsinh,
    "atan": np.arctan, "atan2": np.arctan2, "atanh": np.arctanh, "cbrt": np.cbrt, "ceil": np.ceil,
    "copysign": np.copysign, "cos": np.cos, "cosh": np.cosh, "cospi": lambda x: np.cos(np.pi * x), "div": np.divide,
    "erf": erf, "erfc": from_torch(torch.erfc), "erfcx": from_torch(torch.special.erfcx),
    "erfinv": from_torch(torch.erfinv), "exp": np.exp, "exp10": lambda x: np.power(x.dtype.type(10), x),
    "exp2": np.exp2, "expm1": np.expm1, "fabs": np.abs, "fdim": lambda x, y: np.maximum(x - y, 0),
    "fdivide": np.divide, "finitef": np.isfinite, "floor": np.floor, "fma": lambda x, y, z: x * y + z,
    "fmax": np.fmax, "fmin": np.fmin, "fmod": np.fmod, "hypot": np.hypot, "isfinited": np.isfinite,
    "isinf": np.isinf, "isnan": np.isnan, "j0": from_torch(torch.special.bessel_j0),
    "j1": from_torch(torch.special.bessel_j1), "ldexp": np.ldexp, "lgamma": from_torch(torch.lgamma),
    "llrint": np.rint, "llround": lambda x: np.trunc(x + np.copysign(x.dtype.type(0.5), x)), "log": np.log,
    "log10": np.log10, "log1p": np.log1p, "log2": np.log2, "max": np.maximum, "min": np.minimum, "mul": np.multiply,
    "nearbyint": np.rint, "normcdf": from_torch(torch.special.ndtr), "normcdfinv": from_torch(torch.special.ndtri),
    "pow": np.power, "powi": np.power, "rcbrt": lambda x: 1 / np.cbrt(x), "rcp": np.reciprocal,
    "remainder": np.remainder, "rint": np.rint, "round": lambda x: np.trunc(x + np.copysign(x.dtype.type(0.5), x)),
    "rsqrt": lambda x: 1 / np.sqrt(x), "saturate": lambda x: np.clip(x, 0, 1), "signbit": np.signbit, "sin": np.sin,
    "sinh": np.sinh, "sinpi": lambda x: np.sin(np.pi * x), "sqrt": np.sqrt, "sub": np.subtract, "tan": np.tan,
    "tanh": np.tanh, "tgamma": lambda x: np.exp(from_torch(torch.lgamma)(x)), "trunc": np.trunc,
}  # fmt: skip
"""By the name of the CUDA function without prefix (`__nv_`, `fast_`) and suffix (`f`, `_rn`)."""


def libdevice(symbol: str) -> Callable[..., np.ndarray]:
    """The numpy function behind a libdevice symbol such as `__nv_fast_expf` or `__nv_fsqrt_rn`."""
    name = symbol.removeprefix("__nv_").removeprefix("fast_")
    for rounding in ("_rn", "_rz", "_ru", "_rd"):
        name = name.removesuffix(rounding)
    for candidate in (name, name.removesuffix("f"), name.removesuffix("d"), name[1:], name[1:].removesuffix("f")):
        if candidate in LIBDEVICE:
            return LIBDEVICE[candidate]
    raise NotImplementedError(f"libdevice function {symbol} does not exist on the simulated device")
