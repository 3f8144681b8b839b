# torch.conv_tbc | task: p_conv1d_half | expect: no gain
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def epilogue(y_ptr, b_ptr, out_ptr, n, plane, K, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    y = tl.load(y_ptr + i, mask=i < n)
    b = tl.load(b_ptr + i // plane % K, mask=i < n)
    tl.store(out_ptr + i, tl.maximum(y + b, 0.0) * 0.5, mask=i < n)


class ModelNew(nn.Module):
    def __init__(self, C, K):
        super().__init__()
        self.conv = nn.Conv1d(C, K, 5, padding=2)

    def forward(self, x):
        w, b = self.conv.weight, self.conv.bias
        W = x.shape[2]
        K = w.shape[0]
        y = torch.conv_tbc(
            x.permute(2, 0, 1).contiguous(), w.permute(2, 1, 0).contiguous(), torch.zeros(K, device=x.device), 2
        ).permute(1, 2, 0)
        y = y.contiguous()
        out = torch.empty_like(y)
        n = y.numel()
        epilogue[(triton.cdiv(n, 1024),)](y, b, out, n, W, K, BLOCK=1024)
        return out
