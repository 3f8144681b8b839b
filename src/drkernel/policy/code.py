"""The submission in the text of a completion: Markdown's fenced blocks, and the one that counts."""

from __future__ import annotations

import ast
import re

PYTHON = {"python", "py", "python3", "triton", ""}


def extract_code(completion: str, name: str) -> str | None:
    """The last Python block that defines class `name`. One that was never closed and does not parse was cut short: it
    counts only where no other block defines the class."""
    found = [block for block in fences(completion) if block[0] in PYTHON and defines(block[1], name)]
    if not found and "```" not in completion:
        return completion if defines(completion, name) else None
    whole = [block for block in found if block[2] or parses(block[1])] or found
    return whole[-1][1] if whole else None


def parses(source: str) -> bool:
    try:
        ast.parse(source)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return False
    return True


def fences(text: str) -> list[tuple[str, str, bool]]:
    """(language, content, closed) of each fenced block, read line by line as Markdown does.

    A heading before a block and backticks within a line are no fences. The paper's code takes both for code.

    >>> fences("# Kernel\\n```python\\nx = 1\\n```\\nand ```y```\\n```\\nz")
    [('python', 'x = 1\\n', True), ('', 'z\\n', False)]
    """
    blocks: list[tuple[str, str, bool]] = []
    content: list[str] = []
    mark, language = "", ""
    for line in text.splitlines():
        found = re.fullmatch(r" {0,3}(`{3,})\s*([^`]*)", line)
        if not mark and found:
            mark, language, content = found[1], (found[2].split() or [""])[0].lower(), []
        elif mark and found and len(found[1]) >= len(mark) and not found[2].strip():
            blocks.append((language, "".join(content), True))
            mark = ""
        elif mark:
            content.append(line + "\n")
    return blocks + ([(language, "".join(content), False)] if mark else [])


def defines(source: str, name: str) -> bool:
    """Whether a line of the source begins `class name`."""
    return re.search(rf"^class\s+{re.escape(name)}\b", source, re.MULTILINE) is not None
