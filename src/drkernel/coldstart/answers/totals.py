"""All elements joined into one number: losses, norms of whole tensors. Each program leaves a partial sum."""

from __future__ import annotations

import re
from collections.abc import Sequence

from drkernel.coldstart.answers.chain import Chain, filled
from drkernel.coldstart.answers.context import Context, Host
from drkernel.coldstart.answers.draft import OUTPUT, Draft
from drkernel.coldstart.answers.elementwise import block_of
from drkernel.coldstart.answers.sites import Site
from drkernel.tasks.generators.graphs.dims import count
from drkernel.tasks.generators.graphs.nodes import Node
from drkernel.tasks.generators.graphs.ops import OPS


def fits(context: Context, nodes: Sequence[Node]) -> bool:
    """Whether the nodes are a loss that sums over elements."""
    return len(nodes) == 1 and OPS[nodes[0].op].kind == "loss" and OPS[nodes[0].op].fold == "sum"


def write(context: Context, host: Host, nodes: Sequence[Node], draft: Draft) -> None:
    """The kernel: a block of elements per program, a partial sum each; PyTorch adds these."""
    (node,) = nodes
    x, y = (host.variables[value] for value in node.inputs[:2])
    shape, published = host.shape(node.inputs[0]), context.shape(node.inputs[0])
    draft.add("i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)", "m = i < T")
    site = Site(shape, "i", {"i": "m"})
    chain = Chain(context, host, draft, nodes)
    chain.place(node.inputs[0], site)
    draft.add(f"u = {chain.load(y, host.shape(node.inputs[1]), site)}", *filled(node, OPS[node.op].triton))
    draft.add("tl.store(o_ptr + tl.program_id(0), tl.sum(tl.where(m, v, 0.0), 0))")
    block = block_of(draft, count(published), count(published, small=True), several=True)
    draft.number("T", "T")
    draft.host += [f"T = {x}.numel()", f"{OUTPUT} = torch.empty(triton.cdiv(T, {block}), device={x}.device)"]
    draft.grid = f"(triton.cdiv(T, {block}),)"
    finish = "".join(OPS[node.op].finish)
    total = re.sub(r"\bn\b", "T", finish.removeprefix("v = ").replace("v", f"{OUTPUT}.sum()"))
    total = re.sub(r"\brows\b", f"{x}.shape[0]", total)
    draft.after.append(f"{OUTPUT} = {total}" + (f".to({x}.dtype)" if context.narrow else ""))


def fits_norm(context: Context, nodes: Sequence[Node]) -> bool:
    """Whether the node is the norm of a whole tensor."""
    return len(nodes) == 1 and nodes[0].op == "frobenius_norm"


def write_norm(context: Context, host: Host, nodes: Sequence[Node], draft: Draft) -> None:
    """The kernel: the sum of squares of a block per program; PyTorch adds these and divides."""
    x, shape = host.variables[nodes[0].inputs[0]], context.shape(nodes[0].id)
    draft.add("i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)")
    load = f"tl.load({draft.pointer(x)} + i, mask=i < T, other=0.0){'.to(tl.float32)' * context.narrow}"
    draft.add(f"v = {load}", "tl.store(o_ptr + tl.program_id(0), tl.sum(v * v, 0))")
    block = block_of(draft, count(shape), count(shape, small=True), several=True)
    draft.number("T", "T")
    draft.host += [f"T = {x}.numel()", f"{OUTPUT} = torch.empty(triton.cdiv(T, {block}), device={x}.device)"]
    draft.grid = f"(triton.cdiv(T, {block}),)"
    draft.after.append(f"{OUTPUT} = {x} / {OUTPUT}.sum().sqrt()" + f".to({x}.dtype)" * context.narrow)


def fits_rows(context: Context, nodes: Sequence[Node]) -> bool:
    """Whether the nodes are a loss of rows."""
    return len(nodes) == 1 and nodes[0].op in _ROWS and len(context.shape(nodes[0].inputs[0])) == 2


