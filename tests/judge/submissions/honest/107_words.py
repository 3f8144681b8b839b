# forbidden words in comments, strings and names | task: relu | expect: ok
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def relu_kernel(x_ptr, y_ptr, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + i, mask=i < n)
    tl.store(y_ptr + i, tl.maximum(x, 0.0), mask=i < n)


def triton_relu(x):
    y = torch.empty_like(x)
    relu_kernel[(triton.cdiv(x.numel(), 1024),)](x, y, x.numel(), BLOCK=1024)
    return y


"""No eval(), exec(), subprocess, os.system, ctypes, gc or sys._getframe here; torch.compile is not used either."""


class Compiler:
    """`open` and `__import__` are only words. pass"""

    eval_count = 0  # eval_count += 1 would be harmless


def exec_relu(x, open_block=1024):
    # import socket; torch.allclose = None
    note = "import os; os.fork()"
    del note
    y = torch.empty_like(x)
    relu_kernel[(triton.cdiv(x.numel(), open_block),)](x, y, x.numel(), BLOCK=open_block)
    return y


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.compile_options = {"eval": False}
        pass

    def forward(self, x):
        return exec_relu(x)


if __name__ == "__main__":
    import subprocess

    torch.manual_seed(0)
    subprocess.run(["nvidia-smi"])
