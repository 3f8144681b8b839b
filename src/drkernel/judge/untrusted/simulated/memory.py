"""Moves numbers between arrays and the memory that pointers lead to. Runs in simulated runners."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from triton.runtime import interpreter as upstream

from drkernel.judge.untrusted.simulated.races import differ


def gather(
    place: Any, pointers: np.ndarray, where: np.ndarray, fill: np.ndarray, kind: np.dtype, addresses: np.uint64
) -> np.ndarray:
    """What lies at the pointers, `fill` where masked; all arrays of one shape. `addresses` as in Meter."""
    found = place and place[0].elements(kind, place[1])
    if not found:
        return upstream._interpreter.load(pointers - addresses, where, fill, kind)
    memory, index = found
    if place[2]:
        return memory[index].reshape(pointers.shape)
    result = fill.copy()
    result[where] = memory[index]
    return result


def scatter(place: Any, pointers: np.ndarray, where: np.ndarray, data: np.ndarray, addresses: np.uint64) -> None:
    """Stores the unmasked data; the arguments as in `gather`."""
    found = place and place[0].elements(data.dtype, place[1])
    if not found:
        upstream._interpreter.store(pointers - addresses, data, where)
    else:
        memory, index = found
        memory[index] = data.ravel() if place[2] else data[where]


def store(
    place: Any,
    pointers: np.ndarray,
    where: np.ndarray,
    data: np.ndarray,
    addresses: np.uint64,
    decode: Callable[[np.ndarray], np.ndarray],
) -> None:
    """As `scatter`, for programs of which each may store once.

    Args:
        decode: makes numbers that can be compared of those that are stored.

    Raises:
        DataRace: several programs store different numbers at one place.
    """
    found = place and place[0].elements(data.dtype, place[1])
    overlap = place[0].overlap if found else None
    if not overlap:
        scatter(place, pointers, where, data, addresses)
        return
    memory, index = found
    values = data.ravel() if place[2] else data[where]
    different = np.zeros(len(values), bool)
    before = memory[index[overlap.earlier]]
    memory[index] = values
    for lanes, others in ((overlap.earlier, before), (overlap.at_once, memory[index[overlap.at_once]])):
        different[lanes] |= differ(decode(values[lanes]), decode(others), 8 * data.itemsize)
    place[0].expect_same(place[1], different)


def in_any_order(draws: np.random.Generator, function: Callable, *arrays: np.ndarray) -> np.ndarray:
    """The result of a function that goes from lane to lane, if it does so in a random order of all lanes."""
    order = draws.permutation(arrays[0].size)
    found = function(*(array.ravel()[order] for array in arrays))
    result = np.empty_like(found)
    result[order] = found
    return result.reshape(arrays[0].shape)
