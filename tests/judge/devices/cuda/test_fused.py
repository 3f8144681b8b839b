"""Comparisons in one pass say what torch's operators say: under Triton's interpreter, and compiled where a GPU is."""

from __future__ import annotations

import math
import os
import pickle
import subprocess
import sys
import warnings
from multiprocessing import Pipe
from multiprocessing.connection import Connection
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from torch import Tensor

import drkernel
from drkernel.judge.trusted import reductions
from drkernel.judge.trusted.comparison import element_bounds, tolerance
from drkernel.judge.trusted.comparison.block_tolerance import LeafTolerance, Tolerance
from drkernel.judge.trusted.comparison.tolerance import K_MAX, K_MAX_16, K_NOISE, Expected
from drkernel.judge.trusted.outputs import OutputTensor
from drkernel.judge.trusted.rounding.rounding import EPS, Noise

pytestmark = pytest.mark.slow

NAMES = ("statistics", "deviations", "differences", "disturb", "all_whole")
TABLES = [(1, 2500), (3, 1100), (2, 1024), (70, 50), (2, 1023), (40, 16), (33, 33)]
SHAPES = [(), (5,), (1000,), (40, 100), (130, 3), (3, 1030), (2, 3, 70), (4, 5, 6), (0,), (0, 20), (20, 0)]
KINDS = [torch.float32, torch.bfloat16, torch.float16, torch.float64]
UNIT = 0.25
"""So coarse that bf16 can tell what is just within a bound from what is just beyond."""


def serve(pipe: Connection) -> None:
    from drkernel.judge.devices.cuda import fused

    fused._PROGRAMS = 2  # so that a program walks over several tiles of a small table, in both directions
    while True:
        name, arguments = pickle.loads(pipe.recv_bytes())
        pipe.send_bytes(pickle.dumps(getattr(fused, name)(*arguments)))


def _interpreted():
    """The kernels in a process of their own, because Triton decides at its import what a kernel is."""
    ours, theirs = Pipe()
    paths = [str(Path(drkernel.__file__).parents[1]), *os.environ.get("PYTHONPATH", "").split(":")]
    environment = {**os.environ, "TRITON_INTERPRET": "1", "OMP_NUM_THREADS": "1", "PYTHONPATH": ":".join(paths)}
    handle = theirs.fileno()
    process = subprocess.Popen([sys.executable, __file__, str(handle)], pass_fds=[handle], env=environment)
    theirs.close()

    def asked(name: str, *arguments):
        ours.send_bytes(pickle.dumps((name, arguments)))
        return pickle.loads(ours.recv_bytes())

    return process, lambda name: lambda *arguments: asked(name, *arguments)


def _compiled(name: str):
    from drkernel.judge.devices.cuda import fused

    home = lambda value, device: value.to(device) if isinstance(value, Tensor) else value

    def call(*arguments):
        answer = getattr(fused, name)(*(home(value, "cuda") for value in arguments))
        return tuple(home(value, "cpu") for value in answer) if isinstance(answer, tuple) else home(answer, "cpu")

    return call


@pytest.fixture(scope="module", params=["interpreted", pytest.param("compiled", marks=pytest.mark.gpu)])
def fused(request):
    """`cuda.fused`, for tensors on the CPU."""
    if request.param == "compiled":
        if not torch.cuda.is_available():
            pytest.skip("needs a CUDA device")
        yield SimpleNamespace(**{name: _compiled(name) for name in NAMES})
        return
    process, function = _interpreted()
    yield SimpleNamespace(**{name: function(name) for name in NAMES})
    process.kill()
    process.wait()


@pytest.fixture(autouse=True)
def coarse(monkeypatch):
    """A precision that is so coarse."""
    monkeypatch.setitem(tolerance.UNIT, "low", UNIT)


@pytest.fixture
def both(fused, monkeypatch):
    """Calls a function twice, the second time with the fused passes; the answers must be equal."""

    def both(function):
        plain = function()
        with monkeypatch.context() as patch:
            patch.setattr(reductions, "by", lambda *tensors: fused if tensors[0].numel() else reductions.Torch)
            assert function() == plain
        return plain

    return both


def drawn(shape: tuple[int, ...], kind: torch.dtype, seed: int = 0) -> tuple[Tensor, Tensor, Tensor]:
    """A right answer in fp64, in a task's precision, and shaken."""
    generator = torch.Generator().manual_seed(seed)
    exact = torch.randn(shape, generator=generator, dtype=torch.float64) * 3 + 0.5
    return (
        exact,
        exact.float().to(kind),
        exact * (1 + 1e-4 * torch.rand(shape, generator=generator, dtype=torch.float64)),
    )


