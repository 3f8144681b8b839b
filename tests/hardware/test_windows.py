"""A stride may pass elements over: the least traffic of a reference does not count them."""

import itertools

import pytest
import torch
import torch.nn.functional as F

from drkernel.hardware import windows
from drkernel.hardware.windows import touched
from drkernel.judge.boundary import aten


def exactly(size: int, kernel: int, stride: int, padding: int, dilation: int) -> float:
    number = (size + 2 * padding - dilation * (kernel - 1) - 1) // stride + 1
    places = {o * stride - padding + k * dilation for o in range(number) for k in range(kernel)}
    return len(places & set(range(size))) / size


CASES = list(itertools.product((17, 24, 40), (1, 2, 3, 5), (1, 2, 3, 4), (0, 1), (1, 2, 3)))
RUN = [case for case in CASES if case[4] * (case[1] - 1) < case[0] and 2 * case[3] <= case[1]]


def test_what_windows_read_is_counted():
    for case in RUN:
        assert touched(*case) == exactly(*case), case


@pytest.mark.slow
def test_of_a_long_dimension_no_more_is_claimed_than_windows_read(monkeypatch):
    monkeypatch.setattr(windows, "COUNTED", 0)
    for size, *window in RUN:
        found, read = touched.__wrapped__(1000 * size, *window), exactly(1000 * size, *window)
        assert read - 0.01 < found < read + 0.001, (size, *window)


@pytest.mark.parametrize(
    ("forward", "share"),
    [
        (lambda x: F.max_pool2d(x, 3, 4, dilation=3), (0.4, 0.6)),
        (lambda x: F.avg_pool2d(x, 2, 4), (0.2, 0.26)),
        (lambda x: F.conv2d(x, torch.ones(4, 4, 1, 1), stride=2), (0.24, 0.26)),
        (lambda x: F.max_pool2d(x, 3, 2), (0.96, 0.97)),  # not the last row and column
        (lambda x: F.conv2d(x, torch.ones(4, 4, 3, 3), stride=2), (0.96, 0.97)),
        (lambda x: F.conv_transpose2d(x, torch.ones(4, 4, 1, 1), stride=2), (1.0, 1.0)),
    ],
)
def test_what_an_operator_reads_leaves_out_the_gaps(forward, share):
    x = torch.randn(2, 4, 64, 64)
    aten.install()
    with aten.record() as trace:
        forward(x)
    read = max(t.unique for row in trace.rows for t in row.tensors if not t.stored and t.numel == x.numel())
    assert share[0] <= read / (4 * x.numel()) <= share[1]


@pytest.mark.parametrize(
    ("forward", "more"),
    [
        (lambda x: F.conv2d(x, torch.ones(96, 32, 3, 3)), 1.0),
        (lambda x: F.conv2d(x, torch.ones(12, 32, 3, 3)), 32 / 12),
        (lambda x: F.conv2d(x, torch.ones(32, 1, 3, 3), groups=32), 8.7),
        (lambda x: F.conv2d(x, torch.ones(64, 8, 3, 3), groups=4), 54 / 8),
        (lambda x: F.conv_transpose2d(x, torch.ones(32, 12, 3, 3), stride=2, groups=4), 147 / 8),
        (lambda x: F.conv_transpose2d(x, torch.ones(32, 48, 3, 3)), 64 / 48),
        (lambda x: F.conv_transpose2d(x, torch.ones(32, 4, 3, 3)), 8.0),
        (lambda x: F.conv_transpose2d(x, torch.ones(32, 4, 3, 3), stride=2), 147 / 32),
        (lambda x: F.conv_transpose3d(x.unsqueeze(4), torch.ones(32, 4, 3, 3, 3), padding=1), 147 / 32),
    ],
)
def test_convolutions_of_few_channels_leave_lanes_empty(forward, more):
    aten.install()
    with aten.record() as trace:
        forward(torch.ones(2, 32, 8, 8))
    (row,) = [row for row in trace.rows if "convolution" in row.name]
    assert row.dense_flops == pytest.approx(more * row.flops)
