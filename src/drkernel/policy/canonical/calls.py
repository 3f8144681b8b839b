"""A call of one of PyTorch's functions in its one spelling: `F.relu(t0)`, `t0 * 2.0`, `torch.flatten(t0, 1)`.

Each is Python: the lines of a task in canonical form compute what the task computes.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
import torch.nn.functional as F

from drkernel.policy.canonical.arguments import Ref, bound, index_text, is_tensors, leaves, written

__all__ = ["ALIASES", "PUT", "SHAPED", "Call", "Ref", "called"]

ALIASES = "="
"""The name of a call that makes nothing new."""
PUT = "[]="
"""The name of a call that changes its first argument."""
SHAPED = ("reshape", "expand", "permute", "to", "unflatten", "flatten", "unsqueeze", "squeeze")
"""Calls that say what shape or type they make."""


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
    makes: str = ""
    """Of a module that is told whole: how its result is taken apart, with a place for each tensor."""
    asked: tuple[str, Any] = ("", None)
    """What was asked for and is not told. Of parts: the function that made them, and the number or sizes that it was
    given. Of a dropout that works: its name and its probability."""
    own: str = ""
    """A module without tensors that makes this call alone: its path, and from then on its name, when it has one."""

    @property
    def refs(self) -> list[Ref]:
        return [ref for ref in leaves([*self.tensors, *self.words.values()]) if isinstance(ref, Ref)]

    @property
    def has_numbers(self) -> bool:
        """Whether it is given numbers that may be others at other sizes."""
        words = [value for word, value in self.words.items() if word not in _DIMS]
        return any(type(leaf) in (int, float) for leaf in leaves([*self.tensors, *words]))

    @property
    def description(self) -> str:
        """The call in terms of the module that has its parameters: `F.conv2d(weight (8, 3, 3, 3), bias, stride=2)`."""
        words = [f"{name}={written(v)}" for name, v in self.words.items() if not isinstance(v, Ref)]
        held = [ref for ref in self.refs if ref.path and "running" not in ref.path]
        roles = [(ref.path.rpartition(".")[2], ref.shape) for ref in held]
        told = [f"{role} {shape}" if len(shape) > 1 or self._tells(shape) else role for role, shape in roles]
        return f"{_function(self.name)}({', '.join([*told, *words])})"

    def _tells(self, shape: tuple[int, ...]) -> bool:
        """Whether a parameter of one dimension may have other lengths: nothing else says so."""
        return self.name == "prelu" and shape != (1,)

    @property
    def text(self) -> str:
        given = [written(value) for value in self.tensors]
        if self.name == PUT:
            return f"{given[0]}[{index_text(self.words['index'])}] = {given[1]}"
        if self.infix:
            return f"{given[0]} {self.name} {given[1]}"
        if self.name == "[]":
            return f"{given[0]}[{index_text(self.words['index'])}]"
        if self.name == "-":
            return f"-{given[0]}"
        words = [f"{name}={written(value)}" for name, value in self.words.items()]
        if _is_method(self.name) or (self.name == "unfold" and "dimension" in self.words):
            return f"{given[0]}.{self.name}({', '.join([*given[1:], *words])})"
        return f"{_function(self.name)}({', '.join([*given, *words])})"


def called(func: Callable, args: Sequence[Any], words: Mapping[str, Any], made: Sequence[Ref]) -> Call:
    """The spelling of a call that made `made`. Tensors in `args` and `words` are `Ref`s."""
    name, args = _name(func), list(args)
    if name in ("max", "min") and len(args) == 2 and isinstance(args[1], Ref):
        name += "imum"
    if name in _SAME and (made[0].shape, made[0].dtype) == (args[0].shape, args[0].dtype):
        return Call(ALIASES, args[:1])
    special = _SPECIAL.get(name)
    found = special(func, args, words, made) if special else None
    return found or _infix(name, args, words) or _named(_OTHER_NAMES.get(name, name), func, args, words, made)


@functools.cache
def _name(func: Callable) -> str:
    """A function's name; `relu_` is `relu`."""
    name = getattr(func, "__name__", "")
    if name == "__get__":
        return str(func.__self__.__name__)  # type: ignore[attr-defined]
    name = name[:-1] if name.endswith("_") and not name.endswith("__") else name
    return {"_max_pool1d": "max_pool1d", "_softmax": "softmax", "_threshold": "threshold"}.get(name, name)