def spoilt(exact: Tensor, near: Tensor, shaken: Tensor) -> None:
    """NaN and infinities: in all three alike, in one alone, and of another kind."""
    for tensor in (exact, near, shaken):
        tensor.view(-1)[7], tensor.view(-1)[11] = math.nan, -math.inf
    near.view(-1)[0], exact.view(-1)[-1], shaken.view(-1)[20] = math.inf, math.nan, math.inf
    exact.view(-1)[30], near.view(-1)[30] = math.inf, -math.inf


def close(one, other) -> bool:
    return one == pytest.approx(other, rel=1e-12, nan_ok=True)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("shape", TABLES)
def test_statistics_are_those_of_torch_with_and_without_special_values(fused, shape, kind):
    values = drawn(shape, kind)
    for change in (lambda *_: None, spoilt):
        change(*values)
        power, worst, numbers = fused.statistics(*values)
        right = reductions.Torch.statistics(*values)
        assert close(power.tolist(), right[0].tolist()) and worst.equal(right[1]) and close(numbers, right[2])
    assert numbers[4:] == [2, 5]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("shape", TABLES)
def test_deviations_are_those_of_torch_with_and_without_special_values(fused, shape, kind):
    exact, value, other = drawn(shape, kind)
    by_row = torch.linspace(0.5, 2, len(exact), dtype=torch.float64)[:, None] * (value - exact).abs().max()
    by_element = by_row * torch.linspace(0.8, 1.1, exact.shape[1], dtype=torch.float64)
    for change, special in ((lambda *_: None, 0), (spoilt, 3)):
        change(exact, value, other)
        for floor in (by_row, by_element):
            numbers = fused.deviations(value, exact, floor, 1e-4)
            assert close(numbers, reductions.Torch.deviations(value, exact, floor, 1e-4)) and numbers[0] == special
    assert numbers[1] > 0


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("size", [1, 1024, 5001])
def test_differences_are_those_of_torch(fused, size, kind):
    right = drawn((size,), kind)[1]
    got = drawn((size,), kind, seed=1)[1]
    assert close(fused.differences(right, got), reductions.Torch.differences(right, got))
    right[0] = got[0] = math.nan
    assert math.isfinite(fused.differences(right, got)[0])
    got[0] = 1.0
    assert close(fused.differences(right, got), reductions.Torch.differences(right, got))
    assert fused.differences(right, got)[0] == math.inf


@pytest.mark.parametrize("kind", [torch.float32, torch.float64])
@pytest.mark.parametrize("rows", [None, True, False])
@pytest.mark.parametrize("shape", TABLES)
def test_noise_has_the_size_of_an_element_or_of_what_is_usual_in_its_row(fused, shape, rows, kind):
    values = drawn(shape, kind)[1]
    values.view(-1)[3] = 0.0
    noisy = fused.disturb(values.clone(), 1e-3, (0.25, 1.3425), 5, rows)
    mean = values.double().square().mean([1] if rows else [0, 1], keepdim=True).sqrt()
    size = values.double().abs() if rows is None else torch.maximum(values.double().abs(), mean)
    noise = (noisy - values).double() / size / 1e-3
    noise = noise[size > 1e-3]
    assert noise.abs().min() > 0.24 and noise.abs().max() < 0.26 + 1.3425
    assert abs(noise.mean()) < 4 / math.sqrt(len(noise)) and abs(noise.square().mean() - 1) < 4 / math.sqrt(len(noise))
    assert (noisy.view(-1)[3] == 0) == (rows is None)
    again = [fused.disturb(values.clone(), 1e-3, (0.25, 1.3425), seed, rows) for seed in (5, 6)]
    assert again[0].equal(noisy) and not again[1].equal(noisy)


