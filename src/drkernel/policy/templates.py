"""The text of the `chat` prompts. It says all that the paper's prompts say (arXiv 2602.05885), in other words,
and which precision a task asks for."""

from drkernel.types import Precision, Task

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


def opening(task: Task) -> str:
    """The first message about a task."""
    words = {"name": task.answer_name, "entry": task.entry_point, "example": EXAMPLE.strip()}
    return OPENING.format(source=task.source.strip(), precision=PRECISION[task.precision], **words)


def revision(feedback: str, finished: bool) -> str:
    """The message after an answer: what the judge says, and, for one that was cut short, that it was."""
    return ("" if finished else CUT) + REVISION.format(feedback=feedback.strip())
