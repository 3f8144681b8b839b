"""Convolutions as products: rows are places of outputs, columns their channels, and what is summed is the window."""

from __future__ import annotations

from collections.abc import Sequence

from drkernel.coldstart.answers.chain import Chain
from drkernel.coldstart.answers.context import Context, Host
from drkernel.coldstart.answers.draft import OUTPUT, Draft
from drkernel.coldstart.answers.elementwise import allocation, is_element, numbers, sites_of
from drkernel.coldstart.answers.sites import Site, parts
from drkernel.coldstart.answers.sizes import product
from drkernel.tasks.graphs.dims import Dim, as_dim
from drkernel.tasks.graphs.nodes import Node
from drkernel.tasks.graphs.ops import OPS
from drkernel.tasks.graphs.ops.convolutions import per_dim

NAMES = ("iz", "iy", "ix")


def fits(context: Context, nodes: Sequence[Node]) -> bool:
    """Whether the nodes are a convolution and element-wise ones behind it."""
    first = nodes[0]
    if OPS[first.op].kind != "convolution":
        return False
    shape = context.shape(first.id)
    return all(is_element(n) and context.shape(n.id) == shape for n in nodes[1:]) and bool(numbers(context, first.id))


def write(context: Context, host: Host, nodes: Sequence[Node], draft: Draft) -> None:
    """The kernel."""
    node = nodes[0]
    a, size = node.attributes, draft.size
    transposed = "transpose" in node.op
    source, rank = host.shape(node.inputs[0]), len(host.shape(node.inputs[0])) - 2
    weight = context.attribute(node, "weight")
    groups, single = a["groups"], a["groups"] == 1 or (isinstance(a["groups"], Dim) and a["groups"].is_number)
    kernel, stride, padding, dilation = (
        per_dim(a[name], rank) for name in ("kernel_size", "stride", "padding", "dilation")
    )
    out = _output(host, node, weight)
    window, plane = 1, product(out[2:])
    for k in kernel:
        window *= k
    inner_channels = _per_group(source[1], groups)
    columns = _per_group(out[1], groups)
    names = NAMES[-rank:]
    k_ = draft.number(f"{inner_channels.text} * {window}" if window > 1 else inner_channels.text, "K")
    m_, n_, c_ = size(out[0] * plane), _sized(draft, columns, "F"), size(source[1])
    x, w = draft.pointer(host.variables[node.inputs[0]]), draft.pointer(weight, "w")
    grouped = not (single and groups == 1)
    draft.add(
        "r = tl.program_id(0) * BLOCK_M + tl.arange(0, BLOCK_M)[:, None]",
        "c = tl.program_id(1) * BLOCK_N + tl.arange(0, BLOCK_N)[None, :]",
        *["g = tl.program_id(2)"] * grouped,
        f"b = r // {size(plane)}",
    )
    for name, text, s, p in zip(names, parts(f"(r % {size(plane)})", out[2:], size), stride, padding, strict=True):
        scaled = text if s == 1 or transposed else f"{text} * {s}"
        draft.add(f"{name}0 = {scaled}" + (f" {'+' if transposed else '-'} {p}" if p else ""))
    draft.add("v = tl.zeros((BLOCK_M, BLOCK_N), tl.float32)")
    precision = "" if context.narrow else ', input_precision="ieee"'
    with draft.block(f"for t in range(0, {k_}, BLOCK_K):"):
        draft.add("j = t + tl.arange(0, BLOCK_K)[None, :]", f"ok = (r < {m_}) & (j < {k_})")
        at = f"b * {c_} + " + (f"g * {_sized(draft, inner_channels, 'E')} + " if grouped else "")
        at = f"({at}j // {window})" if window > 1 else f"({at}j)"
        steps = parts("(j % " + str(window) + ")", [as_dim(k) for k in kernel], str)
        for place, name in enumerate(names):
            step = f"{steps[place]} * {dilation[place]}" if dilation[place] > 1 else steps[place]
            step = "0" if kernel[place] == 1 else step
            limit = size(source[2 + place])
            if transposed:
                draft.add(f"{name} = {name}0 - {step}")
                if stride[place] > 1:
                    draft.add(f"ok = ok & ({name} % {stride[place]} == 0)", f"{name} = {name} // {stride[place]}")
                draft.add(f"ok = ok & ({name} >= 0) & ({name} < {limit})")
            else:
                draft.add(f"{name} = {name}0 + {step}", f"ok = ok & ({name} >= 0) & ({name} < {limit})")
            at = f"({at} * {limit} + {name})"
        draft.add(f"a = tl.load({x} + {at[1:-1]}, mask=ok, other=0.0)")
        draft.add("j = t + tl.arange(0, BLOCK_K)[:, None]")
        if transposed:
            first = f"(g * {_sized(draft, inner_channels, 'E')} + j // {window})" if grouped else f"(j // {window})"
            where = f"({first} * {n_} + c) * {window} + j % {window}"
        else:
            where = f"(g * {n_} + c) * {k_} + j" if grouped else f"c * {k_} + j"
        draft.add(f"w = tl.load({w} + {where}, mask=(j < {k_}) & (c < {n_}), other=0.0)")
        draft.add(f"v = tl.dot(a, w, v{precision})")
    draft.add(f"m = (r < {m_}) & (c < {n_})", *[f"c = g * {n_} + c"] * grouped)
    draft.add(f"i = (b * {size(out[1])} + c) * {size(plane)} + r % {size(plane)}")
    site = Site(out, "i", {"i": "m", "c": "m"}, {f"i // {size(plane)} % {size(out[1])}": "c"})
    chain = Chain(context, host, draft, nodes)
    if "bias" in node.roles:
        limit = f"c < {size(out[1])}"
        draft.add(f"v = v + tl.load({draft.pointer(context.attribute(node, 'bias'), 'b')} + c, mask={limit})")
    chain.done(node)
    sites = sites_of(context, host, draft, nodes[1:], site) if nodes[1:] else {}
    for after in nodes[1:]:
        chain.node(after, sites[after.id])
    draft.add("tl.store(o_ptr + i, v, mask=m)")
    draft.blocks |= {"BLOCK_M": "64", "BLOCK_N": "32", "BLOCK_K": "32"}
    third = f", {_groups(groups, source[1])}" * grouped
    draft.grid = f"(triton.cdiv({(out[0] * plane).text}, 64), triton.cdiv({columns.text}, 32){third})"
    draft.host.append(f"{OUTPUT} = {allocation(context, host, nodes[-1])}")


def _output(host: Host, node: Node, weight: str) -> tuple[Dim, ...]:
    """The output's shape; the number of its channels is asked of the weight."""
    transposed = "transpose" in node.op
    shape = node.parameters[0].shape
    channels = node.shape[1]
    if not channels.is_number and channels.text not in host.sizes._known:
        whole = not transposed and len(shape) > 0
        if whole:
            host.sizes.bind(weight, "", shape)
        else:
            host.sizes.bind(weight, "", (as_dim(1), shape[1], *map(as_dim, (1,) * (len(shape) - 2))))
    return host.shape(node.id)


def _per_group(channels: Dim, groups: Dim | int) -> Dim:
    if isinstance(groups, Dim) and not groups.is_number:
        return as_dim(1)
    return channels // groups


def _groups(groups: Dim | int, channels: Dim) -> str:
    return channels.text if isinstance(groups, Dim) and not groups.is_number else str(groups)


def _sized(draft: Draft, dim: Dim, name: str) -> str:
    """A size as a number or a parameter."""
    return dim.text if dim.is_number else draft.size(dim) if dim.text.isidentifier() else draft.number(dim.text, name)
