"""What an examiner does once, before its first submission: it loads its comparisons, and measures how much longer calls
usually take by the trusted clock than by a runner's events. Runs in an examiner's process.
"""

from __future__ import annotations

import statistics

import numpy
import torch

from drkernel.judge.boundary import warm_up
from drkernel.judge.boundary.zygote import Process
from drkernel.judge.devices.cuda import fused, interleaving, single_calls
from drkernel.judge.devices.cuda.buffers import DeviceBuffers
from drkernel.judge.devices.cuda.device import CudaPreparedTask
from drkernel.judge.devices.cuda.timer import PairedTimer
from drkernel.judge.trusted import cases
from drkernel.judge.trusted.runner_client import RunnerClient

_START_S = 60.0
"""Seconds that the runner may take to answer."""
_SINGLE_CALLS = 16
"""Single calls of each kind."""


def compile_comparisons() -> None:
    """Compares once, so that all that is imported or compiled lazily is there."""
    for columns in (64, 4096):
        table = torch.rand(256, columns, device="cuda")
        fused.statistics(table.double(), table, table.double())
        fused.statistics(table, table, table)
        fused.deviations(table, table.double(), table[:, 0].double(), 0.0)
        fused.deviations(table, table, table[:, 0].double(), 0.0)
        fused.differences(table.view(-1), table.view(-1))
    interleaving.ratio_interval(numpy.ones(4), numpy.ones(4), 0)


def measure_overheads(process: Process, prepared: CudaPreparedTask, buffers: DeviceBuffers) -> None:
    """Sets `buffers.single_overheads_us` to lower quartiles, in microseconds; what took longer was disturbed."""
    reference, size = prepared.reference, prepared.bytes_per_call
    client, mine = RunnerClient(process, _START_S), cases.build(reference, 0)
    client.load(warm_up.CALIBRATION, "ModelNew")
    client.build(0, mine)
    tolerance = cases.expected_outputs(reference.task, mine, reference.inputs(0), False, 0).tolerance()
    watch = PairedTimer(buffers, client, mine, False, reference.inputs, size, tolerance, waits=False)
    watch.warm_up(least_us=100.0, launches=1)
    for kind in single_calls.KINDS:
        overheads = [watch.singles.ask(kind).overhead_us() for _ in range(_SINGLE_CALLS)]
        buffers.single_overheads_us[kind] = statistics.quantiles(overheads, n=4)[0]
