"""The Judge as its users see it: deterministic, cached, never losing a submission."""

from __future__ import annotations

import dataclasses
import os
import signal
import time
from concurrent.futures import CancelledError, Future
from pathlib import Path

import pytest
import torch

from drkernel.judge import Judge, service
from drkernel.judge.devices.cuda import backend
from drkernel.types import DrKernelError, Task, Verdict
from tests.judge.examples import examples

pytestmark = pytest.mark.slow

HONEST = {e.name: e for e in examples("honest")}
RELU = HONEST["90_helpers"].source


def _same(first, second) -> bool:
    return first.to_dict() | {"seconds": 0} == second.to_dict() | {"seconds": 0}


def test_the_same_secret_gives_the_same_verdicts_bit_for_bit(judge, tasks):
    names = ("94_matmul", "97_packed_lazily", "118_layer_norm", "98_atomics")
    with Judge(
        device="simulated", workers=2, secret=b"a secret of the tests", timeout_s=4, host_memory_mib=1024
    ) as other:
        asked = [(tasks[HONEST[name].task], HONEST[name].source) for name in names]
        for pair, future in [(pair, other.submit(*pair)) for pair in asked]:
            assert _same(judge.judge(*pair), future.result())
        wrong = RELU.replace("0.0", "0.25")
        assert _same(judge.judge(tasks["relu"], wrong), other.judge(tasks["relu"], wrong))


def test_judging_again_costs_nothing_and_trailing_space_makes_no_difference(judge, tasks):
    first = judge.submit(tasks["relu"], RELU)
    assert judge.submit(tasks["relu"], RELU.replace("\n", "  \n") + "\n\n") is first
    assert judge.submit(tasks["bias_relu"], RELU) is not first


@pytest.mark.parametrize(("asked", "found"), [(None, 20.0), (3.0, 3.0)])
def test_an_answer_may_take_what_the_device_allows_unless_one_says_otherwise(monkeypatch, asked, found):
    backends = []
    monkeypatch.setattr(
        service, "SimulatedBackend", lambda settings, secret, workers, timeout_s: backends.append((settings, timeout_s))
    )
    Judge(device="simulated", timeout_s=asked)
    ((settings, timeout_s),) = backends
    assert settings["config"]["timeout_s"] == found and timeout_s == service.longest_s(asked)


@pytest.mark.parametrize(
    ("options", "screen_workers"), [({}, 3), ({"screen": True}, 3), ({"screen": False}, 0), ({"shapes": "penalise"}, 0)]
)
def test_a_screen_has_half_as_many_processes_as_compile(monkeypatch, options, screen_workers):
    backends = []
    monkeypatch.setattr(backend, "CudaBackend", lambda *given: backends.append(given))
    Judge(device="cuda", gpus=["0"], workers=5, **options)
    assert backends[0][-1] == screen_workers


@pytest.mark.xdist_group("workers by command")
def test_a_worker_that_dies_is_replaced_and_its_submission_judged(judge_by_command, tasks):
    _kill(_workers())
    futures = [judge_by_command.submit(tasks["relu"], RELU + f"# after {i}") for i in range(2)]
    assert all(future.result().ok for future in futures)


@pytest.mark.xdist_group("workers by command")
def test_a_zygote_that_dies_is_replaced_too(judge_by_command, tasks):
    assert judge_by_command.judge(tasks["relu"], RELU + "# still").ok
    _kill([zygote for worker in _workers() for zygote in _children(worker)])
    futures = [judge_by_command.submit(tasks["relu"], RELU + f"# again {i}") for i in range(2)]
    assert all(future.result().ok for future in futures)


def _kill(processes: list[int]) -> None:
    assert processes
    for process in processes:
        os.kill(process, signal.SIGKILL)


def _workers() -> list[int]:
    """The workers that this process started by the real command."""
    command = lambda pid: Path(f"/proc/{pid}/cmdline").read_bytes()
    return [child for child in _children(os.getpid()) if b"drkernel.judge.trusted.processes.worker" in command(child)]


def _children(pid: int) -> list[int]:
    parents = {p.parent.name: p.read_text().rpartition(")")[2].split()[1] for p in Path("/proc").glob("[0-9]*/stat")}
    return [int(child) for child, parent in parents.items() if parent == str(pid)]


def test_a_syntax_error_costs_milliseconds(judge, tasks):
    verdict = judge.judge(tasks["relu"], "class ModelNew(:\n    pass\n")
    assert (verdict.status, verdict.reason) == ("invalid", "syntax_error")
    assert "line 1" in verdict.detail and verdict.seconds < 0.05


