import torch
import torch.nn as nn

vocabulary = 32768
hidden = 1024
batch = 8
length = 2048


class Model(nn.Module):
    """Token and position embedding in fp16."""

    def __init__(self, vocabulary, length, hidden):
        super().__init__()
        self.tokens = nn.Embedding(vocabulary, hidden).half()
        self.positions = nn.Embedding(length, hidden).half()

    def forward(self, ids):
        return self.tokens(ids) + self.positions.weight[: ids.shape[1]]


def get_inputs():
    return [torch.randint(0, vocabulary, (batch, length))]


def get_init_inputs():
    return [vocabulary, length, hidden]
