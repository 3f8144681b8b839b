"""Whether kernels that are not a submission's are those of recorded operators. Without a GPU."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from drkernel.judge.boundary.cuda.activity import ActivityReader, DeviceWork
from drkernel.judge.devices.cuda.same_work import expect_explained


def kernel(name: str, start_us: int, us: int) -> DeviceWork:
    return DeviceWork(name, (1,), (1,), 0, 0, 1000 * start_us, 1000 * (start_us + us))


OWN, PRODUCT, BESIDE = kernel("own", 0, 100), kernel("gemm", 100, 200), kernel("gemm", 150, 200)


@pytest.mark.parametrize(
    ("work", "most_us", "spanned_us", "refused"),
    [
        ([OWN, PRODUCT], 200.0, 200.0, False),
        ([OWN, PRODUCT], 190.0, 190.0, False),  # ten microseconds, and a twentieth of its own kernels
        ([OWN, PRODUCT], 2000.0, 180.0, True),  # the model would explain more, but nothing recorded took as long
        ([OWN, PRODUCT], 180.0, 2000.0, True),  # recorded operators waited
        ([PRODUCT, BESIDE], 400.0, 250.0, False),  # a library's kernels side by side
        ([PRODUCT, kernel("gemm", 300, 200)], 400.0, 250.0, True),  # one after the other
        ([kernel("", 0, 500)], 0.0, 0.0, False),  # copies
    ],
)
def test_other_kernels_run_within_the_spans_of_recorded_operators(work, most_us, spanned_us, refused):
    activity, refusals = ActivityReader(None), []
    activity.set_own(["own"])
    client = SimpleNamespace(activity=activity)
    submission = SimpleNamespace(client=client, refuse=lambda reason, detail: refusals.append(reason))
    expect_explained(submission, work, most_us, spanned_us)
    assert refusals == ["hidden_work"] * refused
