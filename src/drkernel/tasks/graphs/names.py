"""What people call things: sizes, values, parameters. A reference draws its names once."""

from __future__ import annotations

import random
from collections.abc import Iterable

_SIZES: dict[str, tuple[str, ...]] = {
    "batch": ("batch_size", "batch_size", "batch", "BATCH", "B", "N"),
    "channels": ("in_channels", "channels", "IN_CHANNELS", "C", "num_channels"),
    "out_channels": ("out_channels", "OUT_CHANNELS", "C_out", "filters"),
    "height": ("height", "HEIGHT", "H", "image_height"),
    "width": ("width", "WIDTH", "W", "image_width"),
    "depth": ("depth", "DEPTH", "D", "frames"),
    "length": ("length", "LENGTH", "L", "seq_length"),
    "seq": ("seq_len", "SEQ", "T", "sequence_length"),
    "features": ("features", "DIM", "dim", "num_features", "hidden_size"),
    "in_features": ("in_features", "IN_FEATURES", "input_size", "K"),
    "out_features": ("out_features", "OUT_FEATURES", "output_size", "hidden_size"),
    "hidden": ("hidden_size", "HIDDEN", "hidden_dim", "H"),
    "rows": ("M", "rows", "ROWS", "m"),
    "inner": ("K", "inner", "INNER", "k"),
    "cols": ("N", "cols", "COLS", "n"),
    "dim1": ("dim1", "DIM1", "d1"),
    "dim2": ("dim2", "DIM2", "d2"),
    "dim3": ("dim3", "DIM3", "d3"),
    "classes": ("num_classes", "NUM_CLASSES", "classes"),
    "vocab": ("vocab_size", "VOCAB", "num_embeddings"),
    "heads": ("num_heads", "HEADS", "n_head"),
    "head_dim": ("head_dim", "HEAD_DIM", "d_k"),
}
INPUTS = {
    "x": ("x", "x", "x", "inp", "input", "features"),
    "y": ("y", "other", "residual", "b"),
    "a": ("A", "a"),
    "b": ("B", "b"),
}
FRESH = (("out", "h", "z", "y2", "t"), ("y", "z", "out", "w", "v"), ("hidden", "result", "output", "scores", "value"))
PARTS = {
    2: (("a", "b"), ("gate", "value"), ("x1", "x2"), ("left", "right"), ("u", "v")),
    3: (("q", "k", "v"), ("query", "key", "value")),
}
"""What the parts of a value are called, by their number."""
KEPT = ("identity", "residual", "shortcut", "skip", "original")


class Names:
    """Hands out names, each once."""

    def __init__(self, rng: random.Random):
        self._rng = rng
        self._taken: set[str] = set()

    def of(self, choices: Iterable[str]) -> str:
        """One of the names that is not taken; with a number where all are."""
        choices = list(choices)
        free = [name for name in choices if name not in self._taken]
        name = self._rng.choice(free) if free else self._numbered(self._rng.choice(choices))
        self._taken.add(name)
        return name

    def _numbered(self, name: str) -> str:
        number = 2
        while f"{name}{number}" in self._taken:
            number += 1
        return f"{name}{number}"

    def is_free(self, name: str) -> bool:
        return name not in self._taken

    def reserve(self, *names: str) -> None:
        self._taken.update(names)


def size_names(sizes: Iterable[str], rng: random.Random) -> dict[str, str]:
    """Module constants by size; all in upper case or all in lower case."""
    upper = rng.random() < 0.25
    names, found = Names(rng), {}
    for size in sizes:
        choices = _SIZES.get(size, (size, size.upper()))
        fitting = [name for name in choices if name.isupper() == upper] or [choices[0]]
        found[size] = names.of(fitting)
    return found


def argument_name(size: str) -> str:
    """What a constructor calls a size: in lower case."""
    name = _SIZES.get(size, (size,))[0]
    return name if name.islower() else size
