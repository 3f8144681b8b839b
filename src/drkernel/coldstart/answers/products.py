"""Products as tiles of tl.dot, with the element-wise nodes behind them on each tile."""

from __future__ import annotations

from collections.abc import Sequence

from drkernel.coldstart.answers.chain import Chain
from drkernel.coldstart.answers.context import Context, Host
from drkernel.coldstart.answers.draft import OUTPUT, Draft
from drkernel.coldstart.answers.elementwise import allocation, is_element, numbers, sites_of
from drkernel.coldstart.answers.sites import Site, terms
from drkernel.coldstart.answers.sizes import product
from drkernel.tasks.generators.graphs.nodes import Node

PRODUCTS = ("linear", "matmul_parameter", "matmul", "bmm", "addmm")


def fits(context: Context, nodes: Sequence[Node]) -> bool:
    """Whether the nodes are a product and element-wise ones behind it."""
    first, behind = nodes[0], nodes[1:]
    if first.op not in PRODUCTS or len(context.shape(first.id)) < 2:
        return False
    full = numbers(context, first.id)
    alike = all(is_element(node) and numbers(context, node.id) == full for node in behind)
    return alike and all(context.shape(node.id) == context.shape(first.id) for node in behind)


def write(context: Context, host: Host, nodes: Sequence[Node], draft: Draft) -> None:
    """The kernel."""
    node = nodes[0]
    x, y = node.inputs[1:] if node.op == "addmm" else (*node.inputs, "")[:2]
    left = host.shape(x)
    if node.op in ("linear", "matmul_parameter"):
        weight = context.attribute(node, node.roles[0])
        host.sizes.bind(weight, "", node.parameters[0].shape)
        right, pointer_y = host.parameter_shape(node, node.parameters[0]), weight
        turn_x, turn_y = False, node.attributes.get("transposed", True)
    else:
        right, pointer_y = host.shape(y), host.variables[y]
        turn_x, turn_y = (node.attributes.get(name, False) for name in ("transpose_x", "transpose_y"))
    out = host.shape(node.id)
    batched = len(right) > 2
    size = draft.size
    rows = product(left[:-1]) if not batched and not turn_x else (left[-1] if turn_x else left[-2])
    inner, columns = (left[-2] if turn_x else left[-1]), out[-1]
    inner = host.sizes.separate(host.variables[x], len(left) - 1 - turn_x, inner, [rows])
    columns = host.sizes.separate(pointer_y, len(right) - 1 - turn_y, columns, [rows, inner, *left, *right[:-2]])
    host.sizes.set_shape(nodes, out := (*out[:-1], columns))
    a, b = draft.pointer(host.variables[x]), draft.pointer(pointer_y, "w" if node.roles else "")
    m_, k_, n_ = map(size, (rows, inner, columns))
    draft.add(
        "r = tl.program_id(0) * BLOCK_M + tl.arange(0, BLOCK_M)[:, None]",
        "c = tl.program_id(1) * BLOCK_N + tl.arange(0, BLOCK_N)[None, :]",
        *["p = tl.program_id(2)"] * batched,
        "v = tl.zeros((BLOCK_M, BLOCK_N), tl.float32)",
    )
    offset_a, offset_b = f"p * {m_} * {k_} + " * batched, f"p * {k_} * {n_} + " * batched
    precision = "" if context.narrow else ', input_precision="ieee"'
    with draft.block(f"for t in range(0, {k_}, BLOCK_K):"):
        draft.add("j = t + tl.arange(0, BLOCK_K)")
        at = f"j[None, :] * {m_} + r" if turn_x else f"r * {k_} + j[None, :]"
        draft.add(f"a = tl.load({a} + {offset_a}{at}, mask=(r < {m_}) & (j[None, :] < {k_}), other=0.0)")
        at = f"c * {k_} + j[:, None]" if turn_y else f"j[:, None] * {n_} + c"
        draft.add(f"b = tl.load({b} + {offset_b}{at}, mask=(j[:, None] < {k_}) & (c < {n_}), other=0.0)")
        draft.add(f"v = tl.dot(a, b, v{precision})")
    draft.add(f"m = (r < {m_}) & (c < {n_})")
    draft.add(f"i = (p * {m_} + r) * {n_} + c" if batched else f"i = r * {n_} + c")
    known = terms(out, len(out) - 1, "r", "c", size) if not batched else {f"i % {n_}": "c"}
    site = Site(out, "i", {"i": "m", "c": f"c < {n_}", "r": f"r < {m_}"}, known)
    chain = Chain(context, host, draft, nodes)
    if node.op == "linear" and "bias" in node.roles:
        draft.add(f"v = v + {chain.parameter(node, 'bias', site, (columns,))}")
    if node.op == "addmm":
        added = node.inputs[0]
        draft.add(f"v = v + {chain.load(host.variables[added], host.shape(added), site)}")
    chain.done(node)
    sites = sites_of(context, host, draft, nodes[1:], site) if nodes[1:] else {}
    for after in nodes[1:]:
        chain.node(after, sites[after.id])
    draft.add("tl.store(o_ptr + i, v, mask=m)")
    draft.blocks |= {"BLOCK_M": "64", "BLOCK_N": "64", "BLOCK_K": "32"}
    third = f", {product(out[:-2]).text}" * batched
    draft.grid = f"(triton.cdiv({rows.text}, 64), triton.cdiv({columns.text}, 64){third})"
    draft.host.append(f"{OUTPUT} = {allocation(context, host, nodes[-1], like=False)}")
