"""Functions that are told as the calls that they consist of, since no policy has learnt them as they are.

    F.margin_ranking_loss(a, b, y, margin=0.5)   ->   t0 = in0 - in1
                                                      t1 = t0 * in2
                                                      t2 = 0.5 - t1
                                                      t3 = torch.clamp(t2, min=0.0)
                                                      t4 = torch.mean(t3)

A small policy knows element-wise functions, reductions and products, and fuses them. A loss that it has never read it
answers at random. Some of these functions look at values (`gaussian_nll_loss` at signs), which tensors without data do
not have. Their arguments are PyTorch's; a call that has others is told as it is.
"""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor


class _AsItIs(Exception):
    """A call that is told as it is."""


def unfolded(func: Callable, args: Sequence[Any], words: Mapping[str, Any]) -> Callable[[], Any] | None:
    """What makes the calls that a call consists of; None where it is told as it is."""
    name = getattr(func, "__name__", "")
    own = _UNFOLDED.get(name)
    if own is None or words.get("out") is not None:
        return None
    try:
        given = inspect.signature(own).bind(*args, **{word: value for word, value in words.items() if word != "out"})
    except TypeError:
        return None

    def parts() -> Any:
        try:
            return own(*given.args, **given.kwargs)
        except _AsItIs:
            return NotImplemented

    return parts


def _reduced(loss: Tensor, reduction: str, *old: Any) -> Tensor:
    """old: `size_average` and `reduce`, which came before `reduction`."""
    if any(value is not None for value in old) or reduction not in ("mean", "sum", "none"):
        raise _AsItIs
    return loss if reduction == "none" else loss.mean() if reduction == "mean" else loss.sum()


def _gaussian_nll_loss(
    input: Tensor, target: Tensor, var: Any, full: bool = False, eps: float = 1e-6, reduction: str = "mean"
) -> Tensor:
    if not isinstance(var, Tensor):
        raise _AsItIs
    if var.shape == input.shape[:-1]:
        var = var.unsqueeze(-1)
    var = var.clamp(min=eps)
    loss = (torch.log(var) + (input - target) ** 2 / var) * 0.5
    return _reduced(loss + 0.5 * math.log(2 * math.pi) if full else loss, reduction)


def _margin_ranking_loss(
    input1: Tensor,
    input2: Tensor,
    target: Tensor,
    margin: float = 0,
    size_average: Any = None,
    reduce: Any = None,
    reduction: str = "mean",
) -> Tensor:
    return _reduced((margin - (input1 - input2) * target).clamp(min=0), reduction, size_average, reduce)


def _soft_margin_loss(
    input: Tensor, target: Tensor, size_average: Any = None, reduce: Any = None, reduction: str = "mean"
) -> Tensor:
    return _reduced(F.softplus(-(input * target)), reduction, size_average, reduce)


def _multilabel_soft_margin_loss(
    input: Tensor,
    target: Tensor,
    weight: Tensor | None = None,
    size_average: Any = None,
    reduce: Any = None,
    reduction: str = "mean",
) -> Tensor:
    loss = F.softplus(input) - input * target
    return _reduced((loss if weight is None else loss * weight).mean(dim=-1), reduction, size_average, reduce)


def _hinge_embedding_loss(
    input: Tensor,
    target: Tensor,
    margin: float = 1.0,
    size_average: Any = None,
    reduce: Any = None,
    reduction: str = "mean",
) -> Tensor:
    loss = torch.where(target == 1, input, (margin - input).clamp(min=0))
    return _reduced(loss, reduction, size_average, reduce)


def _cosine_embedding_loss(
    input1: Tensor,
    input2: Tensor,
    target: Tensor,
    margin: float = 0,
    size_average: Any = None,
    reduce: Any = None,
    reduction: str = "mean",
) -> Tensor:
    if input1.dim() != 2 or target.dim() != 1:
        raise _AsItIs
    cosine = F.cosine_similarity(input1, input2, dim=1)
    loss = torch.where(target == 1, 1 - cosine, (cosine - margin).clamp(min=0))
    return _reduced(loss, reduction, size_average, reduce)


def _multi_margin_loss(
    input: Tensor,
    target: Tensor,
    p: int = 1,
    margin: float = 1.0,
    weight: Tensor | None = None,
    size_average: Any = None,
    reduce: Any = None,
    reduction: str = "mean",
) -> Tensor:
    if input.dim() != 2 or p not in (1, 2) or weight is not None:
        raise _AsItIs
    loss = (input - torch.gather(input, 1, target.unsqueeze(1)) + margin).clamp(min=0)
    loss = (loss if p == 1 else loss**2).sum(dim=1) - max(margin, 0) ** p
    return _reduced(loss / input.shape[1], reduction, size_average, reduce)


