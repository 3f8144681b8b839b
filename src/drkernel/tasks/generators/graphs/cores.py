"""Convolutions and products: what most chains begin with, and tasks of their own."""

from __future__ import annotations

import random
from typing import Any

from drkernel.tasks.generators.graphs.dims import Dim, as_dim
from drkernel.tasks.generators.graphs.graph import Builder
from drkernel.tasks.generators.graphs.sizes import images, odd_size

CONVOLUTIONS = (
    "plain",
    "plain",
    "strided",
    "dilated",
    "asymmetric",
    "grouped",
    "depthwise",
    "pointwise",
    "transposed",
    "transposed",
    "transposed_strided",
)
"""What a convolution is like."""
PRODUCTS = (
    "linear",
    "linear_tokens",
    "weight",
    "square",
    "rectangular",
    "tall",
    "tall_by_wide",
    "wide_by_tall",
    "column",
    "huge_inner",
    "small_inner",
    "transposed_x",
    "transposed_y",
    "transposed_both",
    "bmm",
    "tokens_by_matrix",
    "images_by_matrix",
    "matvec",
    "outer",
    "diagonal",
    "upper",
    "lower",
    "symmetric",
    "addmm",
)
_OUT = ((16, 4), (32, 8), (64, 8), (64, 4), (96, 6), (128, 8), (24, 6), (48, 8))
_SPATIAL = {1: (3, 3, 5, 7, 2, 4, 6, 8, 9, 11, 15), 2: (3, 3, 3, 5, 7, 4, 2, 6, 9, 11), 3: (3, 3, 3, 2, 4, 5)}


def convolution(build: Builder, rng: random.Random, rank: int, like: str) -> str:
    """A convolution of a new input; returns the value."""
    shape = images(build, rng, rank, least_small=12 if like == "dilated" and rank < 3 else 0)
    value = build.input("x", shape)
    return build.node(
        f"conv{'_transpose' * like.startswith('transposed')}{rank}d", value, **_drawn(build, rng, rank, like)
    )