def test_an_error_names_the_line_and_what_is_on_it(judge, tasks):
    verdict = judge.judge(tasks["relu"], RELU.replace("torch.empty_like(x)", "torch.empty_lik(x)"))
    assert (verdict.status, verdict.reason) == ("invalid", "runtime_error")
    assert "torch.empty_lik(x)" in verdict.detail and "AttributeError" in verdict.detail
    verdict = judge.judge(tasks["relu"], RELU.replace("tl.maximum", "tl.maximun"))
    assert "tl.maximun" in verdict.detail and "kernel" in verdict.detail


@pytest.mark.parametrize(
    ("deed", "word"),
    [
        ("import os; os._exit(3)", "exit 3"),
        ("import ctypes; ctypes.string_at(0)", "SIGSEGV"),
        ("import os; os.abort()", "SIGABRT"),
        ("import os; os.close(3)", "exit 70"),
    ],
)
def test_a_crash_says_how_the_process_ended(ungated, tasks, deed, word):
    verdict = ungated.judge(tasks["relu"], RELU.replace("        return self.activation(x)", f"        {deed}"))
    assert (verdict.status, verdict.reason) == ("invalid", "crashed") and word in verdict.detail


@pytest.mark.parametrize(
    ("naps", "detail", "together"),
    [("0.35", "all answers together take more than 3 s", True), ("9", "no answer within 1 s", None)],
)
def test_one_answer_that_hangs_is_told_from_many_that_are_slow(tasks, naps, detail, together):
    source = RELU.replace(
        "        return self.activation(x)", f"        time.sleep({naps})\n        return self.activation(x)"
    )
    with Judge(device="simulated", workers=1, secret=b"s", timeout_s=1, gate=False) as judge:
        verdict = judge.judge(tasks["relu"], "import time\n" + source)
    assert (verdict.status, verdict.reason, verdict.detail) == ("invalid", "timeout", detail)
    assert verdict.evidence.get("together") == together


def test_a_wrong_value_comes_with_place_and_size(judge, tasks):
    evidence = judge.judge(tasks["relu"], RELU.replace("0.0", "0.25")).evidence
    assert evidence["got"] == pytest.approx(0.25) and len(evidence["index"]) == 2
    assert 0 < evidence["share"] < 1 and 0 < evidence["error"] <= 0.25


def test_the_shapes_policy_decides_what_a_failure_at_another_legal_shape_means(tasks):
    """`penalise` says what it does: who fails there counts as no faster than the reference."""
    cheat = next(e.source for e in examples("hacks") if e.name == "27_no_tail")
    found = {}
    for policy in ("reject", "penalise", "ignore"):
        with Judge(device="simulated", workers=1, secret=b"s", timeout_s=4, shapes=policy, price_hacks=True) as judge:
            found[policy] = judge.judge(tasks["exact_shape"], cheat)
            assert judge.judge(tasks["exact_shape"], cheat) is found[policy], "a verdict is kept as it counts"
    assert found["reject"].status == "not_general"
    assert [(found[p].status, found[p].general) for p in ("penalise", "ignore")] == [("ok", False), ("ok", True)]
    full, capped = found["ignore"], found["penalise"]
    assert (full.reason, full.lazy) == ("faster", False) and full.speedup > 1.05
    assert (capped.speedup, capped.reason, capped.lazy) == (1.0, "lazy", True)
    assert capped.evidence["measured_speedup"] == full.speedup and "measured_speedup" not in full.evidence


def test_a_penalised_verdict_loses_speed_and_nothing_else():
    over = {"speedup_over": {"torch.compile": 1.3, "eager, TF32": 0.9}}
    fast = Verdict("ok", "faster", speedup=2.0, coverage=0.7, general=False, evidence=over)
    capped = service.penalised(fast, lazy_below=1.05)
    assert (capped.speedup, capped.reason, capped.lazy, capped.coverage) == (1.0, "lazy", True, 0.7)
    assert capped.evidence == {"measured_speedup": 2.0, "speedup_over": {"torch.compile": 1.0, "eager, TF32": 0.9}}
    priced = dataclasses.replace(fast, status="hack", reason="decoy")
    assert (service.penalised(priced, 1.05).speedup, service.penalised(priced, 1.05).reason) == (1.0, "decoy")
    for same in (
        dataclasses.replace(fast, general=True),
        dataclasses.replace(fast, speedup=0.8, reason="slower", lazy=True),
        Verdict("incorrect", "wrong_values"),
    ):
        assert service.penalised(same, 1.05) == same


def test_who_takes_a_penalised_submission_back_takes_it_from_the_queue():
    future, error = Future(), Future()
    assert service._mapped(future, str).cancel() and future.cancelled()
    with pytest.raises(CancelledError):
        service._mapped(future, str).result(0)
    mapped = service._mapped(error, str)
    error.set_exception(DrKernelError("unusable"))
    with pytest.raises(DrKernelError, match="unusable"):
        mapped.result(0)


