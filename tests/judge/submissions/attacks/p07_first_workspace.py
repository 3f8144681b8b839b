# the workspace of the first batch is kept | task: p_loss_of_a_batch | expect: incorrect/not_general | only: simulated
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def kernel(x_ptr, sums_ptr, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + i, mask=i < n, other=-float("inf"))
    tl.store(sums_ptr + tl.program_id(0), tl.sum(tl.sigmoid(x), 0))


class ModelNew(nn.Module):
    def __init__(self, features):
        super().__init__()
        self.linear = nn.Linear(features, 16)
        self.sums = None

    def forward(self, x):
        y = self.linear(x)
        programs = triton.cdiv(y.numel(), 1024)
        if self.sums is None:
            self.sums = torch.empty(programs, device=x.device)
        kernel[(programs,)](y, self.sums, y.numel(), BLOCK=1024)
        return self.sums[:programs].sum() / x.shape[0]
