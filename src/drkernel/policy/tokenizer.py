"""A byte-level BPE for small policies: learnt from tasks, completions and feedback. Lossless.

A token has about 8 characters. Merges may span spaces and the names that code is made of (`tl.load(`), but never go
past the end of a line: templated Triton code repeats in pieces of lines. They stop at digits and at rare names, so that
what a policy has to copy from a task is cut in the same way wherever it stands. Text that others wrote goes through
`encode`, which cannot produce a special token whatever the text says.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Sequence

from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import PreTrainedTokenizerBase, PreTrainedTokenizerFast

TASK, ANSWER, FEEDBACK, END, PAD = SPECIAL = ("<|task|>", "<|answer|>", "<|feedback|>", "<|end|>", "<|pad|>")

MADE_FOR = "drkernel_prompts"
"""The key of tokenizer_config.json that says which style of prompts the policy reads."""
COMMON = 0.02
"""Names in so large a share of the texts may merge with what is around them."""


def train_tokenizer(texts: Iterable[str], vocabulary: int = 2048, longest: int = 28) -> PreTrainedTokenizerFast:
    """A tokenizer with at most `vocabulary` tokens of at most `longest` bytes; `save_pretrained` stores it.

    The first five ids are the special tokens, then come the 256 bytes, so that any text round-trips.
    """
    texts = list(texts)
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(r"[^\n]*\n|[^\n]+"), "isolated"),
            pre_tokenizers.Split(Regex(_copied(texts)), "isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=vocabulary,
        special_tokens=list(SPECIAL),
        initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()),
        max_token_length=longest,
        show_progress=False,
    )
    tokenizer.train_from_iterator(texts, trainer)
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        eos_token=END,
        pad_token=PAD,
        extra_special_tokens=[TASK, ANSWER, FEEDBACK],
        clean_up_tokenization_spaces=False,
    )


CHAT_TEMPLATE = (
    "{% for m in messages %}<|im_start|>{{ m['role'] }}\n{{ m['content'] }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
"""Dialogues as instruct models have them (ChatML)."""


def for_chat(tokenizer: PreTrainedTokenizerFast) -> PreTrainedTokenizerFast:
    """The tokenizer with a chat template, for a policy that reads `chat` prompts."""
    marks = ["<|im_start|>", "<|im_end|>"]
    tokenizer.add_special_tokens({"additional_special_tokens": marks, "eos_token": marks[1]})
    tokenizer.chat_template = CHAT_TEMPLATE
    return tokenizer


def _copied(texts: Sequence[str]) -> str:
    """A pattern of what stands alone: digits that are no part of a name, and names that few texts have."""
    found = Counter(name for text in texts for name in set(re.findall(r"\b[A-Za-z_]\w*", text, re.ASCII)))
    common = "|".join(sorted(name for name, number in found.items() if number >= max(2, COMMON * len(texts))))
    return rf"(?<![A-Za-z0-9_])(?!(?:{common})(?![A-Za-z0-9_]))[A-Za-z_][A-Za-z0-9_]*|(?<![A-Za-z_])[0-9]"


def encode(tokenizer: PreTrainedTokenizerBase, text: str) -> list[int]:
    """Token ids of text that others wrote: special tokens in it come out as ordinary characters."""
    return tokenizer.encode(text, add_special_tokens=False, split_special_tokens=True)


def decode(tokenizer: PreTrainedTokenizerBase, ids: list[int]) -> str:
    """The text of generated ids, special tokens left out."""
    text = tokenizer.decode(ids, skip_special_tokens=True, clean_up_tokenization_spaces=False)
    assert isinstance(text, str)
    return text
