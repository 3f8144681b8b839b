"""Calls without the sizes of one set of inputs: what a line of the reference computes at other sizes, too.

    torch.reshape(t0, (16, 512, 8, 64))   ->   torch.reshape(t0, (t0.shape[0], t0.shape[1], 8, -1))
    t2 / 8.0                              ->   t2 / t0.shape[-1] ** 0.5     where t2 = t0 @ t1
    t2.unflatten(2, (96, 72))             ->   t2.unflatten(2, (t0.shape[2], -1))     where t2 is made of t0

What a size stands for is guessed from where the same number stands in the call's tensors and in the inputs. A policy
reads the numbers, but for factors, which kernels have to take over; the guesses are for submissions, which the judge
tries at several sizes.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterator, Mapping, Sequence
from math import prod
from typing import Any

from drkernel.policy.canonical.arguments import Ref
from drkernel.policy.canonical.calls import Call
from drkernel.policy.canonical.literals import MAKERS, Literals

POWERS = (0.5, -0.5, -1, 0.25, -0.25)
"""Of a size, that are factors; the last two where both sides of a product have one."""
LEAST_CUT = 2
"""Dimensions in which a tensor must be cut to the size of a value; one is so by chance."""
LEAST_COUNT = 64
"""The least number that is taken for a product of sizes; smaller ones are equal by chance."""


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
    literals: Literals,
    values: Sequence[Ref],
) -> Call:
    """The call with sizes as expressions.

    Args:
        call: its tensors have their names.
        inputs: of `forward`.
        numbers: the names of whole numbers that the module holds.
        makers: the call that made a value, by `id` of its `Ref`.
        values: that were made before, the last one first.
        literals: of the source.
    """
    name, tensors, words = call.name, list(call.tensors), dict(call.words)
    match name:
        case "reshape":
            tensors[1] = _reshaped(tensors[0], tensors[1], inputs, numbers, makers, literals)
        case "unflatten":
            found = _split(list(tensors[2]), inputs if tensors[1] == 0 else (), numbers, literals)
            tensors[2] = _as_before(found, tensors[2], tensors[1], tensors[0], makers, literals)
        case "expand":
            tensors[1] = _as_wide(_widened(tensors[0], tensors[1], -1, inputs, Literals()), tensors[1], values)
        case "repeat" if isinstance(words.get("repeats"), list | tuple):
            words["repeats"] = _widened(tensors[0], words["repeats"], None, inputs, literals)
        case "chunk" | "split":
            name, tensors[1] = _parts(call, tensors[0], numbers, literals)
        case "group_norm" | "conv1d" | "conv2d" | "conv3d":
            words |= _groups(tensors[0], words, numbers, literals)
        case "repeat_interleave" if type(words.get("repeats")) is int and "dim" in words:
            words["repeats"] = _repeats(tensors[0], words["repeats"], words["dim"], numbers, literals)
        case "layer_norm" if "normalized_shape" in words:
            words["normalized_shape"] = Size(f"{tensors[0].name}.shape[-{len(words['normalized_shape'])}:]")
        case "[]":
            index = words["index"]
            behind = len(tensors[0].shape) - len(index) if Ellipsis in index[:1] and None not in index else 0
            like = _as_cut(tensors[0], index, behind, [*inputs, *values], literals)
            words["index"] = [
                _sliced(part, tensors[0], place + behind, inputs, like) for place, part in enumerate(index)
            ]
        case "narrow":
            words["length"] = _narrowed(tensors[0], words, inputs)
        case "*" | "/" if call.infix:
            tensors = [_factor(tensors, place, makers, literals, inputs) for place in range(2)]
        case _ if name in MAKERS:
            tensors = [_given(value, inputs, literals, values) for value in tensors]
            words = _of_maker(name, words, inputs, values, literals)
    return dataclasses.replace(call, name=name, tensors=tensors, words=words)


def own(call: Call) -> Call | None:
    """The call as it is at all sizes, where nothing has to be guessed: that of a module, or of a dropout, which is told
    without its probability."""
    if call.own:
        return Call(call.own, call.refs, module=call.own)
    if "dropout" in call.name and not call.module:
        return dataclasses.replace(call, words={"p": call.asked[1], **call.words})
    return None


def without_window(call: Call, numbers: Mapping[int, str], literals: Literals) -> Call:
    """A pool of whole planes as a reduction, where nothing gives their size as a number: it is another at others."""
    kind = re.fullmatch(r"(max|avg)_pool([123])d", "" if call.module else call.name)
    if not kind or call.words.keys() - {"kernel_size"}:
        return call
    tensor, size, *more = [*call.tensors, *call.words.values()]
    rank = int(kind[2])
    sizes = (size,) * rank if type(size) is int else tuple(size)
    if more or sizes != tensor.shape[-rank:] or set(sizes) & (literals.pooled | numbers.keys()):
        return call
    dims = tuple(range(len(tensor.shape) - rank, len(tensor.shape)))
    words = {"dim": dims if rank > 1 else dims[0], "keepdim": True}
    return Call("amax" if kind[1] == "max" else "mean", [tensor], words)


def _widened(
    tensor: Ref, sizes: Sequence[int], kept: int | None, inputs: Sequence[Ref], literals: Literals
) -> list[Any]:
    """Sizes or times, by dimension, by which a tensor becomes larger: those of inputs where it has one element. `kept`
    stands for a size that is the tensor's own; None: they are times."""
    old = (1 if kept is None else 0,) * (len(sizes) - len(tensor.shape)) + tuple(tensor.shape)
    wide = _given(list(sizes), inputs, literals)
    if kept is None:
        return [new if size == 1 else given for size, given, new in zip(old, sizes, wide, strict=True)]
    return [kept if size == given else new for size, given, new in zip(old, sizes, wide, strict=True)]


