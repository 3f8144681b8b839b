"""The operators at the heart of a composition: norms, reductions, products, losses, scans, pooling, look-ups."""

from __future__ import annotations

from drkernel.tasks.stages import Operator

_EPS = {"eps": ("1e-5", "1e-6", "1e-3")}
_ONES, _ZEROS = "nn.Parameter(torch.ones({n}))", "nn.Parameter(torch.zeros({n}))"
_UNIT = {"signed": True, "bounded": False, "size": "unit"}
_SMALL = {**_UNIT, "size": "small"}
_LARGE = {**_UNIT, "size": "large"}


def _one_sided(state: dict) -> dict:
    return {**state, "signed": False}


def _norms() -> list[Operator]:
    weights = {"weight": _ONES, "offset": _ZEROS}
    return [
        Operator(
            "softmax",
            "F.softmax({x}, dim=-1)",
            "{x}.softmax(dim=-1)",
            layer="nn.Softmax(dim=-1)",
            leaves=_one_sided(_SMALL),
        ),
        Operator(
            "log_softmax",
            "F.log_softmax({x}, dim=-1)",
            "{x}.log_softmax(dim=-1)",
            layer="nn.LogSoftmax(dim=-1)",
            leaves=_one_sided(_LARGE),
        ),
        Operator(
            "layer_norm",
            "F.layer_norm({x}, self.{weight}.shape, self.{weight}, self.{offset}, {eps})",
            layer="nn.LayerNorm({n}, eps={eps})",
            parameters=weights,
            literals=_EPS,
            leaves=_UNIT,
        ),
        Operator(
            "rms_norm",
            "F.rms_norm({x}, self.{weight}.shape, self.{weight}, {eps})",
            manual="{x} * torch.rsqrt({x}.pow(2).mean(-1, keepdim=True) + {eps}) * self.{weight}",
            layer="nn.RMSNorm({n}, eps={eps})",
            parameters={"weight": _ONES},
            literals=_EPS,
            leaves=_UNIT,
        ),
        Operator(
            "group_norm",
            "",
            layer="nn.GroupNorm({g}, {n}, eps={eps})",
            parameters={"weight": "", "offset": ""},
            literals=_EPS,
            leaves=_UNIT,
        ),
        Operator(
            "normalize",
            "F.normalize({x}, dim=-1)",
            manual="{x} / {x}.norm(dim=-1, keepdim=True).clamp_min(1e-12)",
            leaves=_SMALL,
        ),
    ]


def _reduction(name: str, call: str, dim: int, leaves: dict) -> Operator:
    full_name = name if dim == -1 else f"{name}_dim{dim}"
    return Operator(full_name, f"torch.{call}({{x}}, dim={dim})", f"{{x}}.{call}(dim={dim})", leaves=leaves)


def _reductions() -> list[Operator]:
    ops = []
    for dim in (-1, 0, 1):
        ops += [
            _reduction("sum", "sum", dim, _LARGE),
            _reduction("mean", "mean", dim, _SMALL),
            _reduction("max", "amax", dim, _one_sided(_UNIT)),
            _reduction("min", "amin", dim, _one_sided(_UNIT)),
        ]
    return [
        *ops,
        _reduction("logsumexp", "logsumexp", -1, _one_sided(_LARGE)),
        _reduction("var", "var", -1, _one_sided(_UNIT)),
        _reduction("norm", "norm", -1, _one_sided(_LARGE)),
    ]


def _products() -> list[Operator]:
    linear = {"parameters": {"weight": "", "offset": ""}, "leaves": _UNIT}
    return [
        Operator("linear", "", layer="nn.Linear({k}, {n})", **linear),
        Operator("matmul", "torch.matmul({x}, {y})", "{x} @ {y}", second="torch.randn({k}, {n})", leaves=_UNIT),
    ]


