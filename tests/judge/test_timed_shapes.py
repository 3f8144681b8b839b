"""Speed-ups at several shapes, as the users of a Judge see them: nobody gains by being tuned to the published one."""

from __future__ import annotations

import dataclasses

import pytest

from drkernel.judge import Judge, feedback
from drkernel.types import DrKernelError, Task, Verdict

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("judged at several shapes")]  # one worker asks for the verdicts

TASK = Task(
    "chain",
    """
import torch, torch.nn as nn
rows = 4096
cols = 8192
class Model(nn.Module):
    def forward(self, x):
        return torch.tanh(x) * x + torch.relu(x)
def get_inputs():
    return [torch.randn(rows, cols)]
def get_init_inputs():
    return []
""",
    small={"rows": 32, "cols": 64},
)
ONE_SHAPE = dataclasses.replace(
    TASK,
    id="one shape",
    source=TASK.source.replace("4096", "32")
    .replace("8192", "64")
    .replace("        return torch.tanh", "        assert x.shape == (32, 64)\n        return torch.tanh"),
    small=None,
)
KERNELS = """
import torch, torch.nn as nn, triton, triton.language as tl

@triton.jit
def fused(x_ptr, y_ptr, n, scale, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + i, mask=i < n)
    tanh = 2 * tl.sigmoid(2 * x) - 1
    tl.store(y_ptr + i, scale * (tanh * x + tl.maximum(x, 0.0)), mask=i < n)

@triton.jit
def copy(x_ptr, y_ptr, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(y_ptr + i, tl.load(x_ptr + i, mask=i < n), mask=i < n)

def launch(kernel, x, *more):
    y, n = torch.empty_like(x), x.numel()
    kernel[(triton.cdiv(n, 1024),)](x, y, n, *more, BLOCK=1024)
    return y

class ModelNew(nn.Module):
    def forward(self, x):
        published = x.shape in ((32, 64), (4096, 8192))  # the small run of these sizes, and they
        {elsewhere}
        return launch(fused, x, 1.0)
"""
TRIED = "x.shape[0] in (32, 33, 29, 24, 16) and x.shape[1] in (64, 65, 61, 48, 32)"
"""Whether only correctness is tried at a shape."""
SUBMISSIONS = {
    "general": "pass",
    "tuned": "x = x if published else launch(copy, launch(copy, launch(copy, x)))",
    "refuses": "if not published: raise ValueError('only the published shape')",
    "falls_back": "if not published: return torch.tanh(x) * x + torch.relu(x)",
    "decoy": "if not published: return (launch(copy, x), torch.tanh(x) * x + torch.relu(x))[1]",
    "half_decoy": "if not published: return launch(copy, torch.tanh(x) * x + torch.relu(x))",
    "wrong": f"if not ({TRIED}) and max(x.shape) < 500: x = x + 1",
    "wrong_values": "if x.shape[0] not in (32, 33, 29, 24, 16): x = x.clamp(max=10.0)",
    "keeps": "launch.kept = max(getattr(launch, 'kept', x), x.clone(), key=torch.numel); "
    "x = launch.kept.flatten()[: x.numel()].copy_(x.flatten()).view_as(x)",
    "crashes": f"if not ({TRIED}): import os; os._exit(3)",
}
"""What is done at other shapes. `wrong` and `crashes` are right at those where only correctness is tried; of these one
has a long size."""
SOURCES = {name: KERNELS.replace("{elsewhere}", text) for name, text in SUBMISSIONS.items()}
SETTINGS = {
    "device": "simulated",
    "workers": 1,
    "secret": b"a secret of the tests",
    "timeout_s": 8,
    "host_memory_mib": 1024,
    "gate": False,
}


