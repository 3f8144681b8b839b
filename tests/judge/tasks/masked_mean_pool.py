import torch
import torch.nn as nn

batch = 64
length = 512
hidden = 768


class Model(nn.Module):
    """Sentence embedding: mean of the tokens that are not padding."""

    def forward(self, tokens, attention_mask):
        weights = attention_mask.unsqueeze(-1).to(tokens.dtype)
        return (tokens * weights).sum(dim=1) / weights.sum(dim=1).clamp(min=1.0)


def get_inputs():
    lengths = torch.randint(1, length + 1, (batch, 1))
    return [torch.randn(batch, length, hidden), (torch.arange(length)[None, :] < lengths).long()]


def get_init_inputs():
    return []
