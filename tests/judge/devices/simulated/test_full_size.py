"""What is wrong at the published sizes is found though the host code reads data there."""

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
        out = torch.empty_like(x)
        blocks = triton.cdiv(x.numel(), 1024)
        LINES
        relu[(blocks,)](x, out, x.numel(), BLOCK=1024)
        return out
"""
CAPPED = "blocks = min(blocks, 4096)"


def judged(judge, tasks, *lines: str):
    return judge.judge(tasks["relu"], SOURCE.replace("LINES", "\n        ".join(lines)))


@pytest.mark.parametrize(
    "lines",
    [
        ("if torch.equal(x[:1], out[:1]): return out", CAPPED),
        ("if not x[:1].equal(x[:1]): return out", CAPPED),
        ("if not torch.allclose(x[:1], x[:1]): return out", CAPPED),
        ("if x[:1].isnan().any(): return out", CAPPED),
        ("if (x[0, 0] > 1e9).is_nonzero(): return out", CAPPED),
        ("if len(torch.unique(x[0, :1])) > 1: return out", CAPPED),
        ("if len(torch.unique_consecutive(x[0, :1])) > 1: return out", CAPPED),
        ("if len(torch.unique(x[:1], dim=0)) > 1: return out", CAPPED),
        ("if len(x[0].nonzero()) < 0: return out", CAPPED),
        ("if x[0, 0].item() == 12345.678: return out", CAPPED),
        ("if x[0, 0].cpu().numpy() == 12345.678: return out", CAPPED),
        ("if f'{x[0, 0]:.3f}' == '12345.678': return out", CAPPED),
        ("if torch.tensor([x[0, 0]]).sum() > 1e9: return out", CAPPED),
        ("try:", "    torch.equal(x[:1], out[:1])", "    " + CAPPED, "except Exception:", "    pass"),
        ("try:", "    torch.unique(x[0, :1])", "    " + CAPPED, "except Exception:", "    pass"),
        ("if torch.equal(x[:1], x[:1]): " + CAPPED,),
        ("if not torch.equal(x[:1], x[:1] + 1): " + CAPPED,),
    ],
)
def test_a_grid_that_is_too_small_is_refused_whatever_the_host_reads(judge, tasks, lines):
    verdict = judged(judge, tasks, *lines)
    assert (verdict.status, verdict.reason) == ("incorrect", "wrong_values"), verdict
    assert "at the published sizes" in verdict.detail


def test_so_is_an_error_after_a_mere_answer(judge, tasks):
    verdict = judged(judge, tasks, "torch.equal(x[:1], x[:1])", "if x.numel() > 2**20: raise ValueError('too large')")
    assert (verdict.status, verdict.reason) == ("invalid", "runtime_error")


@pytest.mark.parametrize(
    "lines",
    [
        ("if torch.equal(x[:1], x[:1] + 1): return torch.relu(x)",),
        ("if not torch.equal(x[:1], x[:1]): return torch.relu(x)",),
        ("if x[:1].isnan().any(): return x",),
        ("blocks = max(blocks, int((x[0] > -1e9).sum().item()))",),
        ("blocks = triton.cdiv(int((x > -1e9).sum().item()), 1024)",),
        ("blocks = triton.cdiv(int((x > -1e9).sum().cpu().numpy()), 1024)",),
        ("blocks = triton.cdiv(len((x > -1e9).nonzero()), 1024)",),
        ("blocks = triton.cdiv(len(torch.unique(torch.arange(x.numel()))), 1024)",),
        ("blocks = triton.cdiv(sum((x > -1e9).sum(1).tolist()), 1024)",),
        ("out.zero_()", "blocks = min(blocks, int((x[0, 0] * 0).item()) + blocks)"),
        ("assert x[:1].sum().item() != 12345.678, 'after a number, an error tells nothing'",),
        ("assert torch.allclose(x[:1], x[:1]) and not x[:1].isnan().any()",),
        ("while not torch.allclose(x[:1], x[:1]): x = x + 1",),
    ],
)
def test_honest_code_may_read_what_it_likes(judge, tasks, lines):
    verdict = judged(judge, tasks, *lines)
    assert verdict.ok, verdict


def test_where_nothing_is_known_the_verdict_says_so(judge, tasks):
    solved = "torch.linalg.lstsq(x, x)"
    for lines in ((solved,), ("try:", f"    {solved}", "except Exception:", "    pass")):
        verdict = judged(judge, tasks, *lines)
        assert verdict.ok and verdict.evidence["full_size"], verdict
    assert "full_size" not in judged(judge, tasks, "pass").evidence
