"""The reference run again with other rounding, as an honest kernel may round.

`Noise` adds to every operator's output an error as large as that of an honest kernel which computes in the task's
precision and sums in another order. Whatever follows (an exponential, a norm, a difference) carries the error on. So
the distance from the exact outputs is what an honest kernel may have at that output, on these inputs.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch._decomp import decomposition_table
from torch.utils._python_dispatch import TorchDispatchMode

from drkernel.judge.boundary.dimensions import MOMENTS
from drkernel.judge.trusted import reductions
from drkernel.judge.trusted.rounding import ties
from drkernel.judge.trusted.rounding.formats import PRODUCTS, with_factors
from drkernel.judge.trusted.rounding.gradient_operators import SOFTMAX_GRADIENTS, in_parts, softmax_backward
from drkernel.judge.trusted.rounding.whole_numbers import Samples, is_count, unless_whole
from drkernel.types import Precision

EPS = 2.0**-23
"""Relative distance of fp32 numbers. Long sums are always granted fp32, whatever the precision of their terms."""
UNIT: dict[Precision, float] = {"ieee": EPS, "tf32": EPS, "low": 2.0**-8}
"""Relative error (standard deviation) of one operator, by precision policy."""
OPERANDS: dict[Precision, float] = {"ieee": 0.0, "tf32": 1.6e-4, "low": 2.0**-8}
"""The same of the factors of a product. Truncation to TF32 has 3.5e-4 in one direction, rounding 1.7e-4; bf16 has
8e-4."""
MAX_TERMS = 2**15
"""Nobody adds more numbers one after the other: 10^5 atomic additions are those of 10^8 numbers."""
_BLOCKS, _SHORT = (64, 256, 1024), 2**16
"""How many numbers are added to a partial sum at once: at least the first of shorter sums, at least the second of
longer ones."""
_LOOP = 256
"""Additions that a device makes one by one; more are left to the CPU."""
_SUM, _PRODUCT = 0.2, 2.5
"""Error of a sum of n terms, in units of EPS and sqrt(n). The partial sums of n positive terms, each rounded, give 0.17
(random walk). Tensor cores truncate partial sums, which adds up; 2.5 is for three products of TF32."""
_LEAST, _RANDOM = 0.25, 1.3425
"""Of noise: its smallest size, and how much it may be larger."""
ROUNDED_ONCE, _NOTHING = 0.2, 1e-5
"""Standard deviation of one rounding, in steps of a format; a relative distance that is none in 16 bits."""
_CHUNK, _MIN_ROW = 2**22, 16
"""Elements that are disturbed at once; rows shorter than this share one size."""
_ANOTHER = 0x9E3779B97F4A7C15
"""Between the seeds of two kernels: odd, and without a pattern."""

_WHOLE_ROWS = {"_softmax", "_log_softmax"}
"""Those of which people compute an element from the others of its row: 1 - p."""
_DECOMPOSED = {
    "native_layer_norm", "native_group_norm", "native_batch_norm", "_native_batch_norm_legit", "cudnn_batch_norm",
    "_native_batch_norm_legit_no_training", "_batch_norm_with_update", "_fused_rms_norm", "miopen_batch_norm",
    "binary_cross_entropy", "binary_cross_entropy_with_logits", "logaddexp", "logit", "soft_margin_loss",
    *_WHOLE_ROWS,
}  # fmt: skip
"""Operators with a difference or a sum inside, whose error their output does not show."""
_BESIDE_ONE = {
    "elu", "celu", "expm1", "tanh", "log1p", "softplus", "mish", "log_sigmoid_forward", "sinh", "asinh", "atanh",
    "erfc", "hardsigmoid",
}  # fmt: skip
"""Operators that people write with numbers of size one, exp(x) - 1 or log(1 + exp(x)): near zero they err by a unit."""
_BESIDE_INPUTS = {"gelu": 1, "hardswish": 1, "lerp": 2}
"""The same, with numbers of the size of so many inputs."""
_AT_MOST_ONE = {"sigmoid", "_softmax", "tanh", "erf", "sin", "cos"}
"""Operators whose outputs no rounding carries beyond one: what follows may be the root or the logarithm of the rest."""
_INTERPOLATIONS = (
    "upsample_linear", "upsample_bilinear", "upsample_trilinear", "upsample_bicubic", "_upsample_bi", "grid_sampler",
)  # fmt: skip
"""How the names of operators begin that weigh neighbours, which may cancel."""
_SPREAD_SUMS = {"segment_reduce", "index_add", "scatter_add", "scatter_reduce"}
"""Operators that add up numbers by places, whose signs may cancel."""
_ALONG_A_DIMENSION = {"cumsum", "cumprod", "logcumsumexp"}
_EXACT = {
    "clone", "copy_", "copy", "_to_copy", "fill_", "zero_", "zeros", "ones", "full", "empty", "empty_like",
    "lift_fresh", "zeros_like", "ones_like", "full_like", "new_zeros", "new_empty", "new_ones", "new_full", "arange",
    "eye", "scalar_tensor", "abs", "abs_", "neg", "neg_", "relu", "relu_", "clamp", "clamp_", "clamp_min",
    "clamp_min_", "clamp_max", "hardtanh", "hardtanh_", "threshold", "maximum", "minimum", "where", "masked_fill",
    "masked_fill_", "tril", "triu", "cat", "stack", "gather", "index_select", "index", "embedding", "flip", "roll",
    "repeat", "constant_pad_nd", "max", "min", "amax", "amin", "sort", "topk", "kthvalue", "median", "cummax",
    "cummin", "max_pool2d_with_indices", "max_pool3d_with_indices", "adaptive_max_pool2d", "adaptive_max_pool3d",
    "round", "floor", "ceil", "trunc", "sign", "sgn", "frac", "bernoulli", "bernoulli_", "uniform_", "normal_",
    "rand", "randn", "rand_like", "randn_like", "empty_strided", "new_empty_strided", "_unsafe_view", "unsafe_split",
    "unsafe_chunk", "reflection_pad2d", "replication_pad2d", "pixel_shuffle", "channel_shuffle", "select_scatter",
    "slice_scatter", "diag_embed", "diagonal_scatter", "one_hot", "glu_exact", "detach", "resize_",
}  # fmt: skip
"""Operators that round nothing."""


def rounds_nothing(operator: Any) -> bool:
    """Whether an ATen operator only moves or chooses numbers."""
    return operator.is_view or operator.overloadpacket.__name__ in _EXACT


def chain_error(terms: float, tensor_cores: bool = False) -> float:
    """Relative error (standard deviation) of a sum of so many terms, beside the largest sums of its kind."""
    terms = min(terms, MAX_TERMS)
    truncated = min(_PRODUCT * math.sqrt(terms), terms / 16) if tensor_cores else 0.0
    return EPS * (_SUM * math.sqrt(terms) + truncated)


class Noise(TorchDispatchMode):
    """See the module's text.

    Args:
        precision: of the task.
        seed: of the noise; no global generator is touched.
        narrow: the 16-bit format of the task's numbers. A kernel may round to it what it multiplies, as attention does
            with its weights.
        whole_later: go on as if no output were a count, and look later, before values decide what the code does next
            or become indices, and in `settle`. Until then MayBeWhole may be raised. Else each operator is waited for.
    """

    def __init__(self, precision: Precision, seed: int, narrow: torch.dtype | None = None, whole_later: bool = False):
        super().__init__()
        self._narrow, self._samples = narrow, Samples() if whole_later else None
        self._unit, self._operands, self._seed = UNIT[precision], OPERANDS[precision], seed
        self._generators: dict[torch.device, torch.Generator] = {}
        self._fused = 0
        """How often noise was added by a kernel of ours."""
        self.products = 0
        """How many operators were products."""

    def settle(self) -> None:
        """Must be called at the end of a run that looks later.

        Raises:
            MayBeWhole: what it has given says nothing.
        """
        if self._samples:
            self._samples.look()

    def __torch_dispatch__(self, func: Any, types: Any, args: tuple = (), kwargs: dict | None = None) -> Any:
        outputs = self._disturbed(func, args, kwargs or {})
        if self._samples and not _only_floats(outputs):
            self._samples.look()
        return outputs

    def _disturbed(self, func: Any, args: tuple, kwargs: dict) -> Any:
        name = func.overloadpacket.__name__
        if ties.chooses(func, args, kwargs):
            return ties.in_another_order(func, args, kwargs, self._generator(args[0].device))
        if rounds_nothing(func):
            return func(*args, **kwargs)
        if (parts := self._parts(func, name, args)) is not None:
            with self:
                return parts(*args, **kwargs)
        if name in _DECOMPOSED and func in decomposition_table:
            with self:
                outputs = decomposition_table[func](*args, **kwargs)
            if name in _WHOLE_ROWS:
                self._disturb(outputs, self._unit, chain_error(outputs.shape[args[1]] if outputs.dim() else 1))
                if name in _AT_MOST_ONE:
                    _keep_within_one(outputs)
            return outputs
        if (first := PRODUCTS.get(name)) is not None:
            self.products += 1
            if self._operands:
                args = with_factors(args, first, lambda t: self._disturb(t.clone(), self._operands, 0.0))
            elif self._narrow:
                args = with_factors(args, first, self._narrowed)
        outputs = func(*args, **kwargs)
        terms = _terms(name, first, args, outputs)
        chain = chain_error(terms, first is not None) if terms > 1 else 0.0
        for place, output in enumerate(outputs if isinstance(outputs, (tuple, list)) else (outputs,)):
            if isinstance(output, Tensor) and output.is_floating_point() and not self._is_count(output, args):
                self._disturb_output(func, args, kwargs, output, chain, place)
        return outputs

    def _parts(self, func: Any, name: str, args: tuple) -> Callable[..., Any] | None:
        """What computes the same by operators whose errors are known, if the operator's are not."""
        if name in MOMENTS:
            return lambda *args, **kwargs: _moments(name, *_with_correction(func._overloadname, *args, **kwargs))
        if name in SOFTMAX_GRADIENTS:
            unit = ROUNDED_ONCE * torch.finfo(self._narrow).eps if self._narrow else self._unit
            other = self._disturb(args[0].clone(), unit, chain_error(args[0].shape[args[2]], True))
            return functools.partial(softmax_backward, name, other)
        return in_parts(func)

    def _is_count(self, output: Tensor, args: tuple) -> bool:
        if self._samples is None or not output.numel():
            return is_count(output, args)
        self._samples.add(output)
        return False

    def _disturb_output(self, func: Any, args: tuple, kwargs: dict, output: Tensor, chain: float, place: int) -> None:
        name = func.overloadpacket.__name__
        if chain and name in ("sum", "mean") and args[0].is_floating_point():
            self._disturb_sum(output, chain, *_reduced(name, output, args, kwargs))
        elif name.startswith(_INTERPOLATIONS) or name in _SPREAD_SUMS:
            added = len(args) if name in _SPREAD_SUMS else 1
            sizes = (x.abs() if isinstance(x, Tensor) and x.is_floating_point() else x for x in args[:added])
            sized = func(*sizes, *args[added:], **kwargs)
            self._add_error_of(sized[place] if isinstance(sized, tuple) else sized, output)
        else:
            self._disturb(output, self._unit, chain)
        base = name.removesuffix("_")
        if base in _BESIDE_ONE:
            self._add_error_of(torch.ones_like(output), output)
        for beside in args[: _BESIDE_INPUTS.get(base, 0)]:
            self._add_error_of(beside.expand_as(output), output)
        if base in _AT_MOST_ONE:
            _keep_within_one(output)

    def _add_error_of(self, other: Tensor, output: Tensor) -> None:
        """Adds in place an error as large as that of other numbers."""
        output.add_(self._disturb(other.clone(), self._unit, 0.0).sub_(other))

    def _narrowed(self, factor: Tensor) -> Tensor:
        """A factor as rounding it once to 16 bits may make it. Inputs and weights have 16 bits already."""
        assert self._narrow
        distance = (factor.to(self._narrow).to(factor.dtype) - factor).abs()
        if bool((distance <= _NOTHING * factor.abs()).all()):
            return factor
        return self._disturb(factor.clone(), ROUNDED_ONCE * torch.finfo(self._narrow).eps, 0.0)

    def around(self, tensor: Tensor, whole: bool = False) -> Tensor:
        """A copy of an input or a weight, rounded once more at random. Whole numbers stay, unless `whole`: no format
        rounds them."""
        if not tensor.is_floating_point():
            return tensor
        disturbed = lambda: self._disturb(tensor.clone(), self._unit, 0.0)
        return disturbed() if whole else unless_whole(tensor, disturbed)

    def _disturb_sum(self, output: Tensor, chain: float, usual: Tensor, lost: Tensor) -> None:
        """Adds an error in place, in proportion to the sum or to what is usual, if that is more; and that of adding in
        blocks. Arguments as `_reduced` returns them."""
        size = torch.maximum(torch.nan_to_num(output.abs(), nan=0.0, posinf=0.0), usual)
        error = size.mul_(math.hypot(self._unit, chain)).add_(lost)
        output.add_(self._noise(error).mul_(error))

    def _disturb(self, tensor: Tensor, unit: float, chain: float) -> Tensor:
        """Adds an error in place, uniformly distributed: `unit` of each element, and `chain` of its size or of the root
        mean square of its row, if that is more."""
        if tensor.is_contiguous() and (fused := reductions.fused_for(tensor)):
            self._fused += 1
            table, seed = _as_table(tensor), (self._seed + self._fused * _ANOTHER) % 2**62
            rows = table.shape[1] >= _MIN_ROW if chain else None
            fused.disturb(table, math.hypot(unit, chain), (_LEAST, _RANDOM), seed, rows)
            return tensor
        for part in _parts(tensor):
            noise = self._noise(part)
            if chain:
                size = torch.nan_to_num(part.abs(), nan=0.0, posinf=0.0)
                rows = part.shape[-1] >= _MIN_ROW
                usual = size.square().mean(-1, keepdim=True).sqrt() if rows else size.square().mean().sqrt()
                noise.mul_(torch.maximum(size, usual))
            else:
                noise.mul_(part)
            part.add_(noise.nan_to_num_(nan=0.0, posinf=0.0, neginf=0.0), alpha=math.hypot(unit, chain))
        return tensor

    def _noise(self, like: Tensor) -> Tensor:
        """Random numbers of standard deviation one, none of which is small: an element with one error shows it."""
        noise = torch.empty_like(like).uniform_(-_RANDOM, _RANDOM, generator=self._generator(like.device))
        least = noise.new_full((), _LEAST)  # by a kernel: a copy from the host would wait for the device
        return noise.add_(torch.copysign(least, noise))

    def _generator(self, device: torch.device) -> torch.Generator:
        if device not in self._generators:
            self._generators[device] = torch.Generator(device).manual_seed(self._seed)
        return self._generators[device]


