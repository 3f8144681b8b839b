"""Hosted models: any server with OpenAI's chat interface, through the `openai` package.

The package sends one request; this file decides when it is sent again. The package's own retries are off: they neither
wait for a server that is down, nor let all requests heed one Retry-After, nor limit the time of a whole attempt.

A request fails only where another attempt cannot help or has not helped for long. Its future then raises TooLong or
Refused, which concern this request alone, or another DrKernelError (a wrong key, a server that stays away), which
concerns every request. Keys come from the environment, and appear in no message.
"""

from __future__ import annotations

import asyncio
import email.utils
import itertools
import json
import logging
import os
import re
import threading
import time
from collections.abc import Callable, Coroutine, Mapping
from concurrent.futures import Future
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, replace
from functools import cached_property, partial
from random import uniform
from typing import Any, TypeVar
from urllib.parse import parse_qsl, urlsplit, urlunsplit

import openai

from drkernel.policy.engine import Sampling
from drkernel.types import DrKernelError

_LOG = logging.getLogger(__name__)
_RETRIED, _BUSY = (408, 409, 425, 429, 500, 502, 503, 504, 520, 522, 524, 529), (429, 503, 529)
_OF_THE_REQUEST = (400, 413, 422)
_TOO_LONG = re.compile(
    r"context.?(length|window|size)|(prompt|input) is too long|exceeds? the maximum number of tokens", re.IGNORECASE
)
_REFUSALS = 16
"""So many refusals in a row concern more than single requests."""
_LONGEST_PAUSE_S = 60.0
_CUTS, _NOT_OPENAI, _WHOLE = ("top_p", "top_k", "min_p"), ("top_k", "min_p"), Sampling()
_OPTIONAL, _RENAMED = ("seed", "temperature", *_CUTS), {"max_tokens": "max_completion_tokens"}
T = TypeVar("T")
_Send = Callable[[], AbstractAsyncContextManager]
"""Sends a request; the context is its streamed response."""


class TooLong(DrKernelError):
    """The prompt and the longest completion do not fit the model's context."""


class Refused(DrKernelError):
    """The server does not answer this very request, e.g. for what its filter finds in it."""


class _Retryable(Exception):
    """An error after which the same request may succeed; `busy` says that the server is away or asks to wait."""

    def __init__(self, what: str, pause: float | None = None, busy: bool = False):
        super().__init__(what)
        self.pause, self.busy = pause, busy


