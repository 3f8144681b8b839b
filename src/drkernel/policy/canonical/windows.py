"""Windows in kernels have the numbers of the reference's line.

    t1 = self.m0(t0)  # F.conv1d(weight (64, 32, 5), dilation=16)

    o = t0.new_empty((t0.shape[0], N, t0.shape[2] - 5 * (5 - 1) - 1 + 1))     -> ... - 16 * (5 - 1) - 1 + 1
    yW = xW + t * 1                                                           -> xW + t * 16

A policy writes the loops of a convolution or a pool well, and less well numbers that it has seldom read: a dilation of
16, a window of 1 by 11. The numbers stand in a few places, by the style in which it writes: where a window begins,
where its places are, how many there are, and what shape is made. A kernel of another style stays as it is.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from math import prod

from drkernel.policy.canonical.formulas import Window, factor, factors, input_place, output_side, signed
from drkernel.policy.canonical.told import Line, Told

_SIDES = {1: "W", 2: "HW", 3: "DHW"}
_CALL = re.compile(r"\bF\.((?:conv|conv_transpose|max_pool|avg_pool|lp_pool)([123])d)\((.*?)\)(?=;|$|  #)")
_USUAL = {"stride": 1, "padding": 0, "dilation": 1, "output_padding": 0}
_NUMBERS = {"kernel_size", "groups", "norm_type", *_USUAL}

Texts = dict[str, list[str]]
"""What names are set to, in the order of the kernel."""


def windows_of(line: Line, told: Told) -> list[Window]:
    """The window of a line; none where it has none, or a strange one."""
    found = _CALL.search(line.told)
    if not found or line.told.partition("  #")[0].count("F.") > 1:
        return []
    rank = int(found[2])
    try:
        call = ast.parse(f"f({re.sub(r'[a-z]+ [(][^)]*[)]', '0', found[3])})", mode="eval").body
    except SyntaxError:
        return []
    assert isinstance(call, ast.Call)
    module = re.search(r" = (self\.m\d+)\(", line.told)
    held = f"{module[1]}.weight" if module else ast.unparse(call.args[1]) if len(call.args) > 1 else ""
    words = {str(word.arg): word.value for word in call.keywords}
    try:
        given = {word: ast.literal_eval(words[word]) for word in words.keys() & _NUMBERS}
    except ValueError:
        return []
    kernel = given.get("kernel_size", told.weights.get(held, told.shapes.get(held, ()))[2:] if held else ())
    every = lambda number: tuple(number) if isinstance(number, tuple) else (number,) * rank
    kernel = every(kernel)
    if "pool" in found[1]:
        given.setdefault("stride", kernel)
    sizes = [kernel, *(every(given.get(word, usual)) for word, usual in _USUAL.items())]
    is_plain = words.keys() <= _NUMBERS | {"input", "weight", "bias", "count_include_pad"}
    if not is_plain or any(len(size) != rank or not all(type(n) is int for n in size) for size in sizes):
        return []
    return [Window(*each) for each in zip(*sizes, _SIDES[rank], strict=True)]


def with_windows(function: ast.FunctionDef, functions: Mapping[str, ast.FunctionDef], line: Line, told: Told) -> bool:
    """Gives a function and the kernel that it launches the numbers of a line; whether that changed anything."""
    windows = windows_of(line, told)
    kernels = [functions[name] for name in _launched(function) if name in functions]
    if not windows or len(kernels) != 1:
        return False
    is_turned = "conv_transpose" in line.told
    styles = (style(windows, is_turned, kernels[0]) for style in (_pool, _phases, _places))
    found = next((style for style in styles if style), None)
    if found is None:
        return False
    edits = _Edits(found)
    edits.visit(kernels[0])
    changed = edits.changed
    for node in ast.walk(function):
        match node:
            case ast.Assign([ast.Name(name)], value) if name in found.host:
                lead = function.args.args[0].arg
                changed |= ast.unparse(value) != (text := _plain(found.host[name][0].replace("LEAD", lead)))
                node.value = _parsed(text)
            case ast.Call(ast.Subscript(ast.Name(), ast.Tuple([_, _, ast.Constant(int() as third)]) as grid)):
                if found.third not in (0, third):
                    grid.elts[2], changed = ast.Constant(found.third), True
            case ast.Call(ast.Attribute(ast.Call(ast.Attribute(_, "flatten")), "permute"), args) if found.order:
                if len(args) == 3 and f"({', '.join(map(ast.unparse, args))})" != found.order:
                    node.args, changed = _parsed(found.order).elts, True  # type: ignore[attr-defined]
            case ast.Assign([ast.Name("o")], ast.Call(ast.Attribute(ast.Name(lead), "new_empty"), [ast.Tuple(sides)])):
                wanted = [
                    _plain(output_side(window, f"{lead}.shape[{dim}]", is_turned))
                    for dim, window in enumerate(windows, 2)
                ]
                if len(sides) in (len(windows) + 1, len(windows) + 2):
                    now = [ast.unparse(side) for side in sides[-len(windows) :]]
                    changed |= now != wanted
                    sides[-len(windows) :] = [_parsed(text) for text in wanted]
    return changed


def _launched(function: ast.FunctionDef) -> Iterator[str]:
    for statement in function.body:
        match statement:
            case ast.Expr(ast.Call(ast.Subscript(ast.Name(kernel)))):
                yield kernel


def _parsed(text: str) -> ast.expr:
    return ast.parse(text, mode="eval").body


def _plain(text: str) -> str:
    return ast.unparse(_parsed(text))


def _set(kernel: ast.FunctionDef) -> set[str]:
    found = {n.id for n in ast.walk(kernel) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)}
    return found


@dataclass(frozen=True)
class Style:
    """How a kernel goes through windows, with the right numbers."""

    texts: Texts
    loops: Sequence[str]
    """What loops go through."""
    weight: str = ""
    """The place in the weight."""
    host: Texts = field(default_factory=dict)
    """What names of the function are set to that launches it."""
    third: int = 0
    """Of the launch's grid."""
    masked: Sequence[str] = ()
    """Sides of which no mask says that a place lies in the tensor."""
    order: str = ""
    """Of the dimensions of the weight: places, output channels, input channels."""


