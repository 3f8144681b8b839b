"""What people call things: sizes, values, parameters. A reference draws its names once."""

from __future__ import annotations

import random
from collections.abc import Iterable

from drkernel.tasks.generators.graphs.source.lexicon import invented

_SIZES: dict[str, tuple[str, ...]] = {
    "batch": ("batch_size", "batch_size", "batch", "BATCH", "B", "N", "bs", "n", "BATCH_SIZE", "num_samples"),
    "channels": ("in_channels", "channels", "IN_CHANNELS", "C", "num_channels", "features", "num_features", "c_in"),
    "out_channels": ("out_channels", "OUT_CHANNELS", "C_out", "filters", "out_planes", "c_out", "num_filters"),
    "height": ("height", "HEIGHT", "H", "image_height", "h", "dim1", "input_height", "img_h"),
    "width": ("width", "WIDTH", "W", "image_width", "w", "dim2", "input_width", "img_w"),
    "depth": ("depth", "DEPTH", "D", "frames", "d", "num_frames", "dim0"),
    "length": ("length", "LENGTH", "L", "seq_length", "input_length", "num_samples", "sequence_length"),
    "seq": ("seq_len", "SEQ", "T", "sequence_length", "max_seqlen", "num_tokens", "block_size", "seq_length"),
    "features": ("features", "DIM", "dim", "num_features", "hidden_size", "embed_dim", "n_embd", "d_model", "width"),
    "in_features": ("in_features", "IN_FEATURES", "input_size", "K", "in_dim", "input_dim", "feature_dim"),
    "out_features": ("out_features", "OUT_FEATURES", "output_size", "hidden_size", "out_dim", "output_dim", "units"),
    "hidden": ("hidden_size", "HIDDEN", "hidden_dim", "H", "d_ff", "inner_dim", "mlp_dim", "bottleneck"),
    "rows": ("M", "rows", "ROWS", "m", "n_rows", "num_rows", "height"),
    "inner": ("K", "inner", "INNER", "k", "common", "inner_dim", "L", "l"),
    "cols": ("N", "cols", "COLS", "n", "num_cols", "P", "width"),
    "dim1": ("dim1", "DIM1", "d1", "seq_len", "num_points", "h"),
    "dim2": ("dim2", "DIM2", "d2", "num_features", "channels_last", "w"),
    "dim3": ("dim3", "DIM3", "d3", "inner_size"),
    "classes": ("num_classes", "NUM_CLASSES", "classes", "n_classes", "num_labels", "output_size"),
    "vocab": ("vocab_size", "VOCAB", "num_embeddings", "n_vocab", "num_words"),
    "heads": ("num_heads", "HEADS", "n_head", "n_heads", "num_attention_heads"),
    "head_dim": ("head_dim", "HEAD_DIM", "d_k", "embedding_dimension", "dim_head"),
}
INPUTS = {
    "x": ("x", "x", "x", "x", "inp", "input", "features", "inputs", "X", "tensor", "predictions", "src"),
    "y": ("y", "other", "residual", "b", "target", "targets", "skip", "mask", "weight_in"),
    "z": ("z", "third", "negative", "c"),
    "a": ("A", "a", "x", "lhs", "mat1"),
    "b": ("B", "b", "y", "rhs", "mat2"),
    "q": ("Q", "q", "query"),
    "k": ("K", "k", "key"),
    "v": ("V", "v", "value"),
    "mask": ("mask", "m", "keep", "valid", "flags"),
    "index": ("index", "indices", "idx", "ids"),
    "context": ("context", "memory", "encoder_out"),
}
FRESH = (
    ("out", "h", "z", "y2", "t"),
    ("y", "z", "out", "w", "v"),
    ("hidden", "result", "output", "scores", "value"),
    ("x1", "x2", "x3", "x4", "x5"),
    ("tmp", "res", "act", "ret", "final"),
)
PARTS = {
    2: (("a", "b"), ("gate", "value"), ("x1", "x2"), ("left", "right"), ("u", "v")),
    3: (("q", "k", "v"), ("query", "key", "value")),
}
"""What the parts of a value are called, by their number."""
KEPT = ("identity", "residual", "shortcut", "skip", "original", "x0", "saved")


class Names:
    """Hands out names, each once."""

    def __init__(self, rng: random.Random, share: float = 0.0, case: str = "lower"):
        """`share`: how often a name is an invented one, in this case."""
        self._rng, self._share, self._case = rng, share, case
        self._taken: set[str] = set()

    def of(self, choices: Iterable[str]) -> str:
        """One of the names that is not taken, with a number where all are; or an invented one."""
        choices = list(choices)
        free = [name for name in choices if name not in self._taken]
        if self._share and self._rng.random() < self._share:
            name = self._invented()
        else:
            name = self._rng.choice(free) if free else self._numbered(self._rng.choice(choices))
        self._taken.add(name)
        return name

    def _invented(self) -> str:
        while (name := invented(self._rng, self._case)) in self._taken:
            pass
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


def size_names(sizes: Iterable[str], names: Names, upper: bool) -> dict[str, str]:
    """Module constants by size; all in upper case or all in lower case."""
    found = {}
    for size in sizes:
        choices = _SIZES.get(size, (size, size.upper()))
        found[size] = names.of([name for name in choices if name.isupper() == upper] or [choices[0]])
    return found


def argument_names(size: str, constant: str) -> list[str]:
    """What a constructor may call a size: in lower case, mostly as its constant is called."""
    usual = [name for name in _SIZES.get(size, (size,)) if name.islower()]
    own = constant.lower()
    return [own, own, own, *usual] if len(own) > 1 else [usual[0] if usual else size, own, *usual]
