"""The text of the `chat` prompts. It says all that the paper's prompts say (arXiv 2602.05885), in other words,
and which precision a task asks for. A file of one's own may replace any of its parts (`load_template`)."""

from __future__ import annotations

import dataclasses
import string
from dataclasses import dataclass
from pathlib import Path

from drkernel.types import DrKernelError, Precision, Task

EXAMPLE = """\
```python
import torch
import torch.nn as nn


class Model(nn.Module):
    def forward(self, a, b):
        return a + b


def get_inputs():
    return [torch.rand(64, 1000), torch.rand(64, 1000)]


def get_init_inputs():
    return []
```

```python
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def sum_kernel(a_ptr, b_ptr, out_ptr, numel, BLOCK: tl.constexpr):
    index = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = index < numel
    a = tl.load(a_ptr + index, mask=inside)
    b = tl.load(b_ptr + index, mask=inside)
    tl.store(out_ptr + index, a + b, mask=inside)


class ModelNew(nn.Module):
    def forward(self, a, b):
        assert a.is_cuda and b.is_cuda and a.shape == b.shape
        a, b = a.contiguous(), b.contiguous()
        out = torch.empty_like(a)
        sum_kernel[(triton.cdiv(a.numel(), 128),)](a, b, out, a.numel(), BLOCK=128)
        return out
```
"""

OPENING = """\
You are an expert in GPU programming. Write custom Triton kernels that replace PyTorch operators of the module below, \
so that it runs faster and computes the same.

You decide which operators to replace and which to keep. Fusing several of them into one kernel is welcome, and so is \
a better algorithm (for example a softmax in one pass over its input).

An example of a module and an answer:

{example}

The module to make faster:

```python
{source}
```

Answer with one Python code block that defines a class `{name}` with the same constructor and forward arguments as \
`{entry}`, with all its imports. Write complete code that compiles and runs, not pseudocode, and no tests. \
Parameters must be created in the same order as in `{entry}`, since both are built from one seed. \
The result must be right for any values and any legal shapes. {precision}

Think step by step: where the time goes, what can be fused, how the work is split into blocks; then give the code.
"""

PRECISION: dict[Precision, str] = {
    "ieee": 'Compute in fp32: tl.dot rounds fp32 to TF32 unless input_precision="ieee" is passed.',
    "tf32": "Factors of products may be rounded to TF32, as those of the module are; all else is in fp32.",
    "low": "Factors of products may have 16 bits (bf16 or fp16); sums are in fp32, outputs have the module's dtypes.",
}
"""What a task allows, by its precision."""

REVISION = """\
Your last answer was run. What was found:

{feedback}

Improve on your answers so far: repair what is wrong; if it is right, make it faster. \
Think step by step, then give one ```python block with the complete new code of the class.
"""

CUT = "Your last answer was cut off at the limit of its length, so write a shorter one.\n\n"


PLACES = {
    "system": (set(), set()),
    "opening": ({"source"}, {"source", "name", "entry", "example", "precision"}),
    "revision": ({"feedback"}, {"feedback"}),
    "cut": (set(), set()),
}
"""For each field of a template the {places} that it must have, and those that it may have."""


@dataclass(frozen=True)
class Template:
    """The texts of the prompts, with {places} that are filled in."""

    system: str = ""
    """The system message; none where it is empty."""
    opening: str = OPENING
    """The first message about a task."""
    revision: str = REVISION
    """The message after an answer."""
    cut: str = CUT
    """What stands before that where the answer was cut short."""

    def opening_of(self, task: Task) -> str:
        words = {"name": task.submission_name, "entry": task.entry_point, "example": EXAMPLE.strip()}
        return self.opening.format(source=task.source.strip(), precision=PRECISION[task.precision], **words)

    def revision_of(self, feedback: str, finished: bool) -> str:
        return ("" if finished else self.cut) + self.revision.format(feedback=feedback.strip())


TEMPLATE = Template()


def load_template(path: str | Path) -> Template:
    """The texts of a YAML file with some of the fields of `Template`; the others stay as they are.

    Raises DrKernelError naming the file, the field, what was found and what was expected.
    """
    import yaml

    try:
        found = yaml.safe_load(Path(path).read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        reason = getattr(error, "strerror", None) or " ".join(str(error).split())
        raise DrKernelError(f"policy.template: {path}: not readable ({reason}); expected a YAML file") from None
    known = ", ".join(PLACES)
    if not isinstance(found, dict):
        raise DrKernelError(f"policy.template: {path}: found {type(found).__name__}, expected the fields {known}")
    for name, text in found.items():
        if name not in PLACES:
            raise DrKernelError(f"policy.template: {path}: found a field {name!r}, expected some of {known}")
        _check_places(f"policy.template: {path}: {name}", text, *PLACES[name])
    return dataclasses.replace(TEMPLATE, **found)


def _check_places(where: str, text: object, needed: set[str], allowed: set[str]) -> None:
    if not isinstance(text, str):
        raise DrKernelError(f"{where}: found {text!r}, expected text")
    if not allowed:  # nothing is filled in, so braces are braces
        return
    try:
        places = {place for _, place, _, _ in string.Formatter().parse(text) if place is not None}
    except ValueError as error:
        raise DrKernelError(
            f"{where}: found a brace that is no place ({error}); expected it doubled: {{{{ }}}}"
        ) from None
    names = lambda chosen: ", ".join(f"{{{name}}}" for name in sorted(chosen))
    if unknown := places - allowed:
        raise DrKernelError(f"{where}: found {names(unknown)}, expected {names(allowed)}; other braces are doubled")
    if missing := needed - places:
        raise DrKernelError(f"{where}: found no {names(missing)}, expected it in the text")
