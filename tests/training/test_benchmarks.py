"""The benchmarks of real shapes: what they compare with, and what they gather, in small on the CPU."""

import json
import subprocess
import sys

import pytest
import torch
from transformers import AutoModelForCausalLM, Qwen3Config, Qwen3ForCausalLM

from drkernel.config import REPOSITORY
from drkernel.config.conversion import to_yaml
from drkernel.training import flops, plan
from drkernel.types import DrKernelError
from tests.training.test_plan import load

sys.path.append(str(REPOSITORY / "benchmarks"))  # benchmarks are scripts that import each other by name
import enlarged
import expectations
import judging
import real_models


def run(*command: str) -> subprocess.CompletedProcess:
    return subprocess.run(command, cwd=REPOSITORY, capture_output=True, text=True, timeout=300)


def qwen3(hidden: int, intermediate: int) -> Qwen3Config:
    sizes = {"hidden_size": hidden, "intermediate_size": intermediate, "num_hidden_layers": 28, "vocab_size": 151_936}
    return Qwen3Config(**sizes, num_attention_heads=16, num_key_value_heads=8, head_dim=128, tie_word_embeddings=True)


def test_the_plan_of_an_update_step_is_that_of_the_run():
    """89.0 and 91.2 GiB, as training/plan.py says; with the moments in the host's memory 8 P less, two chunks more."""
    assert expectations.planned_gib(qwen3(1024, 3072), 65_536) == pytest.approx(89.0, abs=0.1)
    whole = expectations.planned_gib(qwen3(2048, 6144), 32_768)
    assert whole == pytest.approx(91.2, abs=0.1)
    away = expectations.planned_gib(qwen3(2048, 6144), 32_768, offload="optimizer")
    assert whole - away == pytest.approx(8 * 1.7205 / 1.073741824 - 1, abs=0.01)


def test_a_benchmark_that_cannot_run_here_says_so_in_one_line(capsys):
    def main(options):
        raise DrKernelError("device 'cuda' needs a GPU and none is visible")

    assert judging.run(main, None) == 2
    assert capsys.readouterr().err == "error: device 'cuda' needs a GPU and none is visible\n"


def test_errors_are_shares_of_what_was_measured():
    assert expectations.relative_error(99.0, 90.0) == pytest.approx(0.1)
    assert expectations.relative_error(None, 90.0) is None and expectations.relative_error(99.0, None) is None
    assert expectations.shown(None, ".1f") == "" and expectations.shown(0.125, "+.1%") == "+12.5%"


def test_a_gpu_is_compared_with_its_own_peak(monkeypatch):
    device = torch.device("cuda")
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda _: "NVIDIA H100 80GB HBM3")
    assert expectations.utilisation(flops.PEAK["H100"] / 2, device) == 0.5
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda _: "NVIDIA Unheard-of")
    assert expectations.utilisation(1e12, device) is None
    assert expectations.utilisation(1e12, torch.device("cpu")) is None


@pytest.mark.slow
def test_the_update_step_says_what_was_planned(tmp_path):
    options = ["--shape", "tiny", "--variants", "fsdp:512:offload", "--warm-ups", "0", "--timed", "1"]
    done = run(sys.executable, "benchmarks/update_step.py", str(tmp_path), *options)
    assert done.returncode == 0, done.stdout + done.stderr
    (row,) = json.loads((tmp_path / "update.json").read_text())["rows"]
    assert row["planned_gib"] > 0 and row["mfu"] is None and len(row["seconds"]) == 1
    assert row["gradient_cosine"] == pytest.approx(1)


@pytest.mark.slow
def test_a_script_runs_as_without_the_note_of_its_memory(tmp_path):
    script = tmp_path / "script.py"
    script.write_text("import sys\nprint(__name__, sys.argv[1:], sys.path[0])\nsys.exit(3)\n")
    done = run(sys.executable, "benchmarks/peak_memory.py", str(tmp_path / "peak.json"), str(script), "a=1")
    assert done.returncode == 3 and done.stdout == f"__main__ ['a=1'] {tmp_path}\n"
    assert torch.cuda.is_available() or not (tmp_path / "peak.json").exists()


