"""What is wrong with a submission at the published sizes whatever the data are, as its dry runs say.

Where its host code reads data, two runs say so, see untrusted.simulated.guesses. If it reads mere answers, each must be
right that launches kernels: data may be such. If it reads numbers, which may be sizes, one of the two must be right.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence

from drkernel.judge.boundary.op_trace import OpTrace, Row
from drkernel.judge.devices.base import Submission
from drkernel.judge.devices.simulated import steady
from drkernel.judge.devices.simulated.dry_runs import of_published_sizes
from drkernel.judge.trusted.processes.failures import Failed
from drkernel.judge.trusted.verdicts import VerdictReached

_WRITTEN = 0.99
"""Of the bytes of all outputs, those that must be written: the last block of each row is written in part."""

Runs = Sequence[OpTrace | Failed | None]
"""What each dry run launches, or the submission's error there; None where neither is known."""


def reads_numbers(runs: Runs) -> bool:
    return any(isinstance(run, OpTrace) and run.read == "numbers" for run in runs)


def expect_no_error(runs: Runs, others: Iterator[OpTrace | Failed | None]) -> None:
    """Expects that no error of the submission ends every run. Not to be asked where the host reads numbers.

    Args:
        others: more runs, for code that raises an error unless one answer is yes and another is no.

    Raises:
        Failed: the same one does.
    """
    first = runs[0]
    if isinstance(first, Failed) and all(_is_alike(first, run) for run in itertools.chain(runs, others)):
        raise of_published_sizes(first)


def _is_alike(failure: Failed, run: OpTrace | Failed | None) -> bool:
    return isinstance(run, Failed) and (run.kind, run.line) == (failure.kind, failure.line)


def expect_a_launch(runs: Runs, submission: Submission) -> None:
    """Expects a Triton launch in one of the runs.

    Raises:
        VerdictReached: see Submission.refuse.
    """
    known = [run for run in runs if isinstance(run, OpTrace)]
    if len(known) == len(runs) and not any(run.launches_triton for run in known):
        left = sorted({row.name for run in known for row in run.rows})
        does = f"PyTorch runs {', '.join(left[:6])}" if left else "it computes nothing"
        submission.refuse("no_triton_launch", f"forward launches no Triton kernel at the published sizes; {does}")


def expect_all_is_written(runs: Runs, bytes_written: float, source: str) -> None:
    """The kernels and operators must write as many bytes as the outputs have.

    Raises:
        VerdictReached: they do not, whatever the data are.
    """
    steps = steady.kernels(source, strictly=True)
    known = [run for run in runs if isinstance(run, OpTrace)]
    stored = {id(run): sum(_stored(row, row.name in steps) for row in run.rows) for run in known}
    short = [run for run in known if stored[id(run)] < _WRITTEN * bytes_written]
    if reads_numbers(runs):
        wrong = short if len(short) == len(runs) else []
    else:
        wrong = [run for run in short if run.launches_triton]
    if wrong:
        most = max(stored[id(run)] for run in wrong)
        raise VerdictReached(
            "incorrect",
            "wrong_values",
            f"at the published sizes outputs have {bytes_written} bytes, and no more than {most:.0f} are written: "
            "the grid or the blocks are too small there",
            case="the published sizes",
        )


def _stored(row: Row, is_steady: bool) -> float:
    """Bytes that the calls of a row without data write at most."""
    if not row.triton:
        return sum(tensor.unique for tensor in row.tensors if tensor.stored)
    return min(row.stored, row.stored_lanes) if is_steady else row.stored