def _binary_cross_entropy_with_logits(
    input: Tensor,
    target: Tensor,
    weight: Tensor | None = None,
    size_average: Any = None,
    reduce: Any = None,
    reduction: str = "mean",
    pos_weight: Tensor | None = None,
) -> Tensor:
    if pos_weight is None and weight is None:
        raise _AsItIs
    loss = F.softplus(-input)
    if pos_weight is not None:
        loss = loss * ((pos_weight - 1) * target + 1)
    loss = loss + (1 - target) * input
    return _reduced(loss if weight is None else loss * weight, reduction, size_average, reduce)


def _pairwise_distance(x1: Tensor, x2: Tensor, p: float = 2.0, eps: float = 1e-6, keepdim: bool = False) -> Tensor:
    apart = x1 - x2 + eps
    more = {} if p == 2 else {"p": p}
    return torch.norm(apart, dim=-1, keepdim=keepdim, **more)


def _norm(
    input: Tensor, p: Any = "fro", dim: Any = None, keepdim: bool = False, out: Any = None, dtype: Any = None
) -> Tensor:
    if type(p) not in (int, float) or p in (0, 1, 2) or not math.isfinite(p) or dtype is not None:
        raise _AsItIs
    powers = input.abs() ** p
    return (powers.sum() if dim is None else powers.sum(dim=dim, keepdim=keepdim)) ** (1 / p)


def _vector_norm(x: Tensor, ord: Any = 2, dim: Any = None, keepdim: bool = False, *, dtype: Any = None) -> Tensor:
    return _norm(x, ord, dim, keepdim, dtype=dtype)


def _cdist(x1: Tensor, x2: Tensor, p: float = 2.0, compute_mode: str | None = None) -> Tensor:
    if p != 2.0:
        raise _AsItIs
    squares = (x1 * x1).sum(dim=-1, keepdim=True), (x2 * x2).sum(dim=-1).unsqueeze(-2)
    products = x1 @ x2.transpose(-1, -2)
    return (products * -2 + squares[0] + squares[1]).clamp(min=0).sqrt()


def _addmm(input: Tensor, mat1: Tensor, mat2: Tensor, *, beta: float = 1, alpha: float = 1) -> Tensor:
    if beta == alpha == 1:
        raise _AsItIs
    return _baddbmm(input, mat1, mat2, beta=beta, alpha=alpha)


def _baddbmm(input: Tensor, batch1: Tensor, batch2: Tensor, *, beta: float = 1, alpha: float = 1) -> Tensor:
    product = batch1 @ batch2
    product = product if alpha == 1 else product * alpha
    return product + (input if beta == 1 else input * beta)


def _addcmul(input: Tensor, tensor1: Tensor, tensor2: Tensor, *, value: float = 1) -> Tensor:
    if value == 1:
        raise _AsItIs
    return input + tensor1 * tensor2 * value


def _addcdiv(input: Tensor, tensor1: Tensor, tensor2: Tensor, *, value: float = 1) -> Tensor:
    if value == 1:
        raise _AsItIs
    return input + tensor1 / tensor2 * value


def _logaddexp(input: Tensor, other: Tensor) -> Tensor:
    return torch.maximum(input, other) + torch.log1p(torch.exp(-(input - other).abs()))


def _tensordot(a: Tensor, b: Tensor, dims: Any = 2) -> Tensor:
    """As a product of matrices: rows are what is left of the one, columns what is left of the other."""
    if not isinstance(dims, int | tuple | list):
        raise _AsItIs
    left, right = (range(a.dim() - dims, a.dim()), range(dims)) if isinstance(dims, int) else map(_dims, dims)
    left, right = [d % a.dim() for d in left], [d % b.dim() for d in right]
    rows = [d for d in range(a.dim()) if d not in left]
    columns = [d for d in range(b.dim()) if d not in right]
    if not left or not rows or not columns:
        raise _AsItIs
    one, other = a.permute(*rows, *left), b.permute(*right, *columns)
    one = one if len(left) == 1 else one.flatten(len(rows))
    other = other if len(right) == 1 else other.flatten(0, len(right) - 1)
    if len(columns) == 1:
        return one @ other
    return (one @ other.flatten(1)).unflatten(-1, [b.shape[d] for d in columns])


