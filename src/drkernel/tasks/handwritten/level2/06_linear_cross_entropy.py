"""matmul chain: the loss of a language model's head, from hidden states to one number per token."""

import torch
import torch.nn as nn

TOKENS = 2560
DIM = 512
VOCABULARY = 14336


class Model(nn.Module):
    def __init__(self, dim, vocabulary):
        super().__init__()
        self.head = nn.Linear(dim, vocabulary, bias=False)

    def forward(self, hidden, targets):
        logits = self.head(hidden)
        chosen = logits.gather(1, targets[:, None]).squeeze(1)
        return torch.logsumexp(logits, dim=1) - chosen


def get_inputs():
    return [torch.randn(TOKENS, DIM), torch.randint(0, VOCABULARY, (TOKENS,))]


def get_init_inputs():
    return [DIM, VOCABULARY]
