"""A call of one of PyTorch's functions in its one spelling: `relu(t0)`, `t0 * 2`, `reshape(t0, (8, 4096))`."""

from __future__ import annotations

import functools
import inspect
import math
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from types import EllipsisType
from typing import Any

import torch
import torch.nn.functional as F


@dataclass(eq=False)
class Ref:
    """A tensor: an input, a parameter, or what a call makes, which gets its name later."""

    name: str
    shape: tuple[int, ...]
    dtype: str
    path: str = ""
    """Where the module holds it, if it does."""


@dataclass
class Call:
    """A function and what it is given."""

    name: str
    tensors: Sequence[Any]
    """What it is given without a name: tensors, and lists of some."""
    words: Mapping[str, Any] = field(default_factory=dict)
    infix: bool = False
    module: str = ""
    """What the module does whose call this is; `name` is its path."""
    several: bool = False
    """Whether the result is a tuple."""

    @property
    def refs(self) -> list[Ref]:
        return [ref for ref in _leaves([*self.tensors, *self.words.values()]) if isinstance(ref, Ref)]

    @property
    def description(self) -> str:
        """The call in terms of the module that holds its parameters: `F.conv2d(weight (8, 3, 3, 3), bias, stride=2)`."""
        words = [f"{name}={written(v)}" for name, v in self.words.items() if not isinstance(v, Ref)]
        held = [ref for ref in self.refs if ref.path and "running" not in ref.path]
        roles = [(ref.path.rpartition(".")[2], ref.shape) for ref in held]
        roles_told = [f"{role} {shape}" if len(shape) > 1 else role for role, shape in roles]
        return f"{_function(self.name)}({', '.join([*roles_told, *words])})"

    @property
    def text(self) -> str:
        given = [written(value) for value in self.tensors]
        if self.name == PUT:
            return f"{given[0]}[{_index(self.words['index'])}] = {given[1]}"
        if self.infix:
            return f"{given[0]} {self.name} {given[1]}"
        if self.name == "[]":
            return f"{given[0]}[{_index(self.words['index'])}]"
        if self.name == "-":
            return f"-{given[0]}"
        if self.name in _METHODS:
            return f"{given[0]}.{self.name}({', '.join(given[1:])})"
        words = [f"{name}={written(value)}" for name, value in self.words.items()]
        return f"{_function(self.name)}({', '.join([*given, *words])})"


def _function(name: str) -> str:
    """A function with its module; `self.m0` as it is."""
    if name.startswith("self."):
        return name
    if name.startswith("linalg_"):
        return f"torch.linalg.{name.removeprefix('linalg_')}"
    return f"F.{name}" if name not in _OF_TORCH and hasattr(F, name) else f"torch.{name}"


ALIASES = "="
"""The name of a call that makes nothing new."""


PUT = "[]="
"""The name of a call that changes its first argument."""
SHAPED = ("reshape", "expand", "permute", "to", "unflatten", "flatten", "unsqueeze", "squeeze")
"""Calls that say what shape or type they make."""


def called(func: Callable, args: Sequence[Any], words: Mapping[str, Any], made: Sequence[Ref]) -> Call:
    """The spelling of a call that made `made`. Tensors in `args` and `words` are `Ref`s."""
    name = _name(func)
    args = list(args)
    if name == "einsum":
        operands = args[1] if isinstance(args[1], list) else args[1:]
        return Call(name, [_letters(args[0]), *operands])
    if name in ("max", "min") and len(args) == 2 and isinstance(args[1], Ref):
        name += "imum"
    if name in _SAME and (made[0].shape, made[0].dtype) == (args[0].shape, args[0].dtype):
        return Call(ALIASES, args[:1])
    if name in _DROPPED:
        return Call(ALIASES, args[:1]) if not _training(func, args, words) else Call(name, args[:1], {"training": True})
    if name in _CASTS:
        return Call("to", [args[0], getattr(torch, made[0].dtype, torch.int64)])
    if name in _RESHAPES:
        return _reshaped(args[0], made[0].shape)
    if name in _TURNS and (order := _order(func, args, words)):
        turned = order != tuple(range(len(order)))
        return Call("permute", [args[0], order]) if turned else Call(ALIASES, args[:1])
    if name in ("expand", "expand_as", "broadcast_to"):
        return Call("expand", [args[0], made[0].shape])
    if name == "__getitem__":
        index = args[1] if isinstance(args[1], list) else [args[1]]
        if all(i is None or i in (Ellipsis, slice(None)) for i in index if not isinstance(i, Ref | list)) and not any(
            isinstance(i, Ref | list) for i in index
        ):
            return _reshaped(args[0], made[0].shape) if made[0].shape != args[0].shape else Call(ALIASES, args[:1])
        return Call("[]", [args[0]], {"index": index})
    if name == "__setitem__":
        index = args[1] if isinstance(args[1], list) else [args[1]]
        return Call(PUT, [args[0], args[2]], {"index": index})
    if name in ("split", "chunk", "tensor_split", "split_with_sizes"):
        return _parts(func, args, words, made)
    if name in ("unbind", "__iter__"):
        bound = dict(_bound(func, args, words)) if name == "unbind" else {}
        return Call("unbind", args[:1], {"dim": bound.get("dim", 0)})
    if name in _INFIX and len(args) + len(words) == 2:
        sign, reversed_ = _INFIX[name]
        operands = [*args, *words.values()]
        operands = operands[::-1] if reversed_ else operands
        if sign in "+*" and _comes_later(operands[0]) and not _comes_later(operands[1]):
            operands = operands[::-1]
        return Call(sign, _alike(operands) if sign != "**" else operands, infix=True)
    if name in ("neg", "__neg__", "negative"):
        return Call("-", args[:1])
    return _named(_OTHER_NAMES.get(name, name), func, args, words)


