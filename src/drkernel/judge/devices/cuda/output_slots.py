"""Where the outputs of timed calls lie, by path: a list for a tuple and a dict in another order hold the same."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from drkernel.judge.boundary.framing import ProtocolViolation
from drkernel.judge.boundary.shared_tensors import NotSerializable, Slot, decode
from drkernel.judge.devices.cuda.buffers import CallReport
from drkernel.judge.trusted.outputs import leaves


class Mismatched(Exception):
    """A timed call's output is not the reference's."""


@dataclass(frozen=True)
class _Place:
    """Stands for the tensor with this number."""

    index: int


@dataclass(frozen=True)
class OutputSlots:
    """The tensors of several calls, those of one call after the other, each in the order of the reference's outputs."""

    reference: list[Slot]
    submission: list[Slot]

    @classmethod
    def alike(cls, *calls: Any) -> OutputSlots:
        """As `of`, for outputs that have one form on both sides.

        Raises:
            Mismatched, ProtocolViolation: they have not.
        """
        try:
            found = cls.of(*calls)
        except NotSerializable as error:
            raise ProtocolViolation(str(error)) from error
        if isinstance(found, str):
            raise Mismatched(found)
        return found

    @classmethod
    def of(
        cls, reference: Sequence[CallReport], submission: Sequence[CallReport], size: int, scalar_error: float
    ) -> OutputSlots | str:
        """Those of a reference's calls and a submission's; in words, how their forms differ.

        Args:
            size: of the areas in which they lie, in bytes.
            scalar_error: by how much numbers that are no tensors may differ.

        Raises:
            NotSerializable: the submission's are not well formed, or lie outside of the area.
        """
        found = cls([], [])
        for one, other in zip(reference, submission, strict=True):
            expected, actual = (dict(_leaves(call)) for call in (one, other))
            if expected.keys() != actual.keys():
                return "a timed call returned another structure than before"
            for path, value in _leaves(one):
                if not isinstance(value, _Place):
                    if not _same(value, actual[path], scalar_error):
                        return f"{path} of a timed call is {actual[path]!r}, expected {value!r}"
                    continue
                if not isinstance(actual[path], _Place) or not 0 <= actual[path].index < len(other.tensors):
                    return "a timed call returned another structure than before"
                found.reference.append(Slot.parse(one.tensors[value.index].slot, size))
                found.submission.append(Slot.parse(other.tensors[actual[path].index].slot, size))
                right, got = found.reference[-1], found.submission[-1]
                if (right.dtype, right.shape) != (got.dtype, got.shape):
                    return "a timed call returned tensors of other shapes than before"
        return found


def _leaves(call: CallReport) -> list[tuple[str, Any]]:
    return leaves(decode(call.outputs, _Place), in_order=True)


def _same(expected: Any, actual: Any, error: float) -> bool:
    if type(expected) is not type(actual):
        return False
    return bool(expected == actual) or (isinstance(expected, float) and abs(expected - actual) <= error)
