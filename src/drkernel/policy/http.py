"""One HTTP exchange with one deadline over all of it: connecting, sending, and every byte of the answer.

The clients of the standard library limit single reads, so that a server that drips would hold them for ever.
"""

from __future__ import annotations

import email.utils
import http.client
import json
import time
import urllib.request
from collections.abc import Mapping
from urllib.parse import SplitResult, urlsplit


class NoConnection(OSError):
    """The server was not there, or went away before it answered anything."""


def exchange(
    url: str, body: dict | None, headers: Mapping[str, str], timeout_s: float
) -> tuple[int, bytes, http.client.HTTPMessage]:
    """Sends `body` as JSON (None: GET) and returns status, answer and headers. Redirections are not followed.

    Proxies are those of the environment (`https_proxy`, `no_proxy`, ...).

    Raises:
        NoConnection: refused, reset or closed before a status line came.
        OSError, ValueError: the answer broke off, made no sense, or was not complete in time (TimeoutError).
    """
    deadline = time.monotonic() + timeout_s
    connection, target = _connection(urlsplit(url), timeout_s)
    data = None if body is None else json.dumps(body).encode()
    try:
        try:
            connection.request(
                "GET" if body is None else "POST",
                target,
                data,
                {"Content-Type": "application/json", "Accept": "application/json", **headers},
            )
            socket = connection.sock
            socket.settimeout(_left(deadline))
            response = connection.getresponse()
        except TimeoutError:
            raise TimeoutError(f"no answer within {timeout_s:g} s") from None
        except OSError as error:
            raise NoConnection(f"no connection ({type(error).__name__}: {error})") from None
        return response.status, _body(response, socket, deadline, timeout_s), response.headers
    except http.client.HTTPException as error:
        raise ValueError(f"{type(error).__name__}: {error}") from None
    finally:
        connection.close()


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


def _connection(url: SplitResult, timeout_s: float) -> tuple[http.client.HTTPConnection, str]:
    """A connection, perhaps through a proxy, and what to ask it for."""
    kind = http.client.HTTPSConnection if url.scheme == "https" else http.client.HTTPConnection
    port = url.port or (443 if url.scheme == "https" else 80)
    target = (url.path or "/") + (f"?{url.query}" if url.query else "")
    proxy = urllib.request.getproxies().get(url.scheme)
    if not proxy or urllib.request.proxy_bypass(url.hostname):
        return kind(url.hostname, port, timeout=timeout_s), target
    parts = urlsplit(proxy if "//" in proxy else f"//{proxy}")
    if url.scheme == "https":
        connection = kind(parts.hostname, parts.port or 80, timeout=timeout_s)
        connection.set_tunnel(url.hostname, port)
        return connection, target
    return kind(parts.hostname, parts.port or 80, timeout=timeout_s), url.geturl()


def _body(response: http.client.HTTPResponse, socket, deadline: float, timeout_s: float) -> bytes:
    parts = []
    try:
        while not response.isclosed():
            socket.settimeout(_left(deadline))
            if not (part := response.read1(1 << 16)):
                break
            parts.append(part)
    except TimeoutError:
        raise TimeoutError(f"the answer was not complete within {timeout_s:g} s") from None
    body, length = b"".join(parts), response.headers.get("Content-Length")
    if length is not None and length.isdigit() and len(body) < int(length):
        raise ValueError(f"the answer broke off after {len(body)} of {length} bytes")
    return body


def _left(deadline: float) -> float:
    left = deadline - time.monotonic()
    if left <= 0:
        raise TimeoutError
    return left
