"""The kernels of the graphs engine are what plain torch and transformers compute."""

import os
import subprocess
import sys

import pytest
import torch

from drkernel.policy import Request, Sampling, new_policy
from drkernel.policy.engines.decode_state import Next, State, truncate
from drkernel.policy.engines.graphs_engine import GraphsEngine
from drkernel.policy.engines.sampling import truncate as truncate_row

VOCABULARY = 64
GPU = torch.cuda.is_available()


def test_truncation_of_many_rows_is_that_of_each():
    mass = torch.randn(50, 30).softmax(-1)
    top_k, top_p = torch.randint(0, 12, (50,)), torch.rand(50)
    min_p = torch.rand(50) / 2
    top_p[::3], min_p[::2] = 1, 0
    for row, k, p, m, found in zip(mass, top_k, top_p, min_p, truncate(mass, top_k, top_p, min_p), strict=True):
        assert torch.equal(found, truncate_row(row, Sampling(top_p=p.item(), top_k=int(k), min_p=m.item())))


def test_rows_that_nothing_cuts_are_whole_beside_others():
    mass = torch.tensor([[0.5, 0.5 - 1e-8, 1e-8], [0.6, 0.4, 0.0]])
    found = truncate(mass, torch.tensor([0, 1]), torch.ones(2), torch.zeros(2))
    assert torch.equal(found[0], mass[0]) and found[1].tolist() == pytest.approx([0.6, 0, 0])


def state_of(size: int, heads: int, dtype: torch.dtype, device: str, slots: int = 7, context: int = 90) -> State:
    config = new_policy(VOCABULARY, hidden=64, layers=1).model.config
    config.head_dim, config.num_key_value_heads = size, heads
    state = State(config, slots, context, dtype, torch.device(device), [3])
    state.cache.copy_(torch.randn(state.cache.shape))
    state.alive[:] = torch.tensor([1, 1, 0, 1, 1, 1, 0, 0][: slots + 1])
    state.positions[:] = torch.tensor([0, 89, 4, 64, 17, 63, 88, 0])
    state.limits[:] = 50
    return state


def check_attention(size: int, heads: int, group: int, dtype: torch.dtype, device: str = "cpu") -> None:
    """Against plain torch on a float32 cache, with a layout of strides as transformers hands it over."""
    torch.manual_seed(0)
    ours, plain = state_of(size, heads, dtype, device), state_of(size, heads, torch.float32, device)
    ours.kernels, plain.kernels = True, False
    plain.cache.copy_(ours.cache)
    rows = torch.tensor([5, 0, 1, 7, 3, 2, 7], device=device)
    query, key, value = (
        torch.randn(7, n * size, device=device).to(dtype).view(1, 7, n, size).transpose(1, 2)[0].transpose(0, 1)
        for n in (heads * group, heads, heads)
    )
    found = Next(ours, rows).attend(0, query, key, value, 0.3)
    expected = Next(plain, rows).attend(0, query.float(), key.float(), value.float(), 0.3)
    tolerance = 2e-5 if dtype == torch.float32 else 2e-2
    live = ours.alive[rows] != 0
    torch.testing.assert_close(found.float()[live], expected[live], rtol=tolerance, atol=tolerance)
    assert found.isfinite().all()
    torch.testing.assert_close(ours.cache[:, :, :7].float(), plain.cache[:, :, :7], rtol=0, atol=0)


