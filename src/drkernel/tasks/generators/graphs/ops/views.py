"""Operators that move elements and compute nothing."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from drkernel.tasks.generators.graphs.dims import Shape, as_dim, product, same
from drkernel.tasks.generators.graphs.nodes import Attributes
from drkernel.tasks.generators.graphs.op import Op, Spelling
from drkernel.tasks.generators.graphs.ops.shapes import joined, number, scaled, spell


def _flattened(shapes: Sequence[Shape], a: Attributes) -> Shape:
    shape, first = shapes[0], a["start_dim"]
    return (*shape[:first], product(shape[first:]))


def _transposed(shapes: Sequence[Shape], a: Attributes) -> Shape:
    shape = list(shapes[0])
    shape[a["dim0"]], shape[a["dim1"]] = shape[a["dim1"]], shape[a["dim0"]]
    return tuple(shape)


def _squeezed(shapes: Sequence[Shape], a: Attributes) -> Shape:
    shape = list(shapes[0])
    assert (shape[a["dim"]].full, shape[a["dim"]].small) == (1, 1), f"squeeze of dimension {a['dim']} of {shape}"
    return (*shape[: a["dim"]], *shape[a["dim"] + 1 :])


def _chunk(shapes: Sequence[Shape], a: Attributes) -> Shape:
    shape = list(shapes[0])
    shape[a["dim"]] = a["size"]
    return tuple(shape)


def _heads(shapes: Sequence[Shape], a: Attributes) -> Shape:
    """[batch, seq, heads * head_dim] as [batch, heads, seq, head_dim]."""
    batch, seq, width = shapes[0]
    assert same(width, as_dim(a["heads"]) * a["head_dim"]), f"{a['heads']} heads of {width}"
    return (batch, as_dim(a["heads"]), seq, as_dim(a["head_dim"]))


def _joined_heads(shapes: Sequence[Shape], a: Attributes) -> Shape:
    batch, heads, seq, head_dim = shapes[0]
    return (batch, seq, heads * head_dim)


def _padded(shapes: Sequence[Shape], a: Attributes) -> Shape:
    left, right = a["pad"]
    return (*shapes[0][:-1], shapes[0][-1] + (left + right))


def _shuffled(shapes: Sequence[Shape], a: Attributes) -> Shape:
    batch, channels, height, width = shapes[0]
    r = a["upscale_factor"]
    assert channels.full % (r * r) == channels.small % (r * r) == 0, f"pixel shuffle of {channels} channels"
    return (batch, channels // (r * r), height * r, width * r)


def _split(x: Tensor, heads: int, head_dim: int) -> Tensor:
    return x.view(x.shape[0], x.shape[1], heads, head_dim).transpose(1, 2)


def _draw_flip(rng: random.Random, shapes: Sequence[Shape]) -> dict[str, Any]:
    return {"dim": rng.randrange(len(shapes[0]))}


def _images(rng: random.Random, shapes: Sequence[Shape]) -> dict[str, Any] | None:
    return {"scale_factor": rng.choice((2, 2, 3, 4))} if len(shapes[0]) == 4 else None


def _draw_shuffle(rng: random.Random, shapes: Sequence[Shape]) -> dict[str, Any] | None:
    if len(shapes[0]) != 4:
        return None
    fitting = [r for r in (2, 3) if shapes[0][1].full % r**2 == shapes[0][1].small % r**2 == 0]
    return {"upscale_factor": rng.choice(fitting)} if fitting else None


def _draw_transpose(rng: random.Random, shapes: Sequence[Shape]) -> dict[str, Any] | None:
    rank = len(shapes[0])
    if rank < 2:
        return None
    first, second = sorted(rng.sample(range(rank), 2))
    return {"dim0": first, "dim1": second}


_NETWORK: dict[str, Any] = {"level": ("network",)}

VIEWS = (
    Op(
        "flatten",
        "view",
        _flattened,
        lambda inputs, own, a: inputs[0].flatten(a["start_dim"]),
        (
            Spelling("functional", "torch.flatten({x}, {start_dim})"),
            Spelling("method", "{x}.flatten({start_dim})"),
            Spelling("method", "{x}.view({x}.size(0), -1)", lambda a: a["start_dim"] == 1 and a["contiguous"]),
            Spelling("method", "{x}.reshape({x}.shape[0], -1)", lambda a: a["start_dim"] == 1),
            Spelling("module", "nn.Flatten()", lambda a: a["start_dim"] == 1),
        ),
        defaults={"start_dim": 1, "contiguous": False},
        draw=lambda rng, shapes: {"start_dim": 1} if len(shapes[0]) > 2 else None,
        level=("chain",),
    ),
    Op(
        "transpose",
        "view",
        _transposed,
        lambda inputs, own, a: inputs[0].transpose(a["dim0"], a["dim1"]),
        spell("torch.transpose({x}, {dim0}, {dim1})", "{x}.transpose({dim0}, {dim1})"),
        draw=_draw_transpose,
        level=("chain",),
    ),
    Op(
        "unsqueeze",
        "view",
        lambda shapes, a: (*shapes[0][: a["dim"]], as_dim(1), *shapes[0][a["dim"] :]),
        lambda inputs, own, a: inputs[0].unsqueeze(a["dim"]),
        spell("torch.unsqueeze({x}, {position})", "{x}.unsqueeze({position})"),
        derive=lambda shapes, a: {"position": a["dim"]},
        **_NETWORK,
    ),
    Op(
        "squeeze",
        "view",
        _squeezed,
        lambda inputs, own, a: inputs[0].squeeze(a["dim"]),
        spell("torch.squeeze({x}, {dim})", "{x}.squeeze({dim})"),
        draw=lambda rng, shapes: _first_one(shapes[0]),
        level=("chain",),
    ),
    Op(
        "chunk",
        "view",
        _chunk,
        lambda inputs, own, a: inputs[0].chunk(a["chunks"], a["dim"])[a["index"]],
        spell("torch.chunk({x}, {chunks}, dim={dim})[{index}]", "{x}.chunk({chunks}, dim={dim})[{index}]")
        + spell("torch.split({x}, {x}.shape[{dim}] // {chunks}, dim={dim})[{index}]")
        + spell("", "{x}.split({x}.size({dim}) // {chunks}, dim={dim})[{index}]"),
        derive=lambda shapes, a: {"size": shapes[0][a["dim"]] // a["chunks"]},
        **_NETWORK,
    ),
    Op(
        "split_heads",
        "view",
        _heads,
        lambda inputs, own, a: _split(inputs[0], a["heads"], a["head_dim"]),
        spell("{x}.unflatten(2, ({heads}, -1)).transpose(1, 2)")
        + spell("", "{x}.view({x}.size(0), {x}.size(1), {heads}, {head_dim}).transpose(1, 2)")
        + spell("", "{x}.reshape({x}.shape[0], {x}.shape[1], {heads}, {head_dim}).transpose(1, 2)"),
        **_NETWORK,
    ),
    Op(
        "join_heads",
        "view",
        _joined_heads,
        lambda inputs, own, a: inputs[0].transpose(1, 2).flatten(2),
        spell("{x}.transpose(1, 2).flatten(2)")
        + spell("", "{x}.transpose(1, 2).contiguous().view({x}.size(0), {x}.size(2), -1)")
        + spell("", "{x}.permute(0, 2, 1, 3).reshape({x}.shape[0], {x}.shape[2], -1)"),
        **_NETWORK,
    ),
    Op(
        "cat",
        "view",
        joined,
        lambda inputs, own, a: torch.cat(list(inputs), a["dim"]),
        spell("torch.cat([{x}, {y}], dim={dim})", "", "", "torch.cat(({x}, {y}), {dim})"),
        arity=2,
        **_NETWORK,
    ),
    Op(
        "flip",
        "view",
        lambda shapes, a: shapes[0],
        lambda inputs, own, a: inputs[0].flip(a["dim"]),
        spell("torch.flip({x}, dims=[{dim}])", "{x}.flip({dim})"),
        draw=_draw_flip,
        arguments={"dim": ("dim", "axis")},
        level=("single",),
    ),
    Op(
        "pad",
        "view",
        _padded,
        lambda inputs, own, a: F.pad(inputs[0], a["pad"], value=a["value"]),
        spell("F.pad({x}, {pad}{value=})", "", "", 'F.pad({x}, {pad}, mode="constant"{value=})'),
        defaults={"value": 0.0},
        draw=lambda rng, shapes: {
            "pad": (rng.randrange(4), rng.randrange(1, 4)),
            "value": number(rng, (0.0, 0.0, -1.0, 2.0)),
        },
        level=("single",),
    ),
    Op(
        "upsample_nearest",
        "view",
        scaled,
        lambda inputs, own, a: F.interpolate(inputs[0], scale_factor=a["scale_factor"], mode="nearest"),
        spell('F.interpolate({x}, scale_factor={scale_factor}, mode="nearest")')
        + spell("", "", "nn.Upsample(scale_factor={scale_factor})"),
        draw=_images,
        arguments={"scale_factor": ("scale_factor",)},
        attribute_names=("upsample",),
    ),
    Op(
        "pixel_shuffle",
        "view",
        _shuffled,
        lambda inputs, own, a: F.pixel_shuffle(inputs[0], a["upscale_factor"]),
        spell("F.pixel_shuffle({x}, {upscale_factor})", "", "nn.PixelShuffle({upscale_factor})"),
        draw=_draw_shuffle,
        arguments={"upscale_factor": ("upscale_factor",)},
        attribute_names=("shuffle", "pixel_shuffle"),
    ),
)


def _first_one(shape: Shape) -> dict[str, Any] | None:
    """The first dimension that is one."""
    ones = [place for place, dim in enumerate(shape) if (dim.full, dim.small) == (1, 1)]
    return {"dim": ones[0]} if ones and len(shape) > 1 else None