@pytest.mark.parametrize("size", [4096, 5001])
def test_noise_of_neighbours_and_of_other_seeds_is_not_alike(fused, size):
    draw = lambda seed: fused.disturb(torch.ones(1, size), 1.0, (0.25, 1.3425), seed, None)[0] - 1
    one, other = draw(2**61), draw(2**61 + 1)
    pairs = [(one, other), *((one[:-far], one[far:]) for far in (1, 2, 1024, 2048))]
    assert max(abs(float((a * b).mean())) * math.sqrt(len(a)) for a, b in pairs) < 4.5


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_noise_of_a_run_on_a_gpu_waits_for_nothing_and_leaves_whole_numbers():
    given, ones = torch.randn(512, 512, device="cuda"), torch.ones(512, 512, device="cuda")
    noise = Noise("ieee", 1, whole_later=True)
    torch.cuda.set_sync_debug_mode("error")
    try:
        near, same = noise.around(given), noise.around(ones)
        with noise:
            product = near @ near
    finally:
        torch.cuda.set_sync_debug_mode("default")
    noise.settle()
    assert same.equal(ones) and 0 < (near / given - 1).abs().max() < 4 * EPS
    error = (product - near @ near).norm() / product.norm()
    assert EPS / 2 < error < 100 * EPS


