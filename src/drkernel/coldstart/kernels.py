"""Triton kernels from compositions: one function per kernel template, all in the same fixed style.

A kernel computes a run of operators: stages before, at most one core, stages after. Its lines come from the operators'
own entries (`Operator.triton`). `x` is the input and `o` the output; both are the names of tensors in the host code
and, with `_ptr`, of pointers in the kernel.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from drkernel.tasks.generators.operators import OPERATORS, Operator
from drkernel.tasks.generators.operators.operator import Template
from drkernel.types import DrKernelError

_LOAD = "v = tl.load(x_ptr + i, mask=m, other=0.0)"
_STORE = "tl.store(o_ptr + i, v, mask=m)"
_FOLDS: dict[str, tuple[str, str]] = {
    "sum": ("tl.zeros((BLOCK,), tl.float32)", "s = s + {v}"),
    "max": ('tl.full((BLOCK,), -float("inf"), tl.float32)', "s = tl.maximum(s, {v})"),
    "min": ('tl.full((BLOCK,), float("inf"), tl.float32)', "s = tl.minimum(s, {v})"),
}
"""How a loop starts and continues; a mean is a sum that is divided at the end."""

Info = dict[str, Any]
"""`Task.info` as `tasks.generators.operators.writer.describe` makes it."""
Lines = list[str]
Tensors = tuple[tuple[str, str], ...]
"""(pointer parameter, host expression) of each tensor between x and o."""


@dataclass(frozen=True)
class Kernel:
    """A kernel and the host code that calls it."""

    tensors: Tensors
    sizes: tuple[str, ...]
    """Integer parameters, passed under the same names."""
    blocks: dict[str, str]
    """constexpr parameters and their host values."""
    body: list[str]
    host: list[str]
    """Statements that define the sizes and `o`."""
    grid: str
    result: str = "o"

    def definition(self) -> list[str]:
        constants = [f"{block}: tl.constexpr" for block in self.blocks]
        parameters = ["x_ptr", *(pointer for pointer, _ in self.tensors), "o_ptr", *self.sizes, *constants]
        return ["@triton.jit", f"def kernel({', '.join(parameters)}):", *(f"    {line}" for line in self.body)]

    def call(self) -> list[str]:
        values = [f"{block}={value}" for block, value in self.blocks.items()]
        arguments = ["x", *(value for _, value in self.tensors), "o", *self.sizes, *values]
        second = ["y = y.contiguous()"] if any(value == "y" for _, value in self.tensors) else []
        return ["x = x.contiguous()", *second, *self.host, f"kernel[{self.grid}]({', '.join(arguments)})"]


def build(info: Info, operators: list[str]) -> Kernel:
    """The kernel that computes a run of operators of the task that `info` describes.

    Raises:
        DrKernelError: an operator names a template that `TEMPLATES` does not have.
    """
    place = next((i for i, name in enumerate(operators) if not OPERATORS[name].is_stage), len(operators))
    core = OPERATORS[operators[place]] if place < len(operators) else None
    pre = [line for name in operators[:place] for line in lines_of(info, name)]
    post = [line for name in operators[place + 1 :] for line in lines_of(info, name)]
    tensors = tuple(pair for name in operators for pair in _tensors(info, name))
    if core is None:
        return _widened(info, _elementwise(tensors, [*pre, *post]))
    if core.template not in TEMPLATES:
        raise DrKernelError(f"operator {core.name!r}: coldstart.kernels.TEMPLATES has no {core.template!r}")
    return _widened(info, TEMPLATES[core.template](info, core, pre, post, tensors))


def _widened(info: Info, kernel: Kernel) -> Kernel:
    """A kernel of a 16-bit task computes in fp32: what it loads is widened, but for the factors of a product."""
    if "dtype" not in info:
        return kernel
    load = re.compile(r"(\s*[uv] = tl\.load\(.*\))")
    return replace(kernel, body=[load.sub(r"\1.to(tl.float32)", line) for line in kernel.body])


def lines_of(info: Info, name: str) -> Lines:
    """The operator's lines with the literals of the task."""
    return [line.format(**info["literals"].get(name, {})) for line in OPERATORS[name].triton]


def _tensors(info: Info, name: str) -> list[tuple[str, str]]:
    """The pointers that an operator reads besides x."""
    second = [("y_ptr", "y")] if OPERATORS[name].second else []
    pointers = {"weight": "w_ptr", "offset": "b_ptr"}
    weights = info["weights"].get(name, {})
    return second + [(pointers.get(key, f"{key}_ptr"), f"self.{attribute}") for key, attribute in weights.items()]


