"""matmul chain: a linear layer's outputs become probabilities, under which given values have a mean."""

import torch
import torch.nn as nn


class Model(nn.Module):
    """Distributional head: expected value of each sample.

    Args:
        in_features: width of the features.
        atoms: how many values the distribution is over.
        temperature: the logits are divided by it.
    """

    def __init__(self, in_features, atoms, temperature):
        super().__init__()
        self.fc = nn.Linear(in_features, atoms)
        self.temperature = temperature

    def forward(self, features, support):
        probabilities = torch.softmax(self.fc(features) / self.temperature, dim=1)
        return (probabilities * support).sum(dim=1)


batch_size = 4096
in_features = 1024
atoms = 8192


def get_inputs():
    return [torch.randn(batch_size, in_features), torch.linspace(-2.0, 5.0, atoms)]


def get_init_inputs():
    return [in_features, atoms, 0.6]


SMALL = {"batch_size": 32, "in_features": 64, "atoms": 128}
