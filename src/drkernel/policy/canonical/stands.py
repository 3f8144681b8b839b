"""Whether a call of a completion's own function can stand for the lines of the reference that make a value.

t9 = f1(t8, self.m2.bias)      <-- `t9 = F.relu(t8)` needs no bias
t9 = f2(t8)                    <-- makes another size than `t9` has
t9 = f3(t8)                    <-- `t9 = F.elu(t8, alpha=0.5)`, and its kernel has no 0.5 (kept_numbers.py)
t9 = f4(t8, self.m3.weight)    <-- reads a third of the weight (reach.py)
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from torch import Tensor

from drkernel.policy.canonical import host
from drkernel.policy.canonical.kept_numbers import has_numbers
from drkernel.policy.canonical.reach import reach
from drkernel.policy.canonical.told import Line, Told

_TENSOR = re.compile(r"self\.m\d+(?:\.(?!shape\b)\w+)?(?![\w.]*\.shape\b)(?!\w)")
"""A tensor or a module of the module, where more than its sizes is read."""
VALUE = re.compile(r"\b(?:t\d+|in\d+(?:\[\d+\])*)(?!\w|\[\d+\]|\.shape\b)")
"""A value, where more than its sizes are read."""
_SHAPE_ALONE = re.compile(r"(torch\.\w+_like|[\w.]+\.new_\w+)\(")
"""Calls of which the values of the first argument say nothing."""
_IN_PART = re.compile(
    r"self\.m\d+(\.\w+)?\[|\b(chunk|split|narrow|unbind|select|index_select|gather|embedding\w*|take\w*)\("
)
"""Lines that may need a part of a tensor of the module."""


def stands(made: str, call: ast.Call, functions: Mapping[str, ast.FunctionDef], told: Told) -> bool:
    """Whether a call can make a value, as far as its source says. It can make any that is not of the reference.

    Args:
        functions: those of the completion, the one that is called and its kernels, by name.
    """
    name, given = ast.unparse(call.func), _given_to(call)
    if made in told.makers:
        lines = list(_block(made, given, told))
        if not _fits(lines, given, told) or not has_numbers(lines, name, functions):
            return False
        if not _reaches(lines, call, functions, told):
            return False
    function = functions[name]
    return _has_dimensions(function, call.args, told) and _has_shape(made, function, call.args, told)


def block_of(made: str, call: ast.Call, told: Told) -> list[Line]:
    """The lines that a call stands for."""
    return list(_block(made, _given_to(call), told))


def _given_to(call: ast.Call) -> set[str]:
    texts = map(ast.unparse, call.args)
    return {text for text in texts if _TENSOR.fullmatch(text) or VALUE.fullmatch(text)}


def _block(made: str, given: set[str], told: Told) -> Iterator[Line]:
    """The lines that make a value of others."""
    waiting, seen = [made], {*given} - {made}
    while waiting:
        name = waiting.pop()
        if name in told.makers and name not in seen:
            yield told.makers[name]
            waiting += _values_of(told.makers[name])
        seen.add(name)


def _fits(lines: Sequence[Line], given: set[str], told: Told) -> bool:
    """Whether a call is given the tensors from which the reference's lines make a value: all of them, and no others."""
    made = {name for line in lines for name in line.makes}
    needed = {name for line in lines for name in (*_tensors_of(line), *_values_of(line)) if name not in made}
    modules = {name for line in lines for name in re.findall(r"\bself\.m\d+", line.told)}
    is_reached = lambda name: name in needed or ".".join(name.split(".")[:2]) in modules
    return needed <= given and all(map(is_reached, given))


