# half of each row that is gathered | task: p_embedding_twice | expect: no gain
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def k(i_ptr, w_ptr, y_ptr, V, D, BLOCK: tl.constexpr):
    r = tl.program_id(0)
    j = tl.load(i_ptr + r)
    c = tl.arange(0, BLOCK)
    x = tl.load(w_ptr + j * D + c, mask=c < D, other=0.0)
    tl.store(y_ptr + r * D + c, x * 2, mask=c < D)


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.emb = nn.Embedding(V, D)

    def forward(self, idx):
        B = idx.shape[0]
        y = torch.empty(B, self.emb.weight.shape[1], device=idx.device)
        k[(B,)](idx, self.emb.weight, y, self.emb.weight.shape[0], self.emb.weight.shape[1], BLOCK=512)
        return y


V, D, B = 50000, 1024, 16384
