"""The config group `endpoint`: a hosted model in place of a policy."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass
class EndpointConfig:
    """A hosted model behind an OpenAI-compatible server, instead of `policy`. Its key comes from the environment."""

    url: str | None = None
    """E.g. http://localhost:8000/v1; None: no endpoint."""
    model: str | None = None
    """The model's name there; None: the only one that the server offers."""
    key_variable: str = "OPENAI_API_KEY"
    """The environment variable that holds the key; a server without keys needs none."""
    concurrency: int = 16
    """Requests under way together."""
    requests_per_minute: float | None = None
    """Most requests per minute."""
    timeout_s: float = 600.0
    """How long one request may take before it is sent again."""
    retries: int = 8
    """How often a request is sent again after an error that may pass."""
    patience_s: float = 900.0
    """How long a server that is down, or that asks to wait, is waited for."""
    max_answer_tokens: int = 8192
    """Longest completion."""
    feedback_tokens: int = 1024
    """Longest feedback after a turn; estimated, since the tokenizer is not here."""
    prompt_price: float = 0.0
    """Dollars for a million prompt tokens."""
    answer_price: float = 0.0
    """Dollars for a million completion tokens."""
