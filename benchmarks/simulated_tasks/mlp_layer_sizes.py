import torch
import torch.nn as nn
import torch.nn.functional as F


class Model(nn.Module):
    def __init__(self, input_size, hidden_sizes, output_size):
        super(Model, self).__init__()
        self.layers = nn.ModuleList()
        size = input_size
        for hidden in hidden_sizes:
            self.layers.append(nn.Linear(size, hidden))
            size = hidden
        self.last = nn.Linear(size, output_size)

    def forward(self, x):
        for layer in self.layers:
            x = F.relu(layer(x))
        return self.last(x)


batch_size = 128
input_size = 1024 * 4
hidden_sizes = [4096, 2048 * 2, 4096]
output_size = 1000


def get_inputs():
    return [torch.rand(batch_size, input_size)]


def get_init_inputs():
    return [input_size, hidden_sizes, output_size]
