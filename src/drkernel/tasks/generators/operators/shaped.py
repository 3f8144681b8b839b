"""Cores with a kernel of their own: products, reductions of other dimensions, pooling, look-ups, gated units."""

from __future__ import annotations

from drkernel.tasks.generators.operators.operator import Operator
from drkernel.tasks.generators.operators.rows import LARGE, SMALL, UNIT, UNIT_ONE_SIGN
from drkernel.tasks.generators.operators.stages import ACTIVATIONS

PRODUCTS = (
    Operator(
        "linear",
        "",
        layer="nn.Linear({k}, {n})",
        attributes=("linear", "fc", "proj"),
        parameters={"weight": "", "offset": ""},
        template="product",
        leaves=UNIT,
        grows=True,
    ),
    Operator(
        "matmul",
        "torch.matmul({x}, {y})",
        "{x} @ {y}",
        second="torch.randn({k}, {n})",
        template="product",
        leaves=UNIT,
    ),
)


def _column_reduction(fold: str, dim: int) -> Operator:
    call = {"max": "amax", "min": "amin"}.get(fold, fold)
    return Operator(
        f"{fold}_dim{dim}",
        f"torch.{call}({{x}}, dim={dim})",
        f"{{x}}.{call}(dim={dim})",
        layout=f"dim{dim}",
        template="column_reduction",
        fold=fold,
        needs_signed=fold in ("max", "min"),
        needs_unbounded=fold in ("max", "min"),
        leaves={"sum": LARGE, "mean": SMALL}.get(fold, UNIT_ONE_SIGN),
        accumulates=fold == "sum",
    )


COLUMN_REDUCTIONS = tuple(_column_reduction(fold, dim) for dim in (0, 1) for fold in ("sum", "mean"))
COLUMN_EXTREMA = tuple(_column_reduction(fold, dim) for dim in (0, 1) for fold in ("max", "min"))


def _pool(kind: str, rank: int) -> Operator:
    name = f"{kind}_pool{rank}d"
    return Operator(
        name,
        f"F.{name}({{x}}, {{w}})",
        layer=f"nn.{kind.capitalize()}Pool{rank}d({{w}})",
        literals={"w": ("2", "3", "4")},
        layout=f"pool{rank}d",
        template="pool",
        fold="mean" if kind == "avg" else kind,
        leaves={"size": "unit"},
    )


POOLS = tuple(_pool(kind, rank) for rank in (1, 2) for kind in ("avg", "max"))

TRANSPOSES = (
    Operator(
        "transpose",
        "{x}.transpose(1, 2).contiguous()",
        "{x}.permute(0, 2, 1).contiguous()",
        template="transpose",
    ),
)
LOOKUPS = (
    Operator(
        "gather",
        "torch.index_select({x}, 0, {y})",
        "{x}[{y}]",
        second="torch.randint(0, {rows}, ({count},))",
        template="lookup",
    ),
    Operator(
        "embedding",
        "",
        layer="nn.Embedding({v}, {n})",
        attributes=("embedding", "emb", "table"),
        parameters={"weight": ""},
        template="lookup",
    ),
)

_LINES = {op.name: op.triton for op in ACTIVATIONS}


def _gated(name: str, call: str, activation: str) -> Operator:
    """A gated unit: the activation of the second half of each row multiplies the first half."""
    return Operator(
        name, call, prepare="a, b = {x}.chunk(2, dim=-1)", template="gate", triton=_LINES[activation], leaves=UNIT
    )


GATED_UNITS = (
    _gated("glu", "a * torch.sigmoid(b)", "sigmoid"),
    _gated("swiglu", "a * F.silu(b)", "silu"),
    _gated("geglu", "a * F.gelu(b)", "gelu"),
    _gated("reglu", "a * F.relu(b)", "relu"),
    _gated("tanh_glu", "a * torch.tanh(b)", "tanh"),
)
