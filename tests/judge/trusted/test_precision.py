"""What a task's precision grants: nothing more to fp32, and to 16 bits rounding in their own format."""

from __future__ import annotations

import itertools

import pytest
import torch

from drkernel.judge.trusted.cases import cases, reference_model
from drkernel.judge.trusted.cases.plans import WAYS, Plan
from drkernel.judge.trusted.outputs import OutputTensor
from drkernel.judge.trusted.rounding import formats
from drkernel.tasks.module import Reference
from drkernel.types import Task

LAYER = """
import torch
import torch.nn as nn

M, K, N = 96, 256, 128

class Model(nn.Module):
    def __init__(self, k, n):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(n, k))
        self.to(torch.{dtype})

    def forward(self, x):
        return {forward}

def get_inputs():
    return [torch.randn(M, K, dtype=torch.{dtype})]

def get_init_inputs():
    return [K, N]
"""
GELU = "torch.nn.functional.gelu(x @ self.weight.T / 16)"


def drawn(dtype: str, precision: str = "ieee", forward: str = GELU):
    """The inputs of a case, the weight, and the expected outputs."""
    task = Task("t", LAYER.format(dtype=dtype, forward=forward), precision=precision)
    model = reference_model.build(Reference(task), 1)
    inputs = model.reference.inputs(2)
    return inputs[0], model.model.weight.detach(), cases.expected_outputs(task, model, inputs, False, 3, True)


def gelu(x: torch.Tensor) -> torch.Tensor:
    return torch.nn.functional.gelu(x / 16)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
@pytest.mark.parametrize("precision", ["tf32", "low"])
def test_a_task_of_16_bits_grants_the_same_whatever_its_precision_says(dtype, precision):
    _, _, ieee = drawn(dtype)
    _, _, other = drawn(dtype, precision)
    assert ieee.tolerance() == other.tolerance()


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_a_kernel_that_adds_up_in_fp32_and_rounds_its_output_is_right(dtype):
    x, weight, expected = drawn(dtype, "low")
    assert expected.check(OutputTensor(gelu(x.float() @ weight.float().T).to(x.dtype))) is None


def test_adding_up_in_16_bits_is_wrong():
    x, weight, expected = drawn("bfloat16", "low")
    total = torch.zeros(len(x), len(weight), dtype=x.dtype)
    for k in range(x.shape[1]):
        total += x[:, k : k + 1] * weight[:, k]
    assert expected.check(OutputTensor(gelu(total)))


TWO_LAYERS = "torch.softmax(x @ self.weight.T, 1) @ (self.weight + 1)"


def tf32(x: torch.Tensor) -> torch.Tensor:
    return formats._to_bits(x, 13)


def truncated(x: torch.Tensor) -> torch.Tensor:
    return (x.view(torch.int32) & -(1 << 13)).view(torch.float32)


def bf16(x: torch.Tensor) -> torch.Tensor:
    return x.bfloat16().float()


def fp16(x: torch.Tensor) -> torch.Tensor:
    return x.half().float()


def layer(x, weight, low):
    return gelu(low(x) @ low(weight).T)


def two_layers(x, weight, low):
    return low(torch.softmax(low(x) @ low(weight).T, 1)) @ low(weight + 1)


@pytest.mark.parametrize(("forward", "answer"), [(GELU, layer), (TWO_LAYERS, two_layers)], ids=["layer", "two layers"])
@pytest.mark.parametrize(
    ("low", "name", "advice"),
    [
        (tf32, "TF32", "this task asks for fp32: input_precision='ieee'"),
        (truncated, "TF32", "this task asks for fp32: input_precision='ieee'"),
        (fp16, "TF32", "this task asks for fp32: input_precision='ieee' and no fp16"),
        (bf16, "bf16", "this task asks for factors in fp32: no cast before a product"),
    ],
    ids=["tf32", "tf32 by truncation", "fp16, which has as many bits", "bf16"],
)
def test_outputs_that_are_right_in_lower_precision_are_refused_with_its_name(forward, answer, low, name, advice):
    x, weight, expected = drawn("float32", forward=forward)
    problem = expected.check(OutputTensor(answer(x, weight, low)))
    assert problem.reason == "wrong_values" and problem.right_in == name
    assert f"output is right in {name}" in problem.text and advice in problem.text


