"""Realistic mistakes, made by editing the kernels or the host code of a right answer.

Each has a name that says what has to be repaired; the answer that it was made from is the repair. All edits are made on
canonical names, so that the surface of both is the same.
"""

from __future__ import annotations

import copy
import re
from collections.abc import Callable, Iterator

from drkernel.coldstart.answers.context import Context
from drkernel.coldstart.answers.submission import Written
from drkernel.tasks.generators.graphs.ops import OPS

Edit = Callable[[Context, Written], bool]
"""Changes what is written; whether there was a place for the mistake."""
_NOT_IN_TRITON = ("relu", "gelu", "silu", "tanh", "leaky_relu", "elu", "softplus", "mish", "hardswish", "square")


def mistakes(context: Context, written: Written) -> Iterator[tuple[str, Written]]:
    """(name, mistaken answer) of every mistake that there is a place for."""
    for name, edit in EDITS.items():
        wrong = copy.deepcopy(written)
        if edit(context, wrong):
            yield name, wrong


def _lines(pattern: str, new: str, only: str = "", count: int = 1) -> Edit:
    """Replaces a pattern in the first kernel line that has it."""

    def edit(context: Context, written: Written) -> bool:
        for _, draft in written.drafts:
            for place, line in enumerate(draft.lines):
                if only in line and re.search(pattern, line):
                    draft.lines[place] = re.sub(pattern, new, line, count=count)
                    return draft.lines[place] != line
        return False

    return edit


def _forward(pattern: str, new: str) -> Edit:
    """Replaces a pattern in the host code."""

    def edit(context: Context, written: Written) -> bool:
        for place, line in enumerate(written.forward):
            if re.search(pattern, line):
                written.forward[place] = re.sub(pattern, new, line, count=1)
                return written.forward[place] != line
        return False

    return edit


def _forgotten(kinds: tuple[str, ...]) -> Edit:
    """Leaves out the lines of the last operator of these kinds."""

    def edit(context: Context, written: Written) -> bool:
        for _, draft in reversed(written.drafts):
            for node, first, last in reversed(draft.marks):
                lines = draft.lines[first:last]
                alone = lines and not any(" = v" in line and "k" in line.split("=")[0] for line in lines)
                if OPS[node.op].kind in kinds and alone and not lines[0].strip().startswith("v = tl.load"):
                    del draft.lines[first:last]
                    return True
        return False

    return edit


def _no_such_function(context: Context, written: Written) -> bool:
    """Spells an activation as torch would."""
    for _, draft in written.drafts:
        for node, first, last in draft.marks:
            lines = draft.lines[first:last]
            if node.op in _NOT_IN_TRITON and lines:
                indent = lines[-1][: len(lines[-1]) - len(lines[-1].lstrip())]
                loads = [line for line in lines if line.strip().startswith("v = tl.load")]
                draft.lines[first:last] = [*loads, f"{indent}v = tl.{node.op}(v)"]
                return True
    return False


def _wrong_constant(context: Context, written: Written) -> bool:
    """Changes a constant of an operator."""
    for _, draft in written.drafts:
        for node, first, last in draft.marks:
            for value in node.attributes.values():
                if isinstance(value, float) and abs(value) > 0.009:
                    for place in range(first, last):
                        text = re.sub(
                            rf"(?<![\w.]){re.escape(repr(value))}(?![\w.])", repr(value * 2), draft.lines[place]
                        )
                        if text != draft.lines[place]:
                            draft.lines[place] = text
                            return True
    return False


def _missing_import(context: Context, written: Written) -> bool:
    written.left_out = "import triton.language as tl"
    return True


def _returns_input(context: Context, written: Written) -> bool:
    written.forward[-1] = f"return {context.info['arguments'][0]}"
    return True


def _missing_bracket(context: Context, written: Written) -> bool:
    return _lines(r"\)$", "", "tl.store")(context, written)


EDITS: dict[str, Edit] = {
    "undefined_name": _lines("o_ptr", "out_ptr", "tl.store"),
    "missing_bracket": _missing_bracket,
    "missing_import": _missing_import,
    "no_such_function": _no_such_function,
    "wrong_axis": _lines(r"(tl\.(?:sum|max|min)\(.*), 0\)", r"\1, 1)"),
    "block_not_a_power_of_two": _forward(r"triton\.next_power_of_2\((.*?)\)", r"\1"),
    "forgotten_operator": _forgotten(("pointwise",)),
    "forgotten_operand": _forgotten(("binary",)),
    "forgotten_bias": _lines(r" \+ tl\.load\(b_ptr.*", "", "b_ptr"),
    "wrong_constant": _wrong_constant,
    "wrong_stride": _lines(r"(\w+) // (\w+) % (\w+)", r"\1 % \3", "tl.load"),
    "wrong_channel": _lines(r"p % (\w+)", "p", "tl.load"),
    "missing_mask": _lines(r", mask=\w+\)", ")", "tl.load"),
    "missing_mask_of_store": _lines(r", mask=\w+\)", ")", "tl.store"),
    "padding_counts": _lines(
        r"tl\.where\(m, (v), -?float\(\"inf\"\)\)|tl\.where\(m, (tl\.exp\(.*?\)), 0\.0\)", r"\1\2"
    ),
    "no_maximum": _lines(r"v - tl\.max\(tl\.where\(m, v, .*?\), 0\)(\)?)", r"v\1"),
    "mean_for_sum": _lines(r"(v = tl\.sum\(.*\))$", r"\1 / BLOCK"),
    "sum_for_mean": _lines(r"^(\s+)v = v / [A-Z]\w*$", r"\1v = v"),
    "wrong_divisor": _lines(r" / \((\w+) - 1\)", r" / \1"),
    "no_epsilon": _lines(r" \+ 1e-0\d\)", ")", "sqrt"),
    "tail_left_out": _forward(r"triton\.cdiv\((\w+), (\d+)\)", r"\1 // \2"),
    "wrong_shape": _forward(r"new_empty\(\((\w+), (.*), (\w+)\)\)", r"new_empty((\1, \3))"),
    "half_precision": _forward(r"torch\.empty_like\((\w+)\)", r"torch.empty_like(\1, dtype=torch.float16)"),
    "over_the_end": _lines(r"m = j < [A-Z]\w*$", "m = j < BLOCK"),
    "returns_input": _returns_input,
}
"""Mistakes by name."""