def _elementwise(tensors: Tensors, lines: Lines) -> Kernel:
    column = any(value.startswith("self.") for _, value in tensors)
    body = ["i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)", "m = i < t", *["c = i % n"] * column, _LOAD]
    return Kernel(
        tensors,
        ("t", "n") if column else ("t",),
        {"BLOCK": "1024"},
        [*body, *lines, _STORE],
        ["t = x.numel()", *["n = x.shape[-1]"] * column, "o = torch.empty_like(x)"],
        "(triton.cdiv(t, 1024),)",
    )


_ROW_START = ["row = tl.program_id(0)", "c = tl.arange(0, BLOCK)", "m = c < n", "i = row * n + c"]
_ROW_BLOCK = {"BLOCK": "triton.next_power_of_2(n)"}


def _row(info: Info, core: Operator, pre: Lines, post: Lines, tensors: Tensors) -> Kernel:
    body = [*_ROW_START, _LOAD, *pre, *lines_of(info, core.name), *post, _STORE]
    host = ["n = x.shape[-1]", "o = torch.empty_like(x)"]
    sizes: tuple[str, ...] = ("n",)
    if core.template == "grouped_row":
        layer = "self." + info["weights"][core.name]["weight"].split(".")[0]
        host = [f"g = {layer}.num_groups", "l = x.shape[-1]", "n = x.shape[1] // g * l", "o = torch.empty_like(x)"]
        sizes = ("n", "g", "l")
    return Kernel(tensors, sizes, _ROW_BLOCK, body, host, "(x.numel() // n,)")


def _row_reduction(info: Info, core: Operator, pre: Lines, post: Lines, tensors: Tensors) -> Kernel:
    return Kernel(
        tensors,
        ("n",),
        _ROW_BLOCK,
        [*_ROW_START, _LOAD, *pre, *lines_of(info, core.name), *post, "tl.store(o_ptr + row, v)"],
        ["n = x.shape[-1]", "o = x.new_empty(x.shape[:-1])"],
        "(x.numel() // n,)",
        "o.mean()" if core.template == "row_loss" else "o",
    )


def _gate(info: Info, core: Operator, pre: Lines, post: Lines, tensors: Tensors) -> Kernel:
    halves = [
        "j = row * 2 * n + c",
        "u = tl.load(x_ptr + j, mask=m, other=0.0)",
        "v = tl.load(x_ptr + j + n, mask=m, other=0.0)",
    ]
    return Kernel(
        tensors,
        ("n",),
        _ROW_BLOCK,
        [*_ROW_START, *halves, *lines_of(info, core.name), "v = u * v", *post, _STORE],
        ["n = x.shape[-1] // 2", "o = x.new_empty(x.shape[:-1] + (n,))"],
        "(o.numel() // n,)",
    )


def _lookup(info: Info, core: Operator, pre: Lines, post: Lines, tensors: Tensors) -> Kernel:
    weight = info["weights"].get(core.name, {}).get("weight")
    index, table = ("x_ptr", "w_ptr") if weight else ("y_ptr", "x_ptr")
    columns = f"self.{weight}.shape[-1]" if weight else "x.shape[-1]"
    output = f"self.{weight}.new_empty(x.shape + (n,))" if weight else "x.new_empty(y.shape + (n,))"
    load = [f"k = tl.load({index} + row)", f"v = tl.load({table} + k * n + c, mask=m, other=0.0)"]
    return Kernel(
        tensors,
        ("n",),
        _ROW_BLOCK,
        [*_ROW_START, *load, *post, _STORE],
        [f"n = {columns}", f"o = {output}"],
        "(o.numel() // n,)",
    )


def _column_reduction(info: Info, core: Operator, pre: Lines, post: Lines, tensors: Tensors) -> Kernel:
    reduce = "sum" if core.fold == "mean" else core.fold
    start, fold = _FOLDS[reduce]
    padding = {"max": '-float("inf")', "min": 'float("inf")'}.get(reduce, "0.0")
    body = [
        "c = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)",
        "b = tl.program_id(1)",
        f"s = {start}",
        "for j in range(0, k, 32):",
        "    r = j + tl.arange(0, 32)[:, None]",
        "    i = (b * k + r) * n + c[None, :]",
        "    m = (r < k) & (c[None, :] < n)",
        *(f"    {line}" for line in (_LOAD, *pre)),
        "    " + fold.format(v=f"tl.{reduce}(tl.where(m, v, {padding}), 0)"),
        "v = s / k" if core.fold == "mean" else "v = s",
    ]
    return Kernel(
        tensors,
        ("k", "n"),
        {"BLOCK": "64"},
        [*body, *post, "tl.store(o_ptr + b * n + c, v, mask=c < n)"],
        ["k, n = x.shape[-2:]", "o = x.new_empty(x.shape[:-2] + (n,))"],
        "(triton.cdiv(n, 64), o.numel() // n)",
    )


