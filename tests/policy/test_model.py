"""The policy scores packed rows exactly as a plain forward of each row would."""

import pytest
import torch
import torch.nn.functional as F
from transformers import AutoModelForCausalLM, Phi3Config

from drkernel.policy import Policy, export, load_tokenizer, new_policy
from drkernel.policy.attention import ATTENTION, Packed
from drkernel.policy.model import autocast
from drkernel.types import Batch, DrKernelError

VOCABULARY = 97


def policy(tied: bool = True, dtype: torch.dtype = torch.float64) -> Policy:
    made = new_policy(VOCABULARY, hidden=32, layers=2, seed=1)
    if not tied:
        config = made.model.config
        config.tie_word_embeddings = False
        torch.manual_seed(3)
        made = Policy(AutoModelForCausalLM.from_config(config, attn_implementation=ATTENTION))
    return Policy(made.model.to(dtype), chunk=5)


def batch(lengths: list[int], seed: int = 0) -> Batch:
    generator = torch.Generator().manual_seed(seed)
    total = sum(lengths)
    positions = torch.cat([torch.arange(n) for n in lengths])
    mask = (torch.rand(total, generator=generator) < 0.6) & (positions > 0)
    return Batch(
        tokens=torch.randint(0, VOCABULARY, (total,), generator=generator),
        positions=positions,
        cu_seqlens=torch.tensor([0, *torch.tensor(lengths).cumsum(0).tolist()], dtype=torch.int32),
        loss_mask=mask,
        advantages=torch.randn(total, generator=generator) * mask,
        rollout_logprobs=torch.zeros(total),
        turn_ids=torch.where(mask, 0, -1),
        trajectory_ids=torch.zeros(total, dtype=torch.int64),
    )


def row(data: Batch, r: int) -> Batch:
    start, end = data.cu_seqlens[r], data.cu_seqlens[r + 1]
    parts = {name: getattr(data, name)[start:end] for name in vars(data) if name != "cu_seqlens"}
    return Batch(cu_seqlens=torch.tensor([0, end - start], dtype=torch.int32), **parts)


def plain_logprobs(model: torch.nn.Module, tokens: torch.Tensor, temperature: float) -> torch.Tensor:
    """transformers' own attention and full logits; [T - 1] log-probabilities of tokens 1 and later."""
    model.set_attn_implementation("eager")
    logits = model(input_ids=tokens.unsqueeze(0)).logits[0]
    model.set_attn_implementation(ATTENTION)
    return (logits[:-1] / temperature).log_softmax(-1).gather(1, tokens[1:, None]).squeeze(1)


@pytest.mark.parametrize("tied", [True, False])
@pytest.mark.parametrize("temperature", [1.0, 0.7])
def test_packed_chunked_backward_equals_full_logits_of_each_row_alone(tied, temperature):
    data, lengths = batch([9, 1, 17, 4]), [9, 1, 17, 4]
    ours, reference = policy(tied), policy(tied)
    scores = ours.backward(data, lambda logp, index: -(data.advantages[index] * logp).sum(), temperature)

    total, expected = torch.zeros(()), []
    for r, length in enumerate(lengths):
        part = row(data, r)
        plain = plain_logprobs(reference.model, part.tokens, temperature) if length > 1 else torch.zeros(0)
        logp = F.pad(plain, (1, 0))
        expected.append(torch.where(part.loss_mask, logp, 0.0))
        total = total - (part.advantages * expected[-1]).sum()
    total.backward()

    torch.testing.assert_close(scores.logprobs, torch.cat(expected).detach().float(), rtol=0, atol=1e-5)
    torch.testing.assert_close(scores.loss, total.detach().float(), rtol=1e-5, atol=1e-5)
    for (name, p), q in zip(ours.named_parameters(), reference.parameters(), strict=True):
        torch.testing.assert_close(p.grad, q.grad, rtol=1e-4, atol=1e-6, msg=lambda m, name=name: f"{name}: {m}")


def test_packed_row_equals_the_row_alone_in_float32():
    data, ours = batch([33, 70, 12]), policy(dtype=torch.float32)
    together = ours.logprobs(data).logprobs
    alone = torch.cat([ours.logprobs(row(data, r)).logprobs for r in range(3)])
    torch.testing.assert_close(together, alone, rtol=0, atol=2e-6)


