"""Operators of two or three values that join elements: similarities along a dimension, losses, attention, look-ups."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from drkernel.tasks.generators.graphs.dims import as_dim
from drkernel.tasks.generators.graphs.nodes import Attributes, Parameter
from drkernel.tasks.generators.graphs.op import Op, Spelling
from drkernel.tasks.generators.graphs.ops.shapes import number, reduced, scalar, spell
from drkernel.tasks.generators.graphs.ops.softmax import draw_dim
from drkernel.tasks.generators.operators.rows import LARGE, LARGE_ONE_SIGN, SMALL, UNIT

_MEAN = ("v = v / n",)
_SQUARED, _ABSOLUTE = ("v = (v - u) * (v - u)",), ("v = tl.abs(v - u)",)
_HUBER = ("d = tl.abs(v - u)", "v = tl.where(d < {delta}, 0.5 * d * d, {delta} * (d - 0.5 * {delta}))")
_BCE = ("v = tl.maximum(v, 0.0) - v * u + tl.log(1 + tl.exp(-tl.abs(v)))",)
_KL_MANUAL = 'F.kl_div(F.log_softmax({x}, dim=-1), F.softmax({y}, dim=-1), reduction="batchmean")'


def _similarity(
    name: str,
    eager: Callable[..., Tensor],
    spellings: tuple,
    triton: tuple[str, ...],
    leaves: dict[str, Any],
    **more: Any,
) -> Op:
    return Op(
        name,
        "reduction",
        reduced,
        lambda inputs, own, a: eager(inputs[0], inputs[1], a["dim"]),
        spellings,
        arity=2,
        defaults={"keepdim": False},
        derive=lambda shapes, a: {"dims": (a["dim"],)},
        draw=lambda rng, shapes: draw_dim(rng, shapes) if len(shapes[0]) > 1 else None,
        arguments={"dim": ("dim",)},
        inputs_alike=True,
        triton=triton,
        leaves=leaves,
        level=("single",),
        **({"fold": "sum"} | more),
    )


SIMILARITIES = (
    _similarity(
        "dot",
        lambda x, y, dim: (x * y).sum(dim),
        spell("torch.sum({x} * {y}, dim={dim})", "({x} * {y}).sum(dim={dim})"),
        ("v = v * u",),
        LARGE,
    ),
    _similarity(
        "cosine_similarity",
        lambda x, y, dim: F.cosine_similarity(x, y, dim=dim),
        spell("F.cosine_similarity({x}, {y}, dim={dim})", "", "nn.CosineSimilarity(dim={dim})"),
        (),
        SMALL,
        fold="cosine",
        attribute_names=("cos", "similarity"),
    ),
    _similarity(
        "squared_distance",
        lambda x, y, dim: (x - y).square().sum(dim),
        spell("torch.sum(({x} - {y}) ** 2, dim={dim})", "({x} - {y}).pow(2).sum(dim={dim})"),
        _SQUARED,
        LARGE_ONE_SIGN,
    ),
    _similarity(
        "distance",
        lambda x, y, dim: torch.linalg.vector_norm(x - y, dim=dim),
        spell("torch.norm({x} - {y}, dim={dim})", "", "", "torch.sqrt(torch.sum(({x} - {y}) ** 2, dim={dim}))"),
        _SQUARED,
        LARGE_ONE_SIGN,
        finish=("v = tl.sqrt(v)",),
    ),
    _similarity(
        "l1_distance",
        lambda x, y, dim: (x - y).abs().sum(dim),
        spell("torch.sum(torch.abs({x} - {y}), dim={dim})", "({x} - {y}).abs().sum(dim={dim})"),
        _ABSOLUTE,
        LARGE_ONE_SIGN,
    ),
)


def _loss(
    name: str,
    eager: Callable[..., Tensor],
    spellings: tuple,
    triton: tuple[str, ...] = (),
    fold: str = "sum",
    **more: Any,
) -> Op:
    """A loss. `second` says what its second input is (`draw.py`)."""
    return Op(
        name,
        "loss",
        scalar,
        lambda inputs, own, a: eager(*inputs, **{key: a[key] for key in more.get("keys", ())}),
        spellings,
        triton=triton,
        fold=fold,
        finish=more.pop("finish", _MEAN if fold == "sum" else ()),
        level=("single",),
        attribute_names=("loss_fn", "criterion", "loss"),
        **({"arity": 2} | {key: value for key, value in more.items() if key != "keys"}),
    )


LOSSES = (
    _loss(
        "mse_loss",
        F.mse_loss,
        spell(
            "F.mse_loss({x}, {y})", "", "nn.MSELoss()", ("torch.mean(({x} - {y}) ** 2)", "(({x} - {y}) ** 2).mean()")
        ),
        _SQUARED,
    ),
    _loss(
        "l1_loss",
        F.l1_loss,
        spell("F.l1_loss({x}, {y})", "", "nn.L1Loss()", "torch.mean(torch.abs({x} - {y}))"),
        _ABSOLUTE,
    ),
    _loss(
        "smooth_l1_loss",
        lambda x, y: F.smooth_l1_loss(x, y),
        spell("F.smooth_l1_loss({x}, {y})", "", "nn.SmoothL1Loss()"),
        tuple(line.replace("{delta}", "1.0") for line in _HUBER),
    ),
    _loss(
        "huber_loss",
        lambda x, y, delta: F.huber_loss(x, y, delta=delta),
        spell("F.huber_loss({x}, {y}, delta={delta})", "", "nn.HuberLoss(delta={delta})"),
        _HUBER,
        keys=("delta",),
        draw=lambda rng, shapes: {"delta": number(rng, (0.5, 1.0, 2.0))},
        arguments={"delta": ("delta",)},
    ),
    _loss(
        "bce_with_logits",
        F.binary_cross_entropy_with_logits,
        spell("F.binary_cross_entropy_with_logits({x}, {y})", "", "nn.BCEWithLogitsLoss()"),
        _BCE,
        second="rand",
    ),
    _loss(
        "hinge_loss",
        lambda x, y: (1 - x * y).clamp_min(0).mean(),
        spell("torch.mean(torch.clamp(1 - {x} * {y}, min=0))", "", "", "F.relu(1 - {x} * {y}).mean()"),
        ("v = tl.maximum(1 - v * u, 0.0)",),
        second="sign",
    ),
    _loss(
        "poisson_loss",
        F.poisson_nll_loss,
        spell("F.poisson_nll_loss({x}, {y})", "", "nn.PoissonNLLLoss()", "torch.mean(torch.exp({x}) - {y} * {x})"),
        ("v = tl.exp(v) - u * v",),
        second="rand",
    ),
    _loss(
        "log_cosh_loss",
        lambda x, y: torch.log(torch.cosh(x - y)).mean(),
        spell("torch.mean(torch.log(torch.cosh({x} - {y})))", "", "", "torch.log(torch.cosh({x} - {y})).mean()"),
        ("d = tl.abs(v - u)", "v = d + tl.log(1 + tl.exp(-2 * d)) - 0.6931471805599453"),
        tame="small",
    ),
    _loss(
        "cross_entropy",
        F.cross_entropy,
        spell("F.cross_entropy({x}, {y})", "", "nn.CrossEntropyLoss()", "F.nll_loss(F.log_softmax({x}, dim=1), {y})"),
        fold="cross_entropy",
        second="labels",
    ),
    _loss(
        "kl_div",
        lambda x, y: F.kl_div(F.log_softmax(x, -1), F.softmax(y, -1), reduction="batchmean"),
        spell(_KL_MANUAL),
        fold="kl_div",
    ),
    _loss(
        "kl_of_probabilities",
        lambda x, y: F.kl_div(torch.log(x), y, reduction="batchmean"),
        spell(
            'F.kl_div(torch.log({x}), {y}, reduction="batchmean")',
            "",
            "",
            "torch.sum({y} * (torch.log({y}) - torch.log({x}))) / {x}.shape[0]",
        ),
        ("v = u * (tl.log(u) - tl.log(v))",),
        tame="probabilities",
        second="probabilities",
        finish=("v = v / rows",),
    ),
    _loss(
        "triplet_margin_loss",
        lambda x, y, z, margin: F.triplet_margin_loss(x, y, z, margin=margin),
        spell(
            "F.triplet_margin_loss({x}, {y}, {z}, margin={margin})",
            "",
            "nn.TripletMarginLoss(margin={margin})",
        ),
        fold="triplet",
        keys=("margin",),
        draw=lambda rng, shapes: {"margin": number(rng, (1.0, 0.5, 2.0, 0.2))},
        arguments={"margin": ("margin",)},
        arity=3,
    ),
)

_SCALED = "torch.matmul({x}, {y}.transpose(-2, -1)) / math.sqrt({x}.size(-1))"

ATTENTION = (
    Op(
        "attention",
        "composite",
        lambda shapes, a: (*shapes[0][:-1], shapes[2][-1]),
        lambda inputs, own, a: F.scaled_dot_product_attention(
            inputs[0], inputs[1], inputs[2], is_causal=a["is_causal"]
        ),
        (
            Spelling("functional", "F.scaled_dot_product_attention({x}, {y}, {z}{is_causal=})"),
            Spelling("functional", "torch.nn.functional.scaled_dot_product_attention({x}, {y}, {z}{is_causal=})"),
            Spelling("manual", f"torch.matmul(F.softmax({_SCALED}, dim=-1), {{z}})", lambda a: not a["is_causal"]),
            Spelling(
                "manual",
                f"att = {_SCALED}\nF.softmax(att, dim=-1) @ {{z}}",
                lambda a: not a["is_causal"],
            ),
            Spelling(
                "manual",
                f"att = {_SCALED}\nmask = torch.ones(att.shape[-2], att.shape[-1], device={{x}}.device).tril()\n"
                "att = att.masked_fill(mask == 0, float('-inf'))\ntorch.softmax(att, dim=-1) @ {z}",
                lambda a: a["is_causal"],
            ),
            Spelling(
                "manual",
                "att = ({x} @ {y}.transpose(-2, -1)) * (1.0 / math.sqrt({y}.size(-1)))\n"
                "mask = torch.tril(torch.ones({x}.size(-2), {y}.size(-2), device={x}.device))\n"
                'att = F.softmax(att.masked_fill(mask == 0, float("-inf")), dim=-1)\natt @ {z}',
                lambda a: a["is_causal"],
            ),
            Spelling(
                "manual",
                "att = torch.matmul({x}, {y}.transpose(-1, -2)) * {x}.shape[-1] ** -0.5\n"
                "torch.matmul(torch.softmax(att, dim=-1), {z})",
                lambda a: not a["is_causal"],
            ),
        ),
        arity=3,
        defaults={"is_causal": False},
        leaves=SMALL,
        level=("network",),
    ),
)


def _table(a: Attributes) -> Parameter:
    return Parameter("weight", (as_dim(a["num_embeddings"]), as_dim(a["embedding_dim"])), "module")


LOOKUPS = (
    Op(
        "embedding",
        "gather",
        lambda shapes, a: (*shapes[0], as_dim(a["embedding_dim"])),
        lambda inputs, own, a: F.embedding(inputs[0], own["weight"]),
        spell("", "", "nn.Embedding({num_embeddings}, {embedding_dim})"),
        parameters=lambda shapes, a: (_table(a),),
        attribute_names=("embedding", "emb", "table"),
        leaves=UNIT,
        level=("network",),
    ),
    Op(
        "index_select",
        "gather",
        lambda shapes, a: (*shapes[0][: a["dim"]], *shapes[1], *shapes[0][a["dim"] + 1 :]),
        lambda inputs, own, a: inputs[0].index_select(a["dim"], inputs[1]),
        (
            Spelling("functional", "torch.index_select({x}, {dim}, {y})"),
            Spelling("method", "{x}.index_select({dim}, {y})"),
            Spelling("manual", "{x}[{y}]", lambda a: a["dim"] == 0),
        ),
        arity=2,
        level=("network",),
    ),
    Op(
        "gather",
        "gather",
        lambda shapes, a: shapes[1],
        lambda inputs, own, a: inputs[0].gather(a["dim"], inputs[1]),
        spell("torch.gather({x}, {dim}, {y})", "{x}.gather({dim}, {y})"),
        arity=2,
        level=("network",),
    ),
)