def test_one_factor_may_be_rounded_to_tf32_and_the_other_one_cut_off():
    x, weight, expected = drawn("float32")
    for value in (gelu(tf32(x) @ truncated(weight).T), gelu(truncated(x) @ tf32(weight).T)):
        assert expected.check(OutputTensor(value)).right_in == "TF32"


def test_fp16_is_told_from_tf32_beyond_its_range():
    x, weight, expected = drawn("float32", forward="(1e-7 * x) @ self.weight.T")
    assert expected.check(OutputTensor(fp16(1e-7 * x) @ fp16(weight).T)).right_in == "fp16"
    assert expected.check(OutputTensor(tf32(1e-7 * x) @ tf32(weight).T)).right_in == "TF32"


def test_a_product_of_the_library_in_16_bits_is_known_too():
    x, weight, expected = drawn("float32")
    assert expected.check(OutputTensor(gelu((x.bfloat16() @ weight.bfloat16().T).float()))).right_in == "bf16"
    x, weight, expected = drawn("float32", forward="torch.addmm(self.weight[0, :128], x, self.weight.T)")
    product = (x.bfloat16() @ weight.bfloat16().T).float()
    assert expected.check(OutputTensor(product + weight[0, :128])).right_in == "bf16"


@pytest.mark.parametrize(
    "wrong",
    [
        lambda x, w: 1.001 * layer(x, w, tf32),
        lambda x, w: layer(x, w, tf32) + 1e-3,
        lambda x, w: torch.cat([layer(x[:-1], w, tf32), 0.98 * layer(x[-1:], w, tf32)]),
        lambda x, w: layer(x, w, tf32).index_put_((torch.tensor([5]), torch.tensor([6])), torch.tensor(0.0)),
        lambda x, w: gelu(torch.cat([tf32(x[:, :128]) @ tf32(w[:, :128]).T + x[:, 128:] @ w[:, 128:].T])),
        lambda x, w: torch.nn.functional.gelu(x @ w.T / 16, approximate="tanh"),
        lambda x, w: torch.relu(x @ w.T / 16),
        lambda x, w: layer(x, w, lambda t: t) * torch.nan,
    ],
    ids=["scaled", "shifted", "a wrong row", "a wrong element", "half of K", "tanh", "relu", "nan"],
)
def test_outputs_that_are_wrong_in_another_way_are_not_said_to_be_right_in_lower_precision(wrong):
    x, weight, expected = drawn("float32")
    problem = expected.check(OutputTensor(wrong(x, weight)))
    assert problem and not problem.right_in and "is right in" not in problem.text


def fp8(x: torch.Tensor) -> torch.Tensor:
    return x.to(torch.float8_e4m3fn).float()


@pytest.mark.parametrize(
    ("precision", "right", "low", "name"), [("tf32", tf32, bf16, "bf16"), ("low", bf16, fp8, "fp8")]
)
def test_products_that_a_precision_forbids_are_wrong_where_their_errors_cancel(precision, right, low, name):
    x, weight, expected = drawn("float32", precision, forward="x.abs() @ self.weight.abs().T")
    assert expected.check(OutputTensor(right(x.abs()) @ right(weight.abs()).T)) is None
    assert expected.check(OutputTensor(low(x.abs()) @ low(weight.abs()).T)).right_in == name


