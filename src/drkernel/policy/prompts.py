"""What the policy reads: `chat` for instruct models, `compact` and `canonical` for small policies with drkernel's own
tokenizer.

A trajectory is one growing token sequence: first(task) completion next(feedback) completion ..., or, where thoughts are
stripped, the `history` of each turn in place of the turn. Nothing generated is ever re-tokenised. Text of tasks and
feedback is encoded with special tokens off, so that it cannot end or forge a turn.
"""

from __future__ import annotations

import re
from collections.abc import Collection
from typing import Protocol

from jinja2 import TemplateError
from transformers import PreTrainedTokenizerBase

from drkernel.config.policy import PROMPTS
from drkernel.policy.canonical import canonical
from drkernel.policy.code import extract_code
from drkernel.policy.templates import TEMPLATE, Template, load_template
from drkernel.policy.thinking import Stripper, is_open, submission_in
from drkernel.policy.tokenizer import ANSWER, END, FEEDBACK, MADE_FOR, TASK, decode, encode
from drkernel.types import DrKernelError, Task


class Prompts(Protocol):
    tokenizer: PreTrainedTokenizerBase
    stop_ids: set[int]
    """Tokens that end a completion."""

    def first(self, task: Task) -> list[int]:
        """The tokens before the first completion."""

    def next(self, feedback: str, finished: bool = True, last: int | None = None) -> list[int]:
        """The tokens between a completion and the next one; they also end one that was cut short (`finished=False`), or
        whose `last` token is another stop token than the dialogue's."""

    def history(self, prompt: list[int], completion: list[int], finished: bool = True) -> list[int]:
        """What later turns see of a turn: all of it, unless thoughts are stripped."""

    def completion(self, source: str, task: Task | None = None) -> list[int]:
        """The tokens of a completion that submits `source`, written for `task`, the end mark included (for supervised
        training)."""

    def extract(self, completion: str, task: Task | None = None) -> str | None:
        """The submission in a completion's text: source that defines the task's `submission_name`, or None."""

    def text(self, ids: list[int]) -> str:
        """The text of generated tokens."""

    def count(self, text: str) -> int:
        """How many tokens a text takes in a prompt."""


class _Base:
    def __init__(self, tokenizer: PreTrainedTokenizerBase):
        self.tokenizer = tokenizer

    def text(self, ids: list[int]) -> str:
        return decode(self.tokenizer, ids)

    def count(self, text: str) -> int:
        return len(encode(self.tokenizer, text))

    def history(self, prompt: list[int], completion: list[int], finished: bool = True) -> list[int]:
        return prompt + completion


class CompactPrompts(_Base):
    """<|task|> source <|answer|> submission <|end|> <|feedback|> text <|answer|> submission <|end|> ...

    The source ends with `# precision: tf32` or `low` where the task is not `ieee`.
    """

    def __init__(self, tokenizer: PreTrainedTokenizerBase):
        super().__init__(tokenizer)
        known = tokenizer.get_vocab()
        missing = [token for token in (TASK, ANSWER, FEEDBACK, END) if token not in known]
        if missing:
            raise DrKernelError(f"policy.prompts: 'compact' wants the tokens {missing} in the tokenizer; use 'chat'")
        self._task, self._answer, self._feedback, self._end = (known[t] for t in (TASK, ANSWER, FEEDBACK, END))
        self.stop_ids = {self._end}

    def first(self, task: Task) -> list[int]:
        return [self._task, *encode(self.tokenizer, self.opening(task)), self._answer]

    def next(self, feedback: str, finished: bool = True, last: int | None = None) -> list[int]:
        cut = [] if finished else [self._end]
        return [*cut, self._feedback, *encode(self.tokenizer, feedback), self._answer]

    def completion(self, source: str, task: Task | None = None) -> list[int]:
        return [*encode(self.tokenizer, self.completion_text(source, task) if task else source), self._end]

    @staticmethod
    def opening(task: Task) -> str:
        """The text of a task."""
        return condense(task.source) + _precision(task)

    @staticmethod
    def completion_text(source: str, task: Task) -> str:
        """The text of a submission that was written for a task."""
        return source

    def extract(self, completion: str, task: Task | None = None) -> str | None:
        return completion if completion.strip() else None