def _pool(info: Info, core: Operator, pre: Lines, post: Lines, tensors: Tensors) -> Kernel:
    w, flat = info["literals"][core.name]["w"], core.layout == "pool1d"
    start, fold = _FOLDS["sum" if core.fold == "mean" else core.fold]
    sizes: tuple[str, ...]
    count = w if flat else str(int(w) ** 2)
    if flat:
        corner, step = f"p = i // (n // {w}) * n + i % (n // {w}) * {w}", "j"
        host, sizes, shape = ["n = x.shape[-1]"], ("t", "n"), f"x.shape[:-1] + (n // {w},)"
    else:
        corner, step = (
            f"p = (r // (h // {w}) * h + r % (h // {w}) * {w}) * n + i % (n // {w}) * {w}",
            f"j // {w} * n + j % {w}",
        )
        host, sizes, shape = ["h, n = x.shape[-2:]"], ("t", "h", "n"), f"x.shape[:-2] + (h // {w}, n // {w})"
    body = [
        "i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)",
        "m = i < t",
        *([] if flat else [f"r = i // (n // {w})"]),
        corner,
        f"s = {start}",
        f"for j in range({count}):",
        f"    v = tl.load(x_ptr + p + {step}, mask=m, other=0.0)",
        *(f"    {line}" for line in pre),
        "    " + fold.format(v="v"),
        f"v = s / {count}" if core.fold == "mean" else "v = s",
    ]
    return Kernel(
        tensors,
        sizes,
        {"BLOCK": "1024"},
        [*body, *post, _STORE],
        [*host, f"o = x.new_empty({shape})", "t = o.numel()"],
        "(triton.cdiv(t, 1024),)",
    )


def _transpose(info: Info, core: Operator, pre: Lines, post: Lines, tensors: Tensors) -> Kernel:
    body = [
        "r = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)[:, None]",
        "c = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)[None, :]",
        "b = tl.program_id(2)",
        "m = (r < k) & (c < n)",
        "i = (b * k + r) * n + c",
        _LOAD,
        *pre,
        "i = (b * n + c) * k + r",
    ]
    return Kernel(
        tensors,
        ("k", "n"),
        {"BLOCK": "32"},
        [*body, *post, _STORE],
        ["b, k, n = x.shape", "o = x.new_empty(b, n, k)"],
        "(triton.cdiv(k, 32), triton.cdiv(n, 32), b)",
    )


def _product(info: Info, core: Operator, pre: Lines, post: Lines, tensors: Tensors) -> Kernel:
    body = [
        "r = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)[:, None]",
        "c = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)[None, :]",
        "v = tl.zeros((BLOCK, BLOCK), tl.float32)",
        "for s in range(0, k, 32):",
        "    j = s + tl.arange(0, 32)",
        "    a = tl.load(x_ptr + r * k + j[None, :], mask=(r < t) & (j[None, :] < k), other=0.0)",
        "    b = tl.load(y_ptr + j[:, None] * n + c, mask=(j[:, None] < k) & (c < n), other=0.0)",
        '    v = tl.dot(a, b, v, input_precision="ieee")',
        "m = (r < t) & (c < n)",
        "i = r * n + c",
    ]
    return Kernel(
        tensors,
        ("t", "k", "n"),
        {"BLOCK": "64"},
        [*body, *post, _STORE],
        ["t, k = x.shape", "n = y.shape[1]", "o = x.new_empty(t, n)"],
        "(triton.cdiv(t, 64), triton.cdiv(n, 64))",
    )


TEMPLATES: dict[Template, Callable[..., Kernel]] = {
    "row": _row,
    "grouped_row": _row,
    "row_reduction": _row_reduction,
    "row_loss": _row_reduction,
    "column_reduction": _column_reduction,
    "gate": _gate,
    "lookup": _lookup,
    "pool": _pool,
    "transpose": _transpose,
    "product": _product,
}
"""The kernels of cores, by `Operator.template`; stages alone make the `elementwise` kernel."""
