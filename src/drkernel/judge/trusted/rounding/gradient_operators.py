"""What autograd's operators compute, by operators whose errors are known: products, sums and point-wise ones.

PyTorch computes all gradients of a layer in one operator, whose outputs do not show how many terms they add, or of what
products they are made.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor
from torch._decomp import decomposition_table

_SUFFIXES = ("_backward", "_backward_data")
SOFTMAX_GRADIENTS = {"_softmax_backward_data", "_log_softmax_backward_data"}


def in_parts(operator: Any) -> Callable[..., Any] | None:
    """A function that computes the same by several operators; None for all that is no gradient of a layer."""
    name = operator.overloadpacket.__name__
    if name == "convolution_backward":
        return convolution_backward
    return decomposition_table.get(operator) if name.endswith(_SUFFIXES) else None


def softmax_backward(name: str, other: Tensor, grad: Tensor, output: Tensor, dim: int, _dtype: object) -> Tensor:
    """As ATen's of softmax or its logarithm.

    Args:
        other: the gradient as the sum over it has it. Flash attention takes that sum of outputs and their gradients, so
            that errors of the two do not cancel where one weight is nearly all.
    """
    if name.startswith("_log"):
        return grad - output.exp() * other.sum(dim, keepdim=True)
    return output * grad - output * (output * other).sum(dim, keepdim=True)


def convolution_backward(
    grad: Tensor,
    x: Tensor,
    weight: Tensor,
    bias_sizes: Sequence[int] | None,
    stride: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
    transposed: bool,
    output_padding: Sequence[int],
    groups: int,
    output_mask: Sequence[bool],
) -> tuple[Tensor | None, Tensor | None, Tensor | None]:
    """As ATen's: the gradients of input, weight and bias, those that the mask asks for."""
    of_x = of_weight = of_bias = None
    if output_mask[0]:
        window = [d * (k - 1) + 1 for d, k in zip(dilation, weight.shape[2:], strict=True)]
        reached = [(g - 1) * s - 2 * p + w for g, s, p, w in zip(grad.shape[2:], stride, padding, window, strict=True)]
        rest = [0] * len(window) if transposed else [n - r for n, r in zip(x.shape[2:], reached, strict=True)]
        of_x = torch.convolution(grad, weight, None, stride, padding, dilation, not transposed, rest, groups)
        for dim, size in enumerate(x.shape[2:], 2):  # output padding may be as large as a stride
            of_x = of_x.narrow(dim, 0, size)
    if output_mask[1]:
        given, moved = (x, grad) if transposed else (grad, x)
        of_weight = _by_offsets(given, moved, weight.shape, stride, padding, dilation, groups)
    if output_mask[2]:
        of_bias = grad.sum([0, *range(2, grad.dim())])
    return of_x, of_weight, of_bias


def _by_offsets(
    given: Tensor,
    moved: Tensor,
    shape: torch.Size,
    stride: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
    groups: int,
) -> Tensor:
    """For each place in the window a product over all samples and positions: of `given` [N, C, *], and of what lies
    there from each of its positions in `moved` [N, D, *]."""
    padded = torch.constant_pad_nd(moved, [p for size in reversed(padding) for p in (size, size)])
    reach = zip(given.shape[2:], stride, strict=True)
    lengths = [(positions - 1) * step + 1 for positions, step in reach]
    parts = []
    for place in itertools.product(*map(range, shape[2:])):
        window = padded
        for dim, (at, apart, length, step) in enumerate(zip(place, dilation, lengths, stride, strict=True), 2):
            window = window.narrow(dim, at * apart, length)
            window = window[(slice(None),) * dim + (slice(None, None, step),)]
        parts.append(torch.bmm(_grouped(given, groups), _grouped(window, groups).transpose(1, 2)))
    return torch.stack(parts, -1).reshape(shape)


def _grouped(values: Tensor, groups: int) -> Tensor:
    """[N, C, *] as [groups, C / groups, N * positions]."""
    return values.reshape(len(values), groups, values.shape[1] // groups, -1).permute(1, 2, 0, 3).flatten(2)
