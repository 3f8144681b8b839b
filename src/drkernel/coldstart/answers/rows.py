"""Kernels that join elements: reductions, norms, softmax, with element-wise nodes before, between and behind them.

A program has one row, or a block of columns. Where its elements fit one block, any number of nodes that join the same
elements follow each other; else there is one such node, a loop over blocks, and for outputs of full size another loop.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from drkernel.coldstart.answers.chain import Chain, channel_shape, filled
from drkernel.coldstart.answers.context import Context, Host
from drkernel.coldstart.answers.draft import OUTPUT, Draft
from drkernel.coldstart.answers.elementwise import allocation, numbers
from drkernel.coldstart.answers.folds import FOLDS, NORMS, SOFTMAXES, Fold
from drkernel.coldstart.answers.joins import (
    PIECES,
    SHORTEST_ROW,
    few_programs,
    in_pieces,
    is_core,
    number_of_pieces,
    one_block,
)
from drkernel.coldstart.answers.layouts import Layout, grid_of_columns, index, known, layout_of, places
from drkernel.coldstart.answers.sites import Site, terms
from drkernel.coldstart.answers.sizes import product
from drkernel.tasks.generators.graphs.dims import Shape
from drkernel.tasks.generators.graphs.nodes import Node
from drkernel.tasks.generators.graphs.ops import OPS


def write(context: Context, host: Host, nodes: Sequence[Node], draft: Draft) -> None:
    """The kernel."""
    _Rows(context, host, nodes, draft).write()


class _Rows:
    """Writes one kernel."""

    def __init__(self, context: Context, host: Host, nodes: Sequence[Node], draft: Draft):
        self._context, self._host, self._nodes, self._draft = context, host, nodes, draft
        self._cores = [node for node in nodes if is_core(node)]
        first = self._cores[0]
        self._full = numbers(context, first.inputs[0])
        self._domain = host.shape(first.inputs[0])
        self._layout = layout_of(first, self._domain)
        for node in nodes:
            host.shape(node.id)
        joined = product(self._layout.joined)
        self._count = draft.size(joined) if _plain(joined.text) else draft.number(joined.text, "N")
        self._count_host = joined.text
        self._one = one_block(layout_of(first, context.shape(first.inputs[0])))
        self._chain = Chain(context, host, draft, nodes)
        self._published = context.shape(first.inputs[0])
        published = layout_of(first, self._published)
        length = product(published.joined).full
        self._short = self._one and self._layout.in_rows and bool(self._layout.kept) and length <= SHORTEST_ROW
        self._rowwise = self._layout.in_rows and not self._short
        self._pieces = few_programs(published) and in_pieces(nodes, self._cores)
        self._piece = number_of_pieces(published) if self._pieces else 0

    def write(self) -> None:
        if self._rowwise:
            self._start_row()
        else:
            self._start_column()
        if self._pieces:
            self._cut()
        if self._one:
            self._in_one_block()
        else:
            self._in_loops()

    def _start_row(self) -> None:
        draft = self._draft
        kept = product(self._layout.kept)
        if self._layout.kept:
            draft.add("row = tl.program_id(0)")
        draft.grid = f"({kept.text},)" if self._layout.kept else "(1,)"
        longest = f"triton.next_power_of_2({self._count_host})"
        draft.blocks["BLOCK"] = longest if self._one else "2048"
        draft.warps = 8 if product(layout_of(self._cores[0], self._published).joined).full >= 2048 else 0
        self._shape, self._last = "(BLOCK,)", ""

    def _start_column(self) -> None:
        draft, kept = self._draft, self._layout.kept
        self._last = "" if self._short else "c"
        if self._short:
            kept = [product(kept)]
        width = draft.size(kept[-1]) if _plain(kept[-1].text) else draft.number(kept[-1].text, "R")
        draft.add(f"c = tl.program_id({len(kept) > 1:d}) * BLOCK + tl.arange(0, BLOCK)")
        if len(kept) > 1:
            draft.add("p = tl.program_id(0)")
        rows = self._rows_of_block()
        columns = min(128, max(4, 8192 // rows)) if self._short else max(16, min(128, 4096 // rows))
        draft.warps = 8 if self._short else 0
        count = product(self._layout.joined)
        draft.blocks["ROWS"] = f"triton.next_power_of_2({count.text})" if self._one else "32"
        draft.blocks["BLOCK"] = str(columns)
        draft.grid = grid_of_columns(kept, columns)
        self._shape, self._width = "(ROWS, BLOCK)", width

    def _cut(self) -> None:
        """One more dimension of programs: pieces of what is joined."""
        draft, core, source = self._draft, self._nodes[-1], self._host.float_source()
        axis = 2 if not self._rowwise and len(self._layout.kept) > 1 else 1
        draft.add(f"z = tl.program_id({axis})")
        length = draft.number(f"triton.cdiv({self._count_host}, {self._piece})", "LEN")
        draft.add(f"end = tl.minimum({self._count}, z * {length} + {length})")
        draft.grid = f"({draft.grid[1:-1].removesuffix(',')}, {self._piece})"
        sizes = ", ".join(dim.text for dim in self._host.shape(core.id))
        before, device = PIECES[OPS[core.op].fold][1], f"device={source}.device"
        made = f"torch.zeros({sizes or '()'}, {device})"
        if before != "0.0":
            made = f"torch.full(({sizes}{',' * (sizes.count(',') == 0 and bool(sizes))}), {before}, {device})"
        self._draft.host.append(f"{OUTPUT} = {made}")
        root = ".sqrt()" if any("sqrt" in line for line in OPS[core.op].finish) else ""
        narrow = f".to({source}.dtype)" * self._context.narrow
        if root or narrow:
            draft.after.append(f"{OUTPUT} = {OUTPUT}{root}{narrow}")

    def _rows_of_block(self) -> int:
        published = product(layout_of(self._cores[0], self._context.shape(self._cores[0].inputs[0])).joined).full
        return 1 << (published - 1).bit_length() if self._one else 32

    def _elements(self, first: str = "") -> None:
        """The indices of a block of elements; `first` counts those before it."""
        draft, size = self._draft, self._draft.size
        before = f"{first} + " if first else ""
        count = "end" if self._pieces else self._count
        if self._rowwise:
            draft.add(f"j = {before}tl.arange(0, BLOCK)", f"m = j < {count}")
        else:
            rows = f"{before}tl.arange(0, ROWS)[:, None]"
            draft.add(f"j = {rows}", f"m = (j < {count}) & (c < {self._width})")
        counter = "row" if self._rowwise else "c" if self._short else "p"
        self._places = places(self._layout, "j", counter, self._last, size)
        draft.add(f"i = {index(self._layout, self._places, size)}")

    def _site(self, node: Node) -> Site:
        """Where the elements of a node's value are."""
        if numbers(self._context, node.id) == self._full:
            return self._site_of(self._host.shape(node.id))
        shape, size = self._host.shape(node.id), self._draft.size
        if self._rowwise:
            return Site(shape, "row")
        inside = f"c < {self._width}"
        if self._short:
            return Site(shape, "c", {"c": inside})
        kept = Layout(tuple((False, dim) for dim in self._layout.kept))
        terms = ["p", "c"] if len(self._layout.kept) == 2 else ["c"] if len(self._layout.kept) == 1 else []
        return Site(shape, "q", {"q": inside, "c": inside}, known(kept, "q", terms, size) if terms else {})

    def _site_of(self, shape: Shape) -> Site:
        masks = {"i": "m", "j": "m"}
        if not self._rowwise:
            masks = {"i": "m", "j": f"j < {self._count}", "c": f"c < {self._width}"}
        found = known(self._layout, "i", self._places, self._draft.size)
        if (place := self._leading(shape)) and self._layout.in_rows:
            found |= terms(shape, place, "row" if self._rowwise else "c", "j", self._draft.size)
        return Site(shape, "i", masks, found)

    def _leading(self, shape: Shape) -> int:
        """How many of the first dimensions a program has one place of; 0 where rows are in pieces."""
        kept, joined = self._layout.kept, product(self._layout.joined).text
        return next(
            (k for k in range(1, len(shape)) if len(kept) == 1 and product(shape[k:]).text == joined),
            0,
        )

    def _in_one_block(self) -> None:
        self._elements()
        for node in self._nodes:
            if is_core(node):
                self._operands(node)
                fold = self._fold(node)
                self._draft.add(*self._filled(node, fold.block))
                if OPS[node.op].kind != "softmax":
                    self._draft.add(*self._filled(node, fold.apply))
                self._behind(node)
            else:
                self._between(node)
        self._store()

    def _in_loops(self) -> None:
        core, draft = self._cores[0], self._draft
        place = list(self._nodes).index(core)
        before, behind = self._nodes[:place], self._nodes[place + 1 :]
        fold, full = self._fold(core), OPS[core.op].kind in ("norm", "softmax")
        step = "BLOCK" if self._rowwise else "ROWS"
        loop = f"for t in range(0, {self._count}, {step}):"
        if self._pieces:
            loop = f"for t in range(z * LEN, end, {step}):"
        draft.add(*self._filled(core, fold.start))
        with draft.block(loop):
            self._elements("t")
            for node in before:
                self._chain.node(node, self._site(node))
            self._operands(core)
            draft.add(*self._filled(core, fold.step))
        draft.add(*self._filled(core, fold.end))
        if not full:
            self._behind(core)
            for node in behind:
                self._between(node)
            self._store()
            return
        self._chain.restart()
        with draft.block(loop):
            self._elements("t")
            for node in before:
                self._chain.node(node, self._site(node))
            self._operands(core)
            draft.add(*self._filled(core, fold.apply))
            self._behind(core)
            for node in behind:
                self._between(node)
            self._store()

    def _between(self, node: Node) -> None:
        self._columns(node)
        self._chain.node(node, self._site(node))

    def _columns(self, node: Node) -> None:
        """Defines the number of a kept element, before it is first needed."""
        reduced = numbers(self._context, node.id) != self._full
        if reduced and not self._layout.in_rows and "q = " not in "\n".join(self._draft.lines):
            kept = Layout(tuple((False, dim) for dim in self._layout.kept))
            texts = places(kept, "", "p", "c", self._draft.size)
            self._draft.add(f"q = {index(kept, texts, self._draft.size)}")

    def _operands(self, core: Node) -> None:
        """The core's elements in `v` (and `u`)."""
        self._draft_place(core.inputs[0])
        if len(core.inputs) > 1:
            site = self._site_of(self._domain)
            self._draft.add(f"u = {self._chain.second(core.inputs[1], site)}")
        if core.op == "softmin":
            self._draft.add("v = -v")
        self._draft.add(*(("v = v * u",) if core.op == "matvec" else filled(core, OPS[core.op].triton)))

    def _draft_place(self, value: str) -> None:
        self._chain.place(value, self._site_of(self._host.shape(value)))

    def _behind(self, core: Node) -> None:
        """What follows the joined value or the scaled elements at once."""
        op, draft = OPS[core.op], self._draft
        if op.kind == "norm":
            self._affine(core)
        elif op.kind != "softmax":
            finish = ("v = v / n",) if op.kind == "pool" and op.fold == "sum" else op.finish
            correction = "1" if core.attributes.get("unbiased", True) else "0"
            lines = [re.sub(r"\bn\b", self._count, line) for line in finish if not (self._pieces and "sqrt" in line)]
            draft.add(*(line.replace(" - correction", f" - {correction}").replace(" - 0", "") for line in lines))
        self._columns(core)
        self._chain.done(core)

    def _affine(self, core: Node) -> None:
        """The weight and the bias of a norm."""
        shape = self._host.shape(core.id)
        per_channel = core.op.startswith(("group_norm", "instance_norm"))
        own = channel_shape(shape) if per_channel else None
        for role, sign in (("weight", "*"), ("bias", "+")):
            if role in core.roles:
                load = self._chain.parameter(core, role, self._site_of(shape), own)
                self._draft.add(f"v = v {sign} {load}")

    def _fold(self, node: Node) -> Fold:
        op = OPS[node.op]
        if op.kind == "norm":
            name = node.op if node.op == "standardize" else node.attributes["statistics"]
            return NORMS[name]
        if op.kind == "softmax":
            return SOFTMAXES["softmax" if node.op == "softmin" else node.op]
        fold = FOLDS[op.fold or "sum"]
        self._draft.helpers += [fold.helper] * bool(fold.helper)
        return fold

    def _filled(self, node: Node, lines: Sequence[str]) -> list[str]:
        row = self._rowwise
        words = {
            "ROW_LOW": '-float("inf")' if row else 'tl.full((BLOCK,), -float("inf"), tl.float32)',
            "ROW_ZEROS": "0.0" if row else "tl.zeros((BLOCK,), tl.float32)",
            "ZEROS": f"tl.zeros({self._shape}, tl.float32)",
            "SHAPE": self._shape,
            "LOW": '-float("inf")',
            "HIGH": 'float("inf")',
            "N": self._count,
            "EPS": repr(node.attributes.get("eps")),
        }
        return [re.sub(r"\b[A-Z_]+\b", lambda found: words.get(found[0], found[0]), line) for line in lines]

    def _store_piece(self) -> None:
        call, _ = PIECES[OPS[self._nodes[-1].op].fold]
        place = "o_ptr" + (" + row" if self._layout.kept else "") if self._rowwise else "o_ptr + q"
        self._draft.add(f"{call}({place}, v{'' if self._rowwise else f', mask=c < {self._width}'})")

    def _store(self) -> None:
        last, draft = self._nodes[-1], self._draft
        if self._pieces:
            self._store_piece()
        elif numbers(self._context, last.id) == self._full:
            draft.add("tl.store(o_ptr + i, v, mask=m)")
        elif self._rowwise:
            draft.add("tl.store(o_ptr + row, v)" if self._layout.kept else "tl.store(o_ptr, v)")
        else:
            draft.add(f"tl.store(o_ptr + {'c' if self._short else 'q'}, v, mask=c < {self._width})")
        if not draft.host:
            draft.host.append(f"{OUTPUT} = {allocation(self._context, self._host, last)}")


def _plain(text: str) -> bool:
    return bool(re.fullmatch(r"[A-Z]+\d*( \* [A-Z]+\d*)*", text)) or text.isdigit()
