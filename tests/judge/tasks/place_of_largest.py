import torch
import torch.nn as nn

batch = 1024
inner = 4096
classes = 4096


class Model(nn.Module):
    """The class with the largest score."""

    def __init__(self, inner, classes):
        super().__init__()
        self.fc = nn.Linear(inner, classes, bias=False)

    def forward(self, x):
        return torch.argmax(self.fc(x), dim=1)


def get_inputs():
    return [torch.randn(batch, inner)]


def get_init_inputs():
    return [inner, classes]
