"""Several shapes and the share of the limit on a real GPU: the cases of tests/judge/test_timed_shapes.py, measured."""

from __future__ import annotations

import pytest
import torch

from drkernel.judge import Judge
from drkernel.judge.devices.cuda.device import torch_limits
from tests.judge.examples import examples
from tests.judge.test_timed_shapes import SETTINGS, SOURCES, TASK, shapes

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device"),
]
NAMES = ("general", "refuses", "falls_back", "decoy", "half_decoy")
"""What does not tell shapes by the sizes of the simulated device."""
PUBLISHED = "published = x.shape == (4096, 8192)"
HONEST = ("84_elementwise", "94_matmul", "118_layer_norm", "108_side_stream", "119_two_streams", "104_bf16")
SLACK = 1.05
"""By how much a share of the limit may exceed it: clocks above the data sheet's, outputs that stay in the L2 cache."""


@pytest.fixture(scope="module")
def verdicts(tasks):
    sources = {name: SOURCES[name].replace("published = x.shape == (32, 64)", PUBLISHED) for name in (*NAMES, "tuned")}
    sources["wrong"] = sources["general"].replace("pass", "x = x if x.numel() < 2**22 or published else x + 1")
    found = {}
    for across in ("geometric", "worst"):
        settings = SETTINGS | {"device": "cuda", "workers": None, "host_memory_mib": 4096, "screen": False}
        with Judge(**settings, timed_shapes=4, across_shapes=across) as judge:
            pending = {name: judge.submit(TASK, source) for name, source in sources.items()}
            if across == "geometric":
                honest = [example for example in examples("honest", "cuda") if example.name in HONEST]
                pending |= {example.name: judge.submit(tasks[example.task], example.source) for example in honest}
            found |= {(across, name): future.result() for name, future in pending.items()}
    return found


def test_each_shape_is_measured_with_intervals_and_single_calls(verdicts):
    verdict = verdicts["geometric", "general"]
    here, *elsewhere = shapes(verdict)
    assert verdict.ok and len(elsewhere) == 3 and here["inputs"] == [[4096, 8192]]
    for row in elsewhere:
        assert row["timing"]["calls"] and row["timing"]["single_calls"]
        assert {"switching", "resident", "waiting"} == set(row["timing"]["usual"])
        assert row["timing"]["interval"][0] == pytest.approx(row["speedup"], abs=1e-4)
        assert row["submission_us"] < row["reference_us"]
    product = here["speedup"]
    for row in elsewhere:
        product *= row["speedup"]
    assert verdict.speedup == pytest.approx(product**0.25, rel=1e-3)


def test_a_kernel_that_is_tuned_to_one_shape_loses(verdicts):
    tuned = verdicts["geometric", "tuned"]
    assert tuned.ok and tuned.speedup < 0.8 * verdicts["geometric", "general"].speedup
    assert verdicts["worst", "tuned"].speedup < tuned.speedup


@pytest.mark.parametrize("name", ["refuses", "falls_back", "decoy", "half_decoy"])
def test_whoever_does_no_work_elsewhere_is_paid_for_none(verdicts, name):
    for across in ("geometric", "worst"):
        verdict = verdicts[across, name]
        assert verdict.ok and all(row["speedup"] <= 1 for row in shapes(verdict)[1:])
    assert verdicts["worst", name].speedup <= 1


def test_wrong_outputs_at_the_large_shapes_alone_refuse_a_submission(verdicts):
    verdict = verdicts["geometric", "wrong"]
    assert (verdict.status, verdict.reason) == ("not_general", "wrong_on_other_shape")


@pytest.mark.parametrize("name", HONEST)
def test_honest_submissions_pass_at_all_shapes(verdicts, name):
    verdict = verdicts["geometric", name]
    assert verdict.ok and verdict.general, verdict
    assert len(shapes(verdict)) == 4 and all("refused" not in row for row in shapes(verdict))


@pytest.mark.parametrize("name", ["general", *HONEST])
def test_no_honest_submission_exceeds_the_limit(verdicts, name):
    facts = [verdicts["geometric", name].evidence["roofline"]]
    facts += [row["roofline"] for row in shapes(verdicts["geometric", name])[1:]]
    if torch_limits() is None:
        assert all(fact["share"] is None and fact["bytes"] for fact in facts)
    else:
        assert all(0 < fact["share"] < SLACK for fact in facts), facts
