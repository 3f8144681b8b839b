# tokens sorted by their expert, as many products as counts say | task: experts | expect: ok
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def swiglu(h, y, hidden, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = i < n
    at = i // hidden * 2 * hidden + i % hidden
    left = tl.load(h + at, mask=mask, other=0.0)
    right = tl.load(h + at + hidden, mask=mask, other=0.0)
    tl.store(y + i, left * tl.sigmoid(left) * right, mask=mask)


@triton.jit
def combine(rows, place, weights, y, width, CHOSEN: tl.constexpr, BLOCK: tl.constexpr):
    t = tl.program_id(0)
    i = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    total = tl.zeros((BLOCK,), tl.float32)
    for k in tl.static_range(CHOSEN):
        row = tl.load(place + t * CHOSEN + k)
        total += tl.load(weights + t * CHOSEN + k) * tl.load(rows + row * width + i, mask=i < width, other=0.0)
    tl.store(y + t * width + i, total, mask=i < width)


class ModelNew(nn.Module):
    def __init__(self, sizes):
        super().__init__()
        self.experts, self.chosen = sizes.experts, sizes.chosen
        self.gate = nn.Linear(sizes.width, sizes.experts, bias=False)
        for e in range(sizes.experts):
            setattr(self, f"up_{e}", nn.Linear(sizes.width, 2 * sizes.hidden, bias=False))
            setattr(self, f"down_{e}", nn.Linear(sizes.hidden, sizes.width, bias=False))

    def forward(self, x):
        tokens, width = x.shape
        weights, chosen = torch.topk(torch.softmax(self.gate(x), dim=1), self.chosen, dim=1)
        chosen = chosen.flatten()
        order = torch.argsort(chosen, stable=True)
        place = torch.empty_like(order)
        place[order] = torch.arange(len(order), device=x.device)
        counts = torch.bincount(chosen, minlength=self.experts).tolist()
        sorted_tokens = x[order // self.chosen]
        rows, start = torch.empty_like(sorted_tokens), 0
        for e, count in enumerate(counts):
            if count == 0:
                continue
            up, down = (getattr(self, f"{name}_{e}").weight for name in ("up", "down"))
            h = sorted_tokens[start : start + count] @ up.T
            gated = torch.empty(count, down.shape[1], device=x.device)
            swiglu[(triton.cdiv(gated.numel(), 1024),)](h, gated, down.shape[1], gated.numel(), BLOCK=1024)
            torch.mm(gated, down.T, out=rows[start : start + count])
            start += count
        y = torch.empty_like(x)
        combine[(tokens, triton.cdiv(width, 512))](rows, place, weights, y, width, CHOSEN=self.chosen, BLOCK=512)
        return y
