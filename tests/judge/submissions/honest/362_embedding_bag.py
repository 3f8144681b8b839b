# rows of a table by bags of indices | task: embedding_bag | expect: ok
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def k(i_ptr, o_ptr, w_ptr, y_ptr, n, B, D, BLOCK: tl.constexpr):
    r = tl.program_id(0)
    c = tl.arange(0, BLOCK)
    start = tl.load(o_ptr + r)
    end = tl.load(o_ptr + r + 1, mask=r + 1 < B, other=n)
    acc = tl.zeros((BLOCK,), tl.float32)
    for t in range(start, end):
        j = tl.load(i_ptr + t)
        acc += tl.load(w_ptr + j * D + c, mask=c < D, other=0.0)
    cnt = tl.maximum(end - start, 1).to(tl.float32)
    tl.store(y_ptr + r * D + c, acc / cnt, mask=c < D)


class ModelNew(nn.Module):
    def __init__(self, rows, width):
        super().__init__()
        self.e = nn.EmbeddingBag(rows, width, mode="mean")

    def forward(self, idx, off):
        B, D = off.shape[0], self.e.weight.shape[1]
        y = torch.empty(B, D, device=idx.device)
        k[(B,)](idx, off, self.e.weight, y, idx.numel(), B, D, BLOCK=triton.next_power_of_2(D))
        return y
