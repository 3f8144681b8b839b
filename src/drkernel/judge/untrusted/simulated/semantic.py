"""What Triton's operations on blocks are made of, for batches of programs. Runs in simulated runners."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from triton.language.core import tensor
from triton.language.semantic import TritonSemantic

from drkernel.judge.untrusted.simulated.builder import BatchBuilder
from drkernel.judge.untrusted.simulated.costs import INTEGER
from drkernel.judge.untrusted.simulated.loops import plain


class BatchSemantic(TritonSemantic):
    """Triton's own, without what it computes for nobody."""

    builder: BatchBuilder

    def to_tensor(self, x: Any, check_type: bool = True) -> Any:
        return super().to_tensor(plain(x), check_type)

    def cast(self, input: Any, dst_ty: Any, *args: Any) -> Any:
        self._note_integer(input, dst_ty)
        self.look_at(input)
        return super().cast(input, dst_ty, *args)

    def bitcast(self, input: Any, dst_ty: Any) -> Any:
        self._note_integer(input, dst_ty)
        return super().bitcast(input, dst_ty)

    def look_at(self, *values: Any) -> None:
        """A program that looks at what an atomic operation or a volatile load has returned may have waited for others;
        one that drops it has not."""
        for value in values:
            if isinstance(value, tensor) and value.handle.attr.get("waits"):
                self.builder.meter.programs.waited = True

    def _note_integer(self, input: Any, dst_ty: Any) -> None:
        """An integer of a fraction may become an address."""
        if input.type.scalar.is_floating() and not dst_ty.scalar.is_floating():
            self.builder.meter.guess()

    def binary_op_type_checking_impl(self, lhs: Any, rhs: Any, *args: Any, **kwargs: Any) -> Any:
        self.look_at(lhs, rhs)
        return super().binary_op_type_checking_impl(plain(lhs), plain(rhs), *args, **kwargs)

    def binary_op_sanitize_overflow_impl(self, lhs: Any, rhs: Any, binary_op: Callable) -> None:
        """Counts what Triton's check for overflow of a sum, difference or product of integers takes: two casts, the
        operation, two comparisons, one conjunction. Its result is looked at in debug mode alone, so that it is not
        computed; prices were calibrated with it."""
        if lhs.type.scalar.int_bitwidth >= 64:
            return
        one, other = lhs.handle.data, rhs.handle.data
        result = one if len(one) > len(other) else other
        for data in (one, other, result, result, result, result):
            self.builder.count(data, INTEGER)
