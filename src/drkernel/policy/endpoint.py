"""Hosted models: any server with OpenAI's chat interface. Requests run in threads; what may pass is tried again.

A request is lost only where trying again cannot help or has not helped for long; its future then raises TooLong or
Refused, which concern this request alone, or another DrKernelError (a wrong key, a server that stays away), after which
no request can be hoped for. Keys come from the environment, and appear in no message.
"""

from __future__ import annotations

import itertools
import json
import logging
import os
import re
import threading
import time
from concurrent.futures import Future
from dataclasses import dataclass, replace
from functools import cached_property
from queue import SimpleQueue
from random import Random
from typing import Any
from urllib.parse import urlsplit, urlunsplit

from drkernel.policy.http import NoConnection, exchange, retry_after
from drkernel.types import DrKernelError

_LOG = logging.getLogger(__name__)
_PASSING = (408, 409, 425, 429, 500, 502, 503, 504, 520, 522, 524, 529)
_WAITING = (429, 503, 529)
_OF_THE_REQUEST = (400, 413, 422)
_TOO_LONG = re.compile(
    r"context.?(length|window|size)|(prompt|input) is too long|exceeds? the maximum number of tokens", re.IGNORECASE
)
_REFUSALS = 16
"""So many refusals in a row concern more than single requests."""
_JITTER = Random()
_LONGEST_PAUSE_S = 60.0
_NOT_SENT, _RENAMED = ("seed", "temperature", "top_p"), {"max_tokens": "max_completion_tokens"}


class TooLong(DrKernelError):
    """The prompt and the longest answer do not fit the model's context."""


class Refused(DrKernelError):
    """The server does not answer this very request, e.g. for what its filter finds in it."""


class _Passing(Exception):
    """An error after which the same request may succeed; `waiting` says that the server only asks for patience."""

    def __init__(self, what: str, pause: float | None = None, waiting: bool = False):
        super().__init__(what)
        self.pause, self.waiting = pause, waiting


@dataclass(frozen=True)
class Reply:
    text: str
    prompt_tokens: int
    tokens: int
    """Sampled, reasoning that the server does not show included."""
    seconds: float
    """From sending the request that was answered to its answer; failed attempts and pauses are not counted."""
    finished: bool
    """False where the answer was cut at max_tokens, or by the server's filter."""


@dataclass(frozen=True)
class Usage:
    """What an endpoint was used for so far."""

    replies: int = 0
    failures: int = 0
    """Attempts that were made again or given up. What the server bills for them it does not say."""
    prompt_tokens: int = 0
    tokens: int = 0
    cost: float = 0.0
    """In dollars, at the prices given."""