def _as_wide(found: list[Any], sizes: Sequence[int], values: Sequence[Ref]) -> list[Any]:
    """The sizes, where some are numbers yet, of a value that has all of them: `expand_as` of one that is no input."""
    like = next((ref for ref in values if tuple(ref.shape) == tuple(sizes)), None)
    is_number = [type(size) is int and size > 1 for size in found]
    return [Size(f"{like.name}.shape[{k}]") if like and is_number[k] else size for k, size in enumerate(found)]


def _of_maker(
    name: str, words: Mapping[str, Any], inputs: Sequence[Ref], values: Sequence[Ref], literals: Literals
) -> dict[str, Any]:
    """The arguments of a call that makes a tensor: a range is as long as the rows of a value, or counts from 1."""
    sizes = ("size", "end", "n", "m")
    found = {word: _given(v, inputs, literals, values) if word in sizes else v for word, v in words.items()}
    if name == "arange":
        rows = [ref for ref in values if ref.shape[-1:] == (words.get("end"),)]
        found |= {"end": Size(f"{rows[0].name}.shape[-1]")} if rows else {}
        if words.get("start") == 1 and type(found["end"]) is int:
            last = _given(words["end"] - 1, inputs, literals, values)
            found |= {"end": Size(f"{last} + 1")} if isinstance(last, Size) else {}
    return found


def _reshaped(
    tensor: Ref,
    shape: Sequence[int],
    inputs: Sequence[Ref],
    numbers: Mapping[int, str],
    makers: Mapping[int, Call],
    literals: Literals,
) -> list[Any]:
    """The sizes that both shapes begin and end with, and between them one that follows from the others."""
    old, new = list(tensor.shape), list(shape)
    most = min(len(old), len(new))
    first = next((k for k in range(most) if old[k] != new[k]), most)
    last = next((k for k in range(most - first) if old[-1 - k] != new[-1 - k]), most - first)
    middle = new[first : len(new) - last]
    name = tensor.name
    ends = [Size(f"{name}.shape[{place}]") for place in range(first)]
    behind = [Size(f"{name}.shape[-{place}]") for place in range(last, 0, -1)]
    found = _split(middle, () if first else inputs, numbers, literals)
    found = _as_before(found, middle, first, tensor, makers, literals)
    joined = _joined(tensor, first, middle)
    return [
        *ends,
        *(joined.get(k, size) if _is_open(size, literals) else size for k, size in enumerate(found)),
        *behind,
    ]


def _joined(tensor: Ref, first: int, sizes: Sequence[int]) -> dict[int, Size]:
    """The sizes, by place, that are products of dimensions side by side; none where some are not."""
    found: dict[int, Size] = {}
    place = first
    for k, size in enumerate(sizes):
        end, number = place, 1
        while number < size and end < len(tensor.shape):
            number, end = number * tensor.shape[end], end + 1
        if number != size or end == place:
            return {}
        found[k] = Size(" * ".join(f"{tensor.name}.shape[{dim}]" for dim in range(place, end)))
        place = end
    return found


