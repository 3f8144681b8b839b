"""Thoughts: what a model writes between <think> and </think> before its answer.

    none        the chat template asks for an answer without thoughts
    kept        the model thinks, and later turns see its thoughts
    stripped    the model thinks, and later turns see its answers alone, as the chat templates of such models have it

Tokens are dropped and never made anew. A turn after stripped thoughts extends no earlier turn, so it is a row of its
own in training (`Turn.history`), and the engine reads its prompt again.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from drkernel.policy.code import extract_code
from drkernel.types import DrKernelError

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase  # which an environment does without

OPEN, CLOSE = "<think>", "</think>"


def is_open(text: str) -> bool:
    """Whether a text ends within thoughts.

    >>> is_open("<think>a</think>b"), is_open("<think>a</think><think>b"), is_open("a")
    (False, True, False)
    """
    return text.rfind(OPEN) > text.rfind(CLOSE)


def answer_in(completion: str, opened: bool) -> str:
    """What follows the thoughts of a completion; nothing where they do not end. opened: the prompt began them.

    >>> answer_in("a</think>b", opened=True), answer_in("a", opened=True), answer_in("a", opened=False)
    ('b', '', 'a')
    """
    _, closed, answer = completion.rpartition(CLOSE)
    return "" if is_open(completion) or (opened and not closed) else answer


def submission_in(completion: str, name: str, opened: bool = False) -> str | None:
    """The submission in the answer of a completion, class `name`, as `extract_code` finds it: none among thoughts.

    >>> submission_in("<think>class ModelNew: draft", "ModelNew")
    >>> submission_in("class ModelNew: draft</think>class ModelNew: ...", "ModelNew")
    'class ModelNew: ...'
    """
    return extract_code(answer_in(completion, opened), name)


class Stripper:
    """Drops the thoughts of completions, token by token."""

    def __init__(self, tokenizer: PreTrainedTokenizerBase):
        known = tokenizer.get_vocab()
        if CLOSE not in known:
            raise DrKernelError(
                f"policy.thinking: 'stripped' wants one token {CLOSE} in the tokenizer, found none; expected 'kept'"
            )
        from drkernel.policy.tokenizer import decode

        self._text, self._open, self._close = lambda token: decode(tokenizer, [token]), known.get(OPEN), known[CLOSE]

    def __call__(self, ids: list[int], opened: bool, finished: bool) -> list[int]:
        """The tokens of the answer, without the blank lines that follow thoughts; of thoughts that do not end, what
        ended the completion, if something did."""
        if self._close in ids:
            start = len(ids) - ids[::-1].index(self._close)
            if self._open in ids[start:]:
                return ids[-1:] if finished else []
            while start < len(ids) and not self._text(ids[start]).strip() and self._text(ids[start]):
                start += 1
            return ids[start:]
        thinks = opened or self._open in ids
        return (ids[-1:] if finished else []) if thinks else ids