@dataclass(frozen=True)
class Reply:
    text: str
    prompt_tokens: int
    tokens: int
    """Sampled, reasoning that the server does not show included."""
    seconds: float
    """From sending the request that was answered to its reply; failed attempts and pauses are not counted."""
    finished: bool
    """False where the completion was cut at max_tokens, or by the server's filter."""


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
        retries: how often a request is sent again after failures (5xx, timeouts, malformed replies).
        patience_s: how long a server that is down, or that asks to wait (429, 503, 529), is waited for.
        prompt_price, answer_price: dollars for a million tokens.

    Raises DrKernelError for a URL that is none or holds credentials, and where the model is neither given nor clear.
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
        self._headers: dict[str, Any] = {} if self._key else {"extra_headers": {"Authorization": openai.Omit()}}
        self._prices = prompt_price / 1e6, answer_price / 1e6
        self._interval = 60.0 / requests_per_minute if requests_per_minute else 0.0
        self._slots = asyncio.Semaphore(concurrency)
        self._next_start, self._usage, self._refusals = 0.0, Usage(), 0
        self._futures, self._closed = set[Future](), False
        self.not_sent: set[str] = set()
        """Parameters that the server refused and that are left out since, e.g. `seed`."""
        # All requests run in one event loop, in a thread of its own. Only it changes the state above.
        self._client, self._loop = _client(url, self._key), asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()
        try:
            self.model = model or self._only_model()
        except DrKernelError:
            self.close()
            raise

    def __enter__(self) -> ChatEndpoint:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @cached_property
    def context(self) -> int | None:
        """The most tokens that prompt and completion may have together, where the server's list of models says so
        (vLLM's does). It is asked at the first look."""
        try:
            models = self._in_loop(self._offered(min(2, self._retries)))
        except DrKernelError:
            return None  # many servers have no such list
        found = [model.get("max_model_len") for model in models if model["id"] == self.model]
        return found[0] if found and type(found[0]) is int else None

    @property
    def usage(self) -> Usage:
        return self._usage

    def submit(self, messages: list[dict], seed: int, max_tokens: int, sampling: Sampling = _WHOLE) -> Future[Reply]:
        """Asks in the background. `messages` are {"role": ..., "content": ...}; the last one is the user's.

        The future raises TooLong or Refused where the server does not answer this request, and another DrKernelError
        where it answers none: for a wrong key, model or quota, after 16 refusals in a row, or when it was given up.
        """
        if self._closed:
            raise DrKernelError(f"endpoint {self._url}: already closed")
        options: dict[str, Any] = {
            "model": self.model,
            "messages": messages,
            "max_tokens": max_tokens,
            "temperature": sampling.temperature,
            "seed": seed % 2**31,  # some servers take 32 bits
        }
        options |= {name: value for name in _CUTS if (value := getattr(sampling, name)) != getattr(_WHOLE, name)}
        future: Future[Reply] = Future()
        self._futures.add(future)
        future.add_done_callback(self._futures.discard)
        asyncio.run_coroutine_threadsafe(self._serve(future, options), self._loop)
        return future

    def close(self) -> None:
        """Cancels what waits; what is under way ends with a DrKernelError."""
        if not self._closed:
            self._closed = True
            asyncio.run_coroutine_threadsafe(self._shut_down(), self._loop).result()
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._thread.join()
            self._loop.close()

    async def _shut_down(self) -> None:
        for future in list(self._futures):
            if not future.cancel() and not future.done():
                future.set_exception(DrKernelError(f"endpoint {self._url}: closed"))
        tasks = asyncio.all_tasks() - {asyncio.current_task()}
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await self._client.close()

    def _in_loop(self, work: Coroutine[Any, Any, T]) -> T:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result()

    async def _serve(self, future: Future[Reply], options: dict[str, Any]) -> None:
        async with self._slots:
            if future.set_running_or_notify_cancel():
                try:
                    send = partial(self._complete, options)
                    future.set_result(await self._until_answered(send, self._reply, self._retries))
                except Refused as error:
                    future.set_exception(self._once_more(error))
                except Exception as error:
                    future.set_exception(error)

    def _once_more(self, error: Refused) -> DrKernelError:
        """The refusal, or what it means after many without a reply in between."""
        self._refusals += 1
        what = f"endpoint {self._url}: {_REFUSALS} requests in a row were refused, the last one with {error}"
        return DrKernelError(what) if self._refusals >= _REFUSALS else error

    def _complete(self, options: dict[str, Any]) -> AbstractAsyncContextManager:
        """Asks for a completion, without the parameters that the server has refused until now."""
        sent = {name: value for name, value in options.items() if name not in self.not_sent}
        sent |= {new: options[old] for old, new in _RENAMED.items() if old in self.not_sent}
        sent["extra_body"] = {name: sent.pop(name) for name in _NOT_OPENAI if name in sent}
        return self._client.chat.completions.with_streaming_response.create(**sent, **self._headers)

    async def _until_answered(self, send: _Send, read: Callable[[Any, float], T], retries: int) -> T:
        """Sends a request until it is answered, or trying again makes no sense."""
        failures, busy_since = 0, None
        for attempt in itertools.count(1):
            await self._pace()
            try:
                return read(*await self._attempt(send))
            except _Retryable as error:
                trouble = error
            self._count(failures=1)
            now, pause = time.monotonic(), trouble.pause
            if pause is None:
                pause = min(_LONGEST_PAUSE_S, 2.0 ** min(attempt - 1, 10)) * uniform(0.5, 1.0)
            if trouble.busy:
                busy_since = now if busy_since is None else busy_since
                given_up = now + pause - busy_since > self._patience_s
            else:
                failures, busy_since = failures + 1, None
                given_up = failures > retries
            if given_up:
                raise DrKernelError(f"endpoint {self._url}: given up after {attempt} attempts: {trouble}")
            _LOG.warning("endpoint %s: %s; again in %.1f s", self._url, trouble, pause)
            await asyncio.sleep(pause)
        raise AssertionError("attempts have no end")

    async def _pace(self) -> None:
        """Waits until the rate limit, and what a Retry-After asked of everyone, allow one more request."""
        start = max(time.monotonic(), self._next_start)
        self._next_start = start + self._interval
        await asyncio.sleep(start - time.monotonic())

    async def _attempt(self, send: _Send) -> tuple[Any, float]:
        """The reply as JSON, and the seconds that it took. Raises _Retryable or DrKernelError."""
        replying = False

        async def exchange() -> bytes:
            nonlocal replying
            async with send() as response:
                replying = True
                return await response.read()

        began = time.monotonic()
        try:
            # One deadline over connecting, sending and every byte of the reply: a server may drip.
            reply = await asyncio.wait_for(exchange(), self._timeout_s)
        except asyncio.TimeoutError:
            what = "the reply was not complete" if replying else "no reply"
            raise _Retryable(f"TimeoutError: {what} within {self._timeout_s:g} s") from None
        except openai.APIStatusError as error:
            raise self._meaning(error) from None
        except openai.APIConnectionError as error:
            raise _Retryable(self._hide(f"no connection ({_origin(error)})"), busy=True) from None
        except TypeError:  # arguments that the package does not take
            raise
        except Exception as error:  # what the HTTP library raises while a reply is read
            raise _Retryable(self._hide(f"{type(error).__name__}: {error}")) from None
        try:
            return json.loads(reply), time.monotonic() - began
        except ValueError:
            raise _Retryable("the reply is not JSON") from None

    def _meaning(self, error: openai.APIStatusError) -> Exception:
        """What a status that is not a success means."""
        status, said = error.status_code, error.body if isinstance(error.body, dict) else {"message": error.body}
        code, kind, name, text = (str(said.get(key) or "") for key in ("code", "type", "param", "message"))
        what = self._hide(f"status {status}: {' '.join(text.split())[:300]}")
        no_quota = "insufficient_quota" in (code, kind)
        if status != 429 and _TOO_LONG.search(f"{code} {kind} {text}"):  # some servers call it an error of theirs
            return TooLong(f"endpoint {self._url}: {what}")
        if status in _RETRIED and not no_quota:
            pause = retry_after(error.response.headers)
            if pause is not None:
                self._next_start = max(self._next_start, time.monotonic() + pause)
            return _Retryable(what, pause, busy=status in _BUSY)
        unsupported = status == 400 and code.startswith("unsupported") and name in (*_OPTIONAL, *_RENAMED)
        if unsupported and name in json.loads(error.request.content):  # else leaving it out did not help
            self.not_sent.add(name)
            return _Retryable(what, 0.0)
        if status in _OF_THE_REQUEST and not no_quota:
            return Refused(what)
        return DrKernelError(f"endpoint {self._url}: {what}")

    def _reply(self, reply: Any, seconds: float) -> Reply:
        """Read by hand: the package takes anything for a completion, and checks no type."""
        try:
            choice, usage = reply["choices"][0], reply["usage"]
            text, why = choice["message"]["content"], choice.get("finish_reason")
            counts = usage["prompt_tokens"], usage["completion_tokens"]
            if not isinstance(text, (str, type(None))) or not all(type(count) is int for count in counts):
                raise TypeError
        except (KeyError, IndexError, TypeError, AttributeError):
            raise _Retryable(self._hide(f"expected choices and usage, found {json.dumps(reply)[:200]}")) from None
        self._count(replies=1, prompt_tokens=counts[0], tokens=counts[1])
        return Reply(text or "", *counts, seconds, why not in ("length", "content_filter"))

    def _count(self, **more: int) -> None:
        usage = replace(self._usage, **{key: getattr(self._usage, key) + n for key, n in more.items()})
        cost = self._prices[0] * usage.prompt_tokens + self._prices[1] * usage.tokens
        self._usage = replace(usage, cost=cost)
        self._refusals = 0 if more.get("replies") else self._refusals

    def _only_model(self) -> str:
        models = self._in_loop(self._offered(self._retries))
        if len(models) != 1:
            offered = ", ".join(model["id"] for model in models[:8])
            raise DrKernelError(f"endpoint.model: the server offers {len(models)} ({offered}); name one")
        return models[0]["id"]

    async def _offered(self, retries: int) -> list[dict]:
        send = partial(self._client.models.with_streaming_response.list, **self._headers)
        return await self._until_answered(send, _models, retries)

    def _hide(self, text: str) -> str:
        return text.replace(self._key, "[key]") if self._key else text


