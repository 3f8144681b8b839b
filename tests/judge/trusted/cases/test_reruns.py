"""What a reference rounds to 16 bits inside has the bounds of a task that has 16 bits from the start."""

import pytest
import torch

from drkernel.judge.trusted.cases import cases, reference_model
from drkernel.judge.trusted.cases.reruns import Rerun
from drkernel.judge.trusted.outputs import OutputTensor
from drkernel.tasks import module
from drkernel.tasks.module import Reference
from drkernel.types import DrKernelError, Task

SOURCE = (
    "import torch\nimport torch.nn as nn\n\n\nclass Model(nn.Module):\n    def forward(self, a, b):\n{}\n\n\n"
    "def get_inputs():\n    return [torch.randn(64, 96){}, torch.randn(96, 64)]\n\n\n"
    "def get_init_inputs():\n    return []\n"
)


def is_right(body: str, answer) -> bool:
    reference = Reference(Task("inside", SOURCE.format(body, "")))
    inputs = reference.inputs(3)
    expected = cases.expected_outputs(reference.task, reference_model.build(reference, 1), inputs, False, 3)
    return expected.check(OutputTensor(answer(*inputs))) is None


PRODUCT = "        return (a.half() @ b.half()).float()"


def test_a_product_in_half_of_a_reference_may_be_rounded_otherwise():
    in_fp32 = lambda a, b: a.half().float() @ b.half().float()
    assert is_right(PRODUCT, in_fp32) and is_right(PRODUCT, lambda a, b: in_fp32(a, b).half().float())


@pytest.mark.parametrize("wrong", [lambda a, b: a.bfloat16().float() @ b, lambda a, b: 1.01 * (a @ b)])
def test_bf16_and_other_results_are_wrong_there(wrong):
    assert not is_right(PRODUCT, wrong)


CHAIN = """        x = (a @ b).bfloat16()
        x = x / x.norm()
        for _ in range(5):
            y = x @ x.T
            x = 3.4445 * x + (-4.775 * y + 2.0315 * y @ y) @ x
        return x"""


def test_products_of_products_have_the_roundings_of_eager():
    def fused(a, b):
        x = (a @ b).bfloat16()
        x = x / x.norm()
        for _ in range(5):
            y = x @ x.T
            z = (-4.775 * y.float() + 2.0315 * (y @ y).float()).bfloat16()
            x = (3.4445 * x.float() + (z @ x).float()).bfloat16()
        return x

    assert is_right(CHAIN, fused)
    assert not is_right(CHAIN, lambda a, b: fused(a, b) * 1.5)
    assert not is_right(CHAIN, lambda a, b: fused(a, torch.where(b > 2, 0, b)))


def test_a_rounded_result_grants_nothing_to_products_in_fp32():
    rounds_last = "        return (a @ b).half().float()"
    assert is_right(rounds_last, lambda a, b: (a @ b).half().float())
    assert not is_right(rounds_last, lambda a, b: (a.bfloat16().float() @ b.bfloat16().float()).half().float())


FP8 = "        return a @ (b.to(torch.float8_e4m3fn).to(torch.bfloat16) * 0.07)"


@pytest.mark.parametrize(("device", "wide"), [(None, torch.float64), ("cpu", torch.float32)])
def test_weights_that_become_bf16_inside_meet_inputs_in_runs_of_any_width(monkeypatch, device, wide):
    """Runs with noise are in fp64, and in fp32 where tensors are on a device of their own, as GPUs are."""
    monkeypatch.setattr(module, "DEVICE", device)
    reference = Reference(Task("inside", SOURCE.format(FP8, ".bfloat16()")))
    run = Rerun("ieee", reference_model.build(reference, 1), reference.inputs(3), False, 3)
    (exact, _), (noisy, _) = run.exact(), run.noisy(0)
    assert noisy.dtype == wide
    assert 1e-3 < (noisy - exact).norm() / exact.norm() < 1e-2


@pytest.mark.parametrize("device", [None, "cpu"])
def test_noise_takes_no_probability_beyond_one(monkeypatch, device):
    monkeypatch.setattr(module, "DEVICE", device)
    source = SOURCE.format(
        "        return nn.functional.binary_cross_entropy(a, a)", ".sigmoid_().clamp_(min=1 - 1e-7)"
    )
    reference = Reference(Task("probabilities", source))
    run = Rerun("ieee", reference_model.build(reference, 1), reference.inputs(3), False, 3)
    assert run.noisy(0)[0] >= 0
    with pytest.raises(DrKernelError, match="between 0 and 1"):
        Rerun("ieee", reference_model.build(reference, 1), [torch.full((4,), 1.5)] * 2, False, 3).exact()
