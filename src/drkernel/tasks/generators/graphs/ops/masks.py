"""Masks before a softmax: places behind the own one, behind a length, and those that a given mask names.

Answers leave their first lines in PyTorch: what a mask is made of is small.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from drkernel.tasks.generators.graphs.op import Op, Spelling
from drkernel.tasks.generators.graphs.ops.shapes import unchanged

_SIDES = "{x}.shape[-2], {x}.shape[-1], device={x}.device"
_RANKS = (2, 3, 4)


def _causal(inputs: Any, own: Any, attributes: Any) -> Tensor:
    x = inputs[0]
    return x.masked_fill(torch.ones(x.shape[-2:], dtype=torch.bool, device=x.device).triu(1), float("-inf"))


def _lengths(inputs: Any, own: Any, attributes: Any) -> Tensor:
    x, lengths = inputs
    places = torch.arange(x.shape[-1], device=x.device)
    return x.masked_fill(places > lengths.view(-1, *[1] * (x.dim() - 1)), float("-inf"))


def _of_length(rank: int) -> tuple[Spelling, ...]:
    index = ", ".join([":", *["None"] * (rank - 1)])
    when = lambda a, rank=rank: a["rank"] == rank
    places = "torch.arange({x}.shape[-1], device={x}.device)"
    return (
        Spelling("manual", f'{{x}}.masked_fill({places} > {{y}}[{index}], float("-inf"))', when),
        Spelling(
            "manual",
            f'valid = {places} <= {{y}}[{index}]\n{{x}}.masked_fill(~valid, float("-inf"))',
            when,
        ),
    )


MASKS = (
    Op(
        "causal_mask",
        "library",
        unchanged,
        _causal,
        (
            Spelling(
                "manual",
                f"mask = torch.triu(torch.ones({_SIDES}, dtype=torch.bool), diagonal=1)\n"
                '{x}.masked_fill(mask, float("-inf"))',
            ),
            Spelling("manual", f'mask = torch.tril(torch.ones({_SIDES}))\n{{x}}.masked_fill(mask == 0, float("-inf"))'),
        ),
        level=("network",),
    ),
    Op(
        "length_mask",
        "library",
        unchanged,
        _lengths,
        tuple(spelling for rank in _RANKS for spelling in _of_length(rank)),
        arity=2,
        derive=lambda shapes, a: {"rank": len(shapes[0])},
        level=("network",),
    ),
    Op(
        "mask_low",
        "library",
        unchanged,
        lambda inputs, own, a: inputs[0].masked_fill(inputs[1], -1e4),
        (
            Spelling("method", "{x}.masked_fill({y}, -1e4)"),
            Spelling("functional", "torch.masked_fill({x}, {y}, -10000.0)"),
            Spelling("functional", "torch.where({y}, -1e4, {x})"),
        ),
        arity=2,
        level=("network",),
    ),
)
