import torch
import torch.nn as nn
import torch.nn.functional as F


class Model(nn.Module):
    def __init__(self, dim, hidden, experts, top_k):
        super().__init__()
        self.top_k = top_k
        self.router = nn.Linear(dim, experts)
        self.w1 = nn.Parameter(torch.randn(experts, dim, hidden) * dim**-0.5)
        self.w2 = nn.Parameter(torch.randn(experts, hidden, dim) * hidden**-0.5)

    def forward(self, x):
        scores, chosen = torch.topk(torch.softmax(self.router(x), -1), self.top_k, dim=-1)
        weights = torch.zeros(x.shape[0], self.w1.shape[0], dtype=x.dtype, device=x.device).scatter(1, chosen, scores)
        hidden = F.silu(torch.einsum("td,edh->eth", x, self.w1))
        return torch.einsum("eth,ehd,te->td", hidden, self.w2, weights)


tokens, dim, hidden, experts, top_k = 1 << 10, 1024, 2048, 8, 2


def get_inputs():
    return [torch.randn(tokens, dim)]


def get_init_inputs():
    return [dim, hidden, experts, top_k]