def _pool(windows: Sequence[Window], is_turned: bool, kernel: ast.FunctionDef) -> Style | None:
    """A block of one plane's windows, and a loop for each dimension."""
    if is_turned or not {f"r{w.side}" for w in windows} <= _set(kernel):
        return None
    texts: Texts = {}
    rest = "k"
    for place, w in reversed(list(enumerate(windows))):
        start = (f"{rest} % O{w.side}" if place else rest) + f" * {w.stride}" * (w.stride > 1)
        texts[f"x{w.side}"] = [start + signed(-w.padding)]
        texts[f"y{w.side}"] = [f"x{w.side} + r{w.side}" + f" * {w.dilation}" * (w.dilation > 1)]
        rest += f" // O{w.side}"
    if any(w.padding and f"n{w.side}" not in _set(kernel) for w in windows):
        return None
    weight = "p % C"
    for w in windows:
        weight = f"{factor(weight)} * {w.kernel} + r{w.side}"
    return Style(texts, [str(w.kernel) for w in windows], weight)


def _places(windows: Sequence[Window], is_turned: bool, kernel: ast.FunctionDef) -> Style | None:
    """A loop over the places of the window, and in it one over channels."""
    names = _set(kernel)
    if "t" not in names or not {f"y{w.side}" for w in windows} <= names or names & {f"k{w.side}" for w in windows}:
        return None
    kernels, count = [w.kernel for w in windows], prod(w.kernel for w in windows)
    texts: Texts = {}
    for dim, w in enumerate(windows):
        texts[f"y{w.side}"] = [input_place(windows, dim, w.side, is_turned)]
        if is_turned and w.stride > 1:
            texts[f"y{w.side}"].append(f"tl.where(y{w.side} % {w.stride} == 0, y{w.side} // {w.stride}, -1)")
    if count == 1:
        return None
    masked = [w.side for w in windows if (w.padding or is_turned) and _unmasked(kernel, w)]
    order = "(2, 1, 0)" if is_turned else "(2, 0, 1)"
    return Style(texts, [f"{factors(kernels)} * "], masked=masked, order=order)


