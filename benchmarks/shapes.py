"""Shapes of Qwen3 models, for benchmarks with random weights."""

from transformers import Qwen3Config

COMMON = {"num_hidden_layers": 28, "num_attention_heads": 16, "num_key_value_heads": 8, "head_dim": 128}
COMMON |= {"vocab_size": 151_936, "max_position_embeddings": 40_960, "tie_word_embeddings": True}
SHAPES: dict[str, dict] = {
    "0.6b": {**COMMON, "hidden_size": 1024, "intermediate_size": 3072},
    "1.7b": {**COMMON, "hidden_size": 2048, "intermediate_size": 6144},
    "4b": {
        **COMMON,
        "hidden_size": 2560,
        "intermediate_size": 9728,
        "num_hidden_layers": 36,
        "num_attention_heads": 32,
    },
    "8b": {
        **COMMON,
        "hidden_size": 4096,
        "intermediate_size": 12288,
        "num_hidden_layers": 36,
        "num_attention_heads": 32,
        "tie_word_embeddings": False,
    },
    "mid": {
        **COMMON,
        "hidden_size": 1024,
        "intermediate_size": 3072,
        "num_hidden_layers": 4,
        "vocab_size": 32_000,
    },
    "tiny": {**COMMON, "hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 2, "vocab_size": 500}
    | {"num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 64},
}


def config_of(shape: str) -> Qwen3Config:
    rope = {"rope_type": "default", "rope_theta": 1_000_000}
    return Qwen3Config(**SHAPES[shape], rope_parameters=rope, bos_token_id=None, eos_token_id=None)
