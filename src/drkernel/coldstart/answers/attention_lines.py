"""A line of attention as one kernel: a block of queries a program, keys and values in a loop, softmax as it goes.

It is written where no other line of a task has a kernel: the library's attention is hard to beat in fp32.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

from drkernel.coldstart.answers.attentions import WIDEST
from drkernel.coldstart.answers.kernel_text import KernelText
from drkernel.coldstart.answers.known import Known, words_of
from drkernel.policy.canonical.told import Line

QUERIES, KEYS = 64, 32
"""Of a program, and of a step of its loop."""


@dataclass(frozen=True)
class Attention(KernelText):
    """Attention without a mask, or with a causal one."""

    value: str
    """What it makes."""
    given: tuple[str, str, str]
    """Queries, keys and values."""
    is_causal: bool

    @property
    def made(self) -> list[str]:
        return [self.value]

    @cached_property
    def outside(self) -> list[str]:
        return list(dict.fromkeys(self.given))

    @property
    def saved(self) -> int:
        """The same for all: no other kernel is compared with it."""
        return 1

    def text(self, number: int) -> str:
        """The kernel and the function that launches it."""
        q, k, v = (self.name(value) for value in self.given)
        last = "tl.minimum(N, (tl.program_id(0) + 1) * BM)" if self.is_causal else "N"
        kept = "(c < N) & (c <= r)" if self.is_causal else "c < N"
        body = [
            "r = tl.program_id(0) * BM + tl.arange(0, BM)[:, None]",
            "d = tl.arange(0, BD)",
            "b = tl.program_id(1)",
            "i = (b * M + r) * D + d[None, :]",
            "m = (r < M) & (d[None, :] < D)",
            f"q = tl.load({q}_ptr + i, mask=m, other=0.0)",
            "u = tl.full((BM, 1), float('-inf'), tl.float32)",
            "v = tl.zeros((BM, 1), tl.float32)",
            "a = tl.zeros((BM, BD), tl.float32)",
            f"for s in range(0, {last}, BN):",
            "    j = s + tl.arange(0, BN)",
            "    c = j[None, :]",
            f"    k = tl.load({k}_ptr + (b * N + c) * D + d[:, None], mask=(c < N) & (d[:, None] < D), other=0.0)",
            "    w = tl.dot(q, k, input_precision='tf32x3') * S",
            f"    w = tl.where({kept}, w, float('-inf'))",
            "    x = tl.maximum(u, tl.max(w, 1, keep_dims=True))",
            "    w = tl.exp(w - x)",
            "    y = tl.exp(u - x)",
            "    v = v * y + tl.sum(w, 1, keep_dims=True)",
            "    c = j[:, None]",
            f"    k = tl.load({v}_ptr + (b * N + c) * D + d[None, :], mask=(c < N) & (d[None, :] < D), other=0.0)",
            "    a = tl.dot(w, k, a * y, input_precision='tf32x3')",
            "    u = x",
            f"{self.name(self.value)} = a / v",
            f"tl.store(o_ptr + i, {self.name(self.value)}, mask=m)",
        ]
        wrapper = [
            *(f"{self.name(value)} = {self.name(value)}.contiguous()" for value in self.outside),
            f"o = torch.empty_like({q})",
            f"M = {q}.shape[-2]",
            f"N = {k}.shape[-2]",
            f"D = {q}.shape[-1]",
        ]
        blocks = {"BM": QUERIES, "BN": KEYS, "BD": "max(16, triton.next_power_of_2(D))", "num_warps": 4}
        grid = f"triton.cdiv(M, {QUERIES}), {q}.shape[:-2].numel()"
        return self.written(number, body, [*wrapper, "S = D ** -0.5"], grid, ["M", "N", "D", "S"], blocks)


def attentions(lines: Sequence[Line], known: Known) -> Iterator[Attention]:
    """A kernel for each line of attention in fp32 whose heads are narrow enough."""
    for line in lines:
        match ast.parse(line.text).body[0]:
            case ast.Assign([ast.Name(made)], ast.Call(call, [ast.Name(q), ast.Name(k), ast.Name(v)], keywords)):
                words = words_of(keywords)
                is_causal = words.pop("is_causal", "False") == "True"
                if ast.unparse(call) == "F.scaled_dot_product_attention" and not words and _fits(q, k, v, known):
                    yield Attention((), {}, made, (q, k, v), is_causal)


def _fits(q: str, k: str, v: str, known: Known) -> bool:
    shapes = [known.shapes.get(name, ()) for name in (q, k, v)]
    if {q, k, v} & known.dtypes.keys() or any(len(shape) < 3 for shape in shapes):
        return False
    alike = {(*shape[:-2], shape[-1]) for shape in shapes}
    return len(alike) == 1 and shapes[1] == shapes[2] and shapes[0][-1] <= WIDEST