def _function(name: str) -> str:
    """A function with its module; `self.m0` as it is."""
    if name.startswith("self."):
        return name
    family, _, member = name.partition("_")
    if family in ("linalg", "fft") and hasattr(getattr(torch, family), member):
        return f"torch.{family}.{member}"
    return f"F.{name}" if name not in _OF_TORCH and hasattr(F, name) else f"torch.{name}"


@functools.cache
def _is_method(name: str) -> bool:
    """Whether a call is written as a method: most of these are no functions of a module."""
    known = name.startswith(("self.", "linalg_", "fft_")) or hasattr(torch, name) or hasattr(F, name)
    return name in _METHODS or not known


def _batch_norm(func: Callable, args: Sequence[Any], words: Mapping[str, Any], made: Sequence[Ref]) -> Call | None:
    """A norm by the statistics of its batch, since it has no others."""
    given = {word: value for word, value, _ in bound(func, "batch_norm", args, words)}
    if given.get("running_mean") is not None:
        return None
    rest = {word: given[word] for word in ("weight", "bias") if given.get(word) is not None}
    rest |= {"training": True} | ({"eps": given["eps"]} if "eps" in given else {})
    return Call("batch_norm", [given["input"], None, None], rest)


def _named(name: str, func: Callable, args: Sequence[Any], words: Mapping[str, Any], made: Sequence[Ref]) -> Call:
    """A call with its tensors first, as far as none is left out before them, and everything else by name, without what
    is the default."""
    tensors: list[Any] = []
    rest: dict[str, Any] = {}
    first = next((ref for ref in leaves(args) if isinstance(ref, Ref)), None)
    rank = (len(first.shape) if first else 0) + (name == "stack")
    tells_dtype = name in _MAKERS or (first is not None and {ref.dtype for ref in made} != {first.dtype})
    for word, value, place in bound(func, _OTHER_NAMES.get(_name(func), _name(func)), args, words):
        if word in _UNTOLD or value is None or (word == "dtype" and not tells_dtype):
            continue
        if word == "size" and type(value) is int and name.removeprefix("new_") in _MAKERS:
            value = [value]
        is_first = place == len(tensors) and not rest
        if is_first and (is_tensors(value) or name == "where" or re.fullmatch(r"a\d+", word)):
            tensors.append(value)
        else:
            rest[_WORDS.get(word, word)] = _argument(word, value, rank)
    return _tidied(name, tensors, rest)