def _precision(task: Task) -> str:
    """The line that says what a task allows, where that is not `ieee`."""
    return "" if task.precision == "ieee" else f"# precision: {task.precision}\n"


class CanonicalPrompts(CompactPrompts):
    """As compact, with tasks in canonical form: what they compute, however somebody wrote it (canonical/). A completion
    has kernels and methods; the constructor is the reference's."""

    @staticmethod
    def opening(task: Task) -> str:
        return canonical(task.source, task.entry_point).text + _precision(task)

    @staticmethod
    def completion_text(source: str, task: Task) -> str:
        return canonical(task.source, task.entry_point).completion(source, task.entry_point)

    def extract(self, completion: str, task: Task | None = None) -> str | None:
        if task is None:
            return super().extract(completion)
        return canonical(task.source, task.entry_point).submission(completion, task.submission_name)


class ChatPrompts(_Base):
    """Through the tokenizer's chat template. The messages say what the paper's prompts say, in other words.

    The template is rendered once around marks; the pieces between them are the glue that surrounds every message.
    """

    def __init__(
        self,
        tokenizer: PreTrainedTokenizerBase,
        template: Template = TEMPLATE,
        thinking: str = "none",
        stops: Collection[int] = (),
    ):
        """thinking: as in policy/thinking.py. stops: more tokens that end a completion."""
        super().__init__(tokenizer)
        self.template, self.thinking = template, thinking
        self._strip = Stripper(tokenizer) if thinking == "stripped" else None
        if not tokenizer.chat_template:
            raise DrKernelError(
                "policy.prompts: 'chat' wants a tokenizer with a chat template; use the style that the policy was made "
                "with, 'compact' (policy=seed) or 'canonical' (policy=seed_8m), or an instruct model"
            )
        marks = ["drkernel-mark-1", "drkernel-mark-2", "drkernel-mark-3"]
        roles = ("user", "assistant", "user")
        self._before, self._after = self._pieces(marks[:1], roles[:1])
        _, self._before_answer, between, self._after_feedback = self._pieces(marks, roles)
        self._opened = thinking != "none" and is_open("".join(tokenizer.batch_decode([self._after])))
        self._system = self._with_system() if template.system else None
        if tokenizer.eos_token_id is None or not between:
            raise DrKernelError("policy.prompts: the chat template ends an answer with nothing that can be recognised")
        self.stop_ids = {tokenizer.eos_token_id, *stops}
        if between[0] in tokenizer.all_special_ids:
            self.stop_ids.add(between[0])
        self._end, self._between = ([between[0]], between[1:]) if between[0] in self.stop_ids else ([], between)

    def _pieces(self, contents: list[str], roles: tuple[str, ...]) -> list[list[int]]:
        messages = [{"role": role, "content": content} for role, content in zip(roles, contents, strict=True)]
        try:
            text = self.tokenizer.apply_chat_template(
                messages, tokenize=False, add_generation_prompt=True, enable_thinking=self.thinking != "none"
            )
        except TemplateError as error:  # e.g. of a template without system messages
            found = f"the chat template refuses the roles {', '.join(roles)}"
            raise DrKernelError(f"policy.prompts: {found}: {error}") from None
        assert isinstance(text, str)
        pieces = re.split("|".join(contents), text)
        if len(pieces) != len(contents) + 1:
            raise DrKernelError(
                "policy.prompts: the chat template drops or repeats messages, so 'chat' cannot extend it"
            )
        return [self.tokenizer.encode(piece, add_special_tokens=False) for piece in pieces]

    def _with_system(self) -> tuple[list[int], list[int], list[int]]:
        before, between, after = self._pieces(["drkernel-mark-1", "drkernel-mark-2"], ("system", "user"))
        return before, between, after

    def first(self, task: Task) -> list[int]:
        return self.ask(self.template.opening_of(task), system=self.template.system)

    def next(self, feedback: str, finished: bool = True, last: int | None = None) -> list[int]:
        ended = finished and (last is None or [last] == self._end or not self._end)
        text = self.template.revision_of(feedback, finished)
        return [*([] if ended else self._end), *self.ask(text, first=False)]

    def history(self, prompt: list[int], completion: list[int], finished: bool = True) -> list[int]:
        if self._strip is None:
            return prompt + completion
        ends = (len(prompt) - len(glue) for glue in (self._after, self._after_feedback))
        end = next(end for end in ends if prompt[end:] in (self._after, self._after_feedback))
        return [*prompt[:end], *self._before_answer, *self._strip(completion, self._opened, finished)]

    @staticmethod
    def opening(task: Task) -> str:
        """The text about a task, as the built-in template has it."""
        return TEMPLATE.opening_of(task)

    @staticmethod
    def completion_text(source: str, task: Task | None = None) -> str:
        """The text of a message that submits `source`."""
        return f"```python\n{source.strip()}\n```"

    def completion(self, source: str, task: Task | None = None) -> list[int]:
        return self.reply(self.completion_text(source))

    def ask(self, text: str, first: bool = True, system: str = "") -> list[int]:
        """The tokens of a user's message as it is: those before the first completion, or between two completions.
        `system` is the text of a system message before the first one."""
        words = encode(self.tokenizer, text)
        if not first:
            return [*self._between, *words, *self._after_feedback]
        if not system:
            return [*self._before, *words, *self._after]
        before, between, after = self._system or self._with_system()
        return [*before, *encode(self.tokenizer, system), *between, *words, *after]

    def reply(self, text: str) -> list[int]:
        """The tokens of an assistant's message as it is, the end mark included."""
        return [*encode(self.tokenizer, text), *self._end]

    def extract(self, completion: str, task: Task | None = None) -> str | None:
        name = task.submission_name if task else "ModelNew"
        if self.thinking == "none":
            return extract_code(completion, name)
        return submission_in(completion, name, self._opened)


