"""The text that a policy reads about its last submission: short, complete, always in the same words."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from drkernel.types import KernelTime, Verdict

_WORDS = {
    "incorrect": "wrong",
    "hack": "refused",
    "invalid": "error",
    "not_general": "not general",
    "suspicious": "suspicious",
    "judge_failure": "not judged",
}

ROOMY = 200
"""Tokens from which on feedback also says how near the GPU's limit a submission runs. The shipped policy, which has
less, never saw that sentence in its cold start: on 24 tasks it was right as often with it up to the third turn, and
less often afterwards."""


def estimated_tokens(text: str) -> int:
    """About how many tokens a text takes, where there is no tokenizer: code has three to four characters per token."""
    return -(-len(text) // 3)


def feedback(verdict: Verdict, limit: int, count: Callable[[str], int]) -> str:
    """Text for the next turn: status and reason first, then the most useful facts that fit.

    Args:
        verdict: what the judge found.
        limit: the text has at most so many tokens; the end is cut where even the first line is longer.
        count: the number of tokens of a text.
    """
    return fitted(_lines(verdict, limit), limit, count)


def fitted(lines: list[str], limit: int, count: Callable[[str], int]) -> str:
    """The first lines that have at most `limit` tokens together; of a first line that is longer its beginning."""
    while len(lines) > 1 and count("\n".join(lines)) > limit:
        lines = lines[:-1]
    text = "\n".join(lines)
    if count(text) <= limit:
        return text
    low, high = 0, len(text)
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if count(text[:middle].rstrip()) <= limit else (low, middle - 1)
    return text[:low].rstrip()


def _lines(verdict: Verdict, limit: int) -> list[str]:
    if verdict.status != "ok":
        head = f"{_WORDS[verdict.status]}: {verdict.reason}"
        return [f"{head}: {verdict.detail}" if verdict.detail else head]
    head = f"correct, {verdict.reason}: speedup {verdict.speedup:.2f} coverage {verdict.coverage:.2f}"
    if not verdict.general:
        head += ", fails on other shapes"
    times = [f"yours: {_times(verdict.profile)}", f"reference: {_times(verdict.reference_profile)}"]
    return [
        head,
        *([verdict.detail] if verdict.detail else []),
        *_shapes(verdict),
        *(_limit(verdict) if limit >= ROOMY else []),
        *times,
    ]


def _shapes(verdict: Verdict) -> list[str]:
    """The speed-ups of which the verdict's is the mean, or the worst; not which shapes these are."""
    here, *elsewhere = verdict.evidence.get("timed_shapes", {}).get("shapes", [{}])
    if not elsewhere:
        return []
    said = [f"{shape['speedup']:.2f}{_why(shape)}" for shape in elsewhere]
    return [f"speedup {here['speedup']:.2f} at the given shape, {', '.join(said)} at others of about this size"]


def _why(shape: dict[str, Any]) -> str:
    """Why what counts at a shape was not measured there."""
    return " (refused)" if "refused" in shape else "" if shape.get("own_work", True) else " (not by your kernels)"


def _limit(verdict: Verdict) -> list[str]:
    """How near it comes to what the GPU can do for this task, where that is known."""
    share = verdict.evidence.get("roofline", {}).get("share")
    if share is None:
        return []
    percent = f"{100 * share:.0f}" if share >= 0.01 else "less than 1"
    return [f"runs at {percent} % of this GPU's limit for these bytes and operations"]


def _times(rows: tuple[KernelTime, ...], most: int = 4) -> str:
    shown = [f"{_name(row)} {row.microseconds:.1f}us" for row in rows[:most]]
    if rest := sum(row.microseconds for row in rows[most:]):
        shown.append(f"others {rest:.1f}us")
    return ", ".join(shown)


def _name(row: KernelTime) -> str:
    name = row.name.partition(":")[0] + (" (triton)" if row.triton else "")
    return name if row.calls == 1 else f"{row.calls} x {name}"
