"""What an examiner does once, before its first submission: it loads its comparisons, and measures what single
calls usually take beside those of blocks. Runs in an examiner's process.
"""

from __future__ import annotations

import statistics

import numpy
import torch

from drkernel.judge.boundary import warm_up
from drkernel.judge.devices.cuda import fused, interleaving
from drkernel.judge.devices.cuda.buffers import DeviceBuffers, Usual
from drkernel.judge.devices.cuda.device import CudaPreparedTask
from drkernel.judge.devices.cuda.single_calls import KINDS, WAITING
from drkernel.judge.devices.cuda.timer import PairedTimer
from drkernel.judge.trusted.cases import cases, reference_model
from drkernel.judge.trusted.processes.runner_client import RunnerClient
from drkernel.judge.trusted.processes.zygote import Process
from drkernel.judge.trusted.rounding import rounding

_START_S = 60.0
"""Seconds that the runner may take to answer."""
MOST_START_US = 8.0
"""What is taken off single calls at most: a disturbed start must not lower all floors."""
_SINGLE_CALLS = 16
"""Single calls of each kind."""


def compile_comparisons() -> None:
    """Compares once, so that all that is imported or compiled lazily is there."""
    for columns in (64, 4096):
        table = torch.rand(256, columns, device="cuda")
        fused.statistics(table.double(), table, table.double())
        fused.statistics(table, table, table)
        fused.deviations(table, table.double(), table[:, :1].double(), 0.0)
        fused.deviations(table, table, table[:, :1].double(), 0.0)
        fused.differences(table.view(-1), table.view(-1))
        near = (noise := rounding.Noise("ieee", 0)).around(table)
        with noise:
            _ = near @ near.T
    interleaving.ratio_interval(numpy.ones(4), numpy.ones(4), 0)


def measure_single_calls(process: Process, prepared: CudaPreparedTask, buffers: DeviceBuffers) -> None:
    """Sets `buffers.usual` and `flush_kernel`. What took longer than the lower quartile was disturbed."""
    reference, size = prepared.reference, prepared.bytes_per_call
    client, mine = RunnerClient(process, _START_S), reference_model.build(reference, 0)
    client.load(warm_up.CALIBRATION, "ModelNew")
    client.build(0, mine)
    tolerance = cases.expected_outputs(reference.task, mine, reference.inputs(0), False, 0).tolerance()
    watch = PairedTimer(buffers, client, mine, False, reference.inputs, size, tolerance, waits=False)
    watch.warm_up(least_us=100.0, launches=1)
    in_blocks_us = statistics.median(watch.block_us(_SINGLE_CALLS))
    buffers.flush_kernel = max((one for one in watch.block_work if one.kernel), key=lambda one: one.us).kernel
    for kind in KINDS:
        calls = [watch.singles.ask(kind) for _ in range(_SINGLE_CALLS)]
        start_us = min(MOST_START_US, max(0.0, _low([call.reported.forward[0] for call in calls]) - in_blocks_us))
        overhead_us = _low([call.overhead_us() for call in calls])
        buffers.usual[kind] = Usual(overhead_us, 0.0 if kind == WAITING else start_us)


def _low(values: list[float]) -> float:
    return statistics.quantiles(values, n=4)[0]
