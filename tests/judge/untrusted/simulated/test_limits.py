"""What no GPU would launch is refused, at the sizes of the interpreter and at the published ones."""

import pytest
import torch
import triton
import triton.language as tl
from torch import nn

from drkernel.judge.untrusted.simulated.dry_run import launched
from drkernel.judge.untrusted.simulated.limits import LaunchLimitExceeded
from drkernel.types import Task
from tests.judge.untrusted.simulated.launching import launch

NOTHING = {"list": [{"list": []}, {"dict": []}]}
HEAD = "import torch\nimport torch.nn as nn\nimport triton\nimport triton.language as tl\n\n\n"
TASK = HEAD + (
    "class Model(nn.Module):\n    def forward(self, x):\n        return x * 2\n\n\n"
    "def get_inputs():\n    return [torch.randn({shape})]\n\n\ndef get_init_inputs():\n    return []\n"
)
KERNEL = """@triton.jit
def _k(x, out, n, BLOCK: tl.constexpr):
    row = {row}
    i = tl.arange(0, BLOCK)
    tl.store(out + row * n + i, 2 * tl.load(x + row * n + i, mask=i < n), mask=i < n)


class ModelNew(nn.Module):
    def forward(self, x):
        out = torch.empty_like(x)
        _k[{grid}](x, out, x.shape[1], BLOCK=triton.next_power_of_2(x.shape[1]))
        return out
"""


def dry(forward, shape):
    """What a model with this `forward` launches for a tensor of so many elements."""
    model = type("Model", (nn.Module,), {"forward": lambda model, x: forward(x)})
    stride = [*(torch.Size(shape[axis + 1 :]).numel() for axis in range(len(shape)))]
    return launched(model, NOTHING, {"list": [{"tensor": 0}]}, [["float32", list(shape), stride]], False)


def verdict(judge, shape, row="tl.program_id(0).to(tl.int64)", grid="(x.shape[0],)"):
    return judge.judge(Task("limits", TASK.format(shape=shape)), HEAD + KERNEL.format(row=row, grid=grid))


@triton.jit
def fill(x, BLOCK: tl.constexpr, ROWS: tl.constexpr):
    block = tl.arange(0, BLOCK)[None, :] + tl.arange(0, ROWS)[:, None]
    tl.store(x + block * 0, block.to(tl.float32))


@triton.jit
def nothing(x):
    pass


def test_a_grid_that_cuda_does_not_launch():
    most = (2**31 - 1, 65535, 65535)
    for axis, size in enumerate(most):
        grid = [1, 1, 1]
        grid[axis] = size
        dry(lambda x: nothing[tuple(grid)](x), [4])  # noqa: B023
        grid[axis] += 1
        found = f"kernel `nothing`: .* has {size + 1} programs along {'xyz'[axis]}, at most {size} "
        with pytest.raises(LaunchLimitExceeded, match=found):
            dry(lambda x: nothing[tuple(grid)](x), [4])  # noqa: B023
    launch(nothing, (0, 70000), torch.zeros(4))
    with pytest.raises(LaunchLimitExceeded, match="70000 programs along y"):
        launch(nothing, (1, 70000), torch.zeros(4))


