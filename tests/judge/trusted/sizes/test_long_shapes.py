"""One size at a time is as long as in the published task, as far as that is cheap."""

import dataclasses
import time

from drkernel.judge.boundary.framing import DeadlineExceeded
from drkernel.judge.trusted.generality import Generality
from drkernel.judge.trusted.prepare import names_that_size_inputs
from drkernel.judge.trusted.sizes import lift, long_shapes, shrink
from drkernel.judge.trusted.sizes.size_cost import cost_of
from drkernel.tasks.module import Reference
from drkernel.types import Task

SOURCE = (
    "import torch\nimport torch.nn as nn\n\n{sizes}\n\n\nclass Model(nn.Module):\n    def forward(self, {names}):\n"
    "        return {result}\n\n\ndef get_inputs():\n    return [{inputs}]\n\n\ndef get_init_inputs():\n    return []\n"
)
SOFTMAX = SOURCE.format(
    sizes="rows = 4096\ncols = 8192", names="x", result="torch.softmax(x, 1)", inputs="torch.rand(rows, cols)"
)
PRODUCT = SOURCE.format(
    sizes="M = 4096\nK = 4096\nN = 2048", names="a, b", result="a @ b", inputs="torch.rand(M, K), torch.rand(K, N)"
)
ATTENTION = SOURCE.format(
    sizes="heads = 16\nlength = 16384\nwidth = 64",
    names="q",
    result="torch.softmax(q @ q.mT, -1) @ q",
    inputs="torch.rand(heads, length, width)",
)
CODES = (
    SOURCE.format(
        sizes="rows = 4096\nwidth = 4\ncodes = 8192",
        names="x",
        result="(x @ self.codes.T).amax(1)",
        inputs="torch.rand(rows, width)",
    )
    .replace(
        "def forward",
        "def __init__(self, codes, width):\n        super().__init__()\n        "
        "self.codes = nn.Parameter(torch.randn(codes, width))\n\n    def forward",
    )
    .replace("return []", "return [codes, width]")
)
ROUNDS = (
    SOURCE.format(
        sizes="rows = 4096\nwidth = 512\nrounds = 400",
        names="x",
        result="next(x for r in range(self.rounds + 1) if r == self.rounds or (x := (x @ self.a).tanh()) is None)",
        inputs="torch.rand(rows, width)",
    )
    .replace(
        "def forward",
        "def __init__(self, width, rounds):\n        super().__init__()\n        self.rounds = rounds\n        "
        "self.a = nn.Parameter(torch.randn(width, width))\n\n    def forward",
    )
    .replace("return []", "return [width, rounds]")
)
SMALL = SOURCE.format(sizes="n = 64", names="x", result="x * 2", inputs="torch.rand(n, n)")


def longest(source: str) -> list[dict[str, int]]:
    task = shrink.fit(Task("t", source))
    base, published = Reference(task, task.small), Reference(task)
    names = names_that_size_inputs(task, base, 0)
    found = long_shapes.references(task, base, published, names, 0)
    assert all(not cost_of(reference).exceeds(long_shapes.MOST) for reference in found)
    return [reference.constants for reference in found]


def test_each_size_is_the_published_one_once_where_the_cost_grows_as_it():
    assert sorted(max(sizes, key=lambda name: sizes[name]) for sizes in longest(SOFTMAX)) == ["cols", "rows"]
    assert {max(sizes.values()) for sizes in longest(SOFTMAX)} == {4096, 8192}
    assert [max(sizes.values()) for sizes in longest(PRODUCT)] == [4096, 4096, 2048]


def test_a_size_of_which_the_cost_grows_as_a_power_is_as_long_as_is_cheap():
    lengths = [sizes["length"] for sizes in longest(ATTENTION)]
    assert 256 <= max(lengths) < 16384


def between(source: str) -> list[dict[str, int]]:
    task = shrink.fit(Task("t", source))
    base, published = Reference(task, task.small), Reference(task)
    names = names_that_size_inputs(task, base, 0)
    found = long_shapes.references(task, base, published, names, 0)
    others = long_shapes.beside(task, base, found, names, 0)
    assert all(not cost_of(reference).exceeds(long_shapes.MOST) for reference in others)
    return [reference.constants for reference in others]


