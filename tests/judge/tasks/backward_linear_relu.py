import torch
import torch.nn as nn

rows = 4096
features = 1024
hidden = 2048


class Model(nn.Module):
    """One step back through a linear layer and its ReLU: the gradients of inputs, weight and bias."""

    def __init__(self, features, hidden):
        super().__init__()
        self.linear = nn.Linear(features, hidden)

    def forward(self, x, grad):
        x.requires_grad_(True)
        with torch.enable_grad():
            y = torch.relu(self.linear(x))
        self.zero_grad()
        y.backward(grad)
        return x.grad, self.linear.weight.grad, self.linear.bias.grad


def get_inputs():
    return [torch.randn(rows, features), torch.randn(rows, hidden)]


def get_init_inputs():
    return [features, hidden]
