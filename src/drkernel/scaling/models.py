"""The models of a study: here an engine in this process; chat.py has a server that takes messages."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from drkernel.judge import feedback
from drkernel.policy.engine import Completion, Engine, Request, Sampling
from drkernel.policy.prompts import Prompts
from drkernel.scaling.records import Record, pack, unpack
from drkernel.types import Task


@dataclass(frozen=True)
class TaskCompletion:
    """What a model wrote on one request of a study."""

    id: str
    content: str | None
    """What later prompts repeat; only the model reads it (Record.answer)."""
    source: str | None
    """The submission in it."""
    prompt_tokens: int
    tokens: int
    finished: bool
    seconds: float
    """See Record.generate_s."""
    fits: bool = True
    """False where the prompt turned out to be too long, and nothing was generated."""
    refused: str | None = None
    """Why a server refuses the request, where it does."""


class Model(Protocol):
    """What a study needs of one."""

    label: str

    @property
    def busy(self) -> bool:
        """True while some request is not completed."""

    def add(self, id: str, task: Task, shown: Sequence[Record], seed: int) -> bool:
        """Queues a request whose prompt is the task and, in this order, the shown turns with their verdicts. Returns
        False, and queues nothing, where the longest completion would not fit after it."""

    def step(self) -> list[TaskCompletion]:
        """Goes on for a moment, at most a tenth of a second where it only waits; returns what was completed."""


class TokenModel:
    """An engine, and prompts that repeat sampled tokens as they were sampled."""

    def __init__(
        self,
        label: str,
        engine: Engine,
        prompts: Prompts,
        *,
        max_tokens: int,
        feedback_limit: int,
        slots: int,
        sampling: Sampling,
    ):
        """max_tokens: longest completion. feedback_limit: in tokens. slots: requests in the engine at the same time."""
        self.label, self._engine, self._prompts = label, engine, prompts
        self._max_tokens, self._feedback_limit = max_tokens, feedback_limit
        self._slots, self._sampling = slots, sampling
        self._waiting: deque[tuple[Request, Task]] = deque()
        self._running: dict[str, tuple[Request, Task, float]] = {}
        self._clock = 0.0  # engine seconds per request since the start: what each running request is charged

    @property
    def busy(self) -> bool:
        return bool(self._waiting or self._running)

    def add(self, id: str, task: Task, shown: Sequence[Record], seed: int) -> bool:
        prompt, ids = list(self._prompts.first(task)), []
        for record in shown:
            text, answer = self._feedback(record), unpack(record.answer) if record.answer else []
            ids += self._prompts.history(prompt, answer, record.finished)
            prompt = self._prompts.next(text, record.finished, answer[-1] if answer else None)
        ids += prompt
        if len(ids) + self._max_tokens > self._engine.context:
            return False
        # Never as an extension of an earlier request: a study that resumes has none, and must get the same bits.
        self._waiting.append((Request(id, ids, self._max_tokens, seed, sampling=self._sampling), task))
        return True

    def _feedback(self, record: Record) -> str:
        return feedback(record.verdict, self._feedback_limit, self._prompts.count)

    def step(self) -> list[TaskCompletion]:
        while self._waiting and len(self._running) < self._slots:
            request, task = self._waiting.popleft()
            self._engine.add(request)
            self._running[request.id] = request, task, self._clock
        paused, started = self._engine.paused_s, time.perf_counter()
        completions = self._engine.step()
        busy = time.perf_counter() - started - (self._engine.paused_s - paused)  # the rest is the judge's
        self._clock += busy / max(1, len(self._running))
        return [self._finish(completion) for completion in completions]

    def _finish(self, completion: Completion) -> TaskCompletion:
        request, task, charged_from = self._running.pop(completion.id)
        self._engine.release(completion.id)
        ids = completion.token_ids
        return TaskCompletion(
            id=completion.id,
            content=pack(ids),
            source=self._prompts.extract(self._prompts.text(ids), task),
            prompt_tokens=len(request.prompt_ids),
            tokens=len(ids),
            finished=completion.finished,
            seconds=self._clock - charged_from,
        )
