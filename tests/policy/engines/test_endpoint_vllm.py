"""Against vLLM's own server, where vLLM is installed."""

import importlib.util
import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest

from drkernel.policy.engines import endpoint as module
from drkernel.policy.engines.endpoint import ChatEndpoint, TooLong

VLLM = os.environ.get("DRKERNEL_VLLM_PYTHON") or (sys.executable if importlib.util.find_spec("vllm") else None)
"""A Python that has vLLM, perhaps another one's than this."""


@pytest.mark.skipif(VLLM is None, reason="no vLLM here, and DRKERNEL_VLLM_PYTHON names no Python that has it")
def test_vllms_own_server_is_served_through_a_restart(tmp_path, monkeypatch):
    """The server is killed in the middle of the work, and started again."""
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    monkeypatch.setattr(module, "_LONGEST_PAUSE_S", 0.05)
    folder, port = tiny_model(tmp_path), free_port()
    server = start_vllm(folder, port)
    try:
        with ChatEndpoint(f"http://127.0.0.1:{port}/v1", patience_s=240, timeout_s=120, concurrency=8) as endpoint:
            assert (endpoint.model, endpoint.context) == ("tiny", 256)
            asked = lambda count: [
                endpoint.submit([{"role": "user", "content": f"number {n}"}], seed=n, max_tokens=24)
                for n in range(count)
            ]
            before = [future.result(timeout=300) for future in asked(8)]
            assert all(reply.tokens <= 24 and reply.prompt_tokens > 2 for reply in before)
            with pytest.raises(TooLong):
                endpoint.submit([{"role": "user", "content": "word " * 2000}], seed=0, max_tokens=24).result(timeout=60)
            futures = asked(48)
            while endpoint.usage.replies < 12:
                time.sleep(0.01)
            stop_vllm(server)
            server = start_vllm(folder, port)
            after = [future.result(timeout=300) for future in futures]
            assert len(after) == 48 and endpoint.usage.failures > 0
            assert [reply.text for reply in after[:8]] == [reply.text for reply in before]
            assert endpoint.usage.tokens == sum(reply.tokens for reply in (*before, *after))
            assert endpoint.usage.replies == 56
    finally:
        stop_vllm(server)


def tiny_model(folder):
    """A random Qwen3 with the shipped tokenizer and a plain chat template."""
    import torch
    from transformers import AutoTokenizer, Qwen3Config, Qwen3ForCausalLM

    tokenizer = AutoTokenizer.from_pretrained(Path(__file__).parents[3] / "assets" / "seed")
    tokenizer.chat_template = "{% for m in messages %}{{ m['role'] }}: {{ m['content'] }}\n{% endfor %}assistant: "
    tokenizer.save_pretrained(folder)
    torch.manual_seed(0)
    sizes = {"hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 2, "head_dim": 32}
    heads = {"num_attention_heads": 2, "num_key_value_heads": 2, "max_position_embeddings": 256}
    Qwen3ForCausalLM(Qwen3Config(vocab_size=len(tokenizer), **sizes, **heads)).save_pretrained(folder)
    return folder


def free_port():
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return found.getsockname()[1]


def start_vllm(folder, port):
    command = [VLLM, "-m", "vllm.entrypoints.openai.api_server", "--model", str(folder), "--port", str(port)]
    command += ["--host", "127.0.0.1", "--served-model-name", "tiny", "--max-model-len", "256", "--enforce-eager"]
    command += ["--dtype", "float32", "--max-num-seqs", "8"]
    room = {"VLLM_CPU_KVCACHE_SPACE": "1", "OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1", "VLLM_NO_USAGE_STATS": "1"}
    log = open(folder / f"log-{time.time()}.txt", "w")  # noqa: SIM115 - the server writes to it
    server = subprocess.Popen(command, env=os.environ | room, stdout=log, stderr=log, start_new_session=True)
    log.close()
    return server


def stop_vllm(server):
    if server.poll() is None:
        os.killpg(server.pid, signal.SIGKILL)
    server.wait(30)