def _dims(dims: Any) -> Sequence[int]:
    return [dims] if isinstance(dims, int) else dims


def _weight_norm(v: Tensor, g: Tensor, dim: int = 0) -> Tensor:
    """What a parametrization by length and direction computes."""
    if not 0 <= dim < v.dim():
        raise _AsItIs
    others = tuple(d for d in range(v.dim()) if d != dim)
    return v * (g / torch.norm(v, p=2, dim=others, keepdim=True))


def _local_response_norm(input: Tensor, size: int, alpha: float = 1e-4, beta: float = 0.75, k: float = 1.0) -> Tensor:
    if input.dim() not in (3, 4):
        raise _AsItIs
    squares = F.pad((input * input).unsqueeze(1), [0, 0] * (input.dim() - 2) + [size // 2, (size - 1) // 2])
    pool, window = (F.avg_pool2d, (size, 1)) if input.dim() == 3 else (F.avg_pool3d, (size, 1, 1))
    return input / (pool(squares, window, stride=1).squeeze(1) * alpha + k) ** beta


def _pool_of_powers(rank: int) -> Callable[..., Tensor]:
    average = {1: F.avg_pool1d, 2: F.avg_pool2d, 3: F.avg_pool3d}[rank]

    def pooled(
        input: Tensor, norm_type: float, kernel_size: Any, stride: Any = None, ceil_mode: bool = False
    ) -> Tensor:
        if norm_type in (1, 2) or not math.isfinite(norm_type):
            raise _AsItIs
        places = kernel_size**rank if isinstance(kernel_size, int) else math.prod(kernel_size)
        squares = input * input if norm_type == 4 else input
        powers = squares * squares if norm_type == 4 else input**norm_type
        out = average(powers, kernel_size, stride, 0, ceil_mode)
        return (torch.sign(out) * out.abs() * places) ** (1 / norm_type)

    return pooled


def _embedding_bag(
    input: Tensor,
    weight: Tensor,
    offsets: Tensor | None = None,
    max_norm: float | None = None,
    norm_type: float = 2,
    scale_grad_by_freq: bool = False,
    mode: str = "mean",
    sparse: bool = False,
    per_sample_weights: Tensor | None = None,
    include_last_offset: bool = False,
    padding_idx: int | None = None,
) -> Tensor:
    if input.dim() != 2 or offsets is not None or max_norm is not None or padding_idx is not None:
        raise _AsItIs
    rows = F.embedding(input, weight)
    if per_sample_weights is not None:
        rows = rows * per_sample_weights.unsqueeze(2)
    return rows.sum(dim=1) if mode == "sum" else rows.mean(dim=1) if mode == "mean" else rows.amax(dim=1)


def _with_mean(spread: Callable[..., Tensor]) -> Callable[..., tuple[Tensor, Tensor]]:
    def both(input: Tensor, dim: Any = None, *args: Any, keepdim: bool = False, **words: Any) -> tuple[Tensor, Tensor]:
        if args or dim is None:
            raise _AsItIs
        return spread(input, dim=dim, keepdim=keepdim, **words), input.mean(dim=dim, keepdim=keepdim)

    return both


_UNFOLDED: Mapping[str, Callable[..., Any]] = {
    "gaussian_nll_loss": _gaussian_nll_loss,
    "margin_ranking_loss": _margin_ranking_loss,
    "soft_margin_loss": _soft_margin_loss,
    "multilabel_soft_margin_loss": _multilabel_soft_margin_loss,
    "hinge_embedding_loss": _hinge_embedding_loss,
    "cosine_embedding_loss": _cosine_embedding_loss,
    "multi_margin_loss": _multi_margin_loss,
    "binary_cross_entropy_with_logits": _binary_cross_entropy_with_logits,
    "pairwise_distance": _pairwise_distance,
    "norm": _norm,
    "linalg_vector_norm": _vector_norm,
    "cdist": _cdist,
    "addmm": _addmm,
    "baddbmm": _baddbmm,
    "addcmul": _addcmul,
    "addcdiv": _addcdiv,
    "logaddexp": _logaddexp,
    "tensordot": _tensordot,
    "_weight_norm": _weight_norm,
    "local_response_norm": _local_response_norm,
    "lp_pool1d": _pool_of_powers(1),
    "lp_pool2d": _pool_of_powers(2),
    "lp_pool3d": _pool_of_powers(3),
    "embedding_bag": _embedding_bag,
    "std_mean": _with_mean(torch.std),
    "var_mean": _with_mean(torch.var),
}