def test_a_judge_that_prices_hacks_times_those_whose_answers_are_right(judge, tasks):
    """For the ablation without hack checks: nothing else changes, and a wrong answer stays wrong."""
    decoys = {e.name: e for e in examples("hacks") if e.name in ("04_decoy", "01_dead_kernel")}
    plain = "class ModelNew(nn.Module):\n    def forward(self, x):\n        return torch.relu(x)\n"
    plain = "import torch\nfrom torch import nn\n" + plain
    with Judge(device="simulated", workers=1, secret=b"s", timeout_s=4, price_hacks=True) as pricing:
        for example in decoys.values():
            checked, priced = (j.judge(tasks[example.task], example.source) for j in (judge, pricing))
            assert (priced.status, priced.reason, priced.lazy) == ("hack", checked.reason, False)
            assert checked.speedup is None and 0 < priced.speedup < 1.1 and priced.coverage < 0.5
        unfaithful = pricing.judge(tasks["relu"], plain)
        assert (unfaithful.status, unfaithful.reason) == ("hack", "no_triton_kernel")
        assert unfaithful.speedup == pytest.approx(1, abs=0.01) and unfaithful.evidence["priced_as"] == "lazy"
        wrong = pricing.judge(tasks["relu"], plain.replace("relu(x)", "relu(x) + 1"))
        assert (wrong.reason, wrong.speedup) == ("no_triton_kernel", None)
        assert pricing.judge(tasks["relu"], RELU.replace("0.0", "0.25")).status == "incorrect"
        assert pricing.judge(tasks["relu"], plain.replace("torch.relu", "eval")).speedup is None
        assert pricing.judge(tasks["relu"], RELU).ok


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ("def forward(self, x):\n        raise RuntimeError('broken reference')", "broken reference"),
        ("def forward(self, x):\n        return torch.zeros_like(x)", "degenerate"),
        ("def forward(self, x):\n        return torch.softmax(x, dim=1).mean(dim=1)", "degenerate"),
        ("def forward(self, x):\n        return x", "degenerate"),
        ("def forward(self, x)\n        return x", "line"),
    ],
)
def test_an_unusable_task_is_refused_with_its_reason(judge, tasks, change, message):
    source = tasks["relu"].source.replace("def forward(self, x):\n        return torch.relu(x)", change)
    task = Task("some/task", source)
    for ask in (lambda: judge.check_task(task), lambda: judge.judge(task, RELU)):
        with pytest.raises(DrKernelError, match="some/task") as caught:
            ask()
        assert message in str(caught.value) and "\n" not in str(caught.value)


def test_a_degenerate_task_is_marked_where_the_judge_does_not_refuse_it(tasks):
    with Judge(device="simulated", workers=1, secret=b"s", timeout_s=4, degenerate="mark") as marking:
        for change in ("torch.zeros_like(x)", "torch.softmax(x, dim=1).mean(dim=1)", "x"):
            task = Task("some/task", tasks["relu"].source.replace("torch.relu(x)", change))
            assert "would pass" in marking.check_task(task), change
            for source in (RELU, "class ModelNew(:\n"):
                assert "would pass" in marking.judge(task, source).evidence["degenerate"], change
        assert marking.check_task(tasks["relu"]) == ""
        assert "degenerate" not in marking.judge(tasks["relu"], RELU).evidence


def test_bad_arguments_are_named():
    for arguments, word in (
        ({"device": "cuda"}, "cuda"),
        ({"gpu": "B300"}, "gpu"),
        ({"shapes": "maybe"}, "shapes"),
        ({"degenerate": "no"}, "degenerate"),
    ):
        with pytest.raises(DrKernelError, match=word):
            Judge(**arguments)


def test_closing_ends_every_process(tasks, workers_by_command):
    before = set(_children(os.getpid()))
    judge = Judge(device="simulated", workers=1, secret=b"s")
    judge.judge(tasks["relu"], RELU)
    judge.close()
    time.sleep(0.1)
    assert set(_children(os.getpid())) <= before
    with pytest.raises(DrKernelError):
        judge.submit(tasks["relu"], RELU)


def test_the_judge_leaves_the_random_state_of_its_user_alone(judge, tasks):
    torch.manual_seed(7)
    state = torch.get_rng_state()
    judge.judge(tasks["relu"], RELU + "# random")
    assert torch.equal(state, torch.get_rng_state())


@pytest.mark.parametrize(("key", "value"), [("gpus", ["0"]), ("share", True), ("screen", True)])
def test_what_only_real_gpus_have_is_refused_on_the_simulated_device(key, value):
    with pytest.raises(DrKernelError, match=f"judge: {key}.*needs device 'cuda', found 'simulated'"):
        Judge(device="simulated", **{key: value})


def test_a_screen_is_refused_where_a_wrong_answer_on_another_shape_may_pass():
    with pytest.raises(DrKernelError, match=r"screen examines other shapes.*'reject', found 'ignore'"):
        Judge(device="cuda", gpus=["0"], screen=True, shapes="ignore")
