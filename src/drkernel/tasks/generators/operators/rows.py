"""Cores that work along rows: norms and scans (a row in, a row out), reductions (a row in, a value out)."""

from __future__ import annotations

from typing import Any

from drkernel.tasks.generators.operators.operator import Operator

_INF = 'float("inf")'
_EPS = {"eps": ("1e-5", "1e-6", "1e-3")}
_ONES, _ZEROS = "nn.Parameter(torch.ones({n}))", "nn.Parameter(torch.zeros({n}))"
UNIT = {"signed": True, "bounded": False, "size": "unit"}
SMALL = {**UNIT, "size": "small"}
LARGE = {**UNIT, "size": "large"}
UNIT_ONE_SIGN, SMALL_ONE_SIGN, LARGE_ONE_SIGN = ({**state, "signed": False} for state in (UNIT, SMALL, LARGE))

LOAD_W = "w = tl.load(y_ptr + i, mask=m, other=0.0)"
SUM, MEAN = "v = tl.sum(tl.where(m, v, 0.0), 0)", "v = tl.sum(tl.where(m, v, 0.0), 0) / n"
LOG_SOFTMAX_LINES = (f"v = tl.where(m, v, -{_INF})", "v = v - tl.max(v, 0)", "v = v - tl.log(tl.sum(tl.exp(v), 0))")
_SQUARES, _DIVIDE = "s = tl.sum(tl.where(m, v * v, 0.0), 0) / n", "v = v / tl.sqrt(s + {eps})"
_CENTRE = "v = v - tl.sum(tl.where(m, v, 0.0), 0) / n"


def _weighted(column: str, offset: bool) -> str:
    """The line that multiplies with a weight per `column`, and adds an offset."""
    line = f"v = v * tl.load(w_ptr + {column}, mask=m, other=0.0)"
    return line + f" + tl.load(b_ptr + {column}, mask=m, other=0.0)" if offset else line


NORMS = (
    Operator(
        "softmax",
        "F.softmax({x}, dim=-1)",
        "{x}.softmax(dim=-1)",
        layer="nn.Softmax(dim=-1)",
        template="row",
        triton=(LOG_SOFTMAX_LINES[0], "v = tl.exp(v - tl.max(v, 0))", "v = v / tl.sum(v, 0)"),
        leaves=SMALL_ONE_SIGN,
        padding_matters=True,
    ),
    Operator(
        "log_softmax",
        "F.log_softmax({x}, dim=-1)",
        "{x}.log_softmax(dim=-1)",
        layer="nn.LogSoftmax(dim=-1)",
        template="row",
        triton=LOG_SOFTMAX_LINES,
        leaves=LARGE_ONE_SIGN,
        padding_matters=True,
    ),
    Operator(
        "layer_norm",
        "F.layer_norm({x}, self.{weight}.shape, self.{weight}, self.{offset}, {eps})",
        layer="nn.LayerNorm({n}, eps={eps})",
        attributes=("norm", "ln"),
        parameters={"weight": _ONES, "offset": _ZEROS},
        literals=_EPS,
        template="row",
        triton=(_CENTRE, _SQUARES, _DIVIDE, _weighted("c", True)),
        leaves=UNIT,
        padding_matters=True,
    ),
    Operator(
        "rms_norm",
        "F.rms_norm({x}, self.{weight}.shape, self.{weight}, {eps})",
        manual="{x} * torch.rsqrt({x}.pow(2).mean(-1, keepdim=True) + {eps}) * self.{weight}",
        layer="nn.RMSNorm({n}, eps={eps})",
        attributes=("norm", "rms"),
        parameters={"weight": _ONES},
        literals=_EPS,
        template="row",
        triton=(_SQUARES, _DIVIDE, _weighted("c", False)),
        leaves=UNIT,
    ),
    Operator(
        "group_norm",
        "",
        layer="nn.GroupNorm({g}, {n}, eps={eps})",
        attributes=("norm", "gn"),
        parameters={"weight": "", "offset": ""},
        literals=_EPS,
        template="grouped_row",
        triton=(_CENTRE, _SQUARES, _DIVIDE, "k = row % g * (n // l) + c // l", _weighted("k", True)),
        leaves=UNIT,
        padding_matters=True,
    ),
    Operator(
        "normalize",
        "F.normalize({x}, dim=-1)",
        manual="{x} / {x}.norm(dim=-1, keepdim=True).clamp_min(1e-12)",
        template="row",
        triton=("s = tl.sum(tl.where(m, v * v, 0.0), 0)", "v = v / tl.maximum(tl.sqrt(s), 1e-12)"),
        leaves=SMALL,
    ),
)

SCANS = (
    Operator(
        "cumsum",
        "torch.cumsum({x}, dim=-1)",
        "{x}.cumsum(dim=-1)",
        template="row",
        triton=("v = tl.cumsum(v, 0)",),
        leaves=LARGE,
        accumulates=True,
    ),
    Operator(
        "reverse_cumsum",
        "torch.flip(torch.cumsum(torch.flip({x}, [-1]), dim=-1), [-1])",
        "{x}.flip(-1).cumsum(dim=-1).flip(-1)",
        template="row",
        triton=("v = tl.where(m, v, 0.0)", "v = tl.cumsum(v, 0, reverse=True)"),
        leaves=LARGE,
        accumulates=True,
    ),
    Operator(
        "exclusive_cumsum",
        "F.pad(torch.cumsum({x}, dim=-1)[:, :-1], (1, 0))",
        manual="torch.cumsum({x}, dim=-1) - {x}",
        template="row",
        triton=("v = tl.cumsum(v, 0) - v",),
        leaves=LARGE,
        accumulates=True,
    ),
)


def _reduction(name: str, leaves: dict, *triton: str, call: str = "", **more: Any) -> Operator:
    """A reduction of rows, called `call` in torch (by default as its name is)."""
    call = call or name
    functional, method = f"torch.{call}({{x}}, dim=-1)", f"{{x}}.{call}(dim=-1)"
    return Operator(name, functional, method, template="row_reduction", triton=triton, leaves=leaves, **more)


ROW_REDUCTIONS = (
    _reduction("sum", LARGE, SUM, accumulates=True),
    _reduction("mean", SMALL, MEAN),
    _reduction(
        "logsumexp",
        LARGE_ONE_SIGN,
        f"v = tl.where(m, v, -{_INF})",
        "s = tl.max(v, 0)",
        "v = s + tl.log(tl.sum(tl.exp(v - s), 0))",
        padding_matters=True,
    ),
    _reduction(
        "var",
        UNIT_ONE_SIGN,
        _CENTRE,
        "v = tl.sum(tl.where(m, v * v, 0.0), 0) / (n - 1)",
        padding_matters=True,
    ),
    _reduction(
        "norm",
        LARGE_ONE_SIGN,
        "v = tl.sqrt(tl.sum(tl.where(m, v * v, 0.0), 0))",
        makes_superfluous=("abs",),
    ),
)
_EXTREMUM = {"needs_signed": True, "needs_unbounded": True}
ROW_EXTREMA = (
    _reduction("max", UNIT_ONE_SIGN, f"v = tl.max(tl.where(m, v, -{_INF}), 0)", call="amax", **_EXTREMUM),
    _reduction("min", UNIT_ONE_SIGN, f"v = tl.min(tl.where(m, v, {_INF}), 0)", call="amin", **_EXTREMUM),
)
