"""Norms: elements are scaled by statistics over some dimensions.

Attributes that all have: `dims`, over which statistics are taken (of group norm: within each group), and `eps`.
`statistics` says which: moments (mean and variance), squares (mean of squares), running (those of training, in
parameters), l1, l2 (sums of absolute values, of squares), mean_abs. `weight` and `bias`, where there are any, have the
shape of the normalised dimensions (layer, RMS) or one value per channel (all others).
"""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from typing import Any

import torch.nn.functional as F
from torch import Tensor

from drkernel.tasks.graphs.dims import Shape, count
from drkernel.tasks.graphs.nodes import Attributes, Parameter
from drkernel.tasks.graphs.op import Op, Spelling
from drkernel.tasks.graphs.ops.shapes import spell, unchanged
from drkernel.tasks.operators.rows import UNIT

_EPS = (1e-5, 1e-5, 1e-6, 1e-3)


def _channels(shapes: Sequence[Shape], attributes: Attributes) -> tuple[Parameter, ...]:
    shape = (shapes[0][1],)
    return (Parameter("weight", shape, "module"), Parameter("bias", shape, "module"))


def _running(shapes: Sequence[Shape], attributes: Attributes) -> tuple[Parameter, ...]:
    statistics = (Parameter(role, (shapes[0][1],), "module", buffer=True) for role in ("running_mean", "running_var"))
    return (*_channels(shapes, attributes), *statistics)


def _normalised(shapes: Sequence[Shape], attributes: Attributes) -> tuple[Parameter, ...]:
    shape = attributes["normalized_shape"]
    return (Parameter("weight", shape, "module"), Parameter("bias", shape, "module"))


def _last(shapes: Sequence[Shape], attributes: Attributes) -> dict[str, Any]:
    """The dimensions of a layer norm, the last `last` ones, and their shape."""
    rank, last = len(shapes[0]), int(attributes["last"])
    return {
        "dims": tuple(range(rank - last, rank)),
        "normalized_shape": shapes[0][rank - last :],
        "statistics": "moments",
    }


def _draw_last(rng: random.Random, shapes: Sequence[Shape]) -> dict[str, Any] | None:
    rank = len(shapes[0])
    last = rng.choice((1, 1, 1, 2, 3))
    if last >= rank or count(shapes[0][rank - last :], small=True) < 8:
        last = 1
    return {"last": last, "eps": rng.choice(_EPS)} if shapes[0][-1].small >= 8 else None


def _batch_norm(rank: int) -> Op:
    def eager(inputs: Sequence[Tensor], own: Mapping[str, Tensor], attributes: dict[str, Any]) -> Tensor:
        mean, variance = (own[role].clone() for role in ("running_mean", "running_var"))
        training = attributes.get("training", False)
        return F.batch_norm(inputs[0], mean, variance, own["weight"], own["bias"], training, 0.1, attributes["eps"])

    return Op(
        f"batch_norm{rank}d",
        "norm",
        unchanged,
        eager,
        (Spelling("module", f"nn.BatchNorm{rank}d({{num_features}}{{eps=}}{{momentum=}})"),),
        defaults={"eps": 1e-5, "momentum": 0.1},
        derive=lambda shapes, a: {
            "num_features": shapes[0][1],
            "dims": (0, *range(2, len(shapes[0]))),
            "statistics": "running",
        },
        draw=lambda rng, shapes: {"eps": rng.choice(_EPS)} if len(shapes[0]) == max(rank + 2, 2) else None,
        parameters=_running,
        arguments={"eps": ("eps",)},
        attribute_names=("bn", "batch_norm", "norm"),
        leaves=UNIT,
    )


NORMS = (
    Op(
        "layer_norm",
        "norm",
        unchanged,
        lambda inputs, own, a: F.layer_norm(inputs[0], a["normalized_shape"], own["weight"], own["bias"], a["eps"]),
        spell("", "", "nn.LayerNorm({normalized_shape}{eps=})"),
        defaults={"eps": 1e-5, "last": 1},
        derive=_last,
        draw=_draw_last,
        parameters=_normalised,
        attribute_names=("norm", "ln", "layer_norm"),
        leaves=UNIT,
    ),
    _batch_norm(2),
)
