"""Scans: along the last dimension in one block or with a carry, along others step by step."""

from __future__ import annotations

from collections.abc import Sequence

from drkernel.coldstart.answers.chain import Chain
from drkernel.coldstart.answers.context import Context, Host
from drkernel.coldstart.answers.draft import OUTPUT, Draft
from drkernel.coldstart.answers.elementwise import allocation, is_element, numbers
from drkernel.coldstart.answers.layouts import index, known, layout_of, places
from drkernel.coldstart.answers.sites import Site
from drkernel.coldstart.answers.sizes import product
from drkernel.tasks.graphs.nodes import Node
from drkernel.tasks.graphs.ops import OPS

_NEUTRAL = {"sum": "0.0", "prod": "1.0", "max": '-float("inf")', "min": 'float("inf")', "logsumexp": '-float("inf")'}
_BLOCK = {
    "sum": "tl.cumsum(v, 0)",
    "prod": "tl.cumprod(v, 0)",
    "max": "tl.associative_scan(v, 0, larger)",
    "min": "tl.associative_scan(v, 0, smaller)",
    "logsumexp": "tl.associative_scan(v, 0, log_add)",
}
_JOIN = {
    "sum": "s + v",
    "prod": "s * v",
    "max": "tl.maximum(s, v)",
    "min": "tl.minimum(s, v)",
    "logsumexp": "log_add(s, v)",
}
_TOTAL = {"sum": "tl.sum(v, 0)", "prod": "tl.reduce(v, 0, times)"}
_CARRY = {"sum": "s = s + d", "prod": "s = s * d", "min": "s = tl.min(v, 0)"}
_CARRY |= {"max": "s = tl.max(v, 0)", "logsumexp": "s = tl.max(v, 0)"}
_HELPERS = {"max": "larger", "min": "smaller", "logsumexp": "log_add"}
LONGEST = 8192


def fits(context: Context, nodes: Sequence[Node]) -> bool:
    """Whether the nodes are one scan between element-wise nodes of the same size."""
    scans = [node for node in nodes if OPS[node.op].kind == "scan"]
    if len(scans) != 1 or not all(node in scans or is_element(node) for node in nodes):
        return False
    full = numbers(context, scans[0].id)
    return all(numbers(context, node.id) == full and node.op != "positional" for node in nodes)


def write(context: Context, host: Host, nodes: Sequence[Node], draft: Draft) -> None:
    """The kernel."""
    place = next(place for place, node in enumerate(nodes) if OPS[node.op].kind == "scan")
    scan = nodes[place]
    shape = host.shape(scan.inputs[0])
    layout = layout_of(scan, shape)
    chain = Chain(context, host, draft, nodes)
    fold, size = OPS[scan.op].fold, draft.size
    count = product(layout.joined)
    draft.helpers += [_HELPERS[fold] for _ in range(fold in _HELPERS)]
    n = size(count)
    published = product(layout_of(scan, context.shape(scan.inputs[0])).joined).full
    rows, kept = layout.in_rows, layout.kept
    if rows:
        draft.add(*["row = tl.program_id(0)"] * bool(kept))
        draft.grid = f"({product(kept).text},)"
        short = published <= LONGEST
        draft.blocks["BLOCK"] = f"triton.next_power_of_2({count.text})" if short else "2048"
    else:
        draft.add("c = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)", *["p = tl.program_id(1)"] * (len(kept) > 1))
        draft.add(f"m = c < {size(kept[-1])}")
        outer = f", {product(kept[:-1]).text}" if len(kept) > 1 else ","
        draft.grid = f"(triton.cdiv({kept[-1].text}, 128){outer})"
        draft.blocks["BLOCK"] = "128"
        short = False
    backwards = scan.op == "reverse_cumsum"
    neutral = _NEUTRAL[fold]

    def elements(first: str) -> Site:
        counted = f"{first} + tl.arange(0, BLOCK)" if rows and first else first or "tl.arange(0, BLOCK)"
        if rows:
            draft.add(f"j = {counted}", f"m = j < {n}", *[f"j = {n} - 1 - j"] * backwards)
        elif backwards:
            draft.add(f"j = {n} - 1 - {counted}")
        j = "j" if rows or backwards else counted
        texts = places(layout, j, "row" if rows else "p", "" if rows else "c", size)
        draft.add(f"i = {index(layout, texts, size)}")
        masks = {"i": "m", "j": "m"} if rows else {"i": "m", "c": "m"}
        return Site(shape, "i", masks, known(layout, "i", texts, size))

    def body(first: str, carry: bool) -> None:
        site = elements(first)
        at = lambda node: Site(host.shape(node.id), "i", site.masks, site.known)
        for node in nodes[:place]:
            chain.node(node, at(node))
        chain.place(scan.inputs[0], site)
        exclusive = scan.op == "exclusive_cumsum"
        if rows:
            draft.add(f"v = tl.where(m, v, {neutral})", *["u = v"] * exclusive)
            if carry:
                draft.add(*(f"d = {_TOTAL[fold]}" for _ in range(fold in _TOTAL)))
            draft.add(f"v = {_BLOCK[fold]}")
            if carry:
                draft.add(f"v = {_JOIN[fold]}")
                draft.add(_CARRY[fold])
        else:
            draft.add(*["u = v"] * exclusive, f"s = {_JOIN[fold]}", "v = s")
        draft.add(*["v = v - u"] * exclusive)
        chain.done(scan)
        for node in nodes[place + 1 :]:
            chain.node(node, at(node))
        draft.add("tl.store(o_ptr + i, v, mask=m)")

    if short:
        body("", False)
    else:
        draft.add(f"s = {neutral if rows else f'tl.full((BLOCK,), {neutral}, tl.float32)'}")
        with draft.block(f"for t in range({'0, ' if rows else ''}{n}{', BLOCK' if rows else ''}):"):
            body("t", True)
    draft.helpers += ["times"] * any("times" in line for line in draft.lines)
    draft.host.append(f"{OUTPUT} = {allocation(context, host, nodes[-1])}")
