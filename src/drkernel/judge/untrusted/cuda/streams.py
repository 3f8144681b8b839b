"""Does a forward wait for all that it starts on other streams? If not, its answers are complete only by luck."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable
from typing import Any

import torch

from drkernel.judge.boundary.cuda import driver

_PRIORITIES, _STREAMS, _SETTLED_S = 4, 32, 1e-4
"""Of PyTorch's pools of streams; and how long after a stream's last work it may still look busy."""


def joined(forward: Callable[[], Any]) -> bool:
    """Calls forward twice, the second time in a capture, which may leave the CUDA context of no more use."""
    streams = [torch.cuda.Stream(priority=-level) for level in range(_PRIORITIES) for _ in range(_STREAMS)]
    return not (_leaves_running(forward, streams) or _captured_unjoined(forward, streams))


def _leaves_running(forward: Callable[[], Any], streams: list[torch.cuda.Stream]) -> bool:
    """Whether other streams still work when the current one is done: surely seen where they work for longer."""
    torch.cuda.synchronize()
    forward()
    torch.cuda.current_stream().synchronize()
    time.sleep(_SETTLED_S)
    return not all(stream.query() for stream in streams)


def _captured_unjoined(forward: Callable[[], Any], streams: list[torch.cuda.Stream]) -> bool:
    """CUDA captures no graph in which a stream is left that nobody waits for, however short its work.

    All of PyTorch's streams are in the capture from the start, since a forward may begin by waiting for what an earlier
    call left on one, and CUDA lets no captured stream wait for another. A forward that cannot be captured says nothing.
    """
    graph, own = torch.cuda.CUDAGraph(), driver.stream()
    with torch.cuda.stream(own):
        graph.capture_begin()
        for stream in streams:
            stream.wait_stream(own)
            own.wait_stream(stream)
        with contextlib.suppress(Exception):
            forward()
        try:
            graph.capture_end()
        except Exception as error:
            return "unjoined" in str(error)
    return False
