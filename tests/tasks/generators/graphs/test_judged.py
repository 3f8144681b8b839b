"""The judge takes what the generator `graphs` draws."""

import pytest

from drkernel.judge import Judge
from drkernel.tasks.generators import generate
from drkernel.types import DrKernelError


@pytest.fixture(scope="module")
def judge():
    with Judge(device="simulated", workers=1, secret=b"a secret of the tests") as judge:
        yield judge


@pytest.mark.slow
@pytest.mark.xdist_group("judged")  # one judge
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_the_judge_refuses_almost_no_task(judge, dtype):
    tasks, refused = generate("train", 200, 31, dtypes=[dtype], generator="graphs"), []
    for task in tasks:
        try:
            judge.check_task(task)
        except DrKernelError as error:
            refused.append(str(error))
    assert len(refused) <= 0.03 * len(tasks), refused
