"""A tiny policy with a chat template of its own, as a Hugging Face folder: what an instruct model is, in small."""

from pathlib import Path

from transformers import PreTrainedTokenizerFast

from drkernel.policy import export
from drkernel.policy.model import Policy, new_policy
from drkernel.policy.tokenizer import train_tokenizer
from drkernel.tasks import generate

TEMPLATE = (
    "{% for m in messages %}<|im_start|>{{ m['role'] }}\n{{ m['content'] }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)


THINKING = TEMPLATE.replace("assistant\n{% endif %}", "assistant\n<think>\n{% endif %}")
"""A prompt begins the thoughts, and they are no part of the messages before."""


def chat_tokenizer(vocabulary: int = 400, thinks: bool = False) -> PreTrainedTokenizerFast:
    made = train_tokenizer([task.source for task in generate("train", 8, 0)], vocabulary)
    made.add_special_tokens({"additional_special_tokens": ["<|im_start|>", "<|im_end|>"], "eos_token": "<|im_end|>"})
    if thinks:
        made.add_tokens(["<think>", "</think>"])
    made.chat_template = THINKING if thinks else TEMPLATE
    return made


def chat_policy(folder: Path, thinks: bool = False) -> Policy:
    """64 wide, two blocks; written to `folder`."""
    tokenizer = chat_tokenizer(thinks=thinks)
    ids = {"eos_token_id": tokenizer.eos_token_id, "pad_token_id": tokenizer.pad_token_id}
    policy = new_policy(len(tokenizer), hidden=64, layers=2, heads=2, kv_heads=1, positions=8192, **ids)
    export(policy, folder, tokenizer)
    return policy
