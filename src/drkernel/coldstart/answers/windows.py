"""Pooling: a loop over the window of each output; what comes before is applied to each element of it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from drkernel.coldstart.answers.chain import Chain
from drkernel.coldstart.answers.context import Context, Host
from drkernel.coldstart.answers.convolutions import counted
from drkernel.coldstart.answers.draft import OUTPUT, Draft
from drkernel.coldstart.answers.elementwise import allocation, is_element, numbers, sites_of, start
from drkernel.coldstart.answers.joins import is_core
from drkernel.coldstart.answers.sites import Site, parts, terms
from drkernel.tasks.generators.graphs.dims import Shape
from drkernel.tasks.generators.graphs.nodes import Node
from drkernel.tasks.generators.graphs.ops import OPS
from drkernel.tasks.generators.graphs.ops.convolutions import per_dim


def is_window(node: Node) -> bool:
    return OPS[node.op].kind == "pool" and not is_core(node)


def split(nodes: Sequence[Node]) -> tuple[list[Node], Node, list[Node]]:
    """The nodes before the pool, the pool, the nodes behind it."""
    place = next(place for place, node in enumerate(nodes) if is_window(node))
    return list(nodes[:place]), nodes[place], list(nodes[place + 1 :])


def fits(context: Context, nodes: Sequence[Node]) -> bool:
    """Whether the nodes are one pool between element-wise nodes."""
    if sum(is_window(node) for node in nodes) != 1 or not all(is_window(n) or is_element(n) for n in nodes):
        return False
    before, pool, behind = split(nodes)
    inside = {node.id for node in before}
    full = numbers(context, pool.inputs[0])
    alike = all(numbers(context, node.id) == full for node in before)
    pooled = all(numbers(context, node.id) == numbers(context, pool.id) for node in behind)
    return alike and pooled and not any(value in inside for node in behind for value in node.inputs)


def write(context: Context, host: Host, nodes: Sequence[Node], draft: Draft) -> None:
    """The kernel."""
    before, pool, behind = split(nodes)
    source, target = host.shape(pool.inputs[0]), _target(host, pool, behind)
    for node in behind:
        host.shape(node.id)
    draft.host.append(f"{OUTPUT} = {allocation(context, host, nodes[-1], like=False)}")
    outputs = start(context, host, draft, pool, planes=True)
    window = _Window(draft, pool, source, target)
    largest = OPS[pool.op].fold == "max"
    first = 'tl.full((BLOCK,), -float("inf"), tl.float32)' if largest else "tl.zeros((BLOCK,), tl.float32)"
    draft.add(f"s = {first}")
    chain = Chain(context, host, draft, nodes)
    known = terms(source, 2, "p", "", draft.size, "a")
    known = {text: short for text, short in known.items() if short.startswith("p")}
    with draft.block(f"for t in range({window.count}):"):
        window.place()
        site = Site(source, "a", {"a": "ok"}, known)
        sites = sites_of(context, host, draft, before, site) if before else {}
        for node in before:
            chain.node(node, sites[node.id])
        chain.place(pool.inputs[0], site)
        draft.add('s = tl.maximum(s, tl.where(ok, v, -float("inf")))' if largest else "s = s + tl.where(ok, v, 0.0)")
    draft.add("v = s" if largest else f"v = s / {window.divisor}")
    chain.restart()
    chain.done(pool)
    for node in behind:
        chain.node(node, replace(outputs, shape=host.shape(node.id)))
    draft.add("tl.store(o_ptr + i, v, mask=m)")


def _target(host: Host, pool: Node, behind: Sequence[Node]) -> Shape:
    """The output's shape. Of windows with a size of their own, the module's numbers stand in it as they are."""
    source, found = host.shape(pool.inputs[0]), host.shape(pool.id)
    if "output_size" in pool.attributes:
        return found
    return counted(host, [pool, *behind], source, found)


class _Window:
    """Where the elements of an output's window are."""

    def __init__(self, draft: Draft, pool: Node, source: Shape, target: Shape):
        self._draft, self._source, self._rank = draft, source, len(source) - 2
        self._names = ("iz", "iy", "ix")[-self._rank :]
        self._adaptive = "output_size" in pool.attributes
        a = pool.attributes
        outer = parts("j", target[2:], draft.size)
        if self._adaptive:
            self._start_adaptive(target, outer)
        else:
            kernel, stride, padding, dilation = (
                per_dim(a.get(name, 1), self._rank) for name in ("kernel_size", "stride", "padding", "dilation")
            )
            starts = [f"{text} * {step} - {pad}" for text, step, pad in zip(outer, stride, padding, strict=True)]
            self._sizes, self._dilation, self._padded = [str(k) for k in kernel], dilation, True
            draft.add(*(f"{name}0 = {text}" for name, text in zip(self._names, starts, strict=True)))
            self.count = " * ".join(self._sizes)
            self.divisor = f"({self.count})" if self._rank > 1 else self.count

    def _start_adaptive(self, target: Shape, outer: list[str]) -> None:
        """Windows from floor(k * size / outputs) to ceil((k + 1) * size / outputs)."""
        draft, size = self._draft, self._draft.size
        self._sizes, self._dilation, self._padded = [], (1,) * self._rank, False
        for name, text, own, out in zip(self._names, outer, self._source[2:], target[2:], strict=True):
            long = size(own)
            draft.add(f"{name}0 = {text} * {long} // {out.text}")
            draft.add(f"{name}1 = (({text} + 1) * {long} + {out.text} - 1) // {out.text}")
            self._sizes.append(draft.number(f"{own.text} // {out.text} + 2", f"K{own.text}"))
        self.count = " * ".join(self._sizes)
        self.divisor = " * ".join(f"({name}1 - {name}0)" for name in self._names)
        self.divisor = f"({self.divisor})"

    def place(self) -> None:
        """Adds the lines that find the element `t` of the window: its number `a`, whether it is there `ok`."""
        draft, size = self._draft, self._draft.size
        inside, number = ["m"], "p"
        for place, (name, dim) in enumerate(zip(self._names, self._source[2:], strict=True)):
            rest = self._sizes[place + 1 :]
            step = "t" if not rest else f"t // {rest[0] if len(rest) == 1 else '(' + ' * '.join(rest) + ')'}"
            step += f" % {self._sizes[place]}" if place else ""
            step += "" if self._adaptive else f" * {self._dilation[place]}"
            draft.add(f"{name} = {name}0 + {step}")
            inside += [f"({name} < {name}1)"] if self._adaptive else []
            inside += [f"({name} >= 0)", f"({name} < {size(dim)})"] if self._padded else []
            number = f"{number if place == 0 else f'({number})'} * {size(dim)} + {name}"
        draft.add(f"ok = {' & '.join(inside)}", f"a = {number}")