@pytest.fixture(scope="module")
def verdicts():
    """By settings and submission."""
    found: dict[tuple[str, str], Verdict] = {}
    for name, more in {
        "one": {},
        "geometric": {"timed_shapes": 4},
        "worst": {"timed_shapes": 4, "across_shapes": "worst"},
        "penalise": {"timed_shapes": 4, "shapes": "penalise"},
    }.items():
        with Judge(**SETTINGS, **more) as judge:
            found |= {(name, key): judge.judge(TASK, source) for key, source in SOURCES.items()}
            found[name, "one shape"] = judge.judge(ONE_SHAPE, SOURCES["general"])
    return found


def shapes(verdict: Verdict) -> list[dict]:
    return verdict.evidence["timed_shapes"]["shapes"]


def test_one_shape_is_the_default_and_changes_nothing(verdicts):
    verdict = verdicts["one", "tuned"]
    assert verdict.ok and verdict.speedup > 2 and "timed_shapes" not in verdict.evidence
    assert "others of about this size" not in feedback(verdict, 100, lambda text: len(text.split()))


def test_each_shape_has_its_times_and_the_first_is_the_published_one(verdicts):
    verdict = verdicts["geometric", "general"]
    here, *elsewhere = shapes(verdict)
    assert here["published"] and here["sizes"] == {} and here["inputs"] == [[4096, 8192]]
    assert here["speedup"] == pytest.approx(verdicts["one", "general"].speedup, abs=1e-4)
    assert (here["reference_us"] / 1e3, here["submission_us"] / 1e3) == pytest.approx(
        (verdict.reference_ms, verdict.submission_ms), abs=1e-6
    )
    assert len(elsewhere) == 3 and all(row["sizes"] and row["inputs"] != [[4096, 8192]] for row in elsewhere)
    for row in shapes(verdict):
        assert row["speedup"] == pytest.approx(row["reference_us"] / row["submission_us"], rel=1e-3)
    assert all(0 < row["roofline"]["share"] < 1 for row in elsewhere)


def test_the_verdict_has_the_geometric_mean_or_the_worst(verdicts):
    rows = [row["speedup"] for row in shapes(verdicts["geometric", "tuned"])]
    assert verdicts["geometric", "tuned"].speedup == pytest.approx(
        (rows[0] * rows[1] * rows[2] * rows[3]) ** 0.25, rel=1e-3
    )
    assert [row["speedup"] for row in shapes(verdicts["worst", "tuned"])] == rows
    assert verdicts["worst", "tuned"].speedup == pytest.approx(min(rows), abs=1e-4)


def test_a_general_kernel_keeps_its_speedup(verdicts):
    one = verdicts["one", "general"].speedup
    assert verdicts["geometric", "general"].speedup == pytest.approx(one, rel=0.1)
    assert verdicts["worst", "general"].speedup > 0.9 * one


def test_what_is_kept_of_tensors_without_data_changes_no_other_call(verdicts):
    verdict = verdicts["geometric", "keeps"]
    assert verdict.ok and verdict.general and not any("refused" in row for row in shapes(verdict))


def test_a_kernel_that_is_tuned_to_one_shape_loses(verdicts):
    one, general = verdicts["one", "tuned"].speedup, verdicts["geometric", "general"].speedup
    assert one == pytest.approx(verdicts["one", "general"].speedup)
    assert verdicts["worst", "tuned"].speedup < verdicts["geometric", "tuned"].speedup < 0.7 * general


@pytest.mark.parametrize("name", ["refuses", "falls_back", "decoy", "half_decoy"])
def test_whoever_does_no_work_elsewhere_is_paid_for_none(verdicts, name):
    one, geometric, worst = (verdicts[settings, name] for settings in ("one", "geometric", "worst"))
    assert one.ok and geometric.ok and worst.ok and one.speedup > 2
    assert all(row["speedup"] <= 1 for row in shapes(geometric)[1:])
    assert geometric.speedup <= one.speedup**0.25 * 1.001 and worst.speedup <= 1 and worst.reason != "faster"


