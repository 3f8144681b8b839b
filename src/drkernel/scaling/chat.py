"""A hosted model in a study: the chat prompts as messages, completions as text."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import Future
from dataclasses import replace
from functools import cached_property
from queue import Empty, SimpleQueue

from drkernel.policy.engine import Sampling
from drkernel.policy.engines.endpoint import ChatEndpoint, Refused, Reply, TooLong
from drkernel.policy.templates import TEMPLATE, Template
from drkernel.policy.thinking import submission_in
from drkernel.rollout.conversation import Message, opening, revision
from drkernel.scaling.models import TaskCompletion
from drkernel.scaling.records import Record
from drkernel.types import DrKernelError, Task

_WAIT_S = 0.1


class ChatModel:
    """A `Model` (scaling/models.py) behind an endpoint, which stays the caller's to close.

    The server's tokenizer is not here, so whether a prompt leaves room is estimated where the server names its context.
    A prompt that the server itself finds too long is asked again with fewer turns; nothing is concluded for others,
    whose characters may make fewer tokens.

    What the server refuses for another reason becomes a turn only once the server accepts something else, or when
    nothing else is under way. A server that refuses everything ends the study, and must leave no turns behind.
    """

    def __init__(
        self,
        label: str,
        endpoint: ChatEndpoint,
        *,
        max_tokens: int,
        feedback_limit: int,
        sampling: Sampling,
        template: Template = TEMPLATE,
    ):
        """max_tokens: longest completion. feedback_limit: in tokens, about. template: the texts of the prompts."""
        self.label, self._endpoint, self._template = label, endpoint, template
        self._max_tokens, self._feedback_limit, self._sampling = max_tokens, feedback_limit, sampling
        self._done: SimpleQueue[tuple[str, Task, Future[Reply]]] = SimpleQueue()
        self._awaited = 0
        self._refused: list[TaskCompletion] = []
        self._failure: DrKernelError | None = None

    @cached_property
    def _room(self) -> int | None:
        """About how many characters a prompt may have; None where the server does not say how long its context is."""
        if (context := self._endpoint.context) is None:
            return None
        if context <= self._max_tokens:
            raise DrKernelError(
                f"endpoint.max_answer_tokens: found {self._max_tokens}, but the server's context is {context} tokens, "
                "prompts included; expected fewer"
            )
        return 3 * (context - self._max_tokens)

    @property
    def busy(self) -> bool:
        return self._awaited > 0

    def add(self, id: str, task: Task, shown: Sequence[Record], seed: int) -> bool:
        conversation = messages(task, shown, self._feedback_limit, self._template)
        length = sum(len(message["content"]) for message in conversation)
        if self._room is not None and length > self._room:
            return False
        self._awaited += 1
        future = self._endpoint.submit(conversation, seed, self._max_tokens, self._sampling)
        future.add_done_callback(lambda done: self._done.put((id, task, done)))
        return True

    def step(self) -> list[TaskCompletion]:
        """Raises DrKernelError where the endpoint has given a request up, after all that was completed until then."""
        if self._failure:
            raise self._failure
        completions: list[TaskCompletion] = []
        while self._awaited:
            try:
                id, task, future = self._done.get(timeout=0 if completions or self._failure else _WAIT_S)
            except Empty:
                break
            self._awaited -= 1
            try:
                completions += self._understand(id, task, future)
            except DrKernelError as error:
                self._failure = error
        if self._failure and not completions:
            raise self._failure
        return completions if self._awaited or self._failure else completions + self._take_refused()

    def _understand(self, id: str, task: Task, future: Future[Reply]) -> list[TaskCompletion]:
        nothing = TaskCompletion(id, None, None, 0, 0, False, 0.0)
        try:
            reply = future.result()
        except TooLong:
            return [replace(nothing, fits=False)]
        except Refused as error:
            self._refused.append(replace(nothing, refused=str(error)))
            return []
        source = submission_in(reply.text, task.submission_name)
        counts = reply.prompt_tokens, reply.tokens
        completion = TaskCompletion(id, reply.text, source, *counts, reply.finished, reply.seconds)
        return [*self._take_refused(), completion]

    def _take_refused(self) -> list[TaskCompletion]:
        taken, self._refused = self._refused, []
        return taken


def messages(task: Task, shown: Sequence[Record], feedback_limit: int, template: Template = TEMPLATE) -> list[Message]:
    """The conversation whose next message is the completion: the task, then each shown turn with what was found."""
    conversation = opening(task, template)
    for record in shown:
        answer = (record.answer or "").strip() or "(no answer)"  # "" is often refused
        conversation.append({"role": "assistant", "content": answer})
        conversation.append(revision(record.verdict, record.finished, feedback_limit, template))
    return conversation
