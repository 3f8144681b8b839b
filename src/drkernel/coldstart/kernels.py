"""Triton kernels from compositions: one function per shape of kernel, all in the same fixed style.

A kernel covers a run of operators: stages before, one core at most, stages after. `x` goes in and `o` comes out; both
are the names of tensors in the host code and, with `_ptr`, in the kernel.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from drkernel.coldstart.kernels_lines import FOLDS, GATE_LINES, LOSS_LINES, REDUCE_LINES, ROW_LINES, STAGE_LINES
from drkernel.tasks.cores import CORES
from drkernel.tasks.families import OPERATORS
from drkernel.tasks.stages import COLUMN_STAGES

_LOAD = "v = tl.load(x_ptr + i, mask=m, other=0.0)"
_STORE = "tl.store(o_ptr + i, v, mask=m)"


@dataclass(frozen=True)
class Kernel:
    """A kernel and the host code that calls it."""

    tensors: tuple[tuple[str, str], ...]
    """(pointer parameter, host expression) between x and o."""
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


def build(info: dict[str, Any], operators: list[str]) -> Kernel:
    """The kernel that does a run of operators of the task that `info` describes."""
    place = next((i for i, name in enumerate(operators) if name in CORES), len(operators))
    core = operators[place] if place < len(operators) else ""
    pre = [line for name in operators[:place] for line in lines_of(info, name, STAGE_LINES)]
    post = [line for name in operators[place + 1 :] for line in lines_of(info, name, STAGE_LINES)]
    tensors = tuple(pair for name in operators for pair in _tensors(info, name))
    return _shape_of(core)(info, core, pre, post, tensors)


def lines_of(info: dict[str, Any], name: str, table: dict[str, list[str]]) -> list[str]:
    return [line.format(**info["literals"].get(name, {})) for line in table[name]]


def _tensors(info: dict[str, Any], name: str) -> list[tuple[str, str]]:
    """The pointers that an operator reads besides x."""
    weights = {key: f"self.{attribute}" for key, attribute in info["weights"].get(name, {}).items()}
    if name in COLUMN_STAGES:
        return [(f"{name}_ptr", weights[name])]
    second = [("y_ptr", "y")] if OPERATORS[name].second else []
    pointers = {"weight": "w_ptr", "offset": "b_ptr"}
    return second + [(pointers[key], value) for key, value in weights.items()]


def _shape_of(core: str) -> Callable[..., Kernel]:
    if not core:
        return _flat
    if core in GATE_LINES:
        return _gate
    if core in REDUCE_LINES or core in LOSS_LINES:
        return _reduce
    if "_dim" in core:
        return _columns
    if "pool" in core:
        return _pool
    by_name = {
        "gather": _look_up,
        "embedding": _look_up,
        "transpose": _transpose,
        "linear": _product,
        "matmul": _product,
    }
    return by_name.get(core, _row)


def _flat(info: dict, core: str, pre: list, post: list, tensors: tuple) -> Kernel:
    column = any(name in COLUMN_STAGES for name in _stage_pointers(tensors))
    body = ["i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)", "m = i < t", *["c = i % n"] * column, _LOAD]
    return Kernel(
        tensors,
        ("t", "n") if column else ("t",),
        {"BLOCK": "1024"},
        [*body, *pre, *post, _STORE],
        ["t = x.numel()", *["n = x.shape[-1]"] * column, "o = torch.empty_like(x)"],
        "(triton.cdiv(t, 1024),)",
    )


def _stage_pointers(tensors: tuple[tuple[str, str], ...]) -> list[str]:
    return [pointer.removesuffix("_ptr") for pointer, _ in tensors]


_ROW_START = ["row = tl.program_id(0)", "c = tl.arange(0, BLOCK)", "m = c < n", "i = row * n + c"]
_ROW_BLOCK = {"BLOCK": "triton.next_power_of_2(n)"}


def _row(info: dict, core: str, pre: list, post: list, tensors: tuple) -> Kernel:
    body = [*_ROW_START, _LOAD, *pre, *lines_of(info, core, ROW_LINES), *post, _STORE]
    host, sizes = ["n = x.shape[-1]", "o = torch.empty_like(x)"], ("n",)
    if core == "group_norm":
        layer = "self." + info["weights"][core]["weight"].split(".")[0]
        host = [f"g = {layer}.num_groups", "l = x.shape[-1]", "n = x.shape[1] // g * l", "o = torch.empty_like(x)"]
        sizes = ("n", "g", "l")
    return Kernel(tensors, sizes, _ROW_BLOCK, body, host, "(x.numel() // n,)")


def _reduce(info: dict, core: str, pre: list, post: list, tensors: tuple) -> Kernel:
    lines = lines_of(info, core, {**REDUCE_LINES, **LOSS_LINES})
    return Kernel(
        tensors,
        ("n",),
        _ROW_BLOCK,
        [*_ROW_START, _LOAD, *pre, *lines, *post, "tl.store(o_ptr + row, v)"],
        ["n = x.shape[-1]", "o = x.new_empty(x.shape[:-1])"],
        "(x.numel() // n,)",
        "o.mean()" if core in LOSS_LINES else "o",
    )


def _gate(info: dict, core: str, pre: list, post: list, tensors: tuple) -> Kernel:
    halves = [
        "j = row * 2 * n + c",
        "u = tl.load(x_ptr + j, mask=m, other=0.0)",
        "v = tl.load(x_ptr + j + n, mask=m, other=0.0)",
    ]
    return Kernel(
        tensors,
        ("n",),
        _ROW_BLOCK,
        [*_ROW_START, *halves, *GATE_LINES[core], "v = u * v", *post, _STORE],
        ["n = x.shape[-1] // 2", "o = x.new_empty(x.shape[:-1] + (n,))"],
        "(o.numel() // n,)",
    )


def _look_up(info: dict, core: str, pre: list, post: list, tensors: tuple) -> Kernel:
    index, table = ("x_ptr", "w_ptr") if core == "embedding" else ("y_ptr", "x_ptr")
    weight = info["weights"].get(core, {}).get("weight")
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


def _columns(info: dict, core: str, pre: list, post: list, tensors: tuple) -> Kernel:
    kind = core.split("_")[0]
    start, fold = FOLDS["sum" if kind == "mean" else kind]
    padding = {"max": '-float("inf")', "min": 'float("inf")'}.get(kind, "0.0")
    reduce = "max" if kind == "max" else "min" if kind == "min" else "sum"
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
        "v = s / k" if kind == "mean" else "v = s",
    ]
    return Kernel(
        tensors,
        ("k", "n"),
        {"BLOCK": "64"},
        [*body, *post, "tl.store(o_ptr + b * n + c, v, mask=c < n)"],
        ["k, n = x.shape[-2:]", "o = x.new_empty(x.shape[:-2] + (n,))"],
        "(triton.cdiv(n, 64), o.numel() // n)",
    )


def _pool(info: dict, core: str, pre: list, post: list, tensors: tuple) -> Kernel:
    kind, w, flat = core[:3], info["literals"][core]["w"], core.endswith("1d")
    start, fold = FOLDS["sum" if kind == "avg" else "max"]
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
        f"v = s / {count}" if kind == "avg" else "v = s",
    ]
    return Kernel(
        tensors,
        sizes,
        {"BLOCK": "1024"},
        [*body, *post, _STORE],
        [*host, f"o = x.new_empty({shape})", "t = o.numel()"],
        "(triton.cdiv(t, 1024),)",
    )


def _transpose(info: dict, core: str, pre: list, post: list, tensors: tuple) -> Kernel:
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


def _product(info: dict, core: str, pre: list, post: list, tensors: tuple) -> Kernel:
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