def _reshaped(tensor: Ref, shape: Sequence[int]) -> Call:
    """Another shape of the same elements, said so that it suits other sizes as well, where one step makes it."""
    before, after = list(tensor.shape), list(shape)
    first = 0
    while first < min(len(before), len(after)) and before[first] == after[first]:
        first += 1
    last = 0
    while last < min(len(before), len(after)) - first and before[-1 - last] == after[-1 - last]:
        last += 1
    old, new = before[first : len(before) - last], after[first : len(after) - last]
    if not old and new == [1]:
        return Call("unsqueeze", [tensor, first])
    if old == [1] and not new:
        return Call("squeeze", [tensor, first])
    if not new and first and all(size == 1 for size in old):
        first, old, new = first - 1, [before[first - 1], *old], [before[first - 1]]
    if len(new) == 1 and len(old) > 1:
        end = first + len(old) - 1
        return Call("flatten", [tensor, first, *([end] * (end != len(before) - 1))])
    if len(old) == 1 and len(new) > 1 and sorted(new) == sorted([*old, *[1] * (len(new) - 1)]):
        index = [slice(None) if size == old[0] else None for size in [*before[:first], *new]]
        return Call("[]", [tensor], {"index": [*[slice(None)] * first, *index[first:]]})
    if len(old) == 1 and len(new) > 1:
        return Call("unflatten", [tensor, first, new])
    if not old and all(size == 1 for size in new):
        index = [slice(None)] * first + [None] * len(new)
        return Call("[]", [tensor], {"index": index})
    return Call("reshape", [tensor, tuple(shape)])


def _comes_later(operand: Any) -> bool:
    """Whether an operand stands behind what was computed, where the order has no meaning."""
    return not isinstance(operand, Ref) or bool(operand.path)


def _alike(operands: Sequence[Any]) -> list[Any]:
    """Numbers as floats where the tensor has floats."""
    floats = any(isinstance(operand, Ref) and "float" in operand.dtype for operand in operands)
    return [float(o) if floats and type(o) is int and abs(o) < 2**24 else o for o in operands]