@pytest.mark.parametrize("rows", [None, True, False])
def test_noise_leaves_nan_and_infinities_and_they_have_no_size(fused, rows):
    values = torch.ones(4, 2000)
    values[0, 0], values[1, 1], values[2, 2] = math.nan, math.inf, -math.inf
    noisy = fused.disturb(values.clone(), 1e-3, (0.25, 1.3425), 1, rows)
    assert noisy.isfinite().equal(values.isfinite()) and noisy[1, 1] > 0 > noisy[2, 2] and noisy[0, 0].isnan()
    assert (noisy - values)[values.isfinite()].abs().max() < 1.6e-3


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("size", [1, 1024, 5001])
def test_whole_numbers_are_known(fused, size, kind):
    values = torch.arange(size).remainder(100).to(kind)
    assert fused.all_whole(values, 2.0**20)
    for other in (0.5, math.nan, math.inf, 2.0**20):
        values[size // 2] = other
        assert not fused.all_whole(values, 2.0**15)  # fp16 has nothing above 65,504


@pytest.mark.parametrize("shape", SHAPES)
def test_a_right_answer_is_right_and_a_wrong_element_is_found_in_every_shape(both, shape):
    exact, near, shaken = drawn(shape, torch.float32)
    expected = lambda: Expected(exact, near, [shaken])
    assert both(lambda: expected().check(OutputTensor(near.clone()))) is None
    if not near.numel():
        return
    for spoil in (1e3, math.nan):
        answer = near.clone()
        answer.view(-1)[-1] = spoil
        problem = both(lambda: (lambda m: (m.reason, m.index, m.share))(expected().check(OutputTensor(answer))))  # noqa: B023
        reason = "not_finite" if math.isnan(spoil) else "wrong_values"
        assert problem == (reason, tuple(n - 1 for n in shape), pytest.approx(1 / near.numel()))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("shape", [(1000,), (40, 100), (130, 3), (3, 1030), (2, 3, 70)])
def test_an_element_may_be_as_far_off_as_its_row_says_and_no_further(both, shape, kind):
    exact, near, shaken = drawn(shape, kind)
    exact.view(-1)[: exact.numel() // 2] /= 4
    near, shaken = exact.float().to(kind), shaken.where(shaken.abs() > 1, exact)
    table = element_bounds.table_of(shape)
    usual = exact.reshape(table).square().mean(1, keepdim=True).sqrt()
    worst = torch.maximum((near - exact).abs(), (shaken - exact).abs()).reshape(table).amax(1, keepdim=True)
    worst = torch.maximum(worst, usual * (worst / usual).median())  # rows are not judged by their luck
    scale = torch.maximum(exact.abs().reshape(table), usual)
    factor_of_errors = K_MAX_16 if kind in (torch.bfloat16, torch.float16) else K_MAX
    bound = (factor_of_errors * torch.maximum(worst, UNIT * scale)).reshape(-1)
    answers = []
    some = 1 + int(2 * tolerance._RARE * exact.numel())  # fewer may be further off, see the next test
    for start, factor in ((1, 0.95), (-20, 0.95), (1, 1.05), (-20, 1.05)):
        places = slice(start, start + some)
        answer = near.clone().view(-1)
        answer[places] = exact.view(-1)[places] + factor * bound[places] * exact.view(-1)[places].sign()
        answers.append(OutputTensor(answer.view(shape)))
    expected = lambda: Expected(exact, near, [shaken], "low")
    right = both(lambda: (lambda e: [e.check(answer) is None for answer in answers])(expected()))
    assert right == [True, True, False, False]
    assert both(lambda: expected().check(answers[-1], slack=1.2)) is None


def test_one_element_in_a_thousand_may_be_further_off_but_not_far(both):
    exact, near, shaken = drawn((100, 100), torch.float32)
    expected = lambda: Expected(exact, near, [shaken], "low")
    bound = expected()._leaves["output"]._atol[50, :12]
    for far, count, fine in ((3.0, 9, True), (3.0, 12, False), (10.0, 1, False)):
        answer = near.clone()
        answer[50, :count] += (far * bound[:count]).float()
        assert both(lambda: expected().check(OutputTensor(answer)) is None) is fine  # noqa: B023


def test_small_differences_everywhere_exceed_the_norm(both):
    exact, near, shaken = drawn((40, 100), torch.float32)
    expected = lambda: Expected(exact, near, [shaken], "low")
    norm = K_NOISE * UNIT * float(exact.norm()) / exact.numel() ** 0.5
    assert both(lambda: expected().check(OutputTensor(near + 0.99 * norm)) is None)
    assert both(lambda: expected().check(OutputTensor(near + 1.01 * norm)).reason) == "wrong_values"


def test_what_an_output_is_like_does_not_depend_on_who_looks(both):
    exact, near, shaken = drawn((40, 100), torch.float32)
    facts = lambda: (lambda e: (e.finite, e.same_nonfinite, e.well_conditioned))(Expected(exact, near, [shaken]))
    assert both(facts) == (True, True, True)
    near[3, 3] = exact[3, 3] = math.inf
    assert both(facts) == (False, True, True)
    near[3, 3] = 1.0
    assert both(facts) == (False, False, True)
    shaken *= 2
    assert both(facts) == (False, False, False)


def test_outputs_are_found_among_other_tensors_in_any_shape_and_type(both):
    exact, near, shaken = drawn((40, 100), torch.float32)
    exact, near, shaken = exact.round(), near.round(), shaken.round()
    among = lambda *values: both(lambda: Expected(exact, near, [shaken]).is_among(list(values)))
    assert among(near.view(-1)) and among(torch.ones(3), near.t(), near.view(50, 80).int())
    assert not among(near.view(-1).flip(0)) and not among(near[1:])


def test_timed_answers_have_the_tolerance_of_those_before(both):
    exact, near, shaken = drawn((40, 100), torch.float32)
    bounds = lambda: Expected(exact, near, [shaken]).tolerance()
    leaf = lambda: bounds().tensors["output"]
    plain = leaf()
    assert both(lambda: leaf().max_error) == plain.max_error and plain.reference_max == float(exact.abs().max())
    wide = Tolerance({"output": LeafTolerance(1.0, plain.max_error, 1.0, 1e3)})
    right = near.view(-1).view(torch.uint8)
    slots = [SimpleNamespace(dtype="float32", offset=0, nbytes=right.numel())]
    check = lambda tolerance, got: both(
        lambda: tolerance.check(right, got.view(-1).view(torch.uint8), slots, slots, 0, 1)
    )
    wrong = near.clone()
    wrong[2, 2] += 0.9 * plain.max_error
    assert check(bounds(), near) is None and check(wide, wrong) is None
    wrong[2, 2] += 0.2 * plain.max_error
    assert "differs by" in check(wide, wrong)
    wrong[2, 2] = math.nan
    assert "differs by inf" in check(bounds(), wrong)


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
@pytest.mark.parametrize("shape", [(4096, 1000), (2**17, 20), (2**22,)])
def test_a_large_output_costs_few_synchronisations_and_a_check_no_memory(shape):
    exact, near, shaken = (t.cuda() for t in drawn(shape, torch.float32))
    expected = Expected(exact, near, [shaken])
    bounds = expected.tolerance()
    steps = [
        lambda: expected.check(OutputTensor(near)),
        lambda: Expected(exact, near, [shaken]),
        lambda: bounds.tensors["output"].problem(near.view(1, -1), near.view(1, -1), 1),
    ]
    for step, most_synchronisations, most_bytes in zip(steps, (1, 1, 2), (4, 96, 24), strict=True):
        step()
        torch.cuda.synchronize()
        torch.cuda.reset_peak_memory_stats()
        before = torch.cuda.memory_allocated()
        torch.cuda.set_sync_debug_mode("warn")
        try:
            with warnings.catch_warnings(record=True) as seen:
                warnings.simplefilter("always")
                step()
        finally:
            torch.cuda.set_sync_debug_mode("default")
        assert sum("synchroniz" in str(warning.message) for warning in seen) <= most_synchronisations
        assert torch.cuda.max_memory_allocated() - before < near.numel() * most_bytes  # a check: no other output


if __name__ == "__main__":
    serve(Connection(int(sys.argv[1])))