def _phases(windows: Sequence[Window], is_turned: bool, kernel: ast.FunctionDef) -> Style | None:
    """Of a transposed one with strides: the places of the output by their remainders."""
    names = _set(kernel)
    phased = [w for w in windows if f"z{w.side}" in names]
    wanted = {f"k{w.side}" for w in windows} | {f"{part}{w.side}" for w in phased for part in "azn"}
    own = {name for name in names if re.fullmatch("[azn][DHW]", name)}
    if not is_turned or not phased or not wanted <= names or own - wanted:
        return None
    if any(w.stride > 1 and (w not in phased or w.dilation > 1) for w in windows):
        return None
    texts: Texts = {}
    rest = "tl.program_id(2)"
    for place, w in enumerate(reversed(phased), 1):
        texts[f"z{w.side}"] = [rest + f" % {w.stride}" * (place < len(phased))]
        rest += f" // {w.stride}"
    rest, tap, weight = "r", "t", ""
    loops: list[str] = []
    rows: list[str] = []
    for w in reversed(windows):
        is_phased = w in phased
        rows.insert(0, f"Q{w.side}" if is_phased else f"O{w.side}")
        loops.insert(0, f"n{w.side}" if is_phased else str(w.kernel))
        texts[f"x{w.side}"] = [f"{rest} % {rows[0]}" + f" * {w.stride} + z{w.side}" * is_phased]
        texts[f"k{w.side}"] = [tap + f" % {loops[0]}" * (w is not windows[0])]
        texts[f"k{w.side}"][0] += f" * {w.stride} + a{w.side}" * is_phased
        rest, tap = f"{rest} // {rows[0]}", f"{tap} // {loops[0]}"
        moved = f"x{w.side}{signed(w.padding)} - k{w.side}" + f" * {w.dilation}" * (w.dilation > 1)
        texts[f"y{w.side}"] = [f"({moved}) // {w.stride}" if is_phased else moved]
    for w in windows:
        weight = f"{factor(weight)} * {w.kernel} + k{w.side}" if weight else f"k{w.side}"
    for w in phased:
        texts[f"a{w.side}"] = [f"(z{w.side} + {w.padding}) % {w.stride}" if w.padding else f"z{w.side}"]
        texts[f"n{w.side}"] = [f"tl.cdiv({w.kernel} - a{w.side}, {w.stride})"]
    host = {f"Q{w.side}": [f"triton.cdiv(O{w.side}, {w.stride})"] for w in phased}
    host["M"] = [f"LEAD.shape[0] * {' * '.join(rows)}"]
    weight = f"({factor(weight)} * N + c) * C + j[:, None]"
    return Style(texts, ["".join(f"{one} * " for one in loops)], weight, host, prod(w.stride for w in phased))


def _unmasked(kernel: ast.FunctionDef, window: Window) -> bool:
    """Whether no mask says that a place lies in the tensor."""
    return f"y{window.side} < {window.side}" not in ast.unparse(kernel)


class _Edits(ast.NodeTransformer):
    """Sets names to what they should be."""

    def __init__(self, style: Style):
        self._texts = {name: [_plain(text) for text in each] for name, each in style.texts.items()}
        self._loops, self._weight, self._masked = list(style.loops), style.weight, style.masked
        self.changed = False

    def _new(self, old: ast.expr, text: str) -> ast.expr:
        if ast.unparse(old) == text:
            return old
        self.changed = True
        return _parsed(text)

    def visit_Assign(self, node: ast.Assign) -> ast.AST:
        match node:
            case ast.Assign([ast.Name(name)], value) if self._texts.get(name):
                node.value = self._new(value, self._texts[name].pop(0))
            case ast.Assign([ast.Name()], ast.Call(ast.Attribute(ast.Name("tl"), "load"), [place, *_])):
                assert isinstance(node.value, ast.Call)
                self._weighed(node.value, place)
                for side in self._masked if "j[None, :]" in ast.unparse(place) else ():
                    self._mask(node.value, f"(y{side} >= 0) & (y{side} < {side})")
        return node

    def _mask(self, load: ast.Call, more: str) -> None:
        for word in load.keywords:
            if word.arg == "mask":
                word.value, self.changed = _parsed(f"{ast.unparse(word.value)} & {more}"), True

    def _weighed(self, load: ast.Call, place: ast.expr) -> None:
        """A load of a weight that has a number for each channel and place."""
        text = ast.unparse(place)
        found = re.match(r"(p\d+_ptr) \+ ", text)
        if self._weight and found and re.search(r"\b[rk][DHW]\b", text) and not re.search(r"\bg\b", text):
            load.args[0] = self._new(place, _plain(f"{found[1]} + {self._weight}"))

    def visit_For(self, node: ast.For) -> ast.AST:
        match node.iter:
            case ast.Call(ast.Attribute(ast.Name("tl"), "static_range"), [count]) if self._loops:
                node.iter.args = [self._new(count, self._loops.pop(0))]
            case ast.Call(ast.Name("range"), [count]) if self._loops:
                if found := re.search(r"tl\.cdiv\(C, \d+\)$", ast.unparse(count)):
                    node.iter.args = [self._new(count, _plain(self._loops.pop(0) + found[0]))]
        return self.generic_visit(node)
