# a product with one-hot rows is a lookup | task: one_hot_product | expect: ok
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def kernel(choice_ptr, table_ptr, y_ptr, classes, width, CLASSES: tl.constexpr, WIDTH: tl.constexpr):
    row = tl.program_id(0)
    c, i = tl.arange(0, CLASSES), tl.arange(0, WIDTH)
    hot = tl.load(choice_ptr + row * classes + c, mask=c < classes, other=0.0)
    chosen = tl.argmax(hot, 0)
    value = tl.load(table_ptr + chosen * width + i, mask=i < width)
    tl.store(y_ptr + row * width + i, value, mask=i < width)


class ModelNew(nn.Module):
    def forward(self, choice, table):
        (rows, classes), width = choice.shape, table.shape[1]
        y = torch.empty((rows, width), device=table.device, dtype=table.dtype)
        blocks = triton.next_power_of_2(classes), triton.next_power_of_2(width)
        kernel[(rows,)](choice.contiguous(), table.contiguous(), y, classes, width, *blocks)
        return y