def test_runs_are_gathered_into_tables(tmp_path):
    runs = [("rl-vllm", 124), ("rl-overlap", 124), ("update-0.6b", 0), ("rl-vllm", 0)]
    lines = [{"name": name, "began": 0, "seconds": 9, "limit": 10, "exit": code} for name, code in runs]
    (tmp_path / "runs.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    (tmp_path / "rl-overlap.log").write_text("begins\nstep | 1\n")
    folder = tmp_path / "rl-vllm"
    folder.mkdir()
    (folder / "config.yaml").write_text(to_yaml(load("engine=vllm", "judge=simulated")))
    metrics = (REPOSITORY / "results/training-h200/run/metrics.jsonl").read_text()
    steps = [json.loads(line) for line in metrics.splitlines()[:3]]
    for step, kept, passed in zip(steps, (0.0, 0.25, 0.75), (0.5, 0.9, float("nan")), strict=True):
        step |= {"mrs/kept": kept, "prs/kept": passed}
    (folder / "metrics.jsonl").write_text("".join(json.dumps(step) + "\n" for step in steps) + '{"step": 4, "rew')
    (folder / "peak.json").write_text('{"peak_gib": 12.5}')
    real_models.main(tmp_path)
    (loop,) = json.loads((tmp_path / "real_models.json").read_text())["loops"]
    assert loop["steps"] == 2 and loop["rejected"]["MRS"] == pytest.approx(0.5)
    assert loop["rejected"]["PRS"] == pytest.approx(0.1) and loop["rejected"]["vetoed"] is None
    assert loop["planned_gib"] is not None and loop["peak_gib"] == 12.5
    text = (tmp_path / "real_models.md").read_text()
    assert text.count("| rl-vllm |") == 3 and "| rl-vllm | 0 | 9 | 10 | well |  |" in text
    assert "| rl-overlap | 0 | 9 | 10 | out of time | step \\| 1 |" in text


def test_the_plan_of_a_run_is_read_from_its_folder(tmp_path):
    config = load("engine=vllm", "judge=simulated", "engine.kv_cache_gib=3")
    (tmp_path / "config.yaml").write_text(to_yaml(config))
    whole = plan.total(plan.memory(config, plan.shape_of(config.policy.path), 1))
    assert real_models.planned_by(tmp_path / "config.yaml") == pytest.approx(whole - plan.OVERHEAD_GIB)


def test_an_enlarged_policy_has_the_small_ones_logits_and_never_draws_a_token_that_it_lacks(monkeypatch):
    small = AutoModelForCausalLM.from_pretrained(REPOSITORY / "assets/seed", dtype=torch.float32)
    sizes = {"hidden_size": 512, "intermediate_size": 640, "num_hidden_layers": 7, "vocab_size": 1500, "head_dim": 128}
    shape = Qwen3Config(**sizes, num_attention_heads=12, num_key_value_heads=3, tie_word_embeddings=False)
    monkeypatch.setattr(enlarged, "config_of", lambda name: shape)
    large = Qwen3ForCausalLM(config := enlarged.enlarged_config(small.config, "of this test"))
    large.load_state_dict({name: weight.float() for name, weight in enlarged.enlarged(small, config).items()})
    tokens = torch.randint(5, small.config.vocab_size, (1, 200), generator=torch.Generator().manual_seed(0))
    with torch.no_grad():
        right, found = small(tokens).logits, large(tokens).logits
    known, lacking = found.split([small.config.vocab_size, 1500 - small.config.vocab_size], -1)
    assert (known - right).abs().max() < 0.01 * right.abs().max()
    assert lacking.max() < right.min() - 100
    config.num_hidden_layers = 5
    with pytest.raises(ValueError, match="num_hidden_layers: 6 of the policy in 5 of"):
        enlarged.enlarged_config(small.config, "of this test")
