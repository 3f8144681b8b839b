"""Shapes of generated tasks: tensors, constructor arguments, and sizes for a GPU and for the simulated device.

Full sizes move 60 MB to 1 GB, so that bandwidth and not launch latency decides. Small ones give a natural kernel four
to twelve programs in Triton's interpreter and are no multiples of a block, so that masks matter.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True)
class Layout:
    """Sizes by role. Templates such as `{rows}, {cols}` speak of roles; `names` says how a source may call them."""

    roles: tuple[str, ...]
    names: tuple[tuple[str, ...], ...]
    full: tuple[tuple[int, ...], ...]
    small: tuple[tuple[int, int], ...]
    """Inclusive range per role."""
    x: str
    """Shape of the first input."""
    out: str = ""
    """Shape after the core, where that differs from `x`; `-` where no tensor of that shape may be added."""
    args: Mapping[str, str] = field(default_factory=dict)
    """Placeholders of constructor arguments, and the size that each takes."""
    first: str = "torch.randn({shape})"
    """How the first input is made."""


_ROW_NAMES = (("ROWS", "COLS"), ("BATCH", "DIM"), ("M", "N"), ("batch_size", "features"), ("B", "D"))
_TOKEN_NAMES = (("BATCH", "SEQ", "DIM"), ("B", "T", "C"), ("batch_size", "seq_len", "hidden"))
_MATRICES = ((8192, 2048), (16384, 1024), (16384, 2048), (8192, 4096), (32768, 1024), (16384, 1536), (8192, 3072))
_TOKENS = ((16, 1024, 1024), (16, 2048, 1024), (8, 2048, 2048), (32, 512, 2048), (16, 1024, 1536), (64, 512, 1024))
_CUBES = ((64, 512, 1024), (128, 256, 1024), (64, 256, 2048), (32, 1024, 1024))
_CUBE_NAMES = (("BATCH", "ROWS", "COLS"), ("B", "M", "N"), ("batch_size", "length", "features"))

LAYOUTS: dict[str, Layout] = {
    "flat": Layout(
        ("rows", "cols"), _ROW_NAMES, _MATRICES, ((17, 29), (130, 199)), "{rows}, {cols}", args={"n": "{cols}"}
    ),
    "flat3d": Layout(
        ("batch", "seq", "cols"),
        _TOKEN_NAMES,
        _TOKENS,
        ((4, 5), (5, 7), (90, 170)),
        "{batch}, {seq}, {cols}",
        args={"n": "{cols}"},
    ),
    "matrix": Layout(
        ("rows", "cols"), _ROW_NAMES, _MATRICES, ((5, 8), (129, 199)), "{rows}, {cols}", args={"n": "{cols}"}
    ),
    "tokens": Layout(
        ("batch", "seq", "cols"),
        _TOKEN_NAMES,
        _TOKENS,
        ((2, 2), (4, 5), (129, 199)),
        "{batch}, {seq}, {cols}",
        args={"n": "{cols}"},
    ),
    "groups": Layout(
        ("batch", "groups", "width", "length"),
        (
            ("BATCH", "GROUPS", "WIDTH", "LENGTH"),
            ("B", "G", "W", "L"),
            ("batch_size", "groups", "group_size", "length"),
        ),
        ((64, 32, 4, 2048), (128, 16, 8, 1024), (256, 16, 4, 1024), (64, 16, 16, 1024)),
        ((3, 4), (2, 2), (5, 7), (23, 39)),
        "{batch}, {groups} * {width}, {length}",
        args={"g": "{groups}", "n": "{groups} * {width}"},
    ),
    "rows_reduced": Layout(("rows", "cols"), _ROW_NAMES, _MATRICES, ((5, 8), (129, 199)), "{rows}, {cols}", out="-"),
    "dim0": Layout(
        ("rows", "cols"),
        _ROW_NAMES,
        ((256, 65536), (512, 65536), (512, 32768), (256, 131072)),
        ((19, 43), (131, 250)),
        "{rows}, {cols}",
        out="-",
    ),
    "dim1": Layout(
        ("batch", "rows", "cols"),
        _CUBE_NAMES,
        _CUBES,
        ((4, 4), (19, 43), (67, 120)),
        "{batch}, {rows}, {cols}",
        out="-",
    ),
    "transpose": Layout(
        ("batch", "rows", "cols"),
        _CUBE_NAMES,
        _CUBES,
        ((4, 4), (19, 30), (37, 60)),
        "{batch}, {rows}, {cols}",
        out="{batch}, {cols}, {rows}",
    ),
    "linear": Layout(
        ("m", "k", "n"),
        (
            ("BATCH", "IN", "OUT"),
            ("M", "K", "N"),
            ("batch_size", "in_features", "out_features"),
            ("ROWS", "D_IN", "D_OUT"),
        ),
        ((16384, 128, 2048), (32768, 64, 1024), (16384, 256, 4096), (8192, 128, 4096), (32768, 128, 2048)),
        ((67, 90), (33, 45), (70, 100)),
        "{m}, {k}",
        out="{m}, {n}",
        args={"k": "{k}", "n": "{n}"},
    ),
    "matmul": Layout(
        ("m", "k", "n"),
        (("M", "K", "N"), ("ROWS", "INNER", "COLS"), ("m", "k", "n")),
        ((8192, 128, 4096), (16384, 64, 2048), (8192, 256, 8192), (16384, 128, 2048)),
        ((67, 90), (33, 45), (70, 100)),
        "{m}, {k}",
        out="{m}, {n}",
        args={"n": "{n}"},
    ),
    "linear_rows": Layout(
        ("m", "k", "n"),
        (
            ("BATCH", "IN", "OUT"),
            ("M", "K", "N"),
            ("batch_size", "in_features", "out_features"),
            ("ROWS", "D_IN", "D_OUT"),
        ),
        ((16384, 128, 2048), (32768, 64, 1024), (16384, 128, 4096), (32768, 128, 1024)),
        ((5, 8), (33, 60), (129, 199)),
        "{m}, {k}",
        out="{m}, {n}",
        args={"k": "{k}", "n": "{n}"},
    ),
    "pool1d": Layout(
        ("batch", "channels", "length"),
        (("BATCH", "CHANNELS", "LENGTH"), ("B", "C", "L"), ("batch_size", "channels", "length")),
        ((32, 64, 8192), (64, 32, 16384), (32, 128, 4096), (64, 128, 4096)),
        ((4, 5), (5, 7), (203, 290)),
        "{batch}, {channels}, {length}",
        out="-",
    ),
    "pool2d": Layout(
        ("batch", "channels", "height", "width"),
        (("BATCH", "CHANNELS", "HEIGHT", "WIDTH"), ("B", "C", "H", "W"), ("batch_size", "channels", "height", "width")),
        ((16, 64, 128, 128), (32, 64, 128, 128), (16, 32, 256, 256), (64, 64, 64, 128)),
        ((4, 4), (5, 6), (27, 33), (29, 37)),
        "{batch}, {channels}, {height}, {width}",
        out="-",
    ),
    "glu": Layout(
        ("rows", "half"),
        (("ROWS", "HALF"), ("BATCH", "DIM"), ("M", "H"), ("batch_size", "hidden")),
        _MATRICES,
        ((5, 8), (129, 199)),
        "{rows}, 2 * {half}",
        out="{rows}, {half}",
        args={"n": "{half}"},
    ),
    "gather": Layout(
        ("rows", "cols", "count"),
        (("ROWS", "COLS", "COUNT"), ("N", "D", "K"), ("num_rows", "dim", "count")),
        ((32768, 1024, 16384), (65536, 512, 65536), (16384, 2048, 16384), (50000, 768, 32768)),
        ((11, 19), (129, 199), (5, 8)),
        "{rows}, {cols}",
        out="{count}, {cols}",
        args={"n": "{cols}"},
    ),
    "embedding": Layout(
        ("vocab", "cols", "count"),
        (("VOCAB", "DIM", "COUNT"), ("V", "D", "N"), ("vocab_size", "dim", "num_tokens")),
        ((32768, 1024, 16384), (65536, 512, 65536), (16384, 2048, 16384), (50000, 768, 32768)),
        ((11, 19), (129, 199), (5, 8)),
        "{count},",
        out="{count}, {cols}",
        args={"v": "{vocab}", "n": "{cols}"},
        first="torch.randint(0, {vocab}, ({shape}))",
    ),
}