def test_what_follows_from_a_number_that_is_read_back_is_not_refused():
    """Without data it is 1, which it may not be with data."""
    dry(lambda x: nothing[(1, 70000 // int(x.max()))](x), [4])
    with pytest.raises(LaunchLimitExceeded):
        dry(lambda x: nothing[(1, 70000)](x), [4])


def test_limits_hold_at_the_published_sizes(judge):
    block, grid = verdict(judge, "4, 2**22"), verdict(judge, "70000, 64", "tl.program_id(1)", "(1, x.shape[0])")
    texts = (
        "numel (4194304) exceeds triton maximum tensor numel",
        "has 70000 programs along y, at most 65535 are possible",
    )
    for found, text in zip((block, grid), texts, strict=True):
        assert (found.status, found.reason) == ("invalid", "runtime_error"), found
        assert text in found.detail, found
    assert verdict(judge, "4, 2**20").ok


@triton.jit
def product(a, b, out, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr, FORM: tl.constexpr):
    """A tile of a product whose operands are read as rows of BK numbers, whatever they are."""
    m, n, acc = tl.arange(0, BM)[:, None], tl.arange(0, BN)[None, :], tl.zeros([BM, BN], tl.float32)
    for k in tl.range(0, BK if FORM == "once" else K, BK, num_stages=2 if FORM == "two stages" else None):
        at = k + tl.arange(0, BK)
        if FORM == "index":
            at += tl.load(out.to(tl.pointer_type(tl.int32), bitcast=True))
        x, y = tl.load(a + 0 * m + at[None, :]), tl.load(b + at[:, None] + 0 * n)
        if FORM == "branch":  # noqa: SIM102
            if tl.sum(tl.sum(x, 0), 0) > 0:
                x, y = tl.load(a + 0 * m + at[None, :]), tl.load(b + at[:, None] + 0 * n)
        if FORM == "sum":
            x += 1
        acc = tl.dot(x, y, acc)
        if FORM == "inner loop":
            for _ in range(K):
                acc += 1
    tl.store(out + m * BN + n, acc)


def tile(form="", kind=torch.float32, k=128, blocks=(256, 128, 64), **options):
    a, b, out = torch.zeros(k, dtype=kind), torch.zeros(k, dtype=kind), torch.zeros(blocks[0] * blocks[1])
    launch(product, (1,), a, b, out, k, *blocks, FORM=form, **options)


def test_the_stages_of_a_loop_must_fit_into_shared_memory():
    """256 x 64 and 64 x 128 numbers in fp32 take 96 KiB in each stage but one, and there are 227 KiB."""
    tile(num_stages=3)
    tile(num_stages=1)
    tile()
    found = r"kernel `product` line .*at least 294912 bytes of shared memory with num_stages=4, a program has 232448"
    with pytest.raises(LaunchLimitExceeded, match=found):
        tile(num_stages=4)
    tile("two stages", num_stages=4)
    with pytest.raises(LaunchLimitExceeded, match=found):
        tile(k=64, num_stages=4)  # a loop, since the compiler does not know K
    tile("once", num_stages=4)
    tile(kind=torch.bfloat16, num_stages=4)
    with pytest.raises(LaunchLimitExceeded, match="at least 262144 bytes"):
        tile(kind=torch.bfloat16, k=512, blocks=(256, 256, 256))


@pytest.mark.parametrize("form", ["index", "branch", "sum", "inner loop"])
def test_what_may_change_how_a_loop_is_compiled_is_not_counted(form):
    tile(form, num_stages=4)


def test_an_autotuner_leaves_out_what_does_not_fit():
    tuned = triton.autotune([triton.Config({}, num_stages=stages) for stages in (5, 4, 3)], ["K"])(product)
    launch(tuned, (1,), torch.zeros(128), torch.zeros(128), torch.zeros(2**15), 128, 256, 128, 64, FORM="")
    assert tuned.best_config.num_stages == 3


@pytest.mark.parametrize(("warps", "text"), [(64, "64 warps are 2048 threads"), (3, "must be a power of 2, found 3")])
def test_warps_that_no_gpu_starts(warps, text):
    with pytest.raises(Exception, match=text):
        launch(fill, (1,), torch.zeros(4), BLOCK=4, ROWS=1, num_warps=warps)


@triton.jit
def told(x, mode, BLOCK: tl.constexpr):
    tl.store(x + tl.arange(0, BLOCK), 1.0)


@pytest.mark.parametrize("mode", ["relu", [1, 2], torch.float32])
def test_arguments_that_triton_hands_to_no_kernel(mode):
    with pytest.raises(Exception, match="the argument `mode` is a "):
        launch(told, (1,), torch.zeros(4), mode, BLOCK=4)
