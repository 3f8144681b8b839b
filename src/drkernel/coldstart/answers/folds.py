"""How elements are joined, as lines: in one block, or over a loop of blocks.

In all lines `v` is the value of an element, `m` the mask of elements, and axis 0 the one that is joined. `N` is the
number of elements, `EPS` a constant of the operator, `ZEROS` zeros in the shape of a block; `LOW` and `HIGH` are
infinities.
"""

from __future__ import annotations

from dataclasses import dataclass

Lines = tuple[str, ...]


@dataclass(frozen=True)
class Fold:
    """Elements that become statistics, or one value `v`."""

    block: Lines
    """With all elements in one block."""
    start: Lines = ()
    """Before a loop over blocks."""
    step: Lines = ()
    """In the loop."""
    end: Lines = ()
    """After it."""
    apply: Lines = ()
    """What the statistics make of each element."""
    helper: str = ""
    """A function that it calls; see submission.HELPERS."""


def _sum(term: str = "v", end: Lines = (), apply: Lines = (), to: str = "v") -> Fold:
    masked = f"tl.where(m, {term}, 0.0)"
    return Fold(
        (f"{to} = tl.sum({masked}, 0)", *end),
        ("s = ZEROS",),
        (f"s = s + {masked}",),
        (f"{to} = tl.sum(s, 0)", *end),
        apply,
    )


def _extremum(call: str, most: str, infinity: str) -> Fold:
    masked = f"tl.where(m, v, {infinity})"
    return Fold(
        (f"v = tl.{call}({masked}, 0)",),
        (f"s = tl.full(SHAPE, {infinity}, tl.float32)",),
        (f"s = tl.{most}(s, {masked})",),
        (f"v = tl.{call}(s, 0)",),
    )


def _place(call: str, better: str, most: str, infinity: str) -> Fold:
    """The first place of the largest or smallest element."""
    masked = f"tl.where(m, v, {infinity})"
    return Fold(
        (f"v = tl.arg{call}({masked}, 0)",),
        (f"s = tl.full(SHAPE, {infinity}, tl.float32)", "w = tl.zeros(SHAPE, tl.int32)"),
        (f"v = {masked}", f"w = tl.where(v {better} s, j, w)", f"s = tl.{most}(s, v)"),
        (f"v = tl.min(tl.where(s == tl.{call}(s, 0), w, N), 0)",),
    )


_LOGSUMEXP = Fold(
    ("u = tl.max(tl.where(m, v, LOW), 0)", "v = u + tl.log(tl.sum(tl.where(m, tl.exp(v - u), 0.0), 0))"),
    ("a = ROW_LOW", "s = ROW_ZEROS"),
    (
        "v = tl.where(m, v, LOW)",
        "u = tl.maximum(a, tl.max(v, 0))",
        "s = s * tl.exp(a - u) + tl.sum(tl.exp(v - u), 0)",
        "a = u",
    ),
    ("v = a + tl.log(s)",),
)
_MOMENTS = Fold(
    (
        "a = tl.sum(tl.where(m, v, 0.0), 0) / N",
        "u = tl.where(m, v - a, 0.0)",
        "s = tl.sum(u * u, 0)",
    ),
    ("a, s, n = ZEROS, ZEROS, ZEROS",),
    (
        "n = n + tl.where(m, 1.0, 0.0)",
        "u = tl.where(m, v - a, 0.0)",
        "a = a + u / tl.maximum(n, 1.0)",
        "s = s + u * tl.where(m, v - a, 0.0)",
    ),
    ("mean = tl.sum(a * n, 0) / N", "s = tl.sum(s + n * (a - mean) * (a - mean), 0)", "a = mean"),
)
"""a: the mean, s: the sum of squared differences from it. In the loop each lane has its own (Welford)."""

FOLDS: dict[str, Fold] = {
    "sum": _sum(),
    "max": _extremum("max", "maximum", "LOW"),
    "min": _extremum("min", "minimum", "HIGH"),
    "logsumexp": _LOGSUMEXP,
    "argmax": _place("max", ">", "maximum", "LOW"),
    "argmin": _place("min", "<", "minimum", "HIGH"),
    "variance": Fold(
        (*_MOMENTS.block, "v = s"), _MOMENTS.start, _MOMENTS.step, (*_MOMENTS.end, "v = s")
    ),
    "prod": Fold(
        ("v = tl.reduce(tl.where(m, v, 1.0), 0, times)",),
        ("s = tl.full(SHAPE, 1.0, tl.float32)",),
        ("s = s * tl.where(m, v, 1.0)",),
        ("v = tl.reduce(s, 0, times)",),
        helper="times",
    ),
    "cosine": Fold(
        (
            "v, u = tl.where(m, v, 0.0), tl.where(m, u, 0.0)",
            "a, s = tl.sqrt(tl.sum(v * v, 0)), tl.sqrt(tl.sum(u * u, 0))",
            "v = tl.sum(v * u, 0) / (tl.maximum(a, 1e-08) * tl.maximum(s, 1e-08))",
        ),
        ("a, s, w = ZEROS, ZEROS, ZEROS",),
        (
            "v, u = tl.where(m, v, 0.0), tl.where(m, u, 0.0)",
            "a, s, w = a + v * v, s + u * u, w + v * u",
        ),
        (
            "a, s = tl.sqrt(tl.sum(a, 0)), tl.sqrt(tl.sum(s, 0))",
            "v = tl.sum(w, 0) / (tl.maximum(a, 1e-08) * tl.maximum(s, 1e-08))",
        ),
    ),
}  # fmt: skip
"""Reductions, by `Op.fold`."""

_DIVIDED = ("s = s / N",)

NORMS: dict[str, Fold] = {
    "moments": Fold(
        _MOMENTS.block, _MOMENTS.start, _MOMENTS.step, _MOMENTS.end, ("v = (v - a) / tl.sqrt(s / N + EPS)",)
    ),
    "standardize": Fold(
        _MOMENTS.block, _MOMENTS.start, _MOMENTS.step, _MOMENTS.end, ("v = (v - a) / (tl.sqrt(s / (N - 1)) + EPS)",)
    ),
    "squares": _sum("v * v", _DIVIDED, ("v = v / tl.sqrt(s + EPS)",), "s"),
    "l2": _sum("v * v", (), ("v = v / tl.maximum(tl.sqrt(s), EPS)",), "s"),
    "l1": _sum("tl.abs(v)", (), ("v = v / tl.maximum(s, EPS)",), "s"),
    "mean_abs": _sum("tl.abs(v)", _DIVIDED, ("v = v / (s + EPS)",), "s"),
    "mean": _sum("v", _DIVIDED, ("v = v - s",), "s"),
}
"""Norms, by the attribute `statistics`; `standardize` by its name."""

_SOFT = (_LOGSUMEXP.start, _LOGSUMEXP.step)

SOFTMAXES: dict[str, Fold] = {
    "softmax": Fold(
        ("v = tl.exp(v - tl.max(tl.where(m, v, LOW), 0))", "s = tl.sum(tl.where(m, v, 0.0), 0)", "v = v / s"),
        *_SOFT,
        apply=("v = tl.exp(v - a) / s",),
    ),
    "log_softmax": Fold(
        ("v = v - tl.max(tl.where(m, v, LOW), 0)", "v = v - tl.log(tl.sum(tl.where(m, tl.exp(v), 0.0), 0))"),
        *_SOFT,
        apply=("v = v - a - tl.log(s)",),
    ),
}
"""`softmin` is the softmax of `-v`."""
