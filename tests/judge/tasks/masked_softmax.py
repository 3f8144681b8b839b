import torch
import torch.nn as nn

batch = 16
heads = 8
length = 512


class Model(nn.Module):
    """Softmax of fp16 scores where a mask allows it."""

    def forward(self, scores, mask):
        return torch.softmax(scores.masked_fill(mask == 0, -1e4), dim=-1)


def get_inputs():
    mask = torch.tril(torch.ones(length, length)).expand(batch, 1, length, length).contiguous()
    return [torch.randn(batch, heads, length, length).half(), mask]


def get_init_inputs():
    return []