@pytest.mark.parametrize("tied", [True, False])
def test_logits_of_a_float32_head_are_not_rounded_to_16_bits(tied):
    ours, data = policy(tied, torch.bfloat16), batch([9, 5])
    rounded = ours.logprobs(data).logprobs
    ours.fp32_head = True
    index = data.loss_mask.nonzero().squeeze(1)
    with torch.no_grad():
        logits = ours(data)[index - 1].double() @ ours.head.weight.double().T
    expected = logits.log_softmax(-1).gather(1, data.tokens[index, None]).squeeze(1).float()
    torch.testing.assert_close(ours.logprobs(data).logprobs[index], expected, rtol=1e-5, atol=1e-5)
    assert (rounded[index] - expected).abs().max() > 1e-4
    ours.backward(data, lambda logp, _: -logp.sum())
    assert all(p.grad is not None and p.grad.dtype == torch.bfloat16 for p in ours.parameters())


def test_a_model_made_for_training_is_scored_and_trained_without_dropout():
    sizes = {"hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2, "num_attention_heads": 4}
    shape = Phi3Config(vocab_size=VOCABULARY, pad_token_id=0, resid_pdrop=0.5, embd_pdrop=0.5, **sizes)
    made = AutoModelForCausalLM.from_config(shape, attn_implementation=ATTENTION)
    assert made.training, "transformers leaves it so"
    scored = Policy(made)
    first, second = (scored.logprobs(batch([9, 5])).logprobs for _ in range(2))
    assert torch.equal(first, second)


def test_a_row_does_not_see_its_neighbours():
    data, ours = batch([20, 20]), policy()
    before = ours(data)[20:]
    data.tokens[:20] = (data.tokens[:20] + 1) % VOCABULARY
    assert torch.equal(ours(data)[20:], before)


def test_chunk_size_does_not_change_the_result():
    data = batch([40, 23])
    small, large = policy(), policy()
    large.chunk = 10_000
    loss = lambda logp, index: (logp * data.advantages[index]).sum()
    torch.testing.assert_close(small.backward(data, loss).loss, large.backward(data, loss).loss)
    for p, q in zip(small.parameters(), large.parameters(), strict=True):
        torch.testing.assert_close(p.grad, q.grad, rtol=1e-6, atol=1e-9)


def test_entropy_is_that_of_the_tempered_distribution():
    data, ours = batch([12]), policy()
    logits = ours.head(ours(data)).float() / 0.5
    full = torch.distributions.Categorical(logits=logits).entropy().detach()
    expected = torch.where(data.loss_mask, full.roll(1), 0.0)
    torch.testing.assert_close(ours.logprobs(data, 0.5).entropy, expected, rtol=0, atol=1e-5)


def test_logits_exist_for_one_chunk_at_a_time():
    data, ours = batch([64, 64]), policy()
    seen = []
    ours.head.register_forward_hook(lambda module, inputs, output: seen.append(len(output)))
    ours.backward(data, lambda logp, index: logp.sum())
    assert max(seen) <= ours.chunk and sum(seen) == int(data.loss_mask.sum())


def test_backward_without_sampled_tokens_gives_zero_gradients_to_the_body():
    data, ours = batch([8]), policy(tied=False)
    data.loss_mask[:] = False
    assert ours.backward(data, lambda logp, index: logp.sum()).loss == 0
    assert all(torch.equal(p.grad, torch.zeros_like(p)) for p in ours.body.parameters())


def test_gradients_accumulate_over_micro_batches():
    data, ours, whole = batch([15, 22]), policy(), policy()
    loss = lambda part: lambda logp, index: (logp * part.advantages[index]).sum()
    whole.backward(data, loss(data))
    for r in range(2):
        ours.backward(row(data, r), loss(row(data, r)))
    for p, q in zip(ours.parameters(), whole.parameters(), strict=True):
        torch.testing.assert_close(p.grad, q.grad, rtol=1e-4, atol=1e-6)


def test_products_of_bfloat16_on_a_cpu_leave_weights_and_gradients_in_float32():
    data = batch([30, 40])
    whole, ours = (policy(dtype=torch.float32) for _ in range(2))
    ours.bfloat16_on_cpu = True
    for each in (whole, ours):
        with autocast(each):
            each.backward(data, lambda logp, index: -logp.sum())
    for p, q in zip(ours.parameters(), whole.parameters(), strict=True):
        assert p.dtype == p.grad.dtype == torch.float32
        assert 0 < (p.grad - q.grad).norm() < 0.03 * q.grad.norm()


def test_saved_folder_loads_in_transformers_with_the_same_log_probabilities(tmp_path, tokenizer):
    ours = new_policy(len(tokenizer), hidden=32, layers=2)
    export(ours, tmp_path, tokenizer)
    data = batch([11])
    plain = AutoModelForCausalLM.from_pretrained(tmp_path, attn_implementation="eager")
    logits = plain(input_ids=data.tokens.unsqueeze(0)).logits[0].float()
    expected = logits.log_softmax(-1)[:-1].gather(1, data.tokens[1:, None]).squeeze(1)
    torch.testing.assert_close(
        ours.logprobs(data).logprobs[data.loss_mask], expected[data.loss_mask[1:]].detach(), rtol=0, atol=1e-5
    )
    again = Policy.load(tmp_path)
    assert all(torch.equal(p, q) for p, q in zip(ours.parameters(), again.parameters(), strict=True))
    assert load_tokenizer(tmp_path).get_vocab() == tokenizer.get_vocab()


def test_bfloat16_folder_is_half_as_large_and_holds_tied_weights_once(tmp_path, tokenizer):
    ours = new_policy(len(tokenizer), hidden=32, layers=2)
    export(ours, tmp_path / "full", tokenizer)
    export(ours, tmp_path / "half", tokenizer, torch.bfloat16)
    full, half = ((tmp_path / name / "model.safetensors").stat().st_size for name in ("full", "half"))
    parameters = sum(p.numel() for p in ours.parameters())
    assert full < 4 * parameters + 10_000 and half < 2 * parameters + 10_000
    assert Policy.load(tmp_path / "half").head.weight.dtype == torch.float32


@pytest.mark.parametrize("damage", ["no folder", "empty folder", "no weights", "cut weights", "no config"])
def test_missing_or_damaged_folder_is_one_clear_line(tmp_path, tokenizer, damage):
    folder = tmp_path / "policy"
    if damage == "empty folder":
        folder.mkdir()
    elif damage != "no folder":
        export(new_policy(len(tokenizer), hidden=32, layers=1), folder, tokenizer)
        weights = folder / "model.safetensors"
        if damage == "no weights":
            weights.unlink()
        elif damage == "no config":
            (folder / "config.json").unlink()
        else:
            weights.write_bytes(weights.read_bytes()[:200])
    with pytest.raises(DrKernelError) as error:
        Policy.load(folder)
    assert str(folder) in str(error.value) and "\n" not in str(error.value)


def test_new_policy_is_small_and_reproducible_and_leaves_the_global_random_state():
    state = torch.random.get_rng_state()
    one, two, other = (new_policy(2048, 256, 8, seed=seed) for seed in (5, 5, 6))
    assert torch.equal(torch.random.get_rng_state(), state)
    assert sum(p.numel() for p in one.parameters()) <= 8_000_000
    assert torch.equal(one.head.weight, two.head.weight) and not torch.equal(one.head.weight, other.head.weight)


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
@pytest.mark.parametrize("size", [32, 64, 128])
@pytest.mark.parametrize("compiled", [False, True])
def test_varlen_attention_on_a_gpu_equals_the_loop_over_rows(size, compiled):
    bounds = torch.tensor([0, 33, 34, 200], dtype=torch.int32, device="cuda")
    torch.manual_seed(0)
    shapes = ((200, 4, size), (200, 2, size), (200, 2, size))
    q, k, v = (torch.randn(shape, device="cuda").bfloat16().requires_grad_() for shape in shapes)
    exact = [x.detach().float().requires_grad_() for x in (q, k, v)]
    attend = torch.compile(Packed(bounds).attend, fullgraph=True) if compiled else Packed(bounds).attend
    fast, slow = attend(0, q, k, v, 0.125), Packed(bounds).attend(0, *exact, 0.125)
    torch.testing.assert_close(fast.float(), slow, rtol=0, atol=2e-2)
    weights = torch.randn_like(slow)
    (fast.float() * weights).sum().backward()
    (slow * weights).sum().backward()
    for x, y in zip((q, k, v), exact, strict=True):
        torch.testing.assert_close(x.grad.float(), y.grad, rtol=0, atol=6e-2)