def write_rows(context: Context, host: Host, nodes: Sequence[Node], draft: Draft) -> None:
    """The kernel: a row per program, in blocks; PyTorch takes the mean."""
    (node,) = nodes
    x = host.variables[node.inputs[0]]
    rows, columns = host.shape(node.inputs[0])
    n = draft.size(columns)
    pointers = [draft.pointer(host.variables[value]) for value in node.inputs]
    start, step, end = _ROWS[node.op]
    words = {"N": n, "MARGIN": repr(node.attributes.get("margin"))}
    words |= dict(zip(("X", "Y", "Z"), pointers, strict=False))
    fill = lambda lines: [re.sub(r"\b[A-Z]+\b", lambda m: words.get(m[0], m[0]), line) for line in lines]
    draft.add("row = tl.program_id(0)", *fill(start))
    with draft.block(f"for t in range(0, {n}, BLOCK):"):
        draft.add("j = t + tl.arange(0, BLOCK)", f"m = j < {n}", f"i = row * {n} + j", *fill(step))
    draft.add(*fill(end), "tl.store(o_ptr + row, v)")
    draft.blocks["BLOCK"] = "1024"
    draft.host.append(f"{OUTPUT} = torch.empty({rows.text}, device={x}.device)")
    draft.grid = f"({rows.text},)"
    draft.after.append(f"{OUTPUT} = {OUTPUT}.mean()" + (f".to({x}.dtype)" if context.narrow else ""))


_LOAD_X = 'v = tl.load(X + i, mask=m, other=-float("inf"))'
_LOAD_Y = 'u = tl.load(Y + i, mask=m, other=-float("inf"))'
_ROWS: dict[str, tuple[tuple[str, ...], tuple[str, ...], tuple[str, ...]]] = {
    "cross_entropy": (
        ('a = -float("inf")', "s = 0.0"),
        (
            _LOAD_X,
            "u = tl.maximum(a, tl.max(v, 0))",
            "s = s * tl.exp(a - u) + tl.sum(tl.exp(v - u), 0)",
            "a = u",
        ),
        (
            "y = tl.load(Y + row)",
            "v = a + tl.log(s) - tl.load(X + row * N + y)",
        ),
    ),
    "kl_div": (
        ('a, b = -float("inf"), -float("inf")', "s, r, q = 0.0, 0.0, 0.0"),
        (
            _LOAD_X,
            _LOAD_Y,
            "d = tl.maximum(a, tl.max(v, 0))",
            "s = s * tl.exp(a - d) + tl.sum(tl.exp(v - d), 0)",
            "a = d",
            "d = tl.maximum(b, tl.max(u, 0))",
            "w = tl.exp(u - d)",
            "r = r * tl.exp(b - d) + tl.sum(w, 0)",
            "q = q * tl.exp(b - d) + tl.sum(tl.where(m, w * (u - v), 0.0), 0)",
            "b = d",
        ),
        ("v = q / r + a + tl.log(s) - b - tl.log(r)",),
    ),
    "triplet_margin_loss": (
        ("a = tl.zeros((BLOCK,), tl.float32)", "b = tl.zeros((BLOCK,), tl.float32)"),
        (
            "v = tl.load(X + i, mask=m, other=0.0)",
            "u = tl.load(Y + i, mask=m, other=0.0)",
            "w = tl.load(Z + i, mask=m, other=0.0)",
            "d = tl.where(m, v - u + 1e-06, 0.0)",
            "a = a + d * d",
            "d = tl.where(m, v - w + 1e-06, 0.0)",
            "b = b + d * d",
        ),
        ("v = tl.maximum(tl.sqrt(tl.sum(a, 0)) - tl.sqrt(tl.sum(b, 0)) + MARGIN, 0.0)",),
    ),
}
"""Losses of rows: before the loop over a row's blocks, in it, after it."""
