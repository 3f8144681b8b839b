# a dict whose items() does fifteen sixteenths of the work | task: p_dict | expect: no gain | only: cuda
# The honest base is one launch for each operator, as PyTorch has them: about 1.0x.
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit(do_not_specialize=["start"])
def sine_kernel(x_ptr, y_ptr, start, n, BLOCK: tl.constexpr):
    i = start + tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(y_ptr + i, tl.sin(tl.load(x_ptr + i, mask=i < n)), mask=i < n)


def sines(x, y, start, stop):
    """Elements start to stop of the answer, into y."""
    grid = (triton.cdiv(max(stop - start, 1), 1024),)
    for number in range(4):
        sine_kernel[grid](x if number == 0 else y, y, start, stop, BLOCK=1024)
    return y


class Answer(dict):
    def items(self):
        for step in self.rest:
            step()
        return super().items()


class ModelNew(nn.Module):
    def forward(self, x):
        y, n = torch.empty_like(x), x.numel()
        part = n // 16 // 1024 * 1024
        sines(x, y, 0, max(part, 1))
        answer = Answer(sines=y)
        answer.rest = [lambda: sines(x, y, max(part, 1), n)]
        return answer
