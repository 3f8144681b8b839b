"""Work on many small items by all cores, in the items' order."""

from __future__ import annotations

import functools
import multiprocessing
import os
from collections.abc import Callable, Iterable, Iterator
from typing import Any, TypeVar

A = TypeVar("A")
B = TypeVar("B")
AT_ONCE = 32
"""Items that a process takes at a time."""


def spread(function: Callable[[A], B], items: Iterable[A], share: int = 1) -> Iterator[B]:
    """`function` of each item, in order. The function, or what a partial wraps, is one of a module.

    Processes are started for more than a few items only, one for every `share` cores. They are forked from a server
    that has imported the function's module and started no thread.
    """
    found = list(items)
    workers = min(len(os.sched_getaffinity(0)) // share, len(found) // (4 * AT_ONCE))
    if workers < 2:
        yield from map(function, found)
        return
    context: Any = multiprocessing.get_context("forkserver")
    whole = function.func if isinstance(function, functools.partial) else function
    context.set_forkserver_preload(["__main__", whole.__module__])
    with context.Pool(workers) as pool:
        yield from pool.imap(function, found, AT_ONCE)
