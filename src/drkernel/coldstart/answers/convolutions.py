"""Convolutions as products: rows are places of outputs, columns their channels, and what is summed is the window."""

from __future__ import annotations

from collections.abc import Sequence

from drkernel.coldstart.answers.chain import Chain
from drkernel.coldstart.answers.context import Context, Host
from drkernel.coldstart.answers.draft import OUTPUT, Draft
from drkernel.coldstart.answers.elementwise import allocation, is_element, numbers, sites_of
from drkernel.coldstart.answers.sites import Site, parts
from drkernel.coldstart.answers.sizes import LETTERS, product
from drkernel.tasks.generators.graphs.dims import Dim, Shape, as_dim
from drkernel.tasks.generators.graphs.nodes import Node
from drkernel.tasks.generators.graphs.ops import OPS
from drkernel.tasks.generators.graphs.ops.convolutions import per_dim

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
    made = _Convolution(context, host, nodes, draft)
    made.start()
    made.loop()
    made.finish(nodes)


class _Convolution:
    """Writes one kernel."""

    def __init__(self, context: Context, host: Host, nodes: Sequence[Node], draft: Draft):
        self._context, self._host, self._draft = context, host, draft
        self._node = node = nodes[0]
        a, size, source = node.attributes, draft.size, host.shape(node.inputs[0])
        self._rank = len(source) - 2
        self._transposed = "transpose" in node.op
        self._weight = context.attribute(node, "weight")
        self._kernel, self._stride, self._padding, self._dilation = (
            per_dim(a[name], self._rank) for name in ("kernel_size", "stride", "padding", "dilation")
        )
        self._source, self._out = source, _output(host, node, self._weight, nodes[1:])
        self._plane, self._window = product(self._out[2:]), _times(self._kernel)
        self._inner, self._columns = (_per_group(shape[1], a["groups"]) for shape in (source, self._out))
        self._names = NAMES[-self._rank :]
        self._grouped = a["groups"] != 1
        inner = self._inner.text
        self._k = draft.number(inner if self._window == "1" else f"{inner} * {_bare(self._window)}", "K")
        self._m, self._n = size(self._out[0] * self._plane), _sized(draft, self._columns, "F")

    def start(self) -> None:
        """Which outputs a program computes, and where their windows begin."""
        draft, plane = self._draft, self._draft.size(self._plane)
        draft.add(
            "r = tl.program_id(0) * BLOCK_M + tl.arange(0, BLOCK_M)[:, None]",
            "c = tl.program_id(1) * BLOCK_N + tl.arange(0, BLOCK_N)[None, :]",
            *["g = tl.program_id(2)"] * self._grouped,
            f"b = r // {plane}",
        )
        outer = parts(f"(r % {plane})", self._out[2:], draft.size)
        for name, text, step, pad in zip(self._names, outer, self._stride, self._padding, strict=True):
            scaled = text if self._transposed else f"{text} * {step}"
            draft.add(f"{name}0 = {scaled} {'+' if self._transposed else '-'} {pad}")
        draft.add("v = tl.zeros((BLOCK_M, BLOCK_N), tl.float32)")

    def loop(self) -> None:
        """Over input channels and the window."""
        draft = self._draft
        precision = "" if self._context.narrow else ', input_precision="ieee"'
        with draft.block(f"for t in range(0, {self._k}, BLOCK_K):"):
            draft.add("j = t + tl.arange(0, BLOCK_K)[None, :]", f"ok = (r < {self._m}) & (j < {self._k})")
            place = self._input_place()
            x = draft.pointer(self._host.variables[self._node.inputs[0]])
            draft.add(f"a = tl.load({x} + {place}, mask=ok, other=0.0)")
            draft.add("j = t + tl.arange(0, BLOCK_K)[:, None]")
            w = draft.pointer(self._weight, "w")
            mask = f"(j < {self._k}) & (c < {self._n})"
            draft.add(f"w = tl.load({w} + {self._weight_place()}, mask={mask}, other=0.0)")
            draft.add(f"v = tl.dot(a, w, v{precision})")

    def _input_place(self) -> str:
        """Adds the places in the input, and whether they are there; returns the number of the element."""
        draft, size = self._draft, self._draft.size
        group = f"g * {_sized(draft, self._inner, 'E')} + " * self._grouped
        channel = "j" if self._window == "1" else f"j // {self._window}"
        place = f"(b * {size(self._source[1])} + {group}{channel})"
        steps = parts(f"(j % {self._window})", [as_dim(k) for k in self._kernel], str)
        for k, name in enumerate(self._names):
            step = f"{steps[k]} * {self._dilation[k]}" if self._window != "1" else "0"
            limit = size(self._source[2 + k])
            draft.add(f"{name} = {name}0 {'-' if self._transposed else '+'} {step}")
            if self._transposed:
                draft.add(f"ok = ok & ({name} % {self._stride[k]} == 0)", f"{name} = {name} // {self._stride[k]}")
            draft.add(f"ok = ok & ({name} >= 0) & ({name} < {limit})")
            place = f"({place} * {limit} + {name})"
        return place[1:-1]

    def _weight_place(self) -> str:
        if not self._transposed:
            return f"(g * {self._n} + c) * {self._k} + j" if self._grouped else f"c * {self._k} + j"
        first = f"(j // {self._window})"
        if self._grouped:
            first = f"(g * {_sized(self._draft, self._inner, 'E')} + j // {self._window})"
        return f"({first} * {self._n} + c) * {self._window} + j % {self._window}"

    def finish(self, nodes: Sequence[Node]) -> None:
        """The bias, what follows, and the store."""
        draft, size, node = self._draft, self._draft.size, self._node
        plane, channels = size(self._plane), size(self._out[1])
        draft.add(f"m = (r < {self._m}) & (c < {self._n})", *[f"c = g * {self._n} + c"] * self._grouped)
        draft.add(f"i = (b * {channels} + c) * {plane} + r % {plane}")
        site = Site(self._out, "i", {"i": "m", "c": f"c < {channels}"}, {f"i // {plane} % {channels}": "c"})
        chain = Chain(self._context, self._host, draft, nodes)
        if "bias" in node.roles:
            load = chain.load_at(draft.pointer(self._context.attribute(node, "bias"), "b"), "c", f"c < {channels}")
            draft.add(f"v = v + {load}")
        chain.done(node)
        sites = sites_of(self._context, self._host, draft, nodes[1:], site) if nodes[1:] else {}
        for after in nodes[1:]:
            chain.node(after, sites[after.id])
        draft.add("tl.store(o_ptr + i, v, mask=m)")
        draft.blocks |= {"BLOCK_M": "64", "BLOCK_N": "32", "BLOCK_K": "32"}
        rows, third = (self._out[0] * self._plane).text, ""
        if self._grouped:
            third = f", {_groups(node.attributes['groups'], self._source[1])}"
        draft.grid = f"(triton.cdiv({rows}, 64), triton.cdiv({self._columns.text}, 32){third})"
        draft.host.append(f"{OUTPUT} = {allocation(self._context, self._host, nodes[-1], like=False)}")


