"""What generates: requests in, completions out, one `step` at a time; the same protocol for every engine.

A later turn names its `parent`, the request whose tokens it extends, so that the engine only reads what is new.
A completion depends on (weights, prompt_ids and parents, seed, max_tokens, sampling) and never on other requests.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol, TypeVar

from drkernel.types import DrKernelError

if TYPE_CHECKING:
    from drkernel.policy.model import Policy

T = TypeVar("T")
Share = tuple[int, int]
"""(k, n): the k-th of n parts."""


@dataclass(frozen=True)
class Sampling:
    """How a token is drawn: at `temperature`, among what min_p, then top_k, then top_p leave (vLLM's order).

    Log-probabilities are those of the distribution that the token is drawn from: where something is cut, they exceed
    the trainer's, which are of the whole softmax at `temperature`, by -log of the mass that is left (docs/method.md).
    """

    temperature: float = 1.0
    """0 takes the most probable token; its log-probability is then that at temperature 1."""
    top_p: float = 1.0
    """The most probable tokens whose mass reaches this share of what is left; 1 keeps all."""
    top_k: int = 0
    """So many of the most probable tokens; 0 keeps all."""
    min_p: float = 0.0
    """Tokens at least this many times as probable as the most probable one; 0 keeps all."""

    @property
    def truncates(self) -> bool:
        """Whether a part of the distribution is cut off."""
        return self.temperature > 0 and (self.top_p < 1 or self.top_k > 0 or self.min_p > 0)


@dataclass(frozen=True)
class Request:
    id: str
    prompt_ids: list[int]
    """The whole sequence so far, all earlier turns included."""
    max_tokens: int
    seed: int
    parent: str | None = None
    """A completed request whose prompt and completion `prompt_ids` begins with; it can be extended once."""
    sampling: Sampling = Sampling()

    def check(self, context: int) -> None:
        """Raises DrKernelError where an engine with this context could not generate a single token."""
        length = len(self.prompt_ids)
        if not 0 < length < context or self.max_tokens < 1:
            raise DrKernelError(
                f"request {self.id}: found {length} prompt tokens and max_tokens {self.max_tokens}, "
                f"expected 1 to {context - 1} (the engine's context) and at least 1"
            )


@dataclass(frozen=True)
class Completion:
    id: str
    token_ids: list[int]
    """The stop token included."""
    logprobs: list[float]
    finished: bool
    """False where max_tokens or the context ended it before a stop token."""


class Engine(Protocol):
    context: int
    """The most tokens that a sequence may have."""
    own_kernels: bool
    """Whether its log-probabilities come from other code than the trainer's."""
    paused_s: float
    """Seconds that its steps have waited for a judge on the same GPU."""

    @property
    def busy(self) -> bool:
        """True while some request is not completed."""

    def add(self, request: Request) -> None:
        """Queues a request. Raises DrKernelError where it cannot be served."""

    def step(self) -> list[Completion]:
        """Goes on with the queued requests for a moment and returns those that completed."""

    def release(self, id: str) -> None:
        """Forgets a completed request that nothing will extend."""

    def sync(self, policy: Policy) -> None:
        """Takes over the policy's weights. No request may be in flight."""

    def sleep(self) -> None:
        """Gives the GPU's memory back until the next sync, where it was made to (`engine.sleep`); else nothing."""

    def play(self, episodes: Callable[[Share], T], share: Share) -> T | None:
        """Plays `episodes` with this rank's share (k of n) of the trajectories; None where another rank of the engine
        plays for this one. Collective for the ranks of one engine."""

    def close(self) -> None:
        """Frees what it holds."""


class BaseEngine:
    """What an engine of one rank does where it neither sleeps nor shares anything."""

    paused_s = 0.0

    def sleep(self) -> None:
        """Keeps its memory."""

    def play(self, episodes: Callable[[Share], T], share: Share) -> T | None:
        return episodes(share)
