"""Realistic mistakes, made by editing the fused solution. Each has a name that says what the policy has to repair.

None of them writes outside its tensors, so that they can be executed anywhere.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

from drkernel.coldstart.kernels import lines_of
from drkernel.tasks.generators.operators import OPERATORS, UNARY_STAGES


def mistakes(info: dict[str, Any], source: str) -> list[tuple[str, str]]:
    """(name, edited source) of every mistake in `EDITS` that can be made in this solution."""
    made = [(name, edit(info, source)) for name, edit in EDITS.items()]
    return [(name, wrong) for name, wrong in made if wrong is not None and wrong != source]


def _replace(old: str, new: str) -> Callable[[dict, str], str]:
    return lambda info, source: source.replace(old, new, 1)


def _stage_lines(info: dict, source: str) -> list[tuple[str, str]]:
    """(stage, its text in the source) for each unary stage of the kernel, at whatever indentation."""
    found = []
    for name in info["composition"]:
        if name in UNARY_STAGES:
            pattern = r"\n +".join(re.escape(line) for line in lines_of(info, name))
            if match := re.search(rf"^ +{pattern}\n", source, re.MULTILINE):
                found.append((name, match.group()))
    return found


def _forgotten_stage(info: dict, source: str) -> str | None:
    """Leaves out the last stage."""
    found = _stage_lines(info, source)
    return source.replace(found[-1][1], "", 1) if found else None


def _no_such_function(info: dict, source: str) -> str | None:
    """Spells an activation as torch would: `tl.relu`, `tl.gelu` and the like do not exist."""
    for name, text in _stage_lines(info, source):
        if OPERATORS[name].not_in_triton:
            indent = text[: len(text) - len(text.lstrip())]
            return source.replace(text, f"{indent}v = tl.{name}(v)\n", 1)
    return None


def _wrong_literal(info: dict, source: str) -> str | None:
    """Changes the literal of a stage."""
    for name, text in _stage_lines(info, source):
        if name != "clamp" and (value := info["literals"].get(name, {}).get("a")):
            return source.replace(text, text.replace(value, str(round(2 * float(value) + 0.1, 2))), 1)
    return None


def _padding_counts(info: dict, source: str) -> str | None:
    """Includes the lanes beyond the row in sums and maxima."""
    if not any(OPERATORS[name].padding_matters for name in info["composition"]):
        return None
    return re.sub(r"tl\.where\(m, (v(?: \* v)?), [^()]*(?:\(\"inf\"\))?\)", r"\1", source)


def _no_maximum(info: dict, source: str) -> str | None:
    """Does not subtract the maximum before exponentials: wrong for large values only, so all before it must grow."""
    operators = info["composition"]
    place = next((i for i, name in enumerate(operators) if name in ("softmax", "log_softmax", "kl_loss")), None)
    if place is None or not all(OPERATORS[name].grows for name in operators[:place]):
        return None
    edited = source.replace("tl.exp(v - tl.max(v, 0))", "tl.exp(v)", 1)
    return edited if edited != source else source.replace("    v = v - tl.max(v, 0)\n", "", 1)


def _wrong_divisor(info: dict, source: str) -> str:
    edited = source.replace(" / (n - 1)", " / n", 1)
    return edited if edited != source else source.replace(" / n\n", " / BLOCK\n", 1)


def _missing_bracket(info: dict, source: str) -> str:
    return re.sub(r"(tl\.store\(.*)\)\n", r"\1\n", source, count=1)


def _missing_argument(info: dict, source: str) -> str:
    edited = source.replace("def forward(self, x, y):", "def forward(self, x):", 1)
    return edited if edited != source else re.sub(r"def __init__\(self, .*\):", "def __init__(self):", source, count=1)


def _half_precision(info: dict, source: str) -> str:
    """Returns a 16-bit format that is not the task's."""
    dtype = "bfloat16" if info.get("dtype") == "float16" else "float16"
    return source.replace("o = torch.empty_like(x)", f"o = torch.empty_like(x, dtype=torch.{dtype})", 1)


EDITS: dict[str, Callable[[dict, str], str | None]] = {
    "undefined_name": _replace("tl.store(o_ptr", "tl.store(out_ptr"),
    "missing_bracket": _missing_bracket,
    "missing_import": _replace("import triton.language as tl\n", ""),
    "no_such_function": _no_such_function,
    "wrong_axis": _replace("(v, 0)", "(v, 1)"),
    "block_not_a_power_of_two": _replace("BLOCK=triton.next_power_of_2(n)", "BLOCK=n"),
    "missing_argument": _missing_argument,
    "forgotten_stage": _forgotten_stage,
    "wrong_literal": _wrong_literal,
    "wrong_row": _replace("x_ptr + i, mask=m", "x_ptr + c, mask=m"),
    "wrong_divisor": _wrong_divisor,
    "padding_counts": _padding_counts,
    "no_maximum": _no_maximum,
    "tail_left_out": _replace("triton.cdiv(t, 1024)", "t // 1024"),
    "half_precision": _half_precision,
    "returns_input": _replace("return o\n", "return x\n"),
}
"""Mistakes by name: functions of `Task.info` and the fused source; None where the task has no place for the mistake."""
