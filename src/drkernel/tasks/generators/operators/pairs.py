"""Cores of two tensors of one shape: distances along rows, and losses, which end a composition.

A loss in Triton leaves the mean over the row; the mean over rows is left to torch.
"""

from __future__ import annotations

from drkernel.tasks.generators.operators.operator import Operator
from drkernel.tasks.generators.operators.rows import LARGE, LARGE_ONE_SIGN, LOAD_W, LOG_SOFTMAX_LINES, MEAN, SMALL, SUM

_ABSOLUTE = "d = tl.abs(v - w)"

SIMILARITIES = (
    Operator(
        "dot",
        "torch.sum({x} * {y}, dim=-1)",
        "({x} * {y}).sum(dim=-1)",
        second="same",
        template="row_reduction",
        triton=(LOAD_W, "v = v * w", SUM),
        leaves=LARGE,
    ),
    Operator(
        "cosine",
        "F.cosine_similarity({x}, {y}, dim=-1)",
        layer="nn.CosineSimilarity(dim=-1)",
        second="same",
        template="row_reduction",
        triton=(
            LOAD_W,
            "v = tl.where(m, v, 0.0)",
            "s = tl.sqrt(tl.sum(v * v, 0) * tl.sum(w * w, 0))",
            "v = tl.sum(v * w, 0) / tl.maximum(s, 1e-8)",
        ),
        leaves=SMALL,
    ),
    Operator(
        "squared_distance",
        "torch.sum(({x} - {y}) ** 2, dim=-1)",
        "({x} - {y}).pow(2).sum(dim=-1)",
        second="same",
        template="row_reduction",
        triton=(LOAD_W, "v = (v - w) * (v - w)", SUM),
        leaves=LARGE_ONE_SIGN,
    ),
    Operator(
        "l1_distance",
        "torch.sum(torch.abs({x} - {y}), dim=-1)",
        "({x} - {y}).abs().sum(dim=-1)",
        second="same",
        template="row_reduction",
        triton=(LOAD_W, "v = tl.abs(v - w)", SUM),
        leaves=LARGE_ONE_SIGN,
    ),
)

LOSSES = (
    Operator(
        "mse_loss",
        "F.mse_loss({x}, {y})",
        "(({x} - {y}) ** 2).mean()",
        layer="nn.MSELoss()",
        second="same",
        template="row_loss",
        triton=(LOAD_W, "v = (v - w) * (v - w)", MEAN),
    ),
    Operator(
        "l1_loss",
        "F.l1_loss({x}, {y})",
        "({x} - {y}).abs().mean()",
        layer="nn.L1Loss()",
        second="same",
        template="row_loss",
        triton=(LOAD_W, "v = tl.abs(v - w)", MEAN),
    ),
    Operator(
        "smooth_l1_loss",
        "F.smooth_l1_loss({x}, {y})",
        layer="nn.SmoothL1Loss()",
        second="same",
        template="row_loss",
        triton=(LOAD_W, _ABSOLUTE, "v = tl.where(d < 1.0, 0.5 * d * d, d - 0.5)", MEAN),
    ),
    Operator(
        "huber_loss",
        "F.huber_loss({x}, {y}, delta={a})",
        layer="nn.HuberLoss(delta={a})",
        second="same",
        literals={"a": ("0.5", "2.0")},
        template="row_loss",
        triton=(LOAD_W, _ABSOLUTE, "v = tl.where(d < {a}, 0.5 * d * d, {a} * (d - 0.5 * {a}))", MEAN),
    ),
    Operator(
        "bce_loss",
        "F.binary_cross_entropy_with_logits({x}, {y})",
        layer="nn.BCEWithLogitsLoss()",
        second="torch.rand({shape})",
        template="row_loss",
        triton=(LOAD_W, "v = tl.maximum(v, 0.0) - v * w + tl.log(1 + tl.exp(-tl.abs(v)))", MEAN),
    ),
    Operator(
        "kl_loss",
        'F.kl_div(F.log_softmax({x}, dim=-1), F.softmax({y}, dim=-1), reduction="batchmean")',
        second="same",
        template="row_loss",
        triton=(
            LOAD_W,
            *LOG_SOFTMAX_LINES,
            *(line.replace("v", "w").replace("wa", "va").replace("lw", "lv") for line in LOG_SOFTMAX_LINES),
            "v = tl.exp(w) * (w - v)",
            SUM,
        ),
        padding_matters=True,
    ),
    Operator(
        "cross_entropy",
        "F.cross_entropy({x}, {y})",
        layer="nn.CrossEntropyLoss()",
        second="torch.randint(0, {cols}, ({rows},))",
        template="row_loss",
        triton=(
            LOG_SOFTMAX_LINES[0],
            "s = tl.max(v, 0)",
            "s = s + tl.log(tl.sum(tl.exp(v - s), 0))",
            "v = s - tl.sum(tl.where(c == tl.load(y_ptr + row), v, 0.0), 0)",
        ),
        padding_matters=True,
    ),
)