def _named(name: str, func: Callable, args: Sequence[Any], words: Mapping[str, Any]) -> Call:
    """A call with its tensors first and everything else by name, without what is the default."""
    tensors: list[Any] = []
    rest: dict[str, Any] = {}
    rank = next((len(ref.shape) for ref in _leaves(args) if isinstance(ref, Ref)), 0) + (name == "stack")
    for word, value in _bound(func, args, words):
        if word in _UNTOLD or value is None or (word == "dtype" and name not in _MAKERS):
            continue
        if not rest and (_is_tensors(value) or re.fullmatch(r"a\d+", word)):
            tensors.append(value)
        else:
            rest[_WORDS.get(word, word)] = _number_of(word, value, rank)
    if name.startswith("conv") and rest.get("padding") == "same" and all(k % 2 for k in tensors[1].shape[2:]):
        dilation = rest.get("dilation", 1)
        steps = dilation if isinstance(dilation, tuple) else [dilation] * len(tensors[1].shape[2:])
        sizes = [d * (k - 1) // 2 for d, k in zip(steps, tensors[1].shape[2:], strict=True)]
        rest["padding"] = sizes[0] if len(set(sizes)) == 1 else tuple(sizes)
    if name == "tensor":
        return Call(name, list(args[:1]), {word: value for word, value in words.items() if word == "dtype"})
    if name in ("clamp_min", "clamp_max"):
        tensors, rest, name = tensors[:1], {name[6:]: [*tensors[1:], *rest.values()][0]}, "clamp"
    if name == "clamp":
        rest = dict(zip(rest, _alike([*tensors, *rest.values()])[1:], strict=True))
    if name == "linalg_vector_norm":
        name, rest = "norm", {{"ord": "p"}.get(word, word): value for word, value in rest.items()}
        if isinstance(rest.get("dim"), tuple) and len(rest["dim"]) > 2:
            rest = {"p": 2, **rest}
    return Call(name, tensors, rest)


def _number_of(word: str, value: Any, rank: int) -> Any:
    """An argument as it is written: dimensions are counted from the front, equal numbers are said once."""
    if word in _DIMS:
        if isinstance(value, list):
            found = tuple(d + rank * (d < 0) for d in value)
            return found if word == "dims" else found[0] if len(found) == 1 else tuple(sorted(found))
        if word == "dims" and isinstance(value, int):
            value = value + rank * (value < 0)
            return (value,)
        return value + rank * (value < 0) if isinstance(value, int) else value
    if isinstance(value, list) and word in _ALIKE and len(set(map(str, value))) == 1:
        return value[0]
    return tuple(value) if isinstance(value, list) and not _is_tensors(value) else value


def _bound(func: Callable, args: Sequence[Any], words: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    """(name, value) of the arguments that are given and are not the default, in the function's order."""
    if (signature := _signature(func)) is not None:
        try:
            found = signature.bind(*args, **words).arguments
        except TypeError:
            found = {f"a{place}": value for place, value in enumerate(args)} | dict(words)
        for word, value in found.items():
            parameter = signature.parameters.get(word)
            if parameter is not None and parameter.kind is inspect.Parameter.VAR_POSITIONAL:
                yield word, list(value)
            elif parameter is None or not _same(value, parameter.default):
                yield word, value
        return
    args = args[: next((k for k in range(len(args), 0, -1) if args[k - 1] is not None), 0)]
    words = {word: value for word, value in words.items() if word != "return_indices" and value is not None}
    for schema in _schemas(_OTHER_NAMES.get(_name(func), _name(func))):
        if (bound := _fitted(schema, args, words)) is not None:
            for argument in schema.arguments:
                if argument.name in bound:
                    value = bound[argument.name]
                    if not (argument.has_default_value() and _same(value, argument.default_value)):
                        yield ("input" if argument.name == "self" else argument.name), value
            return
    yield from ((f"a{place}", value) for place, value in enumerate(args))
    yield from words.items()


def _same(value: Any, default: Any) -> bool:
    """Whether an argument is the default; a number stands for a list of equal ones."""
    if isinstance(value, Ref) or _is_tensors(value):
        return False
    if isinstance(value, list) and not isinstance(default, list | tuple):
        return bool(value) and all(_same(part, default) for part in value)
    if isinstance(default, list | tuple) and not isinstance(value, list):
        return bool(default) and all(_same(value, part) for part in default)
    if isinstance(value, list) and isinstance(default, list | tuple):
        return len(value) == len(default) and all(map(_same, value, default))
    both_numbers = isinstance(value, int | float) and isinstance(default, int | float)
    alike = type(value) is type(default) or (both_numbers and bool not in (type(value), type(default)))
    return alike and bool(value == default)


def _fitted(schema: Any, args: Sequence[Any], words: Mapping[str, Any]) -> dict[str, Any] | None:
    """The arguments by name, where they fit this overload."""
    found: dict[str, Any] = {}
    left = list(args)
    for place, argument in enumerate(schema.arguments):
        kind = str(argument.type)
        name = argument.name
        if left and not argument.kwarg_only:
            several = schema.name.removeprefix("aten::") in _VARIADIC and "List[int]" in kind and len(left) > 1
            several = several and all(isinstance(part, int) and not isinstance(part, bool) for part in left)
            value = list(left) if several else left[0]
            left = [] if several else left[1:]
        else:
            other = {"input": "self", "self": "input", "dim": "axis"}.get(name, name)
            if name not in words and other not in words:
                if not argument.has_default_value():
                    return None
                continue
            value = words[name if name in words else other]
        if not _is_of(value, kind):
            return None
        found[name] = value
    given = sum(word in found or {"input": "self", "axis": "dim"}.get(word) in found for word in words)
    return found if not left and given == len(words) else None


def _is_of(value: Any, kind: str) -> bool:
    """Whether a value may be given for an argument of this type."""
    if value is None:
        return kind.startswith("Optional")
    kind = kind.removeprefix("Optional[").removesuffix("]") if kind.startswith("Optional") else kind
    if isinstance(value, Ref):
        return kind == "Tensor"
    if isinstance(value, bool):
        return kind in ("bool", "number", "Scalar")
    if isinstance(value, int):
        return kind in ("int", "float", "number", "Scalar", "List[int]", "List[float]")
    if isinstance(value, float):
        return kind in ("float", "number", "Scalar")
    if isinstance(value, list):
        return kind.startswith("List[Tensor]") if _is_tensors(value) else kind.startswith(("List", "int["))
    if isinstance(value, str):
        return kind == "str"
    return kind not in ("Tensor", "bool", "List[int]", "str")


@functools.cache
def _schemas(name: str) -> list[Any]:
    return torch._C._jit_get_schemas_for_operator(f"aten::{name}")


@functools.cache
def _signature(func: Callable) -> inspect.Signature | None:
    """Of a function that is written in Python."""
    if not inspect.isfunction(func):
        return None
    found = inspect.signature(func)
    return found if any(p.kind is p.POSITIONAL_OR_KEYWORD for p in found.parameters.values()) else None


@functools.cache
def _name(func: Callable) -> str:
    name = getattr(func, "__name__", "")
    if name == "__get__":
        return func.__self__.__name__  # type: ignore[attr-defined]
    name = name[:-1] if name.endswith("_") and not name.endswith("__") else name
    return {"_max_pool1d": "max_pool1d", "_softmax": "softmax"}.get(name, name)


def _training(func: Callable, args: Sequence[Any], words: Mapping[str, Any]) -> bool:
    """Whether a dropout does something."""
    bound = dict(zip(("input", "p", "training"), args, strict=False)) | dict(words)
    return bool(bound.get("training", bound.get("train", True)) and bound.get("p", 0.5))


def _order(func: Callable, args: Sequence[Any], words: Mapping[str, Any]) -> tuple[int, ...]:
    """The order of dimensions that a function leaves."""
    probe = torch.empty(tuple(range(2, 2 + len(args[0].shape))), device="meta")
    with torch._C.DisableTorchFunction():
        left = func(probe, *args[1:], **words)
    return tuple(size - 2 for size in left.shape)


def _parts(func: Callable, args: Sequence[Any], words: Mapping[str, Any], made: Sequence[Ref]) -> Call:
    """A tensor in parts along a dimension."""
    given = [*args[1:], *words.values()]
    dim = words.get("dim", args[2] if len(args) > 2 else 0)
    rank = len(args[0].shape)
    dim = dim + rank * (dim < 0) if given and isinstance(dim, int) else 0
    sizes = [ref.shape[dim] for ref in made]
    if len(set(sizes)) == 1:
        return Call("chunk", [args[0], len(made)], {"dim": dim})
    return Call("split", [args[0], tuple(sizes)], {"dim": dim})


def _letters(equation: str) -> str:
    """An equation of `einsum` with letters in the order of the alphabet."""
    known: dict[str, str] = {}
    return "".join(known.setdefault(c, chr(97 + len(known))) if c.isalpha() else c for c in equation if c != " ")


def _is_tensors(value: Any) -> bool:
    return isinstance(value, Ref) or (isinstance(value, list) and bool(value) and all(isinstance(v, Ref) for v in value))


def _leaves(value: Any) -> Iterator[Any]:
    if isinstance(value, Mapping):
        value = list(value.values())
    if isinstance(value, list | tuple):
        for part in value:
            yield from _leaves(part)
    elif isinstance(value, slice):
        yield from (value.start, value.stop, value.step)
    else:
        yield value


def written(value: Any) -> str:
    """A value in a call."""
    match value:
        case Ref():
            return value.name
        case bool() | None:
            return str(value)
        case float():
            return _float(value)
        case torch.dtype():
            return str(value)
        case list() | tuple():
            return f"({', '.join(map(written, value))}{',' * (len(value) == 1)})"
        case slice() | EllipsisType():
            return _index([value])
    return repr(value)


def _float(value: float) -> str:
    if not math.isfinite(value):
        return f'float("{value}")'
    text = repr(value)
    return text if len(text) <= 8 else repr(float(f"{value:.6g}"))


def _index(index: Any) -> str:
    """What stands between brackets."""
    found = []
    for part in index:
        if isinstance(part, slice):
            ends = ["" if end is None else written(end) for end in (part.start, part.stop)]
            found.append(":".join(ends) + (f":{written(part.step)}" if part.step not in (None, 1) else ""))
        else:
            found.append("..." if part is Ellipsis else written(part))
    return ", ".join(found)


_SAME = {"contiguous", "clone", "detach", "requires_grad", "float", "half", "bfloat16", "to", "type", "type_as", "alias"}
_SAME |= {"data", "view", "reshape", "flatten", "squeeze", "expand", "expand_as", "broadcast_to", "double", "cuda"}
_SAME |= {"view_as", "reshape_as", "ravel", "identity", "positive", "__pos__"}
"""Functions that make nothing new where shape and type stay."""
_VARIADIC = {"permute", "repeat", "flip", "tile", "zeros", "ones", "empty", "rand", "randn", "new_zeros", "new_ones"}
"""Functions that take numbers one by one where they want a list."""
_METHODS = {"expand", "to", "unflatten"}
"""Calls that are written as methods."""
_OF_TORCH = {"tanh", "sigmoid", "bilinear", "unfold"}
"""Functions that both modules have, and that people take from `torch`."""
_DROPPED = {"dropout", "dropout1d", "dropout2d", "dropout3d", "alpha_dropout", "feature_dropout", "feature_alpha_dropout"}
_CASTS = {"float", "half", "bfloat16", "to", "type", "type_as", "double", "int", "long", "bool"}
_RESHAPES = {"view", "reshape", "flatten", "unsqueeze", "squeeze", "unflatten", "view_as", "reshape_as", "ravel"}
_TURNS = {"T", "mT", "t", "transpose", "permute", "swapaxes", "swapdims", "movedim", "moveaxis", "adjoint"}
_INFIX: dict[str, tuple[str, bool]] = {}
for _sign, _names in {
    "+": "add __add__ __iadd__",
    "-": "sub subtract __sub__ __isub__",
    "*": "mul multiply __mul__ __imul__ __rmul__",
    "/": "div divide true_divide __truediv__ __div__ __itruediv__ __idiv__",
    "//": "floor_divide __floordiv__",
    "%": "remainder __mod__",
    "**": "pow __pow__ __ipow__ float_power",
    "@": "matmul mm bmm mv __matmul__ __imatmul__",
    ">": "gt greater __gt__",
    "<": "lt less __lt__",
    ">=": "ge greater_equal __ge__",
    "<=": "le less_equal __le__",
    "==": "eq __eq__",
    "!=": "ne not_equal __ne__",
    "&": "logical_and bitwise_and __and__ __iand__ __rand__",
    "|": "logical_or bitwise_or __or__ __ior__ __ror__",
}.items():
    _INFIX |= dict.fromkeys(_names.split(), (_sign, False))
_INFIX |= {"__radd__": ("+", False), "__rsub__": ("-", True), "rsub": ("-", True), "__rtruediv__": ("/", True)}
_INFIX |= {"__rdiv__": ("/", True), "__rpow__": ("**", True), "__rmatmul__": ("@", True)}
_OTHER_NAMES = {"absolute": "abs", "__abs__": "abs", "clip": "clamp", "__invert__": "logical_not", "bitwise_not": "logical_not"}
_OTHER_NAMES |= {"log_sigmoid": "logsigmoid", "greater": "gt", "concat": "cat", "concatenate": "cat", "special_expit": "sigmoid", "amax": "amax"}
_OTHER_NAMES |= {"maximum": "maximum", "arccos": "acos", "arcsin": "asin", "arctan": "atan"}
_UNTOLD = {"inplace", "_stacklevel", "training", "momentum", "use_input_stats", "out", "layout", "device", "pin_memory"}
_UNTOLD |= {"requires_grad", "memory_format", "size_average", "reduce", "generator", "return_indices", "cudnn_enabled"}
_MAKERS = {"zeros", "ones", "full", "arange", "linspace", "tensor", "empty", "eye", "sum", "cumsum", "mean", "softmax"}
_DIMS = {"dim", "dims", "dim0", "dim1", "axis", "start_dim", "end_dim", "axis0", "axis1"}
_ALIKE = {"stride", "padding", "dilation", "kernel_size", "output_padding", "output_size", "scale_factor"}
_WORDS = {"axis": "dim", "axes": "dims"}
