import torch
import torch.nn as nn

batch_size = 4
length = 256
width = 64


class Model(nn.Module):
    """Scores of causal attention, with -inf where they are masked."""

    def forward(self, q, k):
        scores = q @ k.transpose(1, 2) / q.shape[-1] ** 0.5
        mask = torch.triu(torch.ones(q.shape[1], k.shape[1], device=q.device, dtype=torch.bool), 1)
        return scores.masked_fill(mask, float("-inf"))


def get_inputs():
    return [torch.randn(batch_size, length, width), torch.randn(batch_size, length, width)]


def get_init_inputs():
    return []