def _output(host: Host, node: Node, weight: str, behind: Sequence[Node]) -> tuple[Dim, ...]:
    """The output's shape; the number of its channels is asked of the weight."""
    transposed = "transpose" in node.op
    shape = node.parameters[0].shape
    channels = node.shape[1]
    if not host.sizes.knows(channels):
        host.sizes.bind(weight, "", (as_dim(1), *shape[1:]) if transposed else shape)
    source, out = host.shape(node.inputs[0]), host.shape(node.id)
    channels = out[1]
    if node.attributes["groups"] == 1:
        channels = host.sizes.separate(weight, int(transposed), channels, [source[1]])
    return counted(host, [node, *behind], source, (out[0], channels, *out[2:]))


def counted(host: Host, nodes: Sequence[Node], source: Shape, found: Shape) -> Shape:
    """The shape of what a convolution or pool makes of `source`, the first of the nodes; those behind it get it, too.

    Formulas say its places. Every number in them is one of the module's, so that nothing has to be computed.
    """
    rank = len(source) - 2
    write = _transposed_size if "transpose" in nodes[0].op else _window_size
    formulas = [write(dim.text, *each) for dim, each in zip(source[2:], _numbers(nodes[0], rank), strict=True)]
    names = [f"O{letter}" for letter in LETTERS[rank + 2][2:]]
    sizes = [host.sizes.formula(n, f, dim) for n, f, dim in zip(names, formulas, found[2:], strict=True)]
    host.sizes.set_shape(nodes, shape := (*found[:2], *sizes))
    return shape


def _numbers(node: Node, rank: int) -> list[tuple[int, ...]]:
    """Kernel size, stride, padding, dilation, and what a transposed one adds, by spatial dimension."""
    usual = {"kernel_size": 1, "stride": 1, "padding": 0, "dilation": 1, "output_padding": 0}
    values = (per_dim(node.attributes.get(name, value), rank) for name, value in usual.items())
    return list(zip(*values, strict=True))


def _window_size(size: str, kernel: int, stride: int, padding: int, dilation: int, _: int) -> str:
    return f"({size} + 2 * {padding} - {dilation} * ({kernel} - 1) - 1) // {stride} + 1"


def _transposed_size(size: str, kernel: int, stride: int, padding: int, dilation: int, added: int) -> str:
    return f"({size} - 1) * {stride} - 2 * {padding} + {dilation} * ({kernel} - 1) + {added} + 1"


def _times(kernel: Sequence[int]) -> str:
    """The number of elements of a window, as a product that stands in brackets where it is one."""
    if all(k == 1 for k in kernel):
        return "1"
    return str(kernel[0]) if len(kernel) == 1 else f"({' * '.join(map(str, kernel))})"


def _bare(text: str) -> str:
    return text.removeprefix("(").removesuffix(")")


def _per_group(channels: Dim, groups: Dim | int) -> Dim:
    if isinstance(groups, Dim) and not groups.is_number:
        return as_dim(1)
    return channels // groups


def _groups(groups: Dim | int, channels: Dim) -> str:
    return channels.text if isinstance(groups, Dim) and not groups.is_number else str(groups)


def _sized(draft: Draft, dim: Dim, name: str) -> str:
    """A size as a number or a parameter."""
    return dim.text if dim.is_number else draft.size(dim) if dim.text.isidentifier() else draft.number(dim.text, name)
