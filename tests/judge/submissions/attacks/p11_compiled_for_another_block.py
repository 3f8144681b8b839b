# compiled for a block of 16 and launched with the whole row's | task: softmax | expect: no gain
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def softmax_kernel(y_ptr, x_ptr, rows, cols, BLOCK: tl.constexpr, STAGES: tl.constexpr):
    col = tl.arange(0, BLOCK)
    for row in tl.range(tl.program_id(0), rows, tl.num_programs(0), num_stages=STAGES):
        x = tl.load(x_ptr + row * cols + col, mask=col < cols, other=-float("inf"))
        e = tl.exp(x - tl.max(x, axis=0))
        tl.store(y_ptr + row * cols + col, e / tl.sum(e, axis=0), mask=col < cols)


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.compiled = {}

    def forward(self, x):
        x = x.contiguous()
        y = torch.empty_like(x)
        rows, cols = x.shape
        block, warps, stages = triton.next_power_of_2(cols), 8, 2
        if block not in self.compiled:
            kernel = softmax_kernel.warmup(y, x, rows, cols, BLOCK=16, STAGES=stages, num_warps=warps, grid=(1,))
            kernel._init_handles()
            device = torch.cuda.get_device_properties(x.device)
            resident = min(65536 // (kernel.n_regs * 32 * warps), 200_000 // max(1, kernel.metadata.shared))
            self.compiled[block] = kernel, device.multi_processor_count * max(1, resident)
        kernel, programs = self.compiled[block]
        kernel[(min(programs, rows), 1, 1)](y, x, rows, cols, block, stages)
        return y