def load_prompts(
    style: str,
    tokenizer: PreTrainedTokenizerBase,
    template: str | None = None,
    thinking: str = "none",
    stops: Collection[int] = (),
) -> Prompts:
    """The prompts of that style. For `chat` alone: the file with its texts, its thoughts (policy/thinking.py), and more
    tokens that end a completion than the tokenizer knows of."""
    if style not in PROMPTS:
        raise DrKernelError(f"policy.prompts: found {style!r}, expected one of {', '.join(PROMPTS)}")
    if style != "chat" and (template or thinking != "none"):
        found = f"policy.template={template}" if template else f"policy.thinking={thinking}"
        raise DrKernelError(f"config: {found} with policy.prompts={style}; expected policy.prompts=chat")
    if (made_for := tokenizer.init_kwargs.get(MADE_FOR, style)) != style:
        raise DrKernelError(f"policy.prompts: found {style!r}, expected {made_for!r}, which this policy was made for")
    if style == "chat":
        return ChatPrompts(tokenizer, load_template(template) if template else TEMPLATE, thinking, stops)
    return PROMPTS[style](tokenizer)


def condense(source: str) -> str:
    """A task's source without blank lines, trailing blanks, and the imports that all tasks share.

    >>> condense("import torch\\nimport torch.nn as nn\\n\\nclass Model(nn.Module):  \\n    pass\\n")
    'class Model(nn.Module):\\n    pass\\n'
    """
    lines = [line.rstrip() for line in source.splitlines()]
    shared = ("import torch", "import torch.nn as nn", "import torch.nn.functional as F", "from torch import nn")
    return "".join(line + "\n" for line in lines if line and line not in shared)