def test_what_the_precision_allows_is_right_and_what_it_does_not_is_named():
    x, weight, expected = drawn("float32", "tf32")
    assert expected.check(OutputTensor(layer(x, weight, tf32))) is None
    assert expected.check(OutputTensor(layer(x, weight, bf16))).right_in == "bf16"
    x, weight, expected = drawn("float32", "low")
    assert expected.check(OutputTensor(layer(x, weight, bf16))) is None


FLASH = "torch.softmax(x @ self.weight.T / 8, 1) @ self.weight"


def flash(x, weight, low):
    """Attention with weights that are rounded before they are divided by their sum."""
    scores = low(x) @ low(weight).T / 8
    weights = torch.exp(scores - scores.max(1, keepdim=True).values)
    return low(weights) @ low(weight) / weights.sum(1, keepdim=True)


@pytest.mark.parametrize(("low", "name"), [(tf32, "TF32"), (truncated, "TF32"), (bf16, "bf16")])
def test_attention_in_lower_precision_is_known_though_it_rounds_other_weights(low, name):
    x, weight, expected = drawn("float32", forward=FLASH)
    assert expected.check(OutputTensor(flash(x, weight, lambda t: t))) is None
    problem = expected.check(OutputTensor(flash(x, weight, low)))
    assert problem.right_in == name
    off = flash(x, weight, low)
    off[3, 4] += 0.5
    for wrong in (off, 1.05 * flash(x, weight, low), flash(x, weight, lambda t: t) * 1.0005):
        assert not expected.check(OutputTensor(wrong)).right_in


@pytest.mark.parametrize(("precision", "low"), [("tf32", tf32), ("tf32", truncated), ("low", bf16)])
def test_equal_factors_are_rounded_alike_and_stay_right_where_that_is_allowed(precision, low):
    forward = "(x * 0 + x[:, :1]) @ self.weight.T.abs()"
    x, weight, expected = drawn("float32", precision, forward=forward)
    assert expected.check(OutputTensor(low(x[:, :1].expand(-1, 256)) @ low(weight.abs()).T)) is None


CHAIN = """
import torch
import torch.nn as nn

ROWS = {rows}

class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(8, 64))
        self.to(torch.{dtype})

    def forward(self, x):
        return (x @ self.weight.T) * 3.0 + 2.0

def get_inputs():
    return [torch.randn(ROWS, 64, dtype=torch.{dtype})]

def get_init_inputs():
    return []
"""


def chain(dtype: str, rows: int = 512, seed: int = 2):
    """As `drawn`, of a product whose multiple nearly cancels a constant here and there; an element stands alone."""
    model = reference_model.build(Reference(task := Task("t", CHAIN.format(dtype=dtype, rows=rows))), 1)
    inputs = [x / 4 for x in model.reference.inputs(seed)]
    return inputs[0], model.model.weight.detach(), cases.expected_outputs(task, model, inputs, False, 3)


@pytest.mark.slow
@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
@pytest.mark.parametrize("core", ["library", "fp32"])
def test_who_leaves_a_product_to_the_library_may_have_its_rounding(dtype, core):
    """A kernel that does the rest in fp32 rounds at fewer places than eager, whose errors may cancel."""
    wrong = 0
    for seed in range(40):
        x, weight, expected = chain(dtype, 32, seed)
        product = (x @ weight.T).float() if core == "library" else x.float() @ weight.float().T
        wrong += expected.check(OutputTensor((product * 3 + 2).to(x.dtype))) is not None
    assert not wrong


def test_fewer_bits_than_the_product_has_are_wrong():
    x, weight, expected = chain("bfloat16")
    coarse = ((x @ weight.T).float().view(torch.int32) & -(1 << 19)).view(torch.float32)
    assert expected.check(OutputTensor((coarse * 3 + 2).to(x.dtype)))


def test_fp32_grants_no_rounding_to_16_bits():
    x, weight, expected = chain("float32")
    core = (x @ weight.T).to(torch.bfloat16).float()
    assert expected.check(OutputTensor(core * 3 + 2))


