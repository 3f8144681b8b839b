"""Products of numbers in an answer, which are written out."""

from __future__ import annotations

from collections.abc import Iterable


def factors(numbers: Iterable[int]) -> str:
    """Their product as an answer writes it, since a policy copies better than it calculates.

    >>> factors((3, 1, 3)), factors((2, 1)), factors(())
    ('3 * 3', '2', '1')
    """
    return " * ".join(str(number) for number in numbers if number > 1) or "1"


def divided(text: str, numbers: Iterable[int], sign: str = "//") -> str:
    """By the product of numbers.

    >>> divided("r", (3, 1, 3)), divided("r", (2, 1), "/"), divided("r", ())
    ('r // (3 * 3)', 'r / 2', 'r')
    """
    by = factors(numbers)
    return text if by == "1" else f"{text} {sign} ({by})" if " " in by else f"{text} {sign} {by}"


def factor(text: str) -> str:
    """A sum, to be multiplied.

    >>> factor("a * b + c"), factor("a * b")
    ('(a * b + c)', 'a * b')
    """
    return f"({text})" if " + " in text or " // " in text or " % " in text else text
