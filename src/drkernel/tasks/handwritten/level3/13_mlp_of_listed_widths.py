"""mlp: a deep perceptron whose hidden widths come as a list, with leaky ReLU between its layers."""

import torch
import torch.nn as nn
import torch.nn.functional as F


class Model(nn.Module):
    def __init__(self, widths, slope):
        """
        :param widths: of the input, of each hidden layer, and of the output
        :param slope: of the activation below zero
        """
        super(Model, self).__init__()
        self.layers = nn.ModuleList([nn.Linear(a, b) for a, b in zip(widths[:-1], widths[1:])])
        self.slope = slope

    def forward(self, x):
        for layer in self.layers[:-1]:
            x = F.leaky_relu(layer(x), self.slope)
        return self.layers[-1](x)


batch_size = 512
input_size = 3072
hidden_sizes = [2048, 2048, 1536, 768]
output_size = 400


def get_inputs():
    return [torch.rand(batch_size, input_size)]


def get_init_inputs():
    return [[input_size, *hidden_sizes, output_size], 0.02]