class ChatEndpoint:
    """Chat completions from an OpenAI-compatible server. Use as a context manager, or call `close()`.

    Args:
        url: what precedes `/chat/completions`, e.g. `http://localhost:8000/v1`.
        model: its name there; None takes the only one that the server offers.
        key_variable: the environment variable with the key; without it no key is sent.
        concurrency: requests under way together; others wait in order.
        requests_per_minute: most requests begun per minute; None: no limit.
        timeout_s: how long one attempt may take as a whole.
        retries: how many failures (5xx, timeouts, malformed answers) of a request are made good.
        patience_s: how long a server that is down, or that asks for patience (429, 503, 529), is waited for.
        prompt_price, answer_price: dollars for a million tokens.

    Raises DrKernelError for a URL that is none or holds credentials, and where the model is not given and not plain.
    """

    def __init__(
        self,
        url: str,
        model: str | None = None,
        *,
        key_variable: str = "OPENAI_API_KEY",
        concurrency: int = 16,
        requests_per_minute: float | None = None,
        timeout_s: float = 600.0,
        retries: int = 8,
        patience_s: float = 900.0,
        prompt_price: float = 0.0,
        answer_price: float = 0.0,
    ):
        self._url, self._key = _checked(url), os.environ.get(key_variable, "").strip()
        self._timeout_s, self._retries, self._patience_s = timeout_s, retries, patience_s
        self._prices = prompt_price / 1e6, answer_price / 1e6
        self._interval = 60.0 / requests_per_minute if requests_per_minute else 0.0
        self._queue: SimpleQueue = SimpleQueue()
        self._lock, self._closed = threading.Lock(), threading.Event()
        self._threads: list[threading.Thread] = []
        self._concurrency, self._next_start, self._usage, self._refusals = concurrency, 0.0, Usage(), 0
        self.not_sent: set[str] = set()
        """Parameters that the server refused and that are left out since, e.g. `seed`."""
        self.model = model or self._only_model()

    def __enter__(self) -> ChatEndpoint:
        return self

    def __exit__(self, *_: Any) -> None:
        self.close()

    @cached_property
    def context(self) -> int | None:
        """The most tokens that prompt and answer may have together, where the server's list of models says so (vLLM's
        does). It is asked at the first look."""
        try:
            models = self._offered(retries=min(2, self._retries))
        except DrKernelError:
            return None  # many servers have no such list
        found = [model.get("max_model_len") for model in models if model["id"] == self.model]
        return found[0] if found and type(found[0]) is int else None

    @property
    def usage(self) -> Usage:
        with self._lock:
            return self._usage

    def submit(
        self, messages: list[dict], seed: int, max_tokens: int, temperature: float = 1.0, top_p: float = 1.0
    ) -> Future[Reply]:
        """Asks in the background. `messages` are {"role": ..., "content": ...}; the last one is the user's.

        The future raises TooLong or Refused where the server does not answer this request, and another DrKernelError
        where it answers none: for a wrong key, model or quota, after 16 refusals in a row, or when it was given up.
        """
        if self._closed.is_set():
            raise DrKernelError(f"endpoint {self._url}: already closed")
        body = {
            "model": self.model,
            "messages": messages,
            "max_tokens": max_tokens,
            "temperature": temperature,
            "seed": seed % 2**31,  # some servers take 32 bits
        }
        future: Future[Reply] = Future()
        self._queue.put((future, body if top_p == 1.0 else {**body, "top_p": top_p}))
        if len(self._threads) < self._concurrency:
            self._threads.append(threading.Thread(target=self._work, daemon=True))
            self._threads[-1].start()
        return future

    def close(self) -> None:
        """Cancels what waits; what is under way is abandoned."""
        self._closed.set()
        while not self._queue.empty():
            if item := self._queue.get():
                item[0].cancel()
        for _ in self._threads:
            self._queue.put(None)

    def _work(self) -> None:
        while item := self._queue.get():
            future, body = item
            if future.set_running_or_notify_cancel():
                try:
                    future.set_result(self._persist("/chat/completions", body, self._reply))
                except Refused as error:
                    future.set_exception(self._once_more(error))
                except BaseException as error:
                    future.set_exception(error)

    def _once_more(self, error: Refused) -> DrKernelError:
        """The refusal, or what it means after many without an answer in between."""
        with self._lock:
            self._refusals += 1
            many = self._refusals >= _REFUSALS
        what = f"endpoint {self._url}: {_REFUSALS} requests in a row were refused, the last one with {error}"
        return DrKernelError(what) if many else error

    def _persist(self, path: str, body: dict | None, understand: Any, retries: int | None = None) -> Any:
        """Sends a request until it is answered, or trying again makes no sense."""
        retries = self._retries if retries is None else retries
        failures, waiting_since = 0, None
        for attempt in itertools.count():
            self._pace()
            try:
                result = understand(*self._attempt(path, body))
            except _Passing as error:
                trouble = error
            else:
                return result
            self._count(failures=1)
            now = time.monotonic()
            pause = trouble.pause
            if pause is None:
                pause = min(_LONGEST_PAUSE_S, 2.0 ** min(attempt, 10)) * _JITTER.uniform(0.5, 1.0)
            if trouble.waiting:
                waiting_since = now if waiting_since is None else waiting_since
                given_up = now + pause - waiting_since > self._patience_s
            else:
                failures, waiting_since = failures + 1, None
                given_up = failures > retries
            if given_up:
                raise DrKernelError(f"endpoint {self._url}: given up after {attempt + 1} attempts: {trouble}")
            _LOG.warning("endpoint %s: %s; again in %.1f s", self._url, trouble, pause)
            if self._closed.wait(pause):
                raise DrKernelError(f"endpoint {self._url}: closed")

    def _pace(self) -> None:
        """Waits for this request's place in time: for the rate limit, and for what a Retry-After asked of everyone."""
        with self._lock:
            start = max(time.monotonic(), self._next_start)
            self._next_start = start + self._interval
        if self._closed.wait(max(0.0, start - time.monotonic())):
            raise DrKernelError(f"endpoint {self._url}: closed")

    def _attempt(self, path: str, body: dict | None) -> tuple[Any, float]:
        """The answer as JSON, and the seconds that it took. Raises _Passing or DrKernelError."""
        sent = {key: value for key, value in (body or {}).items() if key not in self.not_sent}
        for old, new in _RENAMED.items():
            if old in self.not_sent and body:
                sent[new] = body[old]
        headers = {"Authorization": f"Bearer {self._key}"} if self._key else {}
        began = time.monotonic()
        try:
            status, answer, given = exchange(_join(self._url, path), body and sent, headers, self._timeout_s)
        except NoConnection as error:
            raise _Passing(self._hide(str(error)), waiting=True) from None
        except (OSError, ValueError) as error:
            raise _Passing(self._hide(f"{type(error).__name__}: {error}")) from None
        if status != 200:
            self._refused(status, answer, given, sent)
        try:
            return json.loads(answer), time.monotonic() - began
        except ValueError:
            raise _Passing("the answer is not JSON") from None

    def _refused(self, status: int, answer: bytes, headers: Any, sent: dict) -> None:
        """Raises what a status other than 200 means."""
        error = _error(answer)
        code, kind, name, text = (str(error.get(key) or "") for key in ("code", "type", "param", "message"))
        what = self._hide(f"status {status}: {' '.join(text.split())[:300]}")
        if status != 429 and _TOO_LONG.search(f"{code} {kind} {text}"):  # some servers call it an error of theirs
            raise TooLong(f"endpoint {self._url}: {what}")
        if status in _PASSING and "insufficient_quota" not in (code, kind):
            pause = retry_after(headers)
            if pause is not None:
                with self._lock:
                    self._next_start = max(self._next_start, time.monotonic() + pause)
            raise _Passing(what, pause, waiting=status in _WAITING)
        if status == 400 and code.startswith("unsupported") and name in (*_NOT_SENT, *_RENAMED) and name in sent:
            self.not_sent.add(name)
            raise _Passing(what, 0.0)
        if status in _OF_THE_REQUEST and "insufficient_quota" not in (code, kind):
            raise Refused(what)
        raise DrKernelError(f"endpoint {self._url}: {what}")

    def _reply(self, answer: Any, seconds: float) -> Reply:
        try:
            choice, usage = answer["choices"][0], answer["usage"]
            text, why = choice["message"]["content"], choice.get("finish_reason")
            counts = usage["prompt_tokens"], usage["completion_tokens"]
        except (KeyError, IndexError, TypeError, AttributeError) as error:
            raise _Passing(f"the answer has no {error}") from None
        if not isinstance(text, (str, type(None))) or not all(type(count) is int for count in counts):
            raise _Passing("the answer's text or its token counts are of another type")
        self._count(replies=1, prompt_tokens=counts[0], tokens=counts[1])
        return Reply(text or "", *counts, seconds, why not in ("length", "content_filter"))

    def _count(self, **more: int) -> None:
        with self._lock:
            usage = replace(self._usage, **{key: getattr(self._usage, key) + n for key, n in more.items()})
            dear = self._prices[0] * usage.prompt_tokens + self._prices[1] * usage.tokens
            self._usage = replace(usage, cost=dear)
            self._refusals = 0 if more.get("replies") else self._refusals

    def _only_model(self) -> str:
        models = self._offered()
        if len(models) != 1:
            offered = ", ".join(model["id"] for model in models[:8])
            raise DrKernelError(f"endpoint.model: the server offers {len(models)} ({offered}); name one")
        return models[0]["id"]

    def _offered(self, retries: int | None = None) -> list[dict]:
        return self._persist("/models", None, lambda answer, _: _models(answer), retries)

    def _hide(self, text: str) -> str:
        return text.replace(self._key, "[key]") if self._key else text


def _checked(url: str) -> str:
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise DrKernelError("endpoint.url must begin with http:// or https://, e.g. http://localhost:8000/v1")
    if parts.username or parts.password:
        raise DrKernelError("endpoint.url must hold no credentials; keys come from the environment")
    return url


def _join(url: str, path: str) -> str:
    """The path is added before a query, which some servers want (`?api-version=...`)."""
    parts = urlsplit(url)
    return urlunsplit(parts._replace(path=parts.path.rstrip("/") + path))


def _error(answer: bytes) -> dict:
    """The error in a refusal, whatever its form."""
    try:
        error = json.loads(answer)
        error = error.get("error", error) if isinstance(error, dict) else error
    except ValueError:
        error = answer.decode(errors="replace")
    return error if isinstance(error, dict) else {"message": str(error)}


def _models(answer: Any) -> list[dict]:
    try:
        return [dict(model, id=str(model["id"])) for model in answer["data"]]
    except (KeyError, TypeError, ValueError):
        raise _Passing("the list of models is malformed") from None