def _is_open(size: Any, literals: Literals) -> bool:
    """Whether a size is a number yet that the source does not give."""
    return type(size) is int and size not in (-1, 1, *literals.shaping)


def _split(sizes: list[int], inputs: Sequence[Ref], numbers: Mapping[int, str], literals: Literals) -> list[Any]:
    """Sizes that replace others: a batch first, numbers of the module, and one that is left over: the last that the
    source does not give as a number."""
    is_given = literals.given(sizes)
    found: list[Any] = [
        Size(f"self.{numbers[size]}") if size in numbers and not is_given[k] else size for k, size in enumerate(sizes)
    ]
    if inputs and sizes and sizes[0] == inputs[0].shape[0]:
        found[0] = Size(f"{inputs[0].name}.shape[0]")
    unknown = [place for place, size in enumerate(found) if not isinstance(size, Size)]
    computed = [place for place in unknown if sizes[place] not in literals.shaping]
    if found:
        found[[-1, *unknown, *computed][-1]] = -1
    return found


def _as_before(
    found: list[Any], sizes: Sequence[int], first: int, tensor: Ref, makers: Mapping[int, Call], literals: Literals
) -> list[Any]:
    """The sizes, where some are numbers yet, of a value that the tensor was made from and that had all of them at
    these places: a plane that was made flat and is a plane again."""
    open_ = [k for k, size in enumerate(found) if _is_open(size, literals)]
    if not open_:
        return found
    place = slice(first, first + len(sizes))
    before = next((ref for ref in _sources(tensor, makers) if ref.shape[place] == tuple(sizes)), None)
    return [Size(f"{before.name}.shape[{first + k}]") if before and k in open_ else s for k, s in enumerate(found)]


def _sources(tensor: Ref, makers: Mapping[int, Call]) -> list[Ref]:
    """What a value was made from: inputs first, since nothing has to be kept for them, then the nearest values."""
    found, seen = [tensor], {id(tensor)}
    for ref in found:
        new = [other for other in (makers[id(ref)].refs if id(ref) in makers else ()) if id(other) not in seen]
        seen |= {id(other) for other in new}
        found += new
    return sorted((ref for ref in found if not ref.path), key=lambda ref: id(ref) in makers)


def _parts(call: Call, tensor: Ref, numbers: Mapping[int, str], literals: Literals) -> tuple[str, Any]:
    """How the task asks for parts, since those of an odd size depend on it: 3 and 2 are `chunk(2)` of 5. Of several
    sizes, the one that the source does not give as a number is what the others leave."""
    function, asked = call.asked
    if function in ("chunk", "tensor_split"):
        return function, asked
    if call.name == "chunk" or not isinstance(asked, list):
        return call.name, call.tensors[1] if call.name == "chunk" else asked
    found = [Size(f"self.{numbers[size]}") if size in numbers else size for size in asked]
    left = [k for k, size in enumerate(found) if type(size) is int and size not in literals.whole]
    if len(left) == 1:
        others = "".join(f" - {size!r}" for k, size in enumerate(found) if k != left[0])
        found[left[0]] = Size(f"{tensor.name}.shape[{call.words['dim']}]{others}")
    return "split", found


def _groups(
    tensor: Ref, words: Mapping[str, Any], numbers: Mapping[int, str], literals: Literals
) -> Mapping[str, Size]:
    """The number of groups of a convolution that has one for each channel; or one of a norm that the source does not
    give: the module has it, or the source gives their channels."""
    if words.get("groups", 1) == tensor.shape[1] > 1:
        return {"groups": Size(f"{tensor.name}.shape[1]")}
    number = words.get("num_groups")
    if type(number) is not int or number in literals.whole:
        return {}
    if number in numbers:
        return {"num_groups": Size(f"self.{numbers[number]}")}
    channels = tensor.shape[1] // number
    return {"num_groups": Size(f"{tensor.name}.shape[1] // {channels}")} if channels in literals.whole else {}


def _repeats(tensor: Ref, times: int, dim: int, numbers: Mapping[int, str], literals: Literals) -> Any:
    """How often heads are repeated, where the module has the number that they shall be."""
    whole = tensor.shape[dim] * times
    if whole not in numbers or times in literals.shaping:
        return times
    return Size(f"self.{numbers[whole]} // {tensor.name}.shape[{dim}]")


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