def _reaches(lines: Sequence[Line], call: ast.Call, functions: Mapping[str, ast.FunctionDef], told: Told) -> bool:
    """Whether kernels read what the call is given, all of it where it is a tensor of the module, and write all of what
    the function returns."""
    function = functions[ast.unparse(call.func)]
    given = tensors(call.args, told)
    try:
        found = reach(function, functions, given)
    except host.Wrong:
        return False
    whole = not any(_IN_PART.search(line.told) for line in lines)
    for argument, text, value in zip(function.args.args, map(ast.unparse, call.args), given, strict=False):
        end = found.read.get(argument.arg)
        if end is None or not isinstance(value, Tensor):
            continue
        is_all = found.tensors[argument.arg].numel() == value.numel()
        if end < 0 or (whole and is_all and _TENSOR.fullmatch(text) and end < value.numel() - 1):
            return False
    match function.body[-1]:
        case ast.Return(ast.Name(result)) if result in found.written and "zeros" not in ast.unparse(function):
            return found.written[result] >= found.tensors[result].numel() - 1
    return True


def reads_beyond(call: ast.Call, functions: Mapping[str, ast.FunctionDef], told: Told) -> bool:
    """Whether kernels surely read behind the end of a tensor.

    Raises:
        Wrong: the function fails.
    """
    found = reach(functions[ast.unparse(call.func)], functions, tensors(call.args, told))
    return any(end >= found.tensors[name].numel() for name, end in found.surely.items())


def _has_dimensions(function: ast.FunctionDef, args: Sequence[ast.expr], told: Told) -> bool:
    """Whether the values that a function is given have the dimensions whose sizes it asks for."""
    given = zip([argument.arg for argument in function.args.args], map(ast.unparse, args), strict=False)
    ranks = {name: len(told.shapes[text]) for name, text in given if VALUE.fullmatch(name) and text in told.shapes}
    for node in ast.walk(function):
        match node:
            case ast.Assign([ast.Name(name)], value) if ast.unparse(value) != f"{name}.contiguous()":
                ranks.pop(name, None)  # another tensor from here on
    for node in ast.walk(function):
        match node:
            case ast.Subscript(ast.Attribute(ast.Name(name), "shape"), ast.Constant(int(place))) if name in ranks:
                if place >= ranks[name]:
                    return False
    return True


def _has_shape(made: str, function: ast.FunctionDef, args: Sequence[ast.expr], told: Told) -> bool:
    """Whether what a function makes, as far as its source says, has the shape of the reference's value."""
    try:
        found = host.returned(function, tensors(args, told))
    except host.Unknown:
        return True
    except host.Wrong:
        return False
    return made not in told.shapes or getattr(found, "shape", None) == told.shapes[made]


def tensors(args: Sequence[ast.expr], told: Told) -> list[Any]:
    """What a call is given, without data; None where it is not known."""
    known = {name: host.tensor(shape) for name, shape in told.shapes.items() if VALUE.fullmatch(name)}
    return [_given(arg, known, told) for arg in args]


def _given(arg: ast.expr, known: Mapping[str, Any], told: Told) -> Any:
    """A value or a tensor of the module without its data, or a number; None where it is not known."""
    text = ast.unparse(arg)
    if shape := told.shapes.get(text, told.weights.get(text)):
        return host.tensor(shape)
    try:
        return host.value_of(arg, known)
    except (host.Unknown, host.Wrong):
        return None


def _values_of(line: Line) -> set[str]:
    """The values that a line reads, as far as more than their shapes counts."""
    code = line.told.partition("  #")[0].partition(" = ")[2]
    return set() if _SHAPE_ALONE.match(code) else {found[0] for found in VALUE.finditer(code)}


def _tensors_of(line: Line) -> set[str]:
    """The tensors of the module that a line needs: `self.m0.weight` of `self.m0(t0)  # F.linear(weight (8, 4))`. What
    is told as a module of PyTorch's (`nn.LSTM`) is nothing that a call is given."""
    code, _, beside = line.told.partition("  #")
    found = set(_TENSOR.findall(code))
    called = {name for name in found if f"{name}(" in code and name.count(".") == 1}
    roles = [role for role in ("weight", "bias") if re.search(rf"\b{role}\b", beside)]
    is_whole = beside.strip().startswith("nn.")
    return found - called | {f"{name}.{role}" for name in called for role in (["()"] if is_whole else roles)}
