"""What a reference leaves of its inputs is part of what it computes: a submission must leave the same."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable
from typing import Any

from drkernel.judge.trusted.comparison.mismatch import Mismatch
from drkernel.judge.trusted.comparison.tolerance import Expected


class ExpectedCall(Expected):
    """What is expected of one call.

    Trees of the constructor are pairs: the outputs, and the inputs after the call, which are an empty list where the
    reference does not change them. Arguments as those of `Expected`.
    """

    edited: Expected
    """The inputs after the call."""

    def __init__(self, exact: Any, rounded: Any, noisy: Any, precision: Any, lowered: Any = (), *more: Any):
        seed, rerounded = more or (0, ())
        lowered = list(lowered) if rounded[1] else lowered
        for part, set_up in enumerate((super().__init__, self._set_up_edited)):
            some = ((name, tree[part]) for name, tree in lowered)
            trees = [tree[part] for tree in noisy], precision, some, seed, [tree[part] for tree in rerounded]
            set_up(exact[part], rounded[part], *trees)

    def _set_up_edited(self, *args: Any) -> None:
        self.edited = Expected(*args)

    def set_more_noise(self, *trees: Callable[[], Iterable[Any]]) -> None:
        part = lambda place: [lambda given=given: (pair[place] for pair in given()) for given in trees]
        super().set_more_noise(*part(0))
        self.edited.set_more_noise(*part(1))

    def check_edits(self, inputs: Any) -> Mismatch | None:
        """Compares the inputs as a submission leaves them, a tree whose tensors are `OutputTensor`."""
        return of_inputs(self.edited.check(inputs))


def of_inputs(problem: Mismatch | None) -> Mismatch | None:
    """A mismatch of inputs after the call, in words."""
    if not problem:
        return None
    name = lambda text: text.replace("output", "input", 1)
    text = f"the reference changes its inputs in place, and after the call {name(problem.text)}"
    return dataclasses.replace(problem, text=text, output=name(problem.output))