def test_sizes_of_inputs_are_three_quarters_of_the_long_ones_too_and_odd():
    assert {max(sizes.values()) for sizes in between(SOFTMAX)} == {3 * 4096 // 4 + 1, 3 * 8192 // 4 + 1}
    assert [max(sizes.values()) for sizes in between(PRODUCT)] == [3073, 3073]
    assert not between(SMALL)


def test_where_an_odd_size_does_not_run_it_has_whole_blocks():
    source = SOFTMAX.replace("torch.softmax(x, 1)", "torch.softmax(x.view(x.shape[0], -1, 16), 1)")
    assert 6144 in [sizes["cols"] for sizes in between(source)]


def test_a_size_that_weights_alone_have_is_long_once():
    assert [sizes["codes"] for sizes in longest(CODES)].count(8192) == 1


def test_a_number_of_rounds_is_large_once():
    task = shrink.fit(Task("t", ROUNDS))
    assert task.small["rounds"] < 200  # 800 operators are too many for an interpreter, in each case
    assert [sizes["rounds"] for sizes in longest(ROUNDS)].count(400) == 1


def test_a_batch_of_two_images_is_larger_once():
    source = SOURCE.format(
        sizes="wide = 96",
        names="x",
        result="torch.relu(self.b(torch.relu(self.a(x))).mean((2, 3)) @ self.c)",
        inputs="torch.rand(8, 3, 224, 224)",
    ).replace(
        "def forward",
        "def __init__(self):\n        super().__init__()\n        "
        "self.a, self.b = nn.Conv2d(3, 64, 7, 4), nn.Conv2d(64, 32, 3)\n        "
        "self.c = nn.Parameter(torch.randn(32, 1000))\n\n    def forward",
    )
    task = dataclasses.replace(Task("t", lift.lift_batches(source)), small={"SIZE_8": 2})
    base, published = Reference(task, task.small), Reference(task)
    found = long_shapes.references(task, base, published, names_that_size_inputs(task, base, 0), 0)
    assert [reference.constants["SIZE_8"] for reference in found] == [4]  # of eight it would be too dear


def test_what_is_small_already_has_no_longer_shape():
    assert not longest(SMALL)


def test_they_are_found_in_little_time():
    start = time.perf_counter()
    longest(PRODUCT)
    assert time.perf_counter() - start < 10


KERNEL = """
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def scale(x, out, n, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    row = tl.program_id(0) * n
    tl.store(out + row + i, tl.load(x + row + i, mask=i < n) * 2, mask=i < n)


class ModelNew(nn.Module):
    def forward(self, x):
        assert x.shape[1] <= MOST, "rows of at most 2048"
        out = torch.zeros_like(x)
        scale[(x.shape[0],)](x, out, x.shape[1], BLOCK=min(MOST, triton.next_power_of_2(x.shape[1])))
        return out
""".replace("MOST", "(8192 if len(x) == 4096 else 2048)")
DOUBLE = Task("double", SMALL.replace("n = 64", "rows = 4096\nn = 8192").replace("rand(n, n)", "rand(rows, n)"))


def test_who_raises_an_error_where_a_size_is_long_is_not_general(judge):
    verdict = judge.judge(DOUBLE, KERNEL)
    assert (verdict.status, verdict.general) == ("ok", False) and "at most 2048" in verdict.evidence["other_shape"]


def test_who_is_wrong_there_is_refused(judge):
    verdict = judge.judge(DOUBLE, KERNEL.replace("        assert", "        # assert"))
    assert verdict.reason == "wrong_on_other_shape"


def test_who_used_up_the_time_before_is_asked_and_who_does_not_answer_keeps_the_verdict():
    class Client:
        timeout_s, left = 8.0, 0.0

        def extend_deadline(self, seconds: float) -> None:
            self.left += seconds

    class Pair:
        client, asked = Client(), 0

        def draw(self, plan):
            return plan

        def ask(self, case):
            self.asked += 1
            assert self.client.left == 8.0
            raise DeadlineExceeded

    pair, generality = Pair(), Generality(strict=True, source="")
    generality.ask_long_shapes(pair, (False,), 3)
    assert pair.asked == 1 and generality.general and "in time" in generality.evidence["long_shapes"]


BESIDE = KERNEL.replace("        assert", "        # assert").replace(
    "min((8192 if len(x) == 4096 else 2048), triton.next_power_of_2(x.shape[1]))",
    "8192 if x.shape[1] == 8192 else 512",
)


def test_who_is_right_at_the_published_size_alone_is_refused(judge):
    verdict = judge.judge(DOUBLE, BESIDE)
    assert verdict.reason == "wrong_on_other_shape" and "one size" in verdict.evidence["case"]
    assert judge.judge(DOUBLE, BESIDE.replace("8192 if x.shape[1] == 8192 else 512", "8192")).general
