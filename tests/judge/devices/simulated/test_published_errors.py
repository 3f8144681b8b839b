"""An error of the host code at the published sizes is one of the submission, unless it comes from missing data."""

import pytest

SOURCE = """
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def relu(x_ptr, out_ptr, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out_ptr + i, tl.maximum(tl.load(x_ptr + i, mask=i < n), 0.0), mask=i < n)


class ModelNew(nn.Module):
    def forward(self, x):
        LINES
        out = torch.empty_like(x)
        relu[(triton.cdiv(x.numel(), 1024),)](x, out, x.numel(), BLOCK=1024)
        return out
"""
LARGE = "if x.numel() > 2**20: "


def judged(judge, tasks, *lines: str):
    return judge.judge(tasks["relu"], SOURCE.replace("LINES", "\n        ".join(lines)))


@pytest.mark.parametrize(
    ("line", "error"),
    [
        ("assert x.numel() <= 2**20, 'too large'", "AssertionError"),
        (LARGE + "x.view(7, -1)", "RuntimeError"),
        (LARGE + "self.packed", "AttributeError"),
        (LARGE + "relu[(1, 1, 1, 1)](x, x, 4, BLOCK=4)", "InterpreterError"),
    ],
)
def test_an_error_at_the_published_sizes_refuses(judge, tasks, line, error):
    verdict = judged(judge, tasks, line)
    assert (verdict.status, verdict.reason, verdict.evidence["error"]) == ("invalid", "runtime_error", error)
    assert "(at the published sizes)" in verdict.detail and verdict.evidence["line"] == 16


@pytest.mark.parametrize(
    "line",
    [
        "assert x.is_cuda and x.device.type == 'cuda' and x.device == torch.device('cuda', 0) and not x.is_cpu",
        "assert x.get_device() == 0 and x.device.index == 0 and not x.is_meta and not x.is_sparse and x.is_leaf",
        "assert x.is_contiguous() and x.stride() == (x.shape[1], 1) and x.data_ptr() % 16 == 0",
        "assert isinstance(x, torch.Tensor) and x.layout == torch.strided and x.storage_offset() == 0",
        "assert x.nelement() == x.numel() and not x.requires_grad and x.is_floating_point() and x.itemsize == 4",
        "assert not x[:1].isnan().any() and torch.isfinite(x[0, :4]).all()",
        "assert (x[0, 0] * 0).item() == 0",
        "assert x[:0].tolist() == []",
        "assert x[0, :2].cpu().numpy().shape == (2,)",
        "assert torch.tensor([x[0, 0], x[0, 1]]).min() > -100",
        "f'{x[0, 0]:.3f}'",
        "if not torch.equal(x[:1], x[:1]): raise ValueError",
        "if x[0, 0].item() == 12345.678: raise ValueError",
    ],
)
def test_what_fails_without_data_alone_refuses_nothing(judge, tasks, line):
    verdict = judged(judge, tasks, line)
    assert verdict.ok, verdict