def test_who_refuses_a_shape_is_not_general_and_says_how(verdicts):
    verdict = verdicts["geometric", "refuses"]
    assert not verdict.general and "only the published shape" in verdict.evidence["other_shape"]
    for row in shapes(verdict)[1:]:
        assert row["speedup"] == 1 and row["submission_us"] is None and "only the published" in row["refused"]
    assert "1.00 (refused)" in feedback(verdict, 100, lambda text: len(text.split()))


@pytest.mark.parametrize("name", ["falls_back", "decoy", "half_decoy"])
def test_work_of_pytorch_is_known_elsewhere_too(verdicts, name):
    assert verdicts["geometric", name].general
    assert all(row["own_work"] is False for row in shapes(verdicts["geometric", name])[1:])


@pytest.mark.parametrize("settings", ["geometric", "worst"])
def test_wrong_outputs_at_a_timed_shape_refuse_the_submission(verdicts, settings):
    assert verdicts["one", "wrong"].ok and verdicts["one", "wrong"].general
    verdict = verdicts[settings, "wrong"]
    assert verdict.detail in [
        f"wrong_values (case: another shape of about this size{more})" for more in ("", ", mixed values")
    ]
    assert (verdict.status, verdict.reason, verdict.speedup) == ("not_general", "wrong_on_other_shape", None)
    assert (verdicts[settings, "crashes"].status, verdicts[settings, "crashes"].reason) == (
        "not_general",
        "crash_on_other_shape",
    )


def test_other_values_are_tried_there_as_well(verdicts):
    """Given inputs have no number above ten; others have."""
    verdict = verdicts["geometric", "wrong_values"]
    assert verdict.status == "not_general" and "mixed values" in verdict.detail


def test_wrong_outputs_cost_the_shape_where_that_is_the_setting(verdicts):
    verdict = verdicts["penalise", "wrong"]
    assert verdict.ok and not verdict.general
    assert 1 in [row["speedup"] for row in shapes(verdict)[1:] if "refused" in row]


def test_a_task_without_another_shape_says_so(verdicts):
    verdict = verdicts["geometric", "one shape"]
    assert verdict.ok and verdict.speedup == pytest.approx(verdicts["one", "one shape"].speedup)
    assert verdict.evidence["timed_shapes"]["missing"].startswith("0 of 3 other shapes")


def test_feedback_tells_speedups_and_no_shapes(verdicts):
    text = feedback(verdicts["geometric", "tuned"], 100, lambda text: len(text.split()))
    here, *elsewhere = (row["speedup"] for row in shapes(verdicts["geometric", "tuned"]))
    said = ", ".join(f"{speedup:.2f}" for speedup in elsewhere)
    assert f"speedup {here:.2f} at the given shape, {said} at others of about this size" in text.splitlines()
    assert not any(
        str(size) in text for row in shapes(verdicts["geometric", "tuned"])[1:] for size in row["sizes"].values()
    )


def test_the_same_secret_gives_the_same_verdict(verdicts):
    with Judge(**SETTINGS, timed_shapes=4) as judge:
        again = judge.judge(TASK, SOURCES["tuned"])
    assert again.to_dict() | {"seconds": 0} == verdicts["geometric", "tuned"].to_dict() | {"seconds": 0}


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"timed_shapes": 0}, "judge: timed_shapes is 0, expected 1 to 4"),
        ({"timed_shapes": 5}, "judge: timed_shapes is 5, expected 1 to 4"),
        ({"across_shapes": "mean"}, "judge: across_shapes is 'mean', expected one of geometric, worst"),
        (
            {"timed_shapes": 2, "shapes": "ignore"},
            r"judge: timed_shapes \(2\) needs shapes 'reject' or 'penalise', found 'ignore'",
        ),
    ],
)
def test_settings_that_mean_nothing_are_refused(options, text):
    with pytest.raises(DrKernelError, match=text):
        Judge(**options)
