"""Scans along one dimension. `fold` says what is accumulated; attributes of the output's place are in the name."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from drkernel.tasks.generators.graphs.op import Op, Spelling
from drkernel.tasks.generators.graphs.ops.shapes import spell, unchanged
from drkernel.tasks.generators.graphs.ops.softmax import draw_dim
from drkernel.tasks.generators.operators.rows import LARGE


def _scan(
    name: str, eager: Callable[[Tensor, int], Tensor], spellings: tuple[Spelling, ...], fold: str, **more: Any
) -> Op:
    return Op(
        name,
        "scan",
        unchanged,
        lambda inputs, own, a: eager(inputs[0], a["dim"]),
        spellings,
        draw=draw_dim,
        arguments={"dim": ("dim",)},
        fold=fold,
        leaves=LARGE,
        **more,
    )


def _plain(call: str, ending: str = "") -> tuple[Spelling, ...]:
    return spell(f"torch.{call}({{x}}, dim={{dim}}){ending}", f"{{x}}.{call}(dim={{dim}}){ending}")


def _exclusive(x: Tensor, dim: int) -> Tensor:
    return torch.cumsum(x, dim) - x


_SHIFTED = (
    "mask = torch.zeros_like({x}.narrow({dim}, 0, 1))\n"
    "torch.cat([mask, torch.cumsum({x}, dim={dim}).narrow({dim}, 0, {x}.shape[{dim}] - 1)], dim={dim})"
)
_SHIFTED_AT_ONCE = (
    "mask = torch.zeros_like({x}.select({dim}, 0)).unsqueeze({dim})\n"
    "torch.cumsum(torch.cat((mask, {x}), dim={dim}), dim={dim}).narrow({dim}, 0, {x}.size({dim}))"
)
_SHIFTED_ROWS = "torch.cat((torch.zeros_like({x}[:, :1]), torch.cumsum({x}, dim=1)[:, :-1]), dim=1)"

SCANS = (
    _scan("cumsum", torch.cumsum, _plain("cumsum"), "sum"),
    _scan("cumprod", torch.cumprod, _plain("cumprod"), "prod", tame="one", level=("single",)),
    _scan(
        "cummax", lambda x, dim: torch.cummax(x, dim)[0], _plain("cummax", "[0]") + _plain("cummax", ".values"), "max"
    ),
    _scan(
        "cummin", lambda x, dim: torch.cummin(x, dim)[0], _plain("cummin", "[0]") + _plain("cummin", ".values"), "min"
    ),
    _scan("logcumsumexp", torch.logcumsumexp, _plain("logcumsumexp"), "logsumexp", sizes=("small", "unit")),
    _scan(
        "reverse_cumsum",
        lambda x, dim: x.flip(dim).cumsum(dim).flip(dim),
        spell(
            "torch.flip(torch.cumsum(torch.flip({x}, dims=[{dim}]), dim={dim}), dims=[{dim}])",
            "{x}.flip({dim}).cumsum(dim={dim}).flip({dim})",
        ),
        "sum",
    ),
    _scan(
        "exclusive_cumsum",
        _exclusive,
        spell("", "", "", ("torch.cumsum({x}, dim={dim}) - {x}", "{x}.cumsum({dim}) - {x}", _SHIFTED, _SHIFTED_AT_ONCE))
        + (Spelling("manual", _SHIFTED_ROWS, lambda a: a["dim"] == 1),) * 2,
        "sum",
    ),
)