def retry_after(headers: Mapping[str, str]) -> float | None:
    """The seconds that a Retry-After header asks for, as a number or as a date; None where there is none.

    >>> retry_after({"Retry-After": "1.5"}), retry_after({"Retry-After": "soon"}), retry_after({})
    (1.5, None, None)
    """
    value = headers.get("Retry-After") or ""
    try:
        return max(0.0, float(value))
    except ValueError:
        pass
    try:
        return max(0.0, email.utils.parsedate_to_datetime(value).timestamp() - time.time())
    except (TypeError, ValueError):
        return None


def _client(url: str, key: str) -> openai.AsyncOpenAI:
    parts = urlsplit(url)
    return openai.AsyncOpenAI(
        base_url=urlunsplit(parts._replace(query="")),
        default_query=dict(parse_qsl(parts.query)),  # some servers want one: `?api-version=...`
        api_key=key or "none",
        # A kept connection that the server has closed meanwhile would look like a server that is down.
        default_headers={"Connection": "close"},
        timeout=None,
        max_retries=0,
        http_client=openai.DefaultAsyncHttpxClient(follow_redirects=False),
    )


def _checked(url: str) -> str:
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise DrKernelError("endpoint.url must begin with http:// or https://, e.g. http://localhost:8000/v1")
    if parts.username or parts.password:
        raise DrKernelError("endpoint.url must hold no credentials; keys come from the environment")
    return url


def _origin(error: BaseException) -> str:
    """The error of the operating system that a chain of errors began with, or whatever it began with."""
    while (cause := error.__cause__ or error.__context__) is not None:
        error = cause
    return f"{type(error).__name__}: {error}"


def _models(reply: Any, seconds: float) -> list[dict]:
    try:
        return [dict(model, id=str(model["id"])) for model in reply["data"]]
    except (KeyError, TypeError, ValueError):
        raise _Retryable("the list of models is malformed") from None