def _tidied(name: str, tensors: list[Any], rest: dict[str, Any]) -> Call:
    """Functions that have several names, and numbers that stand for words."""
    if name.startswith("conv") and rest.get("padding") == "same" and all(k % 2 for k in tensors[1].shape[2:]):
        dilation = rest.get("dilation", 1)
        steps = dilation if isinstance(dilation, tuple) else [dilation] * len(tensors[1].shape[2:])
        sizes = [d * (k - 1) // 2 for d, k in zip(steps, tensors[1].shape[2:], strict=True)]
        rest["padding"] = sizes[0] if len(set(sizes)) == 1 else tuple(sizes)
    if name in ("clamp_min", "clamp_max"):
        tensors, rest, name = tensors[:1], {name[6:]: [*tensors[1:], *rest.values()][0]}, "clamp"
    if name == "clamp":
        rest = dict(zip(rest, _alike([*tensors, *rest.values()])[1:], strict=True))
    if name in ("var", "std") and rest.get("correction") == 1:
        del rest["correction"]  # the usual one
    if name == "linalg_vector_norm":
        name, rest = "norm", {{"ord": "p"}.get(word, word): value for word, value in rest.items()}
        if isinstance(rest.get("dim"), tuple) and len(rest["dim"]) > 2:
            rest = {"p": 2, **rest}
    return Call(name, tensors, rest)


def _argument(word: str, value: Any, rank: int) -> Any:
    """An argument as it is written: dimensions are counted from the front, equal numbers are said once."""
    if word in _DIMS:
        if isinstance(value, list):
            found = tuple(d + rank * (d < 0) for d in value)
            return found if word == "dims" else found[0] if len(found) == 1 else tuple(sorted(found))
        if isinstance(value, int):
            value = value + rank * (value < 0)
            return (value,) if word == "dims" else value
        return value
    if isinstance(value, list) and word in _ALIKE and len(set(map(str, value))) == 1:
        return value[0]
    return tuple(value) if isinstance(value, list) and not is_tensors(value) else value


def _infix(name: str, args: Sequence[Any], words: Mapping[str, Any]) -> Call | None:
    """A sign between two operands; where their order has no meaning, what was computed comes first."""
    if name not in _INFIX or len(args) + len(words) != 2:
        return None
    sign, turned = _INFIX[name]
    operands = [*args, *words.values()]
    operands = operands[::-1] if turned else operands
    if sign in "+*" and _comes_later(operands[0]) and not _comes_later(operands[1]):
        operands = operands[::-1]
    return Call(sign, _alike(operands) if sign != "**" else operands, infix=True)


def _comes_later(operand: Any) -> bool:
    return not isinstance(operand, Ref) or bool(operand.path)


def _alike(operands: Sequence[Any]) -> list[Any]:
    """Numbers as floats where the tensor has floats."""
    floats = any(isinstance(operand, Ref) and "float" in operand.dtype for operand in operands)
    return [float(o) if floats and type(o) is int and abs(o) < 2**24 else o for o in operands]


Special = Callable[[Callable, Sequence[Any], Mapping[str, Any], Sequence[Ref]], Call | None]


def _dropout(func: Callable, args: Sequence[Any], words: Mapping[str, Any], made: Sequence[Ref]) -> Call:
    given = dict(zip(("input", "p", "training"), args, strict=False)) | dict(words)
    name, rate = _name(func), given.get("p", 0.5)
    works = given.get("training", given.get("train", True)) and rate
    return Call(name, args[:1], {"training": True}, asked=(name, rate)) if works else Call(ALIASES, args[:1])


def _cast(func: Callable, args: Sequence[Any], words: Mapping[str, Any], made: Sequence[Ref]) -> Call:
    return Call("to", [args[0], getattr(torch, made[0].dtype, torch.int64)])


def _reshape(func: Callable, args: Sequence[Any], words: Mapping[str, Any], made: Sequence[Ref]) -> Call:
    return _reshaped(args[0], made[0].shape)


def _expand(func: Callable, args: Sequence[Any], words: Mapping[str, Any], made: Sequence[Ref]) -> Call:
    return Call("expand", [args[0], made[0].shape])


def _turn(func: Callable, args: Sequence[Any], words: Mapping[str, Any], made: Sequence[Ref]) -> Call:
    """Dimensions in another order."""
    probe = torch.empty(tuple(range(2, 2 + len(args[0].shape))), device="meta")
    with torch._C.DisableTorchFunction():
        order = tuple(size - 2 for size in func(probe, *args[1:], **words).shape)
    return Call("permute", [args[0], order]) if order != tuple(range(len(order))) else Call(ALIASES, args[:1])


def _element(func: Callable, args: Sequence[Any], words: Mapping[str, Any], made: Sequence[Ref]) -> Call:
    index = args[1] if isinstance(args[1], list) else [args[1]]
    if any(isinstance(i, Ref | list) or (i is not None and i not in (Ellipsis, slice(None))) for i in index):
        return Call("[]", [args[0]], {"index": index})
    return _reshaped(args[0], made[0].shape) if made[0].shape != args[0].shape else Call(ALIASES, args[:1])


def _put(func: Callable, args: Sequence[Any], words: Mapping[str, Any], made: Sequence[Ref]) -> Call:
    return Call(PUT, [args[0], args[2]], {"index": args[1] if isinstance(args[1], list) else [args[1]]})


def _parts(func: Callable, args: Sequence[Any], words: Mapping[str, Any], made: Sequence[Ref]) -> Call:
    """A tensor in parts along a dimension."""
    dim = words.get("dim", args[2] if len(args) > 2 else 0)
    dim = dim + len(args[0].shape) * (dim < 0)
    sizes = tuple(ref.shape[dim] for ref in made)
    asked = _name(func), args[1] if len(args) > 1 else next(v for w, v in words.items() if w != "dim")
    if len(set(sizes)) == 1:
        return Call("chunk", [args[0], len(made)], {"dim": dim}, asked=asked)
    return Call("split", [args[0], sizes], {"dim": dim}, asked=asked)


def _unbind(func: Callable, args: Sequence[Any], words: Mapping[str, Any], made: Sequence[Ref]) -> Call:
    given = {word: v for word, v, _ in bound(func, "unbind", args, words)} if _name(func) == "unbind" else {}
    return Call("unbind", args[:1], {"dim": given.get("dim", 0)})


def _einsum(func: Callable, args: Sequence[Any], words: Mapping[str, Any], made: Sequence[Ref]) -> Call:
    """With letters in the order of the alphabet; a product of matrices as one."""
    known: dict[str, str] = {}
    letters = "".join(known.setdefault(c, chr(97 + len(known))) if c.isalpha() else c for c in args[0] if c != " ")
    operands = args[1] if isinstance(args[1], list) else args[1:]
    product = _PRODUCT.fullmatch(letters)
    is_one = product and (len(product["right"]) == 2 or product["batch"] == product["right"][:-2])
    return Call("@", operands, infix=True) if is_one else Call("einsum", [letters, *operands])


def _tensor(func: Callable, args: Sequence[Any], words: Mapping[str, Any], made: Sequence[Ref]) -> Call:
    return Call("tensor", args[:1], {word: value for word, value in words.items() if word == "dtype"})


def _negative(func: Callable, args: Sequence[Any], words: Mapping[str, Any], made: Sequence[Ref]) -> Call:
    return Call("-", args[:1])


def _reshaped(tensor: Ref, shape: Sequence[int]) -> Call:
    """Another shape of the same elements, said so that it suits other sizes as well, where one step makes it."""
    before, after = list(tensor.shape), list(shape)
    first, last = _common(before, after), 0
    while last < min(len(before), len(after)) - first and before[-1 - last] == after[-1 - last]:
        last += 1
    old, new = before[first : len(before) - last], after[first : len(after) - last]
    if (old, new) in (([], [1]), ([1], [])):
        return Call("unsqueeze" if new else "squeeze", [tensor, first])
    if not new and first and all(size == 1 for size in old):
        first, old, new = first - 1, [before[first - 1], *old], [before[first - 1]]
    if len(new) == 1 and len(old) > 1:
        end = first + len(old) - 1
        return Call("flatten", [tensor, first, *([end] * (end != len(before) - 1))])
    if len(old) <= 1 < len(new) and sorted(new) == sorted([*old, *[1] * (len(new) - len(old))]):
        index = [slice(None) if old and size == old[0] else None for size in new]
        return Call("[]", [tensor], {"index": [*[slice(None)] * first, *index]})
    if len(old) == 1 and len(new) > 1:
        return Call("unflatten", [tensor, first, new])
    return Call("reshape", [tensor, tuple(shape)])


def _common(before: Sequence[int], after: Sequence[int]) -> int:
    """How many sizes two shapes begin with."""
    pairs = enumerate(zip(before, after, strict=False))
    return next((place for place, (one, other) in pairs if one != other), min(len(before), len(after)))


_PRODUCT = re.compile(
    r"(?P<batch>\w*)(?P<row>\w)(?P<inner>\w),(?P<right>\w*(?P=inner)(?P<column>\w))->(?P=batch)(?P=row)(?P=column)"
)
"""Letters of the product of a matrix, or of one for each of the first, and of another."""

_SPECIAL: dict[str, Special] = {
    name: special
    for special, names in {
        _dropout: "dropout dropout1d dropout2d dropout3d alpha_dropout feature_dropout feature_alpha_dropout",
        _cast: "float half bfloat16 to type type_as double int long bool",
        _reshape: "view reshape flatten unsqueeze squeeze unflatten view_as reshape_as ravel",
        _expand: "expand expand_as broadcast_to",
        _turn: "T mT t transpose permute swapaxes swapdims movedim moveaxis adjoint",
        _element: "__getitem__",
        _put: "__setitem__",
        _parts: "split chunk tensor_split split_with_sizes",
        _unbind: "unbind __iter__",
        _einsum: "einsum",
        _tensor: "tensor",
        _batch_norm: "batch_norm",
        _negative: "neg negative __neg__",
    }.items()
    for name in names.split()
}
"""Functions with spellings of their own."""
_SAME = frozenset(
    {
        *("contiguous", "clone", "detach", "requires_grad", "float", "half", "bfloat16", "to", "type", "type_as"),
        *("alias", "data", "view", "reshape", "flatten", "squeeze", "expand", "expand_as", "broadcast_to"),
        *("double", "cuda", "view_as", "reshape_as", "ravel", "identity", "positive", "__pos__"),
    }
)
"""Functions that make nothing new where shape and type stay."""
_INFIX: dict[str, tuple[str, bool]] = {
    name: (sign.removesuffix(" turned"), sign.endswith("turned"))
    for sign, names in {
        "+": "add __add__ __iadd__ __radd__",
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
        "- turned": "rsub __rsub__",
        "/ turned": "__rtruediv__ __rdiv__",
        "** turned": "__rpow__",
        "@ turned": "__rmatmul__",
    }.items()
    for name in names.split()
}
"""Signs of functions, and whether the operands are the other way round."""
_OTHER_NAMES = {
    **{"absolute": "abs", "__abs__": "abs", "clip": "clamp", "concat": "cat", "concatenate": "cat"},
    **{"__invert__": "logical_not", "bitwise_not": "logical_not", "log_sigmoid": "logsigmoid"},
    **{"special_expit": "sigmoid", "arccos": "acos", "arcsin": "asin", "arctan": "atan"},
}
_METHODS = {"expand", "to", "unflatten"}
"""Calls that are written as methods, beside those that are no functions."""
_OF_TORCH = {"tanh", "sigmoid", "bilinear"}
"""Functions that both modules have, and that people take from `torch`."""
_UNTOLD = frozenset(
    {
        *("inplace", "_stacklevel", "training", "momentum", "use_input_stats", "out", "layout", "device"),
        *("pin_memory", "requires_grad", "memory_format", "size_average", "generator", "return_indices"),
        *("cudnn_enabled",),
    }
)
"""Arguments that say nothing of what is computed."""
_MAKERS = {"zeros", "ones", "full", "arange", "linspace", "tensor", "empty", "eye", "sum", "cumsum", "mean", "softmax"}
_DIMS = {"dim", "dims", "dim0", "dim1", "axis", "start_dim", "end_dim", "axis0", "axis1"}
_ALIKE = {"stride", "padding", "dilation", "kernel_size", "output_padding", "output_size", "scale_factor"}
_WORDS = {"axis": "dim", "axes": "dims"}