def _pairs() -> list[Operator]:
    """Two tensors of one shape: distances along rows, and losses, which end a composition."""
    kl = 'F.kl_div(F.log_softmax({x}, dim=-1), F.softmax({y}, dim=-1), reduction="batchmean")'
    bce = "F.binary_cross_entropy_with_logits({x}, {y})"
    return [
        Operator("dot", "torch.sum({x} * {y}, dim=-1)", "({x} * {y}).sum(dim=-1)", second="same", leaves=_LARGE),
        Operator(
            "cosine",
            "F.cosine_similarity({x}, {y}, dim=-1)",
            layer="nn.CosineSimilarity(dim=-1)",
            second="same",
            leaves=_SMALL,
        ),
        Operator(
            "squared_distance",
            "torch.sum(({x} - {y}) ** 2, dim=-1)",
            "({x} - {y}).pow(2).sum(dim=-1)",
            second="same",
            leaves=_one_sided(_LARGE),
        ),
        Operator(
            "l1_distance",
            "torch.sum(torch.abs({x} - {y}), dim=-1)",
            "({x} - {y}).abs().sum(dim=-1)",
            second="same",
            leaves=_one_sided(_LARGE),
        ),
        Operator("mse_loss", "F.mse_loss({x}, {y})", "(({x} - {y}) ** 2).mean()", layer="nn.MSELoss()", second="same"),
        Operator("l1_loss", "F.l1_loss({x}, {y})", "({x} - {y}).abs().mean()", layer="nn.L1Loss()", second="same"),
        Operator("smooth_l1_loss", "F.smooth_l1_loss({x}, {y})", layer="nn.SmoothL1Loss()", second="same"),
        Operator(
            "huber_loss",
            "F.huber_loss({x}, {y}, delta={a})",
            layer="nn.HuberLoss(delta={a})",
            second="same",
            literals={"a": ("0.5", "2.0")},
        ),
        Operator("bce_loss", bce, layer="nn.BCEWithLogitsLoss()", second="torch.rand({shape})"),
        Operator("kl_loss", kl, second="same"),
        Operator(
            "cross_entropy",
            "F.cross_entropy({x}, {y})",
            layer="nn.CrossEntropyLoss()",
            second="torch.randint(0, {cols}, ({rows},))",
        ),
    ]


def _scans() -> list[Operator]:
    flip = "torch.flip(torch.cumsum(torch.flip({x}, [-1]), dim=-1), [-1])"
    return [
        Operator("cumsum", "torch.cumsum({x}, dim=-1)", "{x}.cumsum(dim=-1)", leaves=_LARGE),
        Operator("reverse_cumsum", flip, "{x}.flip(-1).cumsum(dim=-1).flip(-1)", leaves=_LARGE),
        Operator(
            "exclusive_cumsum",
            "F.pad(torch.cumsum({x}, dim=-1)[:, :-1], (1, 0))",
            manual="torch.cumsum({x}, dim=-1) - {x}",
            leaves=_LARGE,
        ),
    ]


def _pool(kind: str, rank: int) -> Operator:
    name = f"{kind}_pool{rank}d"
    layer = f"nn.{kind.capitalize()}Pool{rank}d({{w}})"
    return Operator(
        name, f"F.{name}({{x}}, {{w}})", layer=layer, literals={"w": ("2", "3", "4")}, leaves={"size": "unit"}
    )


def _moves() -> list[Operator]:
    rows = "torch.randint(0, {rows}, ({count},))"
    return [
        Operator("transpose", "{x}.transpose(1, 2).contiguous()", "{x}.permute(0, 2, 1).contiguous()"),
        Operator("gather", "torch.index_select({x}, 0, {y})", "{x}[{y}]", second=rows),
        Operator("embedding", "", layer="nn.Embedding({v}, {n})", parameters={"weight": ""}),
    ]


def _glu(name: str, call: str) -> Operator:
    return Operator(name, call, prepare="a, b = {x}.chunk(2, dim=-1)", leaves=_UNIT)


CORES: dict[str, Operator] = {
    op.name: op
    for op in (
        *_norms(),
        *_reductions(),
        *_products(),
        *_pairs(),
        *_scans(),
        *(_pool(kind, rank) for kind in ("avg", "max") for rank in (1, 2)),
        *_moves(),
        _glu("glu", "a * torch.sigmoid(b)"),
        _glu("swiglu", "a * F.silu(b)"),
        _glu("geglu", "a * F.gelu(b)"),
        _glu("reglu", "a * F.relu(b)"),
        _glu("tanh_glu", "a * torch.tanh(b)"),
    )
}
