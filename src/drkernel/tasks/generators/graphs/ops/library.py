"""Operators that answers leave in PyTorch: they move elements as no kernel of ours does, or are whole modules.

Their first spelling is the canonical one (policy/canonical/), so that an answer repeats the line that it reads.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from drkernel.tasks.generators.graphs.dims import Shape, as_dim, product
from drkernel.tasks.generators.graphs.nodes import Attributes
from drkernel.tasks.generators.graphs.op import Draw, Infer, Op, Spelling
from drkernel.tasks.generators.graphs.ops.shapes import joined, number, scaled, spell

_MODES = {
    3: ("linear", "nearest"),
    4: ("bilinear", "bilinear", "bicubic", "nearest", "area"),
    5: ("trilinear", "nearest"),
}
_ALIGNED = ("linear", "bilinear", "bicubic", "trilinear")


def _library(name: str, infer: Infer, eager: Callable[..., Tensor], spellings: tuple, draw: Draw, **more: Any) -> Op:
    return Op(
        name,
        "library",
        infer,
        lambda inputs, own, a: eager(*inputs, **a),
        spellings,
        draw=draw,
        **({"level": ("chain",)} | more),
    )


def _along(shape: Shape, dim: int, size: Any) -> Shape:
    return (*shape[:dim], as_dim(size), *shape[dim + 1 :])


def _some_dim(rng: random.Random, shape: Shape, least: int) -> int | None:
    """A dimension of at least so many elements at small sizes."""
    places = [place for place, dim in enumerate(shape) if dim.small >= least]
    return rng.choice(places) if places else None


def _draw_mode(rng: random.Random, shapes: Sequence[Shape]) -> dict[str, Any] | None:
    rank = len(shapes[0])
    return {"scale_factor": rng.choice((2, 2, 3)), "mode": rng.choice(_MODES[rank])} if rank in _MODES else None


def _interpolated(x: Tensor, scale_factor: int, mode: str) -> Tensor:
    aligned = {"align_corners": False} if mode in _ALIGNED else {}
    return F.interpolate(x, scale_factor=scale_factor, mode=mode, **aligned)


_INTERPOLATE = (
    Spelling(
        "functional",
        "F.interpolate({x}, scale_factor={scale_factor}, mode={mode}, align_corners=False)",
        lambda a: a["mode"] in _ALIGNED,
    ),
    Spelling(
        "functional",
        "F.interpolate({x}, scale_factor={scale_factor}, mode={mode})",
        lambda a: a["mode"] not in _ALIGNED,
    ),
    Spelling("module", "nn.Upsample(scale_factor={scale_factor}, mode={mode})", lambda a: a["mode"] not in _ALIGNED),
    Spelling(
        "module",
        "nn.Upsample(scale_factor={scale_factor}, mode={mode}, align_corners=False)",
        lambda a: a["mode"] in _ALIGNED,
    ),
)


def _halved(shapes: Sequence[Shape], a: Attributes) -> Shape:
    return _along(shapes[0], a["dim"], shapes[0][a["dim"]] // 2)


def _draw_halves(rng: random.Random, shapes: Sequence[Shape]) -> dict[str, Any] | None:
    even = [d for d, dim in enumerate(shapes[0]) if dim.full % 2 == dim.small % 2 == 0 and dim.small > 2]
    return {"dim": rng.choice(even)} if even else None


def _draw_order(rng: random.Random, shapes: Sequence[Shape]) -> dict[str, Any] | None:
    rank = len(shapes[0])
    if rank < 3:
        return None
    usual: dict[int, list[tuple[int, ...]]] = {
        3: [(0, 2, 1), (1, 0, 2), (2, 0, 1)],
        4: [(0, 2, 3, 1), (0, 3, 1, 2), (0, 2, 1, 3), (0, 1, 3, 2)],
    }
    usual[5] = [(0, 2, 3, 4, 1), (0, 2, 1, 3, 4), (0, 4, 1, 2, 3)]
    return {"order": rng.choice(usual[rank])}


def _padded(shapes: Sequence[Shape], a: Attributes) -> Shape:
    shape, pad = list(shapes[0]), a["pad"]
    for k in range(len(pad) // 2):
        shape[-1 - k] = shape[-1 - k] + (pad[2 * k] + pad[2 * k + 1])
    return tuple(shape)


def _draw_pad(rng: random.Random, shapes: Sequence[Shape]) -> dict[str, Any] | None:
    rank = len(shapes[0])
    if rank < 3:
        return None
    mode = rng.choice(("reflect", "replicate", "circular", "constant", "constant"))
    dims = rank - 2 if mode != "constant" else rng.randrange(1, rank - 1)
    even = rng.random() < 0.6
    one = rng.randrange(1, 4)
    pad = tuple(one if even else rng.randrange(4) for _ in range(2 * dims))
    if not any(pad) or (mode == "reflect" and rank == 5) or min(dim.small for dim in shapes[0][2:]) < 5:
        return None
    return {"pad": pad, "mode": mode}


def _draw_roll(rng: random.Random, shapes: Sequence[Shape]) -> dict[str, Any] | None:
    dim = _some_dim(rng, shapes[0], 3)
    return None if dim is None else {"shifts": rng.choice((1, 2, -1, 3)), "dim": dim}


def _draw_cut(rng: random.Random, shapes: Sequence[Shape]) -> dict[str, Any] | None:
    """A slice: without the last or the first elements, or one place alone."""
    dim = _some_dim(rng, shapes[0], 5)
    if dim in (None, 0):
        return None
    number_ = rng.choice((1, 2, 3))
    kind = rng.choice(("front", "back", "one", "last", "step"))
    colons = ":, " * dim
    index = {"front": f":-{number_}", "back": f"{number_}:", "one": "0", "last": "-1", "step": "::2"}[kind]
    return {"dim": dim, "kind": kind, "number": number_, "index": colons + index}


def _cut(shapes: Sequence[Shape], a: Attributes) -> Shape:
    shape, dim = shapes[0], a["dim"]
    if a["kind"] in ("one", "last"):
        return (*shape[:dim], *shape[dim + 1 :])
    if a["kind"] == "step":
        return _along(shape, dim, (shape[dim] + 1) // 2)
    return _along(shape, dim, shape[dim] - a["number"])


def _index(x: Tensor, index: str, **_: Any) -> Tensor:
    return eval(f"x[{index}]", {"x": x})


def _draw_most(rng: random.Random, shapes: Sequence[Shape]) -> dict[str, Any] | None:
    dim = _some_dim(rng, shapes[0], 6)
    if dim is None:
        return None
    number_ = rng.choice((2, 3, 5))
    return {"k": number_, "dim": dim} if number_ <= shapes[0][dim].full else None


def _draw_repeats(rng: random.Random, shapes: Sequence[Shape]) -> dict[str, Any] | None:
    return {"repeats": rng.choice((2, 3)), "dim": rng.randrange(1, len(shapes[0]))} if len(shapes[0]) > 1 else None


def _draw_merge(rng: random.Random, shapes: Sequence[Shape]) -> dict[str, Any] | None:
    rank = len(shapes[0])
    if rank < 3:
        return None
    start = rng.randrange(rank - 1)
    return {"start_dim": start, "end_dim": rng.randrange(start + 1, min(rank, start + 3))}


def _merged(shapes: Sequence[Shape], a: Attributes) -> Shape:
    shape, start, end = shapes[0], a["start_dim"], a["end_dim"]
    return (*shape[:start], product(shape[start : end + 1]), *shape[end + 1 :])


def _draw_groups(rng: random.Random, shapes: Sequence[Shape]) -> dict[str, Any] | None:
    if len(shapes[0]) != 4:
        return None
    fitting = [g for g in (2, 4) if shapes[0][1].full % g == shapes[0][1].small % g == 0 and shapes[0][1].small > g]
    return {"groups": rng.choice(fitting)} if fitting else None


def _unshuffled(shapes: Sequence[Shape], a: Attributes) -> Shape:
    batch, channels, height, width = shapes[0]
    return (batch, channels * 4, height // 2, width // 2)


def _draw_unshuffle(rng: random.Random, shapes: Sequence[Shape]) -> dict[str, Any] | None:
    shape = shapes[0]
    return {} if len(shape) == 4 and all(d.full % 2 == d.small % 2 == 0 for d in shape[2:]) else None


def _cat(number_: int) -> Op:
    names = ", ".join(f"{{{name}}}" for name in "xyzw"[:number_])
    return Op(
        f"cat{number_}",
        "library",
        joined,
        lambda inputs, own, a: torch.cat(list(inputs), a["dim"]),
        spell(f"torch.cat(({names}), dim={{dim}})") + spell("", "", "", f"torch.cat([{names}], {{dim}})"),
        arity=number_,
        level=("network",),
    )


MOVES = (
    _library("interpolate", scaled, _interpolated, _INTERPOLATE, _draw_mode, attribute_names=("upsample", "up")),
    _library(
        "glu",
        _halved,
        F.glu,
        spell("F.glu({x}, dim={dim})", "", "nn.GLU(dim={dim})"),
        _draw_halves,
        attribute_names=("glu",),
    ),
    _library(
        "local_response_norm",
        lambda shapes, a: shapes[0],
        F.local_response_norm,
        spell("F.local_response_norm({x}, size={size}, alpha={alpha})")
        + spell("", "", "nn.LocalResponseNorm({size}, alpha={alpha})"),
        lambda rng, shapes: (
            {"size": rng.choice((3, 5)), "alpha": number(rng, (1e-4, 1e-2))} if len(shapes[0]) > 3 else None
        ),
        attribute_names=("lrn", "norm"),
    ),
    _library(
        "permute",
        lambda shapes, a: tuple(shapes[0][place] for place in a["order"]),
        lambda x, order: x.permute(order),
        spell("torch.permute({x}, {order})", "{x}.permute({order})"),
        _draw_order,
    ),
    _library(
        "pad_all",
        _padded,
        lambda x, pad, mode: F.pad(x, pad, mode),
        (
            Spelling("functional", "F.pad({x}, pad={pad}, mode={mode})", lambda a: a["mode"] != "constant"),
            Spelling("functional", "F.pad({x}, pad={pad})", lambda a: a["mode"] == "constant"),
        ),
        _draw_pad,
    ),
    _library(
        "roll",
        lambda shapes, a: shapes[0],
        lambda x, shifts, dim: x.roll(shifts, dim),
        spell("torch.roll({x}, shifts={shifts}, dims={dim})", "{x}.roll({shifts}, {dim})"),
        _draw_roll,
    ),
    _library("cut", _cut, _index, spell("{x}[{index}]"), _draw_cut),
    _library(
        "topk",
        lambda shapes, a: _along(shapes[0], a["dim"], a["k"]),
        lambda x, k, dim: x.topk(k, dim)[0],
        spell("torch.topk({x}, k={k}, dim={dim})[0]", "{x}.topk({k}, dim={dim}).values"),
        _draw_most,
    ),
    _library(
        "sort",
        lambda shapes, a: shapes[0],
        lambda x, dim: x.sort(dim)[0],
        spell("torch.sort({x}, dim={dim})[0]", "{x}.sort(dim={dim}).values"),
        lambda rng, shapes: {"dim": rng.randrange(len(shapes[0]))},
    ),
    _library(
        "repeat_interleave",
        lambda shapes, a: _along(shapes[0], a["dim"], shapes[0][a["dim"]] * a["repeats"]),
        lambda x, repeats, dim: x.repeat_interleave(repeats, dim),
        spell("torch.repeat_interleave({x}, repeats={repeats}, dim={dim})")
        + spell("", "{x}.repeat_interleave({repeats}, dim={dim})"),
        _draw_repeats,
    ),
    _library(
        "merge",
        _merged,
        lambda x, start_dim, end_dim: x.flatten(start_dim, end_dim),
        spell("torch.flatten({x}, {start_dim}, {end_dim})", "{x}.flatten({start_dim}, {end_dim})"),
        _draw_merge,
    ),
    _library(
        "channel_shuffle",
        lambda shapes, a: shapes[0],
        lambda x, groups: F.channel_shuffle(x, groups),
        spell("torch.channel_shuffle({x}, groups={groups})", "", "nn.ChannelShuffle({groups})"),
        _draw_groups,
        attribute_names=("shuffle",),
    ),
    _library(
        "pixel_unshuffle",
        _unshuffled,
        lambda x: F.pixel_unshuffle(x, 2),
        spell("F.pixel_unshuffle({x}, downscale_factor=2)", "", "nn.PixelUnshuffle(2)"),
        _draw_unshuffle,
        attribute_names=("unshuffle",),
    ),
)
JOINS = (
    _cat(3),
    _cat(4),
    Op(
        "stack",
        "library",
        lambda shapes, a: (*shapes[0][: a["dim"]], as_dim(2), *shapes[0][a["dim"] :]),
        lambda inputs, own, a: torch.stack(list(inputs), a["dim"]),
        spell("torch.stack(({x}, {y}), dim={dim})", "", "", "torch.stack([{x}, {y}], {dim})"),
        arity=2,
        level=("network",),
    ),
    Op(
        "lerp",
        "library",
        lambda shapes, a: shapes[0],
        lambda inputs, own, a: torch.lerp(inputs[0], inputs[1], a["weight"]),
        spell("torch.lerp({x}, {y}, weight={weight})"),
        arity=2,
        draw=lambda rng, shapes: {"weight": number(rng, (0.1, 0.5, 0.9))},
        level=("network",),
    ),
)
