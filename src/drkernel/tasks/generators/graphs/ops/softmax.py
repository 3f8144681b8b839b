"""Softmax and its like, along one dimension."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from typing import Any

import torch.nn.functional as F

from drkernel.tasks.generators.graphs.dims import Shape
from drkernel.tasks.generators.graphs.op import Op
from drkernel.tasks.generators.graphs.ops.shapes import spell, unchanged
from drkernel.tasks.generators.operators.rows import LARGE_ONE_SIGN, SMALL_ONE_SIGN

LEAST = 4
"""The least small size of a dimension that a softmax goes along."""


def draw_dim(rng: random.Random, shapes: Sequence[Shape]) -> dict[str, Any] | None:
    """A dimension with several elements; the last one and the channels are more likely."""
    rank = len(shapes[0])
    likely = (*range(rank), *range(rank), rank - 1, rank - 1, min(1, rank - 1))
    places = [place for place in likely if shapes[0][place].small >= LEAST]
    return {"dim": rng.choice(places)} if places else None


def _softmax(name: str, function: Callable, spellings: tuple, leaves: dict) -> Op:
    return Op(
        name,
        "softmax",
        unchanged,
        lambda inputs, own, attributes: function(inputs[0], dim=attributes["dim"]),
        spellings,
        draw=draw_dim,
        arguments={"dim": ("dim",)},
        attribute_names=("softmax",),
        leaves=leaves,
    )


SOFTMAXES = (
    _softmax(
        "softmax",
        F.softmax,
        spell(
            "F.softmax({x}, dim={dim})",
            "{x}.softmax(dim={dim})",
            "nn.Softmax(dim={dim})",
            "e = torch.exp({x} - {x}.amax(dim={dim}, keepdim=True))\ne / e.sum(dim={dim}, keepdim=True)",
        )
        + spell("torch.softmax({x}, dim={dim})"),
        SMALL_ONE_SIGN,
    ),
    _softmax(
        "log_softmax",
        F.log_softmax,
        spell(
            "F.log_softmax({x}, dim={dim})",
            "{x}.log_softmax(dim={dim})",
            "nn.LogSoftmax(dim={dim})",
            "{x} - torch.logsumexp({x}, dim={dim}, keepdim=True)",
        )
        + spell("torch.log_softmax({x}, dim={dim})"),
        LARGE_ONE_SIGN,
    ),
    _softmax(
        "softmin",
        F.softmin,
        spell("F.softmin({x}, dim={dim})", "", "nn.Softmin(dim={dim})", "F.softmax(-{x}, dim={dim})"),
        SMALL_ONE_SIGN,
    ),
)