def _keep_within_one(output: Tensor) -> None:
    """Reflects at 1 and -1, in place, so that the error has its size."""
    beyond = output.abs().sub_(1.0).clamp_min_(0.0)
    output.sub_(beyond.mul_(2.0).copysign_(output))


def _terms(name: str, first: int | None, args: tuple, outputs: Any) -> float:
    """How many terms an operator adds up for one element of its output."""
    tensors = [value for value in args if isinstance(value, Tensor)]
    output = outputs[0] if isinstance(outputs, (tuple, list)) and outputs else outputs
    if not isinstance(output, Tensor) or not tensors or not output.numel():
        return 1.0
    if first is not None:
        left, right = args[first], args[first + 1]
        return right[0].numel() if "convolution" in name and right.dim() else left.shape[-1] if left.dim() else 1.0
    if name in _ALONG_A_DIMENSION:
        return tensors[0].shape[args[1]] if tensors[0].dim() else 1.0
    return max(1.0, max(t.numel() for t in tensors) / output.numel())


def _reduced(name: str, output: Tensor, args: tuple, kwargs: dict) -> tuple[Tensor, Tensor]:
    """Of each sum or mean: how large it is if the signs of its terms are random, and the error of adding blocks of them
    to one number, one after the other. Blocks of equal sums are rounded alike, and small ones are lost."""
    terms, dims = args[0], args[1] if len(args) > 1 else None
    dims = [d % terms.dim() for d in ([dims] if isinstance(dims, int) else dims or range(terms.dim()))]
    number = terms.numel() / output.numel()
    table = _block_sums(terms, dims, _BLOCKS[number > _SHORT])
    fold = max(1, _BLOCKS[-1] * table.shape[1] // int(number))
    whole = table.shape[1] // fold * fold
    lost = _sequential_error(table)
    if whole:
        lost = torch.maximum(lost, _sequential_error(table[:, :whole].unflatten(1, (-1, fold)).sum(2)))
    usual = torch.linalg.vector_norm(terms, dim=dims)
    scale = 1.0 / number if name == "mean" else 1.0
    finite = lambda values: torch.nan_to_num(values.reshape(output.shape) * scale, nan=0.0, posinf=0.0)
    return finite(usual), finite(lost)


def _block_sums(terms: Tensor, dims: list[int], width: int) -> Tensor:
    """Sums of `width` neighbours in the last of some dimensions: [outputs, blocks]. A shorter rest is left out."""
    last = max(dims)
    width = min(width, terms.shape[last])
    whole = terms.shape[last] // width * width
    sums = terms.narrow(last, 0, whole).unflatten(last, (-1, width)).sum(last + 1)
    outputs = [d for d in range(terms.dim()) if d not in dims]
    return sums.permute(*outputs, *dims).reshape(math.prod(terms.shape[d] for d in outputs), -1)


def _sequential_error(table: Tensor) -> Tensor:
    """By how much a sum in fp32 of each row [R, n] is off, if its terms are added one after the other."""
    if table.shape[1] <= _LOOP:
        found = torch.zeros_like(table[:, 0], dtype=torch.float32)
        for column in table.float().unbind(1):
            found = found + column
    else:
        with np.errstate(all="ignore"):
            found = torch.from_numpy(np.add.accumulate(table.float().cpu().numpy(), axis=1)[:, -1].copy())
    return (found.to(table) - table.sum(1)).abs()


def _with_correction(
    overload: str,
    x: Tensor,
    *rest: Any,
    unbiased: bool = True,
    correction: Any = None,
    keepdim: bool = False,
    **dims: Any,
) -> tuple[Tensor, Any, Any, bool]:
    """The arguments of an overload of `var` and its like: tensor, dimensions, correction, and whether they are kept."""
    if overload == "correction":
        return x, rest[0] if rest else dims.get("dim"), correction, keepdim
    if overload == "dim":
        more = (*rest[1:], *(unbiased, keepdim)[len(rest[1:]) :])
        return x, rest[0] if rest else dims.get("dim"), int(more[0]), more[1]
    return x, None, int(rest[0] if rest else unbiased), False


def _moments(name: str, x: Tensor, dim: Any, correction: Any, keepdim: bool) -> Any:
    """Variance, standard deviation and mean by operators that can be disturbed each."""
    dims = list(range(x.dim())) if dim is None or dim == [] else list(dim)
    mean = x.mean(dims, keepdim=True)
    centred = x - mean
    number = x.numel() // max(1, mean.numel())
    freedom = max(0.0, number - (1 if correction is None else correction))
    spread = (centred * centred).sum(dims, keepdim=keepdim) / freedom
    if name.startswith("std"):
        spread = spread.sqrt()
    if not name.endswith("mean"):
        return spread
    return spread, mean if keepdim else mean.reshape(spread.shape)


def _parts(tensor: Tensor) -> Iterator[Tensor]:
    """Views that together are the tensor: rows of its last dimension, or of the first one where that is short, some at
    once, where it is dense."""
    if not tensor.is_contiguous() or not tensor.dim() or not tensor.numel():
        yield tensor if tensor.dim() else tensor.view(1)
        return
    table = _as_table(tensor)
    yield from table.split(max(1, _CHUNK // table.shape[1])) if len(table) > 1 else table.split(_CHUNK, 1)


def _as_table(tensor: Tensor) -> Tensor:
    """A dense tensor as rows [R, C] of its last dimension, or of the first one where that is short."""
    wide = tensor.shape[-1] >= _MIN_ROW or tensor.dim() == 1
    return tensor.view(-1, tensor.shape[-1]) if wide else tensor.view(len(tensor), -1)


def _only_floats(outputs: Any) -> bool:
    """Whether an operator gives floating tensors and nothing from which indices or decisions come."""
    several = outputs if isinstance(outputs, (tuple, list)) else (outputs,)
    return all(isinstance(value, Tensor) and value.is_floating_point() for value in several)