def _drawn(build: Builder, rng: random.Random, rank: int, like: str) -> dict[str, Any]:
    """The attributes of a convolution of the first input."""
    kernel: Any = rng.choice(_SPATIAL[rank])
    found: dict[str, Any] = {"bias": rng.random() < 0.8}
    channels = build.sizes["channels"]
    if like == "asymmetric" and rank > 1:
        found |= _uneven(rng, rank)
        kernel = found["kernel_size"]
    elif like == "pointwise":
        kernel = 1
    elif like == "strided":
        found |= {"stride": rng.choice((2, 2, 2, 3, 4)), "padding": rng.choice((0, 1, 2, 3))}
    elif like == "dilated":
        found |= {"dilation": rng.choice((2, 2, 3)), "padding": rng.choice((0, 1, 2, 3))}
        found["stride"] = rng.choice((1, 1, 2, 3))
        kernel = rng.choice((2, 3, 3)) if rank < 3 else 2
    elif like == "transposed_strided":
        stride = rng.choice((2, 2, 3)) if rank < 3 else 2
        kernel = max(kernel, 2)
        found |= {"stride": stride, "padding": rng.choice((0, 1)), "output_padding": rng.choice((0, 1))}
        if rank > 1 and rng.random() < 0.3:
            found |= {"stride": (2, 3, 2)[:rank], "padding": (1, 2, 0)[:rank], "output_padding": (1, 0, 1)[:rank]}
            kernel = tuple(rng.sample((3, 4, 5), rank))
    elif like != "transposed" or rng.random() < 0.4:
        found["padding"] = rng.choice((0, 1, kernel // 2, rng.randrange(4)))
    if like in ("plain", "depthwise", "grouped") and rng.random() < 0.2:
        found |= {"stride": rng.choice((1, 2, 3)), "dilation": rng.choice((1, 2))}
    found["kernel_size"] = kernel
    if like == "depthwise":
        return {**found, "out_channels": channels, "groups": channels}
    if like == "grouped" and channels.full % 4 == channels.small % 4 == 0:
        groups = found["groups"] = rng.choice((2, 4))
        fitting = [out for out in _OUT if out[0] % groups == out[1] % groups == 0]
        return {**found, "out_channels": build.size("out_channels", *rng.choice(fitting))}
    return {**found, "out_channels": build.size("out_channels", *rng.choice(_OUT))}


def _uneven(rng: random.Random, rank: int) -> dict[str, Any]:
    """Attributes that differ between dimensions."""
    sizes = tuple(rng.sample((1, 2, 3, 4, 5, 7, 9, 11) if rank == 2 else (1, 2, 3, 5), rank))
    found: dict[str, Any] = {"kernel_size": sizes}
    found["padding"] = rng.choice((tuple(size // 2 for size in sizes), 0, tuple(rng.randrange(3) for _ in sizes)))
    if rng.random() < 0.4:
        found["stride"] = tuple(rng.randrange(1, 4) for _ in sizes)
    return found


def product(build: Builder, rng: random.Random, like: str) -> str:
    """A product of new inputs; returns the value."""
    return _PRODUCTS[like](build, rng)


def _size(build: Builder, rng: random.Random, name: str, full: tuple[int, ...], small: tuple[int, ...]) -> Dim:
    return build.size(name, odd_size(rng, rng.choice(full)), rng.choice(small))


def _linear(build: Builder, rng: random.Random) -> str:
    batch = _size(build, rng, "batch", (128, 256, 512, 1024, 4096, 16384), (17, 33))
    width = _size(build, rng, "in_features", (256, 512, 1024, 2048, 4096, 8192, 16384), (19, 33))
    out = _size(build, rng, "out_features", (128, 256, 512, 1024, 4096, 8192), (16, 24, 40))
    return build.node("linear", build.input("x", (batch, width)), out_features=out, bias=rng.random() < 0.85)


def _weight(build: Builder, rng: random.Random) -> str:
    batch = _size(build, rng, "batch", (128, 1024, 4096, 16384), (17, 33))
    width = _size(build, rng, "in_features", (256, 512, 1024, 4096, 8192), (19, 33))
    out = _size(build, rng, "out_features", (256, 1024, 4096, 8192), (16, 24, 40))
    return build.node(
        "matmul_parameter", build.input("x", (batch, width)), out_features=out, transposed=rng.random() < 0.6
    )


def _linear_tokens(build: Builder, rng: random.Random) -> str:
    batch, seq = _size(build, rng, "batch", (8, 16, 32), (2, 3)), _size(build, rng, "seq", (128, 512, 1024), (7, 9))
    width = _size(build, rng, "in_features", (256, 512, 768, 1024), (19, 33))
    out = _size(build, rng, "out_features", (256, 512, 1024, 3072), (16, 24, 40))
    return build.node("linear", build.input("x", (batch, seq, width)), out_features=out, bias=rng.random() < 0.85)


def _matrices(
    rows: tuple[int, ...],
    inner: tuple[int, ...],
    cols: tuple[int, ...],
    x: str = "randn",
    y: str = "randn",
    **turned: bool,
) -> Any:
    """Products of two matrices with sizes from these."""

    def draw(build: Builder, rng: random.Random) -> str:
        m = _size(build, rng, "rows", rows, (19, 33, 40))
        k = _size(build, rng, "inner", inner, (17, 24, 33))
        n = _size(build, rng, "cols", cols, (19, 34, 40))
        first = (k, m) if turned.get("transpose_x") else (m, k)
        second = (n, k) if turned.get("transpose_y") else (k, n)
        return build.node("matmul", build.input("a", first, x), build.input("b", second, y), **turned)  # type: ignore[arg-type]

    return draw


def _squares(kind: str = "randn", masked: str = "") -> Any:
    """Products of two square matrices."""

    def draw(build: Builder, rng: random.Random) -> str:
        n = _size(build, rng, "rows", (1024, 2048, 4096), (19, 33, 40))
        a, b = build.input("a", (n, n), kind), build.input("b", (n, n), kind)  # type: ignore[arg-type]
        value = build.node("matmul", a, b)
        return build.node(masked, value) if masked else value

    return draw


def _shared(build: Builder, rng: random.Random) -> tuple[Dim, Dim]:
    return _size(build, rng, "rows", (8192, 16384, 32768), (40, 70)), _size(build, rng, "cols", (16, 32, 64), (17, 24))


def _tall_by_wide(build: Builder, rng: random.Random) -> str:
    m, n = _shared(build, rng)
    return build.node("matmul", build.input("a", (m, n)), build.input("b", (n, m)))


def _wide_by_tall(build: Builder, rng: random.Random) -> str:
    m, n = _shared(build, rng)
    return build.node("matmul", build.input("a", (m, n)), build.input("b", (m, n)), transpose_x=True)


def _column(build: Builder, rng: random.Random) -> str:
    rows = _size(build, rng, "rows", (256, 2048, 8192, 16384), (19, 33))
    inner = _size(build, rng, "inner", (8192, 16384, 65536), (130, 200))
    return build.node("matmul", build.input("a", (rows, inner)), build.input("b", (inner, as_dim(1))))


def _bmm(build: Builder, rng: random.Random) -> str:
    batch = _size(build, rng, "batch", (16, 32, 64, 128), (2, 3))
    m, k, n = (_size(build, rng, name, (128, 256, 512, 1024), (9, 17, 20)) for name in ("rows", "inner", "cols"))
    turn = rng.random() < 0.3
    other = (batch, n, k) if turn else (batch, k, n)
    return build.node("bmm", build.input("a", (batch, m, k)), build.input("b", other), transpose_y=turn)


def _batched(leading: tuple[str, ...]) -> Any:
    full = {"batch": (8, 16), "seq": (256, 1024), "height": (64, 128, 256), "width": (128, 256)}

    def draw(build: Builder, rng: random.Random) -> str:
        before = [_size(build, rng, name, full[name], (2, 3) if name == "batch" else (4, 5)) for name in leading]
        inner = _size(build, rng, "inner", (256, 512, 1024), (17, 24))
        cols = _size(build, rng, "cols", (256, 512, 768), (19, 34))
        return build.node("matmul", build.input("a", (*before, inner)), build.input("b", (inner, cols)))

    return draw


def _matvec(build: Builder, rng: random.Random) -> str:
    rows = _size(build, rng, "rows", (256, 2048, 8192, 16384), (19, 33))
    inner = _size(build, rng, "inner", (8192, 16384, 65536, 131072), (130, 200))
    return build.node("matvec", build.input("a", (rows, inner)), build.input("b", (inner,)))


def _outer(build: Builder, rng: random.Random) -> str:
    rows = _size(build, rng, "rows", (4096, 8192, 16384), (19, 33))
    cols = _size(build, rng, "cols", (4096, 8192, 16384), (34, 40))
    return build.node("outer", build.input("a", (rows,)), build.input("b", (cols,)))


def _diagonal(build: Builder, rng: random.Random) -> str:
    rows = _size(build, rng, "rows", (4096, 8192), (19, 33))
    cols = _size(build, rng, "cols", (4096, 8192, 16384), (34, 40))
    return build.node("diagonal_matmul", build.input("a", (rows,)), build.input("b", (rows, cols)))


def _addmm(build: Builder, rng: random.Random) -> str:
    m, n = (_size(build, rng, name, (1024, 2048, 4096), (19, 33)) for name in ("rows", "cols"))
    k = _size(build, rng, "inner", (256, 1024, 4096), (17, 24))
    bias = build.input("c", rng.choice(((n,), (m, n))))
    return build.node("addmm", bias, build.input("a", (m, k)), build.input("b", (k, n)))


_MID = (512, 1024, 2048, 4096)
_PRODUCTS = {
    "linear": _linear,
    "linear_tokens": _linear_tokens,
    "weight": _weight,
    "square": _squares(),
    "rectangular": _matrices(_MID, _MID, (256, 1000, 2048, 5000)),
    "tall": _matrices((16384, 32768), (16, 32, 64), (512, 1024, 2048)),
    "tall_by_wide": _tall_by_wide,
    "wide_by_tall": _wide_by_tall,
    "column": _column,
    "huge_inner": _matrices((128, 256, 512), (65536, 131072, 262144), (128, 256)),
    "small_inner": _matrices((8192, 16384), (32, 64), (8192, 16384)),
    "transposed_x": _matrices(_MID, _MID, _MID, transpose_x=True),
    "transposed_y": _matrices(_MID, _MID, _MID, transpose_y=True),
    "transposed_both": _matrices(_MID, _MID, _MID, transpose_x=True, transpose_y=True),
    "bmm": _bmm,
    "tokens_by_matrix": _batched(("batch", "seq")),
    "images_by_matrix": _batched(("batch", "height", "width")),
    "matvec": _matvec,
    "outer": _outer,
    "diagonal": _diagonal,
    "upper": _squares("upper", "triu"),
    "lower": _squares("lower", "tril"),
    "symmetric": _squares("symmetric"),
    "addmm": _addmm,
}
