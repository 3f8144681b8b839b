"""What an update did per second and took of a GPU, by numbers worked out by hand."""

from types import SimpleNamespace

import pytest
import torch

from drkernel.training import speed
from drkernel.training.flops import PEAK, update_flops

SHAPE = SimpleNamespace(
    num_hidden_layers=1,
    hidden_size=4,
    intermediate_size=8,
    vocab_size=10,
    head_dim=2,
    num_attention_heads=2,
    num_key_value_heads=1,
)


def policy(device: str, config=SHAPE):
    return SimpleNamespace(device=torch.device(device), model=SimpleNamespace(config=config), lora=None)


@pytest.fixture
def h200(monkeypatch):
    """A GPU that is not there; the times that its peak memory began anew."""
    began: list[torch.device] = []
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda device: "NVIDIA H200")
    monkeypatch.setattr(torch.cuda, "max_memory_allocated", lambda device: 3 * 2**30)
    monkeypatch.setattr(torch.cuda, "reset_peak_memory_stats", began.append)
    return began


def test_on_a_cpu_tokens_alone_are_counted():
    assert speed.describe(policy("cpu"), [30, 10], 7, 2.0, 1) == {"tokens_per_second": 20.0}


def test_a_gpu_has_its_share_of_its_peak_and_the_memory_of_one_step(h200):
    found = speed.describe(policy("cuda"), [3, 1], 2, 0.5, gpus=4)
    assert found["tokens_per_second"] == 8.0 and found["memory/peak_gib"] == 3.0
    assert found["mfu"] == pytest.approx(update_flops(SHAPE, [3, 1], 2) / (0.5 * 4 * PEAK["H200"]))
    assert len(h200) == 1


def test_where_the_peak_or_the_shape_is_not_known_there_is_no_mfu(h200, monkeypatch):
    assert "mfu" not in speed.describe(policy("cuda", SimpleNamespace()), [3], 2, 1.0, 1)
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda device: "some GPU")
    assert speed.describe(policy("cuda"), [3], 2, 1.0, 1).keys() == {"tokens_per_second", "memory/peak_gib"}