def test_roundings_that_eager_does_not_do_are_not_granted():
    """A task that computes in fp32 and rounds once at its end."""
    source = CHAIN.format(dtype="bfloat16", rows=512)
    source = source.replace(
        "(x @ self.weight.T) * 3.0 + 2.0", "((x.float() @ self.weight.float().T) * 3.0 + 2.0).to(x.dtype)"
    )
    model = reference_model.build(Reference(task := Task("t", source)), 1)
    (x,) = model.reference.inputs(2)
    expected = cases.expected_outputs(task, model, [x], False, 3)
    assert expected.check(OutputTensor((x @ model.model.weight.T).detach() * 3 + 2))


GRADIENTS = """
import torch
import torch.nn as nn

class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(256, 192)

    def forward(self, x, grad):
        x = x.detach().requires_grad_(True)
        with torch.enable_grad():
            y = torch.relu(self.linear(x))
        return torch.autograd.grad(y, [x, self.linear.weight, self.linear.bias], grad)

def get_inputs():
    return [torch.randn(128, 256), torch.randn(128, 192)]

def get_init_inputs():
    return []
"""


def gradients(x, grad, layer, *factors):
    """Those of relu(layer(x)) with the factors of its three products in some format each: forward, input, weight."""
    product = lambda change, a, b: change[0](a) @ change[1](b)
    y = product(factors[0], x, layer.weight.T) + layer.bias
    grad = grad * (y > 0)
    return product(factors[1], grad, layer.weight), product(factors[2], grad.T, x), grad.sum(0)


@pytest.mark.parametrize("seed", [0, 4, 5, 6])
def test_a_relu_may_choose_as_any_products_do_that_the_task_allows(seed):
    """Of two tensors one may be rounded and the other one cut off; each way keeps other elements that are nearly 0."""
    task = Task("t", GRADIENTS, precision="tf32")
    model = reference_model.build(Reference(task), 7 * seed + 1)
    x, grad = model.reference.inputs(11 * seed + 2)
    expected = cases.expected_outputs(task, model, [x, grad], False, seed, True)
    with torch.no_grad():
        answer = lambda *factors: tuple(OutputTensor(t) for t in gradients(x, grad, model.model.linear, *factors))
        for way in itertools.product((tf32, truncated), repeat=2):
            assert expected.check(answer(way, way, way)) is None
        good, bad = (tf32, tf32), (bf16, bf16)
        for ways in ((bad, good, good), (good, bad, good), (good, good, bad)):
            assert expected.check(answer(*ways))


def test_values_are_found_on_which_tf32_chooses_another_place():
    """A place shows no error: on draws TF32 moves a maximum under few of the secrets, on these under each."""
    task = Task("t", LAYER.format(dtype="float32", forward="(x @ self.weight.T).argmax(1)"))
    model = reference_model.build(Reference(task), 1)
    weight, short = model.model.weight.detach(), lambda values: formats._to_bits(values, 13)

    def tf32(x):
        return OutputTensor((short(x) @ short(weight).T).argmax(1))

    def three_products(x):
        (a, b), (c, d) = ((short(values), short(values - short(values))) for values in (x, weight))
        return OutputTensor((a @ c.T + (a @ d.T + b @ c.T)).argmax(1))

    for seed in range(8):
        plans = [Plan("confused", way=way) for way in range(WAYS)]
        found = [case for plan in plans if (case := cases.draw(task, plan, model, seed, []))]
        assert found
        assert not all(case.fits(tf32(*case.inputs)) for case in found)
        assert all(case.fits(three_products(*case.inputs)) for case in found)


def test_none_are_looked_for_where_values_show_every_error():
    task = Task("t", LAYER.format(dtype="float32", forward="(x @ self.weight.T).topk(4)"))
    model = reference_model.build(Reference(task), 1)
    assert cases.draw(task, Plan("confused", way=0), model, 1, []) is None
