"""Calls without the sizes of one set of inputs: what a line of the reference computes at other sizes, too.

    torch.reshape(t0, (16, 512, 8, 64))   ->   torch.reshape(t0, (t0.shape[0], t0.shape[1], 8, -1))
    t2 / 8.0                              ->   t2 / t0.shape[-1] ** 0.5     where t2 = t0 @ t1

What a size stands for is guessed from where the same number stands in the call's tensors and in the inputs. A policy
reads the numbers, but for factors, which kernels have to take over; the guesses are for submissions, which the judge
tries at several sizes.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence, Set
from typing import Any

from drkernel.policy.canonical.arguments import Ref
from drkernel.policy.canonical.calls import Call

_MAKERS = ("zeros", "ones", "full", "arange", "empty")


@dataclasses.dataclass(frozen=True)
class Size:
    """A size as an expression; `repr` is how it is written."""

    text: str

    def __repr__(self) -> str:
        return self.text


def general(
    call: Call,
    inputs: Sequence[Ref],
    numbers: Mapping[int, str],
    makers: Mapping[int, Call],
    literals: Set[float] = frozenset(),
    values: Sequence[Ref] = (),
) -> Call:
    """The call with sizes as expressions.

    Args:
        call: its tensors have their names.
        inputs: of `forward`.
        numbers: the names of whole numbers that the module holds.
        makers: the call that made a value, by `id` of its `Ref`.
        values: that were made before, the last one first.
        literals: numbers that the source has as they are, so that no factor of that value follows from a size.
    """
    tensors, words = list(call.tensors), dict(call.words)
    match call.name:
        case "reshape":
            tensors[1] = _reshaped(tensors[0], tensors[1], inputs, numbers)
        case "unflatten":
            tensors[2] = _split(list(tensors[2]), inputs if tensors[1] == 0 else (), numbers)
        case "expand":
            old = (0,) * (len(tensors[1]) - len(tensors[0].shape)) + tuple(tensors[0].shape)
            sizes = zip(old, tensors[1], strict=True)
            tensors[1] = [-1 if a == b else _of_input(b, inputs, place) for place, (a, b) in enumerate(sizes)]
        case "layer_norm" if "normalized_shape" in words:
            words["normalized_shape"] = Size(f"{tensors[0].name}.shape[-{len(words['normalized_shape'])}:]")
        case "[]":
            words["index"] = [_sliced(part, tensors[0], place, inputs) for place, part in enumerate(words["index"])]
        case "narrow":
            words["length"] = _narrowed(tensors[0], words, inputs)
        case "*" | "/" if call.infix:
            tensors = [_factor(tensors, place, makers, literals) for place in range(2)]
        case name if name in _MAKERS:
            rows = [ref for ref in values if call.name == "arange" and ref.shape[-1:] == (words.get("end"),)]
            known = [*inputs, *values]
            tensors = [_given(value, known) for value in tensors]
            words = {word: _given(v, known) if word in ("size", "end") else v for word, v in words.items()}
            words |= {"end": Size(f"{rows[0].name}.shape[-1]")} if rows else {}
    return dataclasses.replace(call, tensors=tensors, words=words)


def _reshaped(tensor: Ref, shape: Sequence[int], inputs: Sequence[Ref], numbers: Mapping[int, str]) -> list[Any]:
    """The sizes that both shapes begin and end with, and between them one that follows from the others."""
    old, new = list(tensor.shape), list(shape)
    most = min(len(old), len(new))
    first = next((k for k in range(most) if old[k] != new[k]), most)
    last = next((k for k in range(most - first) if old[-1 - k] != new[-1 - k]), most - first)
    middle = new[first : len(new) - last]
    name = tensor.name
    ends = [Size(f"{name}.shape[{place}]") for place in range(first)]
    behind = [Size(f"{name}.shape[-{place}]") for place in range(last, 0, -1)]
    return [*ends, *_split(middle, () if first else inputs, numbers), *behind]


def _split(sizes: list[int], inputs: Sequence[Ref], numbers: Mapping[int, str]) -> list[Any]:
    """Sizes that replace others: a batch first, numbers of the module, and one that is left over."""
    found: list[Any] = [Size(f"self.{numbers[size]}") if size in numbers else size for size in sizes]
    if inputs and sizes and sizes[0] == inputs[0].shape[0]:
        found[0] = Size(f"{inputs[0].name}.shape[0]")
    unknown = [place for place, size in enumerate(found) if not isinstance(size, Size)]
    if found:
        found[unknown[-1] if unknown else -1] = -1
    return found


def _of_input(size: int, inputs: Sequence[Ref], place: int | None = None) -> Any:
    """A size of an input that is this number, at this place, or behind the batch; the number where there is none."""
    found = [(ref, k) for ref in inputs for k, other in enumerate(ref.shape) if other == size and size > 1]
    if not found:
        return size
    ref, k = min(found, key=lambda at: (at[1] != place, at[1] == 0, at[1]))
    return Size(f"{ref.name}.shape[{k}]")


def _narrowed(tensor: Ref, words: Mapping[str, Any], inputs: Sequence[Ref]) -> Any:
    """The length of an input, or what is left without the last few elements."""
    length = _of_input(words["length"], inputs, words["dim"])
    left = tensor.shape[words["dim"]] - words["length"]
    if isinstance(length, Size) or words.get("start", 0) or not 0 < left < 4:
        return length
    return Size(f"{tensor.name}.shape[{words['dim']}] - {left}")


def _given(value: Any, inputs: Sequence[Ref]) -> Any:
    if isinstance(value, list | tuple):
        return [_of_input(part, inputs) if type(part) is int else part for part in value]
    return _of_input(value, inputs) if type(value) is int else value


def _sliced(part: Any, tensor: Ref, place: int, inputs: Sequence[Ref]) -> Any:
    """Halves of a dimension, and what is as long as an input."""
    if not isinstance(part, slice):
        return part

    def end(value: Any) -> Any:
        if type(value) is not int or value <= 1:
            return value
        if place < len(tensor.shape) and 2 * value == tensor.shape[place]:
            return Size(f"{tensor.name}.shape[{place}] // 2")
        return _of_input(value, inputs) if tensor.path else value

    return slice(end(part.start), end(part.stop), part.step)


def _factor(operands: Sequence[Any], place: int, makers: Mapping[int, Call], literals: Set[float]) -> Any:
    """A factor that is the root of a dimension, as attention has it, or the size that a mean written out divides by."""
    value, other = operands[place], operands[1 - place]
    if type(value) is not float or not isinstance(other, Ref) or value <= 0 or value in literals:
        return value
    maker = makers.get(id(other))
    if maker and maker.name == "sum" and isinstance(dim := maker.words.get("dim"), int):
        summed = maker.tensors[0]
        return Size(f"{summed.name}.shape[{dim}]") if summed.shape[dim] == value else value
    joined = maker.refs[0] if maker and maker.name in ("@", "einsum") else other
    width = joined.shape[-1] if joined.shape else 0
    for power in (0.5, -0.5):
        if width > 3 and abs(value - width**power) < 1e-5 * value:
            return Size(f"{joined.name}.shape[-1] ** {power}")
    return value
