"""Whether a forward waits for all that it starts on other streams. If not, its outputs are complete only by chance.

It runs in a runner on a GPU.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable
from typing import Any

import torch

from drkernel.judge.boundary.cuda import driver

_PRIORITIES, _STREAMS = 4, 32
"""Of PyTorch's pools: how many there are, and the streams of each."""
_QUERY_LAG_S = 1e-4
"""How long after a stream's last work a query may still find it busy."""


def joined(forward: Callable[[], Any]) -> bool:
    """Calls forward twice. The second call is captured, after which the CUDA context may be unusable."""
    streams = [torch.cuda.Stream(priority=-level) for level in range(_PRIORITIES) for _ in range(_STREAMS)]
    return not (_leaves_running(forward, streams) or _captured_unjoined(forward, streams))


def _leaves_running(forward: Callable[[], Any], streams: list[torch.cuda.Stream]) -> bool:
    """Whether other streams still work when the current one is done. Short work may be over before it is seen."""
    torch.cuda.synchronize()
    forward()
    torch.cuda.current_stream().synchronize()
    time.sleep(_QUERY_LAG_S)
    return not all(stream.query() for stream in streams)


def _captured_unjoined(forward: Callable[[], Any], streams: list[torch.cuda.Stream]) -> bool:
    """Whether a captured forward leaves a stream that nobody waits for. CUDA refuses that, however short the work is.

    All of PyTorch's streams join the capture at its start: a forward may begin by waiting for what an earlier call left
    on one, and a captured stream cannot wait for one that is not. False where forward cannot be captured at all.
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