def _given(value: Any, inputs: Sequence[Ref], literals: Literals, values: Sequence[Ref] = ()) -> Any:
    """The sizes of a tensor that is made, but for those that the source gives as numbers: of inputs, else of values."""

    def known(size: int, place: int | None = None) -> Any:
        found = _of_input(size, inputs, place)
        return found if isinstance(found, Size) else _of_input(size, values, place)

    if isinstance(value, list | tuple):
        open_ = [type(part) is int and part not in literals.shaping for part in value]
        return [known(part, k) if open_[k] else part for k, part in enumerate(value)]
    return known(value) if type(value) is int else value


def _as_cut(tensor: Ref, index: Sequence[Any], behind: int, values: Sequence[Ref], literals: Literals) -> Ref | None:
    """A value that is as large as a tensor that is cut, where that is cut: the other half of a U."""
    if None in index or Ellipsis in index[1:]:
        return None
    ends = {place + behind: part.stop for place, part in enumerate(index) if isinstance(part, slice)}
    cut = {place: end for place, end in ends.items() if type(end) is int and 1 < end != tensor.shape[place]}
    if len(cut) < LEAST_CUT or literals.ends & set(cut.values()):
        return None
    alike = (ref for ref in values if len(ref.shape) == len(tensor.shape))
    return next((ref for ref in alike if all(ref.shape[place] == end for place, end in cut.items())), None)


def _sliced(part: Any, tensor: Ref, place: int, inputs: Sequence[Ref], like: Ref | None) -> Any:
    """Halves of a dimension, of what the module holds as much as an input is long, and as much as a value has."""
    if not isinstance(part, slice):
        return part

    def end(value: Any) -> Any:
        if type(value) is not int or value <= 1:
            return value
        known = _of_input(value, inputs) if tensor.path else value
        is_half = place < len(tensor.shape) and 2 * value == tensor.shape[place]
        if is_half and not (isinstance(known, Size) and any(value in ref.shape[1:] for ref in inputs)):
            return Size(f"{tensor.name}.shape[{place}] // 2")
        return known

    if like and part.start is None and like.shape[place] == part.stop:
        return slice(None, Size(f"{like.name}.shape[{place}]"), part.step)
    return slice(end(part.start), end(part.stop), part.step)


def _factor(
    operands: Sequence[Any], place: int, makers: Mapping[int, Call], literals: Literals, inputs: Sequence[Ref]
) -> Any:
    """A factor that is the root of a dimension, as attention has it, or a number of elements that a mean written out
    divides by."""
    value, other = operands[place], operands[1 - place]
    if type(value) is not float or not isinstance(other, Ref) or value <= 0 or value in literals.points:
        return value
    maker = makers.get(id(other))
    while maker and maker.name == "to":
        other = maker.refs[0]
        maker = makers.get(id(other))
    if maker and maker.name == "sum" and isinstance(dim := maker.words.get("dim"), int):
        summed = maker.tensors[0]
        return Size(f"{summed.name}.shape[{dim}]") if summed.shape[dim] == value else value
    joined = maker.refs[0] if maker and maker.name in ("@", "einsum") else other
    width = joined.shape[-1] if joined.shape else 0
    if maker and maker.name == "@" and value == width > 3:
        return Size(f"{joined.name}.shape[-1]")
    if maker and maker.name == "@" and value + 1 == width > LEAST_COUNT:
        return Size(f"({joined.name}.shape[-1] - 1)")
    is_given = value in literals.whole and not (maker and maker.name in ("@", "einsum"))
    for power in POWERS:
        if width > 3 and not is_given and abs(value - width**power) < 1e-5 * value:
            return Size(f"{joined.name}.shape[-1] ** {power}")
    summed = maker.tensors[:1] if maker and maker.name == "sum" else []
    return next((size for ref in (*summed, *inputs) for size in _counts(ref, value, literals)), value)


def _counts(tensor: Ref, value: float, literals: Literals) -> Iterator[Size]:
    """Products of sizes side by side that are this number, its square, or one by either."""
    for first in range(len(tensor.shape)):
        for end in range(first + 2, len(tensor.shape) + 1):
            number = prod(tensor.shape[first:end])
            for power in (1, -1, 0.5, -0.5):
                same = number >= LEAST_COUNT and abs(value - float(number) ** power) < 1e-9 * value
                if same and not {number, value} & literals.whole:
                    text = " * ".join(f"{tensor.name}.shape[{k}]" for k in range(first, end))
                    yield Size(f"({text})" + f" ** {power}" * (power != 1))
