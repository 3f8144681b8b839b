"""`spread`: all cores work on many items, and the results come in the items' order."""

import functools

from drkernel.training.processes import spread


def power(number: int, exponent: int) -> int:
    return number**exponent


def test_results_come_in_order_from_one_process_or_many():
    square = functools.partial(power, exponent=2)
    assert list(spread(square, range(5))) == [0, 1, 4, 9, 16]
    assert list(spread(square, range(1000))) == [number**2 for number in range(1000)]
    assert list(spread(square, [])) == []
