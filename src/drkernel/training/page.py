"""Parts of a page that needs nothing else: data, style and script are inside, and it asks no network.

What a model wrote is untrusted text. It lies in the page as compressed base64, everything else as JSON without `<`. The
script makes text nodes of it, never HTML, and a content security policy runs no script but the page's own.
"""

from __future__ import annotations

import base64
import hashlib
import html
import json
import math
import zlib
from collections.abc import Mapping, Sequence
from importlib import resources
from typing import Any


def fill(
    title: str, style: str, scripts: Sequence[str], core: Mapping[str, Any], details: Sequence[str], elsewhere: str
) -> str:
    """page/index.html with each {{name}} replaced once.

    Args:
        core: what the script needs at once.
        details: elements that it reads later, as `hidden` makes them.
        elsewhere: for browsers without scripts, where the same data are.
    """
    script = "\n".join(['"use strict";', *scripts])
    found = {"title": html.escape(title), "style": style, "script": script, "elsewhere": elsewhere}
    found |= {"style_hash": _hash(style), "script_hash": _hash(script)}
    found |= {"core": as_json(core), "details": "\n".join(details)}
    page = read("drkernel.training", "index.html").split("{{")
    return page[0] + "".join(found[name] + rest for name, _, rest in (part.partition("}}") for part in page[1:]))


def packed(value: Any) -> str:
    """As base64 of deflated JSON."""
    return base64.b64encode(zlib.compress(json.dumps(plain(value), separators=(",", ":")).encode(), 9)).decode()


def hidden(name: str, value: Any) -> str:
    """An element that shows nothing, of that id, with the value as the page's script `inflate` reads it."""
    return f'<script type="text/plain" id="{name}">{packed(value)}</script>'


def plain(value: Any) -> Any:
    """JSON has no NaN and no infinity: they become words."""
    if isinstance(value, dict):
        return {str(key): plain(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [plain(inner) for inner in value]
    return str(value) if isinstance(value, float) and not math.isfinite(value) else value


def as_json(value: Any) -> str:
    """JSON that may stand in a <script>: no `<` can end it or open a comment."""
    text = json.dumps(plain(value), separators=(",", ":"))
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


def read(package: str, name: str) -> str:
    """A file of the folder page/ of a package."""
    return (resources.files(package) / "page" / name).read_text(encoding="utf-8")


def _hash(text: str) -> str:
    """As a content security policy names an inline script or style."""
    return "sha256-" + base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
