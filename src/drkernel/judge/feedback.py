"""The text that a policy reads about its last submission: short, complete, always in the same words."""

from __future__ import annotations

from collections.abc import Callable

from drkernel.types import KernelTime, Verdict

_WORDS = {
    "incorrect": "wrong",
    "hack": "refused",
    "invalid": "error",
    "not_general": "not general",
    "suspicious": "suspicious",
    "judge_failure": "not judged",
}


def feedback(verdict: Verdict, limit: int, count: Callable[[str], int]) -> str:
    """Text for the next turn: status and reason first, then the most useful facts that fit.

    Args:
        verdict: what the judge found.
        limit: the text has at most so many tokens; the end is cut where even the first line is longer.
        count: the number of tokens of a text.
    """
    return fitted(_lines(verdict), limit, count)


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


def _lines(verdict: Verdict) -> list[str]:
    if verdict.status != "ok":
        head = f"{_WORDS[verdict.status]}: {verdict.reason}"
        return [f"{head}: {verdict.detail}" if verdict.detail else head]
    head = f"correct, {verdict.reason}: speedup {verdict.speedup:.2f} coverage {verdict.coverage:.2f}"
    if not verdict.general:
        head += ", fails on other shapes"
    times = [f"yours: {_times(verdict.profile)}", f"reference: {_times(verdict.reference_profile)}"]
    return [head, *([verdict.detail] if verdict.detail else []), *times]


def _times(rows: tuple[KernelTime, ...], most: int = 4) -> str:
    shown = [f"{_name(row)} {row.microseconds:.1f}us" for row in rows[:most]]
    if rest := sum(row.microseconds for row in rows[most:]):
        shown.append(f"others {rest:.1f}us")
    return ", ".join(shown)


def _name(row: KernelTime) -> str:
    name = row.name.partition(":")[0] + (" (triton)" if row.triton else "")
    return name if row.calls == 1 else f"{row.calls} x {name}"
