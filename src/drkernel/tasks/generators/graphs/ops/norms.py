"""Norms: elements are scaled by statistics over some dimensions.

Attributes that all have: `dims`, over which statistics are taken (of group norm: within each group), and `eps`.
`statistics` says which: moments (mean and variance), squares (mean of squares), running (those of training, in
parameters), l1, l2 (sums of absolute values, of squares), mean_abs, mean (which is subtracted alone). `weight` and
`bias`, where there are any, have the shape of the normalised dimensions (layer, RMS) or one value per channel (others).
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from drkernel.tasks.generators.graphs.dims import Shape, count
from drkernel.tasks.generators.graphs.nodes import Attributes, Parameter
from drkernel.tasks.generators.graphs.op import Op, Spelling
from drkernel.tasks.generators.graphs.ops.reductions import draw_dims
from drkernel.tasks.generators.graphs.ops.shapes import number, small_number, spell, unchanged
from drkernel.tasks.generators.graphs.ops.softmax import draw_dim
from drkernel.tasks.generators.operators.operator import State
from drkernel.tasks.generators.operators.rows import SMALL, UNIT

_EPS = (1e-5, 1e-5, 1e-6, 1e-3)
_RANKS = {1: (2, 3), 2: (4,), 3: (5,)}
"""Ranks of what a batch norm takes."""


def _channels(shapes: Sequence[Shape], attributes: Attributes) -> tuple[Parameter, ...]:
    shape = (shapes[0][1],)
    return (Parameter("weight", shape, "module"), Parameter("bias", shape, "module"))


def _affine(shapes: Sequence[Shape], attributes: Attributes) -> tuple[Parameter, ...]:
    return _channels(shapes, attributes) if attributes["affine"] else ()


def _running(shapes: Sequence[Shape], attributes: Attributes) -> tuple[Parameter, ...]:
    statistics = (Parameter(role, (shapes[0][1],), "module", buffer=True) for role in ("running_mean", "running_var"))
    return (*_affine(shapes, attributes), *statistics)


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


def _plain(attributes: Attributes) -> bool:
    """Whether a layer norm has no parameters."""
    return not attributes["elementwise_affine"]


def _draw_last(rng: random.Random, shapes: Sequence[Shape]) -> dict[str, Any] | None:
    rank = len(shapes[0])
    last = rng.choice((1, 1, 1, 2, 3))
    if last >= rank or count(shapes[0][rank - last :], small=True) < 8:
        last = 1
    found = {"last": last, "eps": small_number(rng, _EPS), "elementwise_affine": rng.random() < 0.8}
    return found if shapes[0][-1].small >= 8 else None


def _without_keepdim(found: dict[str, Any] | None) -> dict[str, Any] | None:
    return None if found is None else {"dims": found["dims"]}


def _batch_norm(rank: int) -> Op:
    def eager(inputs: Sequence[Tensor], own: Mapping[str, Tensor], attributes: dict[str, Any]) -> Tensor:
        mean, variance = (own[role].clone() for role in ("running_mean", "running_var"))
        training = attributes.get("training", False)
        weight, bias = own.get("weight"), own.get("bias")
        return F.batch_norm(inputs[0], mean, variance, weight, bias, training, 0.1, attributes["eps"])

    return Op(
        f"batch_norm{rank}d",
        "norm",
        unchanged,
        eager,
        (Spelling("module", f"nn.BatchNorm{rank}d({{num_features}}{{eps=}}{{momentum=}}{{affine=}})"),),
        defaults={"eps": 1e-5, "momentum": 0.1, "affine": True},
        derive=lambda shapes, a: {
            "num_features": shapes[0][1],
            "dims": (0, *range(2, len(shapes[0]))),
            "statistics": "running",
        },
        draw=lambda rng, shapes: (
            {
                "eps": small_number(rng, _EPS),
                "momentum": number(rng, (0.1, 0.1, 0.01, 0.9)),
                "affine": rng.random() < 0.8,
            }
            if len(shapes[0]) in _RANKS[rank] and count((shapes[0][0], *shapes[0][2:]), small=True) > 1
            else None
        ),
        parameters=_running,
        attribute_names=("bn", "batch_norm", "norm"),
        after=lambda state, a: replace(state, bounded=False) if state.size == "large" else State(),
    )


def _instance_norm(rank: int) -> Op:
    module = f"nn.InstanceNorm{rank}d({{num_features}}{{eps=}}{{affine=}})"
    return Op(
        f"instance_norm{rank}d",
        "norm",
        unchanged,
        lambda inputs, own, a: F.instance_norm(inputs[0], weight=own.get("weight"), bias=own.get("bias"), eps=a["eps"]),
        (
            Spelling("module", module),
            Spelling("functional", "F.instance_norm({x}, eps={eps})", lambda a: not a["affine"]),
        ),
        defaults={"eps": 1e-5, "affine": False},
        derive=lambda shapes, a: {
            "num_features": shapes[0][1],
            "dims": tuple(range(2, len(shapes[0]))),
            "statistics": "moments",
        },
        draw=lambda rng, shapes: (
            {"eps": small_number(rng, _EPS), "affine": rng.random() < 0.5}
            if len(shapes[0]) == rank + 2 and count(shapes[0][2:], small=True) >= 8
            else None
        ),
        parameters=_affine,
        attribute_names=("instance_norm", "norm"),
        leaves=UNIT,
    )


def _draw_groups(rng: random.Random, shapes: Sequence[Shape]) -> dict[str, Any] | None:
    """A number of groups that divides the channels, published and small ones."""
    if len(shapes[0]) < 2:
        return None
    channels = shapes[0][1]
    fitting = [n for n in (1, 2, 2, 3, 4, 4, 6, 8, 12, 16, 32) if channels.full % n == channels.small % n == 0]
    room = count(shapes[0][1:], small=True)
    fitting = [n for n in fitting if room // n >= 8]
    found = {"eps": small_number(rng, _EPS), "affine": rng.random() < 0.8}
    return {**found, "num_groups": rng.choice(fitting)} if fitting else None


def _scaled(
    name: str, statistics: str, eager: Callable[[Tensor, int, float], Tensor], spellings: tuple, eps: tuple[float, ...]
) -> Op:
    """A norm without parameters, along one dimension."""
    return Op(
        name,
        "norm",
        unchanged,
        lambda inputs, own, a: eager(inputs[0], a["dim"], a["eps"]),
        spellings,
        derive=lambda shapes, a: {"dims": (a["dim"],), "statistics": statistics},
        draw=lambda rng, shapes: _with_eps(draw_dim(rng, shapes), small_number(rng, eps)),
        arguments={"dim": ("dim",), "eps": ("eps",)},
        leaves=SMALL if statistics != "mean_abs" else UNIT,
    )


def _with_eps(found: dict[str, Any] | None, eps: float) -> dict[str, Any] | None:
    """With an epsilon, which some leave out."""
    return None if found is None else {**found, "eps": eps}


def _rms(x: Tensor, dim: int, eps: float) -> Tensor:
    return x / torch.sqrt(x.square().mean(dim, keepdim=True) + eps)


def _standardised(x: Tensor, dim: int, eps: float) -> Tensor:
    return (x - x.mean(dim, keepdim=True)) / (x.std(dim, keepdim=True) + eps)


NORMS = (
    Op(
        "layer_norm",
        "norm",
        unchanged,
        lambda inputs, own, a: F.layer_norm(
            inputs[0], a["normalized_shape"], own.get("weight"), own.get("bias"), a["eps"]
        ),
        (
            Spelling("module", "nn.LayerNorm({normalized_shape}{eps=}{elementwise_affine=})"),
            Spelling("module", "nn.LayerNorm(normalized_shape={normalized_shape}{eps=}{elementwise_affine=})"),
            Spelling("functional", "F.layer_norm({x}, {x}.shape[-{last}:]{eps=})", _plain),
            Spelling("functional", "F.layer_norm({x}, ({x}.shape[-1],){eps=})", lambda a: _plain(a) and a["last"] == 1),
        ),
        defaults={"eps": 1e-5, "last": 1, "elementwise_affine": True},
        derive=_last,
        draw=_draw_last,
        parameters=lambda shapes, a: () if _plain(a) else _normalised(shapes, a),
        attribute_names=("norm", "ln", "layer_norm"),
        leaves=UNIT,
    ),
    Op(
        "rms_norm",
        "norm",
        unchanged,
        lambda inputs, own, a: F.rms_norm(inputs[0], a["normalized_shape"], own["weight"], a["eps"]),
        spell("", "", "nn.RMSNorm({normalized_shape}, eps={eps})"),
        defaults={"last": 1},
        derive=lambda shapes, a: {**_last(shapes, a), "statistics": "squares"},
        draw=lambda rng, shapes: _with_eps({"last": 1}, small_number(rng, _EPS)) if shapes[0][-1].small >= 8 else None,
        parameters=lambda shapes, a: _normalised(shapes, a)[:1],
        attribute_names=("norm", "rms", "rms_norm"),
        leaves=UNIT,
    ),
    Op(
        "group_norm",
        "norm",
        unchanged,
        lambda inputs, own, a: F.group_norm(inputs[0], a["num_groups"], own.get("weight"), own.get("bias"), a["eps"]),
        (
            Spelling("module", "nn.GroupNorm({num_groups}, {num_features}{eps=}{affine=})"),
            Spelling("module", "nn.GroupNorm(num_groups={num_groups}, num_channels={num_features}{eps=}{affine=})"),
            Spelling("functional", "F.group_norm({x}, {num_groups}{eps=})", lambda a: not a["affine"]),
        ),
        defaults={"eps": 1e-5, "affine": True},
        derive=lambda shapes, a: {
            "num_features": shapes[0][1],
            "dims": tuple(range(1, len(shapes[0]))),
            "statistics": "moments",
        },
        draw=_draw_groups,
        parameters=_affine,
        arguments={"num_groups": ("num_groups", "groups"), "eps": ("eps",)},
        attribute_names=("group_norm", "gn", "norm"),
        leaves=UNIT,
    ),
    *(_batch_norm(rank) for rank in (1, 2, 3)),
    *(_instance_norm(rank) for rank in (1, 2, 3)),
    _scaled(
        "rms_scale",
        "squares",
        _rms,
        spell("", "", "", "{x} / torch.sqrt(torch.mean({x} ** 2, dim={dim}, keepdim=True) + {eps})")
        + spell("", "", "", "{x} * torch.rsqrt({x}.pow(2).mean(dim={dim}, keepdim=True) + {eps})")
        + spell("", "", "", "{x} / ({x}.square().mean({dim}, True) + {eps}) ** 0.5")
        + spell("", "", "", "{x} * ({x}.pow(2).mean({dim}, keepdim=True) + {eps}).rsqrt()")
        + spell("", "", "", "{x} / ((torch.sum({x} * {x}, dim={dim}, keepdim=True) / {x}.shape[{dim}]) + {eps}).sqrt()")
        + spell("", "", "", "rms = torch.sqrt(torch.mean({x} ** 2, dim={dim}, keepdim=True) + {eps})\n{x} / rms"),
        (1e-5, 1e-6),
    ),
    _scaled(
        "l2_norm",
        "l2",
        lambda x, dim, eps: F.normalize(x, p=2, dim=dim, eps=eps),
        (
            Spelling("functional", "F.normalize({x}, p=2, dim={dim}, eps={eps})"),
            Spelling("functional", "F.normalize({x}, dim={dim})", lambda a: a["eps"] == 1e-12),
            Spelling("manual", "{x} / torch.norm({x}, p=2, dim={dim}, keepdim=True).clamp_min({eps})"),
            Spelling("manual", "{x} / torch.norm({x}, p=2, dim={dim}, keepdim=True)", lambda a: a["eps"] <= 1e-8),
            Spelling("manual", "{x} / {x}.norm(dim={dim}, keepdim=True)", lambda a: a["eps"] <= 1e-8),
            Spelling(
                "manual", "{x} / torch.sqrt(torch.sum({x} ** 2, dim={dim}, keepdim=True))", lambda a: a["eps"] <= 1e-8
            ),
        ),
        (1e-12, 1e-12, 1e-6),
    ),
    _scaled(
        "l1_norm",
        "l1",
        lambda x, dim, eps: F.normalize(x, p=1, dim=dim, eps=eps),
        spell("F.normalize({x}, p=1, dim={dim}, eps={eps})")
        + spell("", "", "", "{x} / torch.sum(torch.abs({x}), dim={dim}, keepdim=True).clamp(min={eps})"),
        (1e-12, 1e-8),
    ),
    _scaled(
        "mean_abs_norm",
        "mean_abs",
        lambda x, dim, eps: x / (x.abs().mean(dim, keepdim=True) + eps),
        spell("", "", "", "{x} / (torch.mean(torch.abs({x}), dim={dim}, keepdim=True) + {eps})")
        + spell("", "", "", "scale = {x}.abs().mean(dim={dim}, keepdim=True)\n{x} / (scale + {eps})")
        + (Spelling("manual", "{x} / torch.mean(torch.abs({x}), dim={dim}, keepdim=True)", lambda a: a["eps"] < 1e-7),),
        (1e-5, 1e-6, 1e-8),
    ),
    _scaled(
        "standardize",
        "moments",
        _standardised,
        spell("", "", "", "({x} - {x}.mean(dim={dim}, keepdim=True)) / ({x}.std(dim={dim}, keepdim=True) + {eps})")
        + spell(
            "", "", "", "mean = {x}.mean({dim}, keepdim=True)\n({x} - mean) / ({x}.std({dim}, keepdim=True) + {eps})"
        ),
        (1e-5, 1e-3),
    ),
    Op(
        "frobenius_norm",
        "norm",
        unchanged,
        lambda inputs, own, a: inputs[0] / inputs[0].norm(),
        spell("", "", "", ('{x} / torch.norm({x}, p="fro")', "norm = torch.norm({x})\n{x} / norm", "{x} / {x}.norm()")),
        derive=lambda shapes, a: {"dims": tuple(range(len(shapes[0]))), "statistics": "l2", "eps": 0.0},
        leaves=SMALL,
        level=("single",),
    ),
    Op(
        "centre",
        "norm",
        unchanged,
        lambda inputs, own, a: inputs[0] - inputs[0].mean(a["dims"], keepdim=True),
        spell(
            "", "", "", ("{x} - torch.mean({x}, dim={dims}, keepdim=True)", "{x} - {x}.mean(dim={dims}, keepdim=True)")
        ),
        derive=lambda shapes, a: {"statistics": "mean", "eps": 0.0},
        draw=lambda rng, shapes: _without_keepdim(draw_dims(rng, shapes)),
        leaves=UNIT,
    ),
)
