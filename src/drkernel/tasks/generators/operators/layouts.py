"""Layouts: the shapes of generated tasks, with sizes for a GPU and small ones for the simulated device.

Full sizes move 200 MB to 1.5 GB, so that bandwidth decides and not the launch of kernels: below about 50 us a timing on
an H200 says more about Python than about a kernel. Small sizes give a usual kernel two to twelve programs in Triton's
interpreter. They are no multiples of a block, so that masks matter.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True)
class Layout:
    """A shape whose dimensions have roles; templates such as `{rows}, {cols}` are over these roles."""

    roles: tuple[str, ...]
    """The sizes that make the shape: one module constant of the source each."""
    names: tuple[tuple[str, ...], ...]
    """How a source may call the constants: one of these tuples, in the order of the roles."""
    full: tuple[tuple[int, ...], ...]
    """The sizes that a task may have, in the order of the roles."""
    small: tuple[tuple[int, int], ...]
    """Inclusive range of the small size, per role."""
    x: str
    """Shape of the first input."""
    out: str = ""
    """Shape after the core, where that differs from `x`; `-` where no stage may use a second input of that shape."""
    args: Mapping[str, str] = field(default_factory=dict)
    """Placeholders of constructor arguments, and the size that each one has."""
    first: str = "torch.randn({shape})"
    """How the first input is made."""
    since: int = 1
    """The edition of the generator `operators` that it came with. Its other fields stay as they are."""


_ROW_NAMES = (("ROWS", "COLS"), ("BATCH", "DIM"), ("M", "N"), ("batch_size", "features"), ("B", "D"))
_TOKEN_NAMES = (("BATCH", "SEQ", "DIM"), ("B", "T", "C"), ("batch_size", "seq_len", "hidden"))
_CUBE_NAMES = (("BATCH", "ROWS", "COLS"), ("B", "M", "N"), ("batch_size", "length", "features"))
_LINEAR_NAMES = (("BATCH", "IN", "OUT"), ("M", "K", "N"), ("batch_size", "in_features", "out_features"))
_IMAGE_NAMES = (
    ("BATCH", "CHANNELS", "HEIGHT", "WIDTH"),
    ("B", "C", "H", "W"),
    ("batch_size", "channels", "height", "width"),
)
_GROUP_NAMES = (
    ("BATCH", "GROUPS", "WIDTH", "LENGTH"),
    ("B", "G", "W", "L"),
    ("batch_size", "groups", "group_size", "length"),
)

_MATRICES = ((32768, 2048), (65536, 1024), (16384, 4096), (49152, 1536), (24576, 3072), (32768, 1536), (65536, 768))
_WIDE = ((65536, 2048), (131072, 1024), (32768, 4096), (81920, 1536), (40960, 3072))
_TALL = ((1024, 131072), (512, 262144), (1024, 65536), (2048, 65536))
_TOKENS = ((32, 2048, 1024), (16, 2048, 2048), (64, 1024, 1024), (32, 1024, 2048), (32, 2048, 768), (16, 1024, 4096))
_CUBES = ((128, 512, 1024), (256, 256, 1024), (64, 512, 2048), (64, 1024, 1024))
_BIG_CUBES = ((128, 512, 2048), (256, 512, 1024), (256, 256, 2048), (128, 1024, 1024))
_PRODUCTS = ((16384, 128, 2048), (32768, 64, 1024), (16384, 256, 4096), (8192, 128, 4096), (32768, 128, 2048))
_TABLES = ((16384, 1024, 65536), (32768, 512, 131072), (8192, 2048, 32768), (16384, 768, 65536))
"""Rows, columns, look-ups: enough look-ups to read nearly every row."""

_ROW = (150, 199)
"""A small row: one block of 256 where a program has a row. Seven of them are more than one block of 1024 elements."""

LAYOUTS: dict[str, Layout] = {
    "flat": Layout(("rows", "cols"), _ROW_NAMES, _MATRICES, ((17, 29), _ROW), "{rows}, {cols}", args={"n": "{cols}"}),
    "flat3d": Layout(
        ("batch", "seq", "cols"),
        _TOKEN_NAMES,
        _TOKENS,
        ((4, 5), (5, 7), (90, 170)),
        "{batch}, {seq}, {cols}",
        args={"n": "{cols}"},
    ),
    "matrix": Layout(("rows", "cols"), _ROW_NAMES, _MATRICES, ((7, 9), _ROW), "{rows}, {cols}", args={"n": "{cols}"}),
    "tokens": Layout(
        ("batch", "seq", "cols"),
        _TOKEN_NAMES,
        _TOKENS,
        ((2, 2), (4, 5), _ROW),
        "{batch}, {seq}, {cols}",
        args={"n": "{cols}"},
    ),
    "groups": Layout(
        ("batch", "groups", "width", "length"),
        _GROUP_NAMES,
        ((512, 32, 4, 1024), (1024, 16, 8, 512), (512, 32, 2, 2048), (1024, 8, 4, 1024)),
        ((4, 5), (2, 2), (5, 7), (29, 39)),
        "{batch}, {groups} * {width}, {length}",
        args={"g": "{groups}", "n": "{groups} * {width}"},
    ),
    "rows_reduced": Layout(("rows", "cols"), _ROW_NAMES, _WIDE, ((7, 9), _ROW), "{rows}, {cols}", out="-"),
    "dim0": Layout(("rows", "cols"), _ROW_NAMES, _TALL, ((19, 43), (131, 250)), "{rows}, {cols}", out="-"),
    "dim1": Layout(
        ("batch", "rows", "cols"),
        _CUBE_NAMES,
        _BIG_CUBES,
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
        _LINEAR_NAMES,
        _PRODUCTS,
        ((67, 90), (33, 45), (70, 100)),
        "{m}, {k}",
        out="{m}, {n}",
        args={"k": "{k}", "n": "{n}"},
    ),
    "matmul": Layout(
        ("m", "k", "n"),
        (("M", "K", "N"), ("ROWS", "INNER", "COLS"), ("m", "k", "n")),
        _PRODUCTS,
        ((67, 90), (33, 45), (70, 100)),
        "{m}, {k}",
        out="{m}, {n}",
        args={"n": "{n}"},
    ),
    "linear_rows": Layout(
        ("m", "k", "n"),
        _LINEAR_NAMES,
        _PRODUCTS,
        ((7, 9), (33, 60), _ROW),
        "{m}, {k}",
        out="{m}, {n}",
        args={"k": "{k}", "n": "{n}"},
    ),
    "pool1d": Layout(
        ("batch", "channels", "length"),
        (("BATCH", "CHANNELS", "LENGTH"), ("B", "C", "L"), ("batch_size", "channels", "length")),
        ((128, 64, 16384), (64, 128, 16384), (256, 128, 4096), (128, 128, 8192)),
        ((4, 5), (7, 9), (203, 290)),
        "{batch}, {channels}, {length}",
        out="-",
    ),
    "pool2d": Layout(
        ("batch", "channels", "height", "width"),
        _IMAGE_NAMES,
        ((128, 64, 128, 128), (64, 32, 256, 256), (32, 64, 256, 256), (256, 64, 64, 128)),
        ((4, 4), (7, 8), (27, 33), (29, 37)),
        "{batch}, {channels}, {height}, {width}",
        out="-",
    ),
    "glu": Layout(
        ("rows", "half"),
        (("ROWS", "HALF"), ("BATCH", "DIM"), ("M", "H"), ("batch_size", "hidden")),
        _MATRICES,
        ((7, 9), _ROW),
        "{rows}, 2 * {half}",
        out="{rows}, {half}",
        args={"n": "{half}"},
    ),
    "gather": Layout(
        ("rows", "cols", "count"),
        (("ROWS", "COLS", "COUNT"), ("N", "D", "K"), ("num_rows", "dim", "count")),
        _TABLES,
        ((4, 5), _ROW, (9, 12)),
        "{rows}, {cols}",
        out="{count}, {cols}",
        args={"n": "{cols}"},
    ),
    "embedding": Layout(
        ("vocab", "cols", "count"),
        (("VOCAB", "DIM", "COUNT"), ("V", "D", "N"), ("vocab_size", "dim", "num_tokens")),
        _TABLES,
        ((4, 5), _ROW, (9, 12)),
        "{count},",
        out="{count}, {cols}",
        args={"v": "{vocab}", "n": "{cols}"},
        first="torch.randint(0, {vocab}, ({shape}))",
    ),
}