def check_sampling(vocabulary: int, dtype: torch.dtype, device: str = "cpu") -> None:
    torch.manual_seed(0)
    logits = (2 * torch.randn(7, vocabulary)).to(device, dtype)
    logits[2, vocabulary // 2 :] = -torch.inf
    rows = torch.tensor([5, 0, 1, 7, 3, 2, 4], device=device)
    states = [state_of(32, 1, torch.float32, device) for _ in range(2)]
    for state, kernels in zip(states, (True, False), strict=True):
        state.kernels = kernels
        state.positions.clamp_(max=60)
        state.temperatures[:] = torch.tensor([1.0, 0.5, 1, 0, 2, 1, 1, 1])
        state.limits[5] = 2
    states[0].uniforms.copy_(torch.rand(states[0].uniforms.shape, dtype=torch.float64))
    states[0].uniforms[4, 0], states[0].uniforms[0, 0] = 1 - 2**-53, 0.0
    states[1].uniforms.copy_(states[0].uniforms)
    for _ in range(5):
        for state in states:
            state.advance(logits, rows, False)
    ours, plain = states
    torch.testing.assert_close(ours.integers[:, :7], plain.integers[:, :7])
    assert ours.counts[:7].tolist() == [5, 5, 0, 5, 5, 2, 0] and ours.alive.tolist() == [1, 1, 0, 1, 1, 0, 0, 0]
    torch.testing.assert_close(ours.drawn[:7], plain.drawn[:7])
    torch.testing.assert_close(ours.logprobs[:7], plain.logprobs[:7], rtol=1e-5, atol=2e-5)
    assert (ours.drawn[3, :5] == logits[4].argmax()).all()
    stop_at(ours, logits, rows)


def stop_at(state: State, logits: torch.Tensor, rows: torch.Tensor) -> None:
    """The next token of all is the stop token."""
    logits = torch.full_like(logits, -30.0)
    logits[:, 3] = 0
    state.advance(logits, rows, False)
    assert not state.alive.any() and (state.tokens[[0, 1, 3, 4]] == 3).all()


def check_norm(size: int, dtype: torch.dtype, device: str = "cpu") -> None:
    from transformers.models.qwen3.modeling_qwen3 import Qwen3RMSNorm

    from drkernel.policy.engines.decode_fusion import fuse_norms, rms_norm

    layer = Qwen3RMSNorm(size).to(device, dtype)
    torch.nn.init.normal_(layer.weight)
    x = torch.randn(1, 5, 3, size, device=device).to(dtype)
    expected = layer(x)
    tolerance = 1e-5 if dtype == torch.float32 else 2**-6  # the interpreter cuts bits off instead of rounding
    torch.testing.assert_close(rms_norm(x, layer.weight, layer.variance_epsilon), expected, rtol=tolerance, atol=1e-5)
    assert fuse_norms(torch.nn.Sequential(layer, torch.nn.LayerNorm(size, device=device))) == 1
    torch.testing.assert_close(layer(x), expected, rtol=tolerance, atol=1e-5)


def check_fusion(size: int, dtype: torch.dtype, device: str = "cpu") -> None:
    """Qwen3's blocks, with norms that are not 1, against transformers' own."""
    from drkernel.policy.attention import Packed
    from drkernel.policy.engines.decode_fusion import fuse

    model = new_policy(VOCABULARY, hidden=48, layers=2, heads=3, kv_heads=1, seed=2).model
    config = model.config
    config.head_dim = size
    model = type(model)._from_config(config, dtype=torch.float32, attn_implementation="drkernel").to(device, dtype)
    with torch.no_grad():
        for p in model.parameters():
            p.copy_(torch.randn_like(p) * (0.3 if p.ndim > 1 else 1))
    options = {"input_ids": torch.arange(2, 32, device=device)[None], "use_cache": False}
    options["position_ids"] = torch.cat([torch.arange(10), torch.arange(20)]).to(device)[None]
    options["layout"] = Packed(torch.tensor([0, 10, 30], dtype=torch.int32), torch.device(device))
    with torch.no_grad():
        expected = model.base_model(**options).last_hidden_state
        before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
        fuse(model)
        found = model.base_model(**options).last_hidden_state
    assert all(torch.equal(tensor, before[name]) for name, tensor in model.state_dict().items())
    distance = (found - expected).float().norm() / expected.float().norm()
    assert distance < (1e-5 if dtype == torch.float32 else 0.05), distance


ATTENTION_CASES = [(64, 2, 2), (32, 2, 1), (48, 1, 3), (128, 1, 4), (64, 1, 8), (16, 2, 1)]
"""Head size, key heads, query heads per key head."""


def check_kernels(device: str) -> None:
    for dtype in (torch.float32, torch.bfloat16):
        for size, heads, group in ATTENTION_CASES:
            # Triton's interpreter multiplies the bits of bfloat16 in a product on tensor cores.
            half = torch.float16 if device == "cpu" else torch.bfloat16
            check_attention(size, heads, group, half if dtype == torch.bfloat16 else dtype, device)
        for vocabulary in (64, 5_000):
            check_sampling(vocabulary, dtype, device)
        for size in (48, 64, 128):
            check_norm(size, dtype, device)
            check_fusion(size, dtype, device)


@pytest.mark.slow
@pytest.mark.skipif(GPU, reason="the kernels run on the GPU")
def test_the_kernels_are_plain_torch_in_tritons_interpreter():
    # A process of its own: Triton reads the variable when it is imported.
    environment = {**os.environ, "TRITON_INTERPRET": "1", "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    result = subprocess.run([sys.executable, __file__], env=environment, capture_output=True, text=True, timeout=300)
    assert result.returncode == 0, result.stderr


@pytest.mark.gpu
@pytest.mark.skipif(not GPU, reason="needs a CUDA device")
def test_the_kernels_are_plain_torch_on_a_gpu():
    check_kernels("cuda")


def check_engine() -> None:
    """The engine with the kernels, in the interpreter."""
    from drkernel.policy.engines.decode_fusion import fuse

    def done(engine: GraphsEngine) -> dict:
        for i in range(6):
            engine.add(Request(str(i), [2 + i // 2] * (2 + 7 * i), 4 + i, seed=i))
        completions = {}
        while engine.busy:
            completions.update((c.id, c) for c in engine.step())
        return completions

    made = new_policy(VOCABULARY, hidden=64, layers=2, seed=2)
    plain, ours = GraphsEngine(made, {1}, 4, 64), GraphsEngine(made, {1}, 4, 64)
    ours._state.kernels = True
    fuse(ours.model)
    for weights in (made, new_policy(VOCABULARY, hidden=64, layers=2, seed=3)):
        for engine in (ours, plain):
            engine.sync(weights)
        found, expected = done(ours), done(plain)
        for name, completion in expected.items():
            assert found[name].token_ids == completion.token_ids
            logprobs = torch.tensor(found[name].logprobs)
            torch.testing.assert_close(logprobs, torch.tensor(completion.logprobs), rtol=0, atol=1e-4)


if __name__ == "__main__":
    check_kernels("cpu")
    check_engine()
