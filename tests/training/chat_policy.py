"""A tiny policy with a chat template of its own, as a Hugging Face folder: what an instruct model is, in small."""

from pathlib import Path

from transformers import PreTrainedTokenizerFast

from drkernel.policy import export
from drkernel.policy.model import Policy, new_policy
from drkernel.policy.tokenizer import CHAT_TEMPLATE, for_chat, train_tokenizer
from drkernel.tasks import generate

THINKING = CHAT_TEMPLATE.replace("assistant\n{% endif %}", "assistant\n<think>\n{% endif %}")
"""A prompt begins the thoughts, and they are no part of the messages before."""


def chat_tokenizer(vocabulary: int = 400, thinks: bool = False) -> PreTrainedTokenizerFast:
    made = for_chat(train_tokenizer([task.source for task in generate("train", 8, 0)], vocabulary))
    if thinks:
        made.add_tokens(["<think>", "</think>"])
        made.chat_template = THINKING
    return made


def chat_policy(folder: Path, thinks: bool = False) -> Policy:
    """64 wide, two blocks; written to `folder`."""
    tokenizer = chat_tokenizer(thinks=thinks)
    ids = {"eos_token_id": tokenizer.eos_token_id, "pad_token_id": tokenizer.pad_token_id}
    policy = new_policy(len(tokenizer), hidden=64, layers=2, heads=2, kv_heads=1, positions=8192, **ids)
    export(policy, folder, tokenizer)
    return policy
