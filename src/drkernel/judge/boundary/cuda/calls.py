"""Calls that are timed on a GPU: enqueued behind a semaphore, each on a cold L2 cache, and timed by CUDA events.

A runner times the submission's calls with it, and the examiner the reference's, so that both are treated alike. What it
reports of a submission's calls comes from the runner's process and is not trusted.
"""

from __future__ import annotations

import contextlib
import functools
import itertools
from typing import Any

import torch
from torch import nn

from drkernel.judge.boundary.call_areas import CallAreas
from drkernel.judge.boundary.construction import in_mode
from drkernel.judge.boundary.cuda import driver, handshake, recorder
from drkernel.judge.boundary.op_trace import OpTrace

FLUSH = 2**27
"""Bytes that are read before a timed call: more than twice the L2 cache of an H200 (60 MB)."""
WRITTEN = 2**22
"""Bytes that a flush without a kernel writes again and again."""
SCATTERED = 2**24
"""Bytes of a call's outputs up to which each timed call writes to another place. Calls that write more average over
places by themselves."""


class TimedCalls:
    """Enqueues calls of models and reports how long they took.

    Args:
        areas: where arguments come from and outputs go to. May be replaced between blocks of calls.
        semaphore: the address of the 32-bit value that calls wait for. May be replaced likewise.
        models: by number. Shared with the caller, who may add to it.
        words: the device's address of the words of handshakes, in a runner.
    """

    def __init__(self, areas: CallAreas, semaphore: int, models: dict[int, nn.Module], words: int = 0):
        self.areas, self.semaphore, self.models, self._words = areas, semaphore, models, words
        self._flush = torch.zeros(FLUSH // 8, dtype=torch.int64, device="cuda")
        self._events: list[torch.cuda.Event] = []
        self._outputs: list[dict[str, Any]] = []

    def enqueue(
        self,
        model: int,
        args: Any,
        slots: list,
        train: bool,
        seed: int,
        value: int,
        recorded: bool = True,
        given: list | None = None,
    ) -> list[OpTrace]:
        """Enqueues a call on each of the argument lists in `args`, and returns what each launched.

        What each call returned is kept until the last one is enqueued, and as much memory beside it, so that each
        writes to another place: where outputs lie changes the time of a call of a few microseconds by up to 10 %.

        Args:
            value: the first call waits until the semaphore is at least this, each further call for one more.
            recorded: record the calls as the examination's are, so that a submission cannot tell them apart. Without
                it, as for the reference, nothing is returned, and no gradient of a weight stays after a call.
            given: the argument lists themselves, where they do not lie in the area.
        """
        calls = self.areas.values(args, slots) if given is None else given
        module = in_mode(self.models[model], train)
        torch.manual_seed(seed)
        events: list[torch.cuda.Event] = []
        outputs: list[dict[str, Any]] = []
        kept: list[Any] = []
        traces: list[OpTrace | None] = []

        def mark() -> None:
            events.append(torch.cuda.Event(enable_timing=True))
            events[-1].record()

        recording = functools.partial(recorder.record, brief=True) if recorded else contextlib.nullcontext
        with torch.no_grad():
            for awaited, values in enumerate(calls, value):
                driver.wait_for(self.semaphore, awaited)
                mark()
                self._flush.amax()  # a kernel whose name no sum or mean of a submission has
                mark()
                with recording() as trace:
                    result = module(*values)
                mark()
                traces.append(trace)
                begun = self.areas.outputs.top
                outputs.append(self.areas.copy_out(result))
                for weight in () if recorded else module.parameters():
                    weight.grad = None
                if (size := self.areas.outputs.top - begun) <= SCATTERED:
                    kept += result, torch.empty(size, dtype=torch.uint8, device="cuda")
            mark()
        self._events, self._outputs = events, outputs
        return [trace for trace in traces if trace]

    def await_go(self, value: int) -> None:
        """Makes the current stream wait for the examiner's side of a handshake. The tiny kernel brings this process's
        context back onto the GPU."""
        driver.wait_for(self._words + handshake.ACTIVATE, value)
        self._flush[:1].zero_()
        driver.write_value(self._words + handshake.ACTIVE, value)
        driver.wait_for(self._words + handshake.GO, value)

    def enqueue_alone(
        self, model: int, args: Any, slots: list, train: bool, seed: int, value: int, waiting: bool
    ) -> list[OpTrace]:
        """Enqueues one call behind a handshake, and returns what it launched.

        The call ends when all streams have ended and its outputs are copied.

        Args:
            waiting: begin only when the examiner has said go, for a forward that waits for the device.
        """
        (values,) = self.areas.values(args, slots)
        module = in_mode(self.models[model], train)
        torch.manual_seed(seed)
        events = [torch.cuda.Event(enable_timing=True) for _ in range(4)]
        with torch.no_grad():
            self.await_go(value)
            if waiting:
                torch.cuda.current_stream().synchronize()
            events[0].record()
            events[1].record()
            with recorder.record(brief=True) as trace:
                result = module(*values)
            driver.join_streams()
            events[2].record()
            outputs = self.areas.copy_out(result)
            events[3].record()
            driver.write_value(self._words + handshake.DONE, value)
        self._events, self._outputs = events, [outputs]
        return [trace]

    def flush_by_copy(self) -> None:
        """Flushes the L2 cache without a kernel, as clean as a kernel that reads leaves it: what a copy writes, a later
        call has to write back to memory."""
        written, *parts = self._flush.split(WRITTEN // 8)
        for part in parts:
            written.copy_(part)

    def report(self) -> dict[str, Any]:
        """How long each of the calls that were enqueued took by this process's events, and each copy of its outputs.

        The device must have finished them.
        """
        events, outputs = self._events, self._outputs
        spans = [1e3 * one.elapsed_time(other) for one, other in itertools.pairwise(events)]
        self._events, self._outputs = [], []
        return {
            "flush_us": [float(us).hex() for us in spans[0::3]],
            "forward_us": [float(us).hex() for us in spans[1::3]],
            "copy_us": [float(us).hex() for us in spans[2::3]],
            "calls": outputs,
        }
