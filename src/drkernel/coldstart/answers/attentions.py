"""Attention in one pass: a block of queries per program, keys and values in a loop, softmax as it goes."""

from __future__ import annotations

from collections.abc import Sequence

from drkernel.coldstart.answers.context import Context, Host
from drkernel.coldstart.answers.draft import OUTPUT, Draft
from drkernel.coldstart.answers.elementwise import allocation
from drkernel.coldstart.answers.sizes import product
from drkernel.tasks.generators.graphs.dims import count
from drkernel.tasks.generators.graphs.nodes import Node

WIDEST = 128
"""Heads wider than this do not fit a program."""


def fits(context: Context, nodes: Sequence[Node]) -> bool:
    """Whether the node is an attention whose heads are narrow enough."""
    node = nodes[0]
    shapes = [context.shape(value) for value in node.inputs]
    return len(nodes) == 1 and node.op == "attention" and count(shapes[0][-1:]) <= WIDEST and shapes[0] == shapes[1]


def write(context: Context, host: Host, nodes: Sequence[Node], draft: Draft) -> None:
    """The kernel."""
    (node,) = nodes
    shape = host.shape(node.inputs[0])
    n, d = draft.size(shape[-2]), draft.size(shape[-1])
    q, k, v = (draft.pointer(host.variables[value], name) for value, name in zip(node.inputs, "qkv", strict=True))
    causal = node.attributes["is_causal"]
    precision = "" if context.narrow else ', input_precision="ieee"'
    narrowed = f".to({q}.dtype.element_ty)" if context.narrow else ""
    scale = draft.number(f"{shape[-1].text} ** -0.5", "scale")
    last = f"tl.minimum({n}, (tl.program_id(0) + 1) * BLOCK)" if causal else n
    draft.add(
        "r = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)",
        "j = tl.arange(0, WIDTH)",
        f"p = tl.program_id(1) * {n} * {d}",
        f"i = p + r[:, None] * {d} + j[None, :]",
        f"m = (r[:, None] < {n}) & (j[None, :] < {d})",
        f"q = tl.load({q} + i, mask=m, other=0.0)",
        'a = tl.full((BLOCK,), -float("inf"), tl.float32)',
        "s = tl.zeros((BLOCK,), tl.float32)",
        "v = tl.zeros((BLOCK, WIDTH), tl.float32)",
    )
    kept = f"c[None, :] < {n}"
    kept = f"({kept}) & (c[None, :] <= r[:, None])" if causal else kept
    keys, width = f"c[None, :] < {n}", f"j[:, None] < {d}"
    values, across = f"c[:, None] < {n}", f"j[None, :] < {d}"
    with draft.block(f"for t in range(0, {last}, BLOCK):"):
        draft.add(
            "c = t + tl.arange(0, BLOCK)",
            f"k = tl.load({k} + p + c[None, :] * {d} + j[:, None], mask=({keys}) & ({width}), other=0.0)",
            f"w = tl.dot(q, k{precision}) * {scale}",
            f'w = tl.where({kept}, w, -float("inf"))',
            "u = tl.maximum(a, tl.max(w, 1))",
            "w = tl.exp(w - u[:, None])",
            "d = tl.exp(a - u)",
            "s = s * d + tl.sum(w, 1)",
            f"k = tl.load({v} + p + c[:, None] * {d} + j[None, :], mask=({values}) & ({across}), other=0.0)",
            f"v = tl.dot(w{narrowed}, k, v * d[:, None]{precision})",
            "a = u",
        )
    draft.add("tl.store(o_ptr + i, v / s[:, None], mask=m)")
    draft.blocks |= {"BLOCK": "32", "WIDTH": f"max(16, triton.next_power_of_2({shape[-1].text}))"}
    draft.grid = f"(triton.cdiv({shape[-2].text}, 32), {product(shape[:-2]).text})"
    draft.host.append(f"{OUTPUT} = {allocation(context, host, node)}")
