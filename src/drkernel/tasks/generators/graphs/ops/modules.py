"""Layers that answers leave in PyTorch: those with weights of the task's own class, and modules that are told whole."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from drkernel.tasks.generators.graphs.dims import Dim, Shape, as_dim
from drkernel.tasks.generators.graphs.nodes import Attributes, Parameter
from drkernel.tasks.generators.graphs.op import Infer, Op, Spelling
from drkernel.tasks.generators.graphs.ops.convolutions import per_dim
from drkernel.tasks.generators.operators.rows import UNIT


def _raw(shapes: Sequence[Shape], a: Attributes) -> tuple[Parameter, ...]:
    out = as_dim(a["out_features"])
    bias = (Parameter("bias", (out,), "zeros" if a["bias"] == "zeros" else "randn * 0.02"),) if a["bias"] else ()
    return (Parameter("weight", (out, shapes[0][-1]), "randn * 0.02"), *bias)


def _raw_convolution(shapes: Sequence[Shape], a: Attributes) -> tuple[Parameter, ...]:
    out = as_dim(a["out_channels"])
    bias = (Parameter("bias", (out,), "zeros"),) if a["bias"] else ()
    kernel = per_dim(a["kernel_size"], 2)
    return (Parameter("weight", (out, shapes[0][1], *map(as_dim, kernel)), "randn * 0.05"), *bias)


def _convolved(shapes: Sequence[Shape], a: Attributes) -> Shape:
    places = [(dim + (2 * a["padding"] - a["kernel_size"])) // a["stride"] + 1 for dim in shapes[0][2:]]
    assert all(dim.small > 0 for dim in places), f"conv2d of {shapes[0]} leaves nothing"
    return (shapes[0][0], as_dim(a["out_channels"]), *places)


RAW = (
    Op(
        "linear_raw",
        "library",
        lambda shapes, a: (*shapes[0][:-1], as_dim(a["out_features"])),
        lambda inputs, own, a: F.linear(inputs[0], own["weight"], own.get("bias")),
        (
            Spelling("functional", "F.linear({x}, {weight}, {bias})", lambda a: bool(a["bias"])),
            Spelling("functional", "F.linear({x}, {weight})", lambda a: not a["bias"]),
        ),
        parameters=_raw,
        leaves=UNIT,
        level=("network",),
    ),
    Op(
        "conv2d_raw",
        "library",
        _convolved,
        lambda inputs, own, a: F.conv2d(inputs[0], own["weight"], own.get("bias"), a["stride"], a["padding"]),
        (
            Spelling("functional", "F.conv2d({x}, {weight}, {bias}{stride=}{padding=})", lambda a: bool(a["bias"])),
            Spelling("functional", "F.conv2d({x}, {weight}{stride=}{padding=})", lambda a: not a["bias"]),
        ),
        defaults={"stride": 1, "padding": 0},
        parameters=_raw_convolution,
        leaves=UNIT,
        level=("network",),
    ),
)


def _module(
    name: str,
    make: Callable[[Attributes], nn.Module],
    infer: Infer,
    constructor: str,
    names: tuple[str, ...],
    arity: int = 1,
    **more: Any,
) -> Op:
    """A module that is told as it is; its first result counts."""

    def parameters(shapes: Sequence[Shape], a: Attributes) -> tuple[Parameter, ...]:
        full, small = (_at(a, kind) for kind in ("full", "small"))
        with torch.device("meta"):
            pairs = zip(make(full).named_parameters(), make(small).named_parameters(), strict=True)
            return tuple(
                Parameter(role, tuple(_sized(f, s) for f, s in zip(large.shape, little.shape, strict=True)), "module")
                for (role, large), (_, little) in pairs
            )

    def eager(inputs: Sequence[Tensor], own: Any, a: dict[str, Any]) -> Tensor:
        found = torch.func.functional_call(make(a).eval(), dict(own), tuple(inputs))
        return found[0] if isinstance(found, tuple) else found

    return Op(
        name,
        "library",
        infer,
        eager,
        (Spelling("module", constructor),),
        arity=arity,
        parameters=parameters,
        attribute_names=names,
        leaves={"size": "unit", "signed": True},
        level=("network",),
        several=True,
        **more,
    )


def _at(a: Attributes, kind: str) -> dict[str, Any]:
    return {name: getattr(value, kind) if hasattr(value, "full") else value for name, value in a.items()}


def _sized(full: int, small: int) -> Dim:
    """A size of a parameter, which nobody asks for by name."""
    return as_dim(full) if full == small else Dim("_", full, small)


def _recurrent(shapes: Sequence[Shape], a: Attributes) -> Shape:
    width = a["hidden_size"] * 2 if a["bidirectional"] else a["hidden_size"]
    return (*shapes[0][:2], as_dim(width))


_RNN = "{input_size}, {hidden_size}{num_layers=}{batch_first=}{bidirectional=}"
_RNN_DEFAULTS = {"num_layers": 1, "batch_first": False, "bidirectional": False}


def _rnn(name: str, module: type[nn.Module]) -> Op:
    def make(a: Attributes) -> nn.Module:
        more = {"batch_first": a["batch_first"], "bidirectional": a["bidirectional"]}
        return module(a["input_size"], a["hidden_size"], a["num_layers"], **more)

    return _module(
        name,
        make,
        _recurrent,
        f"nn.{module.__name__}({_RNN})",
        (name, "rnn", "encoder"),
        defaults=_RNN_DEFAULTS,
        derive=lambda shapes, a: {"input_size": shapes[0][-1]},
    )


MODULES = (
    _rnn("lstm", nn.LSTM),
    _rnn("gru", nn.GRU),
    _module(
        "multihead_attention",
        lambda a: nn.MultiheadAttention(a["embed_dim"], a["num_heads"], batch_first=a["batch_first"]),
        lambda shapes, a: shapes[0],
        "nn.MultiheadAttention({embed_dim}, {num_heads}{batch_first=})",
        ("attn", "attention", "mha"),
        arity=3,
        defaults={"batch_first": False},
        derive=lambda shapes, a: {"embed_dim": shapes[0][-1]},
    ),
)
