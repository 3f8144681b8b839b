# rows of two fp16 tables by index, added | task: embedding | expect: ok
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def embed(ids_ptr, tokens_ptr, positions_ptr, out_ptr, length, hidden, BLOCK: tl.constexpr):
    token = tl.program_id(0)
    index = tl.load(ids_ptr + token)  # int64
    position = token % length
    h = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    mask = h < hidden
    a = tl.load(tokens_ptr + index * hidden + h, mask=mask)
    b = tl.load(positions_ptr + position * hidden + h, mask=mask)
    tl.store(out_ptr + token.to(tl.int64) * hidden + h, a + b, mask=mask)


class ModelNew(nn.Module):
    def __init__(self, vocabulary, length, hidden):
        super().__init__()
        self.tokens = nn.Embedding(vocabulary, hidden).half()
        self.positions = nn.Embedding(length, hidden).half()

    def forward(self, ids):
        ids = ids.contiguous()
        hidden = self.tokens.weight.shape[1]
        out = torch.empty((*ids.shape, hidden), device=ids.device, dtype=torch.float16)
        block = min(1024, triton.next_power_of_2(hidden))
        embed[(ids.numel(), triton.cdiv(hidden, block))](
            ids, self.tokens.weight, self.positions.weight, out, ids.shape[1], hidden, BLOCK=block
        )
        return out
