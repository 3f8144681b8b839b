"""The static check: what a submission may not contain, found in its syntax tree in a few milliseconds.

It is a cheap filter before anything runs, and it accepts nothing: what passes it meets the sandbox and the examiner.
`forbidden` says what it looks for. Comments, strings and names are no evidence. Blocks under
`if __name__ == "__main__":` never run and are not inspected.
"""

from __future__ import annotations

import ast
import hashlib
import warnings
from dataclasses import dataclass, field
from typing import Any

from drkernel.judge.boundary.framing import MAX_SOURCE
from drkernel.judge.trusted.source.forbidden import Check, Found
from drkernel.judge.trusted.source.kernel_functions import KernelFunctions
from drkernel.tasks.scopes import Names, bound_by
from drkernel.types import Status, Verdict


@dataclass(frozen=True)
class Refusal:
    """Why a submission is not run."""

    status: Status
    reason: str
    detail: str
    evidence: dict[str, Any] = field(default_factory=dict)

    def to_verdict(self, device: str = "") -> Verdict:
        """The verdict on the submission, whatever the device would have found."""
        return Verdict(self.status, self.reason, self.detail, device=device, evidence=self.evidence)


_NO_KERNEL = Refusal(
    "hack", "no_triton_kernel", "the source defines no @triton.jit function; PyTorch alone is no answer"
)


def digest(source: str) -> str:
    """Hash of a source that ignores trailing white space."""
    text = "\n".join(line.rstrip() for line in source.rstrip().splitlines())
    return hashlib.sha256(text.encode(errors="surrogatepass")).hexdigest()


def inspect(source: str, submission_name: str, expect_kernel: bool = True) -> Refusal | None:
    """Why a submission must not run, or None. Nothing of it is executed.

    Args:
        source: text of the submission.
        submission_name: the class that it must define.
        expect_kernel: whether a source without a Triton kernel is refused as a hack.
    """
    if len(source) > MAX_SOURCE:
        return Refusal(
            "invalid", "too_large", f"the source has {len(source)} characters, at most {MAX_SOURCE} are allowed"
        )
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            tree = ast.parse(source)
    except SyntaxError as error:
        return _syntax_error(error, source)
    except (ValueError, RecursionError, MemoryError) as error:
        return Refusal("invalid", "syntax_error", f"{type(error).__name__}: {error}")
    tree.body = [node for node in tree.body if not _is_main_block(node)]
    if not any(
        isinstance(node, ast.ClassDef | ast.Name) and submission_name in bound_by(node) for node in ast.walk(tree)
    ):
        return Refusal("invalid", "no_model", f"the source does not define a class {submission_name}")
    names = Names(tree)
    try:
        check = Check(names, tree)
        check.visit(tree)
    except Found as found:
        text = _line(source, found.line)
        detail = (
            f"line {found.line}: `{text}`: {found.what} is not allowed"
            if found.line
            else f"{found.what} is not allowed"
        )
        return Refusal("hack", "forbidden", detail, {"line": found.line, "forbidden": found.what})
    except RecursionError:
        return Refusal("invalid", "syntax_error", "the source is nested too deeply")
    return _NO_KERNEL if expect_kernel and not check.kernels.exist else None


def without_kernel(source: str) -> Refusal | None:
    """The refusal of a source that parses and defines no Triton kernel; None for others."""
    tree = ast.parse(source)
    tree.body = [node for node in tree.body if not _is_main_block(node)]
    return None if KernelFunctions(tree, Names(tree)).exist else _NO_KERNEL


def _syntax_error(error: SyntaxError, source: str) -> Refusal:
    text = _line(source, error.lineno)
    place = f"line {error.lineno}: `{text}`: " if error.lineno else ""
    return Refusal("invalid", "syntax_error", f"{place}{error.msg}", {"line": error.lineno})


def _line(source: str, number: int | None) -> str:
    lines = source.splitlines()
    return lines[number - 1].strip()[:120] if number and number <= len(lines) else ""


def _is_main_block(node: ast.stmt) -> bool:
    test = getattr(node, "test", None)
    if (
        not isinstance(node, ast.If)
        or node.orelse
        or not isinstance(test, ast.Compare)
        or not isinstance(test.ops[0], ast.Eq)
    ):
        return False
    sides = [test.left, test.comparators[0]]
    name = any(isinstance(side, ast.Name) and side.id == "__name__" for side in sides)
    return name and any(isinstance(side, ast.Constant) and side.value == "__main__" for side in sides)
