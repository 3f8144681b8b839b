"""Whether an error of a dry run is the submission's own, or may come from tensors without data.

Runs in simulated runners.
What a `raise` or an `assert` of the submission raises before a number was read would be raised on a GPU, too. So would
what Python itself raises there: a name that is not bound, a tuple that has another length. What PyTorch raises may be
about missing data.
"""

from __future__ import annotations

import dis
from collections.abc import Iterator
from types import TracebackType

from torch._subclasses import fake_tensor

from drkernel.judge.untrusted import FILE
from drkernel.judge.untrusted.simulated.guesses import Guesses

LACKING = (
    fake_tensor.DataDependentOutputException,
    fake_tensor.DynamicOutputShapeException,
    fake_tensor.UnsupportedFakeTensorException,
    fake_tensor.UnsupportedOperatorException,
)
"""What PyTorch raises where an operator needs data."""
_PLAIN = (ArithmeticError, AttributeError, LookupError, NameError, TypeError, ValueError)
"""Errors that Python raises by itself."""


class Unfinished(Exception):
    """A dry run ended, and perhaps since tensors have no data.

    Args:
        error: what ended it.
        unclear: no number was read before, so that it may as well be the submission's own error.
    """

    def __init__(self, error: BaseException, unclear: bool):
        super().__init__(str(error))
        self.error, self.unclear, self.read = error, unclear, Guesses.read()


def expect_own(error: BaseException) -> None:
    """Says whether an error of a dry run would happen on a GPU, too. Where the host has read mere answers that are
    taken for what is so, it would under these.

    Raises:
        Unfinished: it may not.
    """
    chain = list(_chain(error))
    of_data = Guesses.numbers or Guesses.doubtful() or Guesses.lacked
    if of_data or any(isinstance(each, (*LACKING, MemoryError)) for each in chain):
        raise Unfinished(error, False)
    if not all(map(is_own, chain)):
        raise Unfinished(error, not Guesses.made)


def _chain(error: BaseException | None) -> Iterator[BaseException]:
    """The error, and those in whose handling it was raised."""
    seen: set[int] = set()
    waiting = [error]
    while waiting:
        one = waiting.pop()
        if one is not None and id(one) not in seen:
            seen.add(id(one))
            yield one
            waiting += [one.__cause__, one.__context__]


def is_own(error: BaseException) -> bool:
    """Whether a statement of the submission raises it, or Python in one of its lines."""
    place = _deepest(error.__traceback__)
    if place is None or not place.tb_frame.f_code.co_filename.endswith(FILE):
        return False
    operation = dis.opname[place.tb_frame.f_code.co_code[place.tb_lasti]]
    if operation == "RAISE_VARARGS":
        return True
    of_a_tensor = "FakeTensor" in str(error) or ("CALL" in operation and "tensor" in str(error).lower())
    return isinstance(error, _PLAIN) and not of_a_tensor


def _deepest(place: TracebackType | None) -> TracebackType | None:
    while place is not None and place.tb_next is not None:
        place = place.tb_next
    return place
