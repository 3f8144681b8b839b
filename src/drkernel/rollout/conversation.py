"""The `chat` prompts as messages, for models whose tokenizer is elsewhere: behind an endpoint, in another trainer.

They say what policy/prompts.py says in tokens.
"""

from __future__ import annotations

from collections.abc import Callable

from drkernel.judge import feedback
from drkernel.judge.feedback import estimated_tokens
from drkernel.policy.templates import TEMPLATE, Template
from drkernel.types import Task, Verdict

Message = dict[str, str]
"""`role` and `content`."""


def opening(task: Task, template: Template = TEMPLATE) -> list[Message]:
    """The messages before the first completion."""
    system = [{"role": "system", "content": template.system}] if template.system else []
    return [*system, {"role": "user", "content": template.opening_of(task)}]


def revision(
    verdict: Verdict,
    finished: bool,
    limit: int,
    template: Template = TEMPLATE,
    count: Callable[[str], int] = estimated_tokens,
) -> Message:
    """The message after a completion. finished: it was not cut short. limit: most tokens of the feedback, as `count`
    counts them."""
    return {"role": "user", "content": template.revision_of(feedback(verdict, limit, count), finished)}
