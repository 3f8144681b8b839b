import torch
import torch.nn as nn
import torch.nn.functional as F


class Model(nn.Module):
    """A recurrent step with a hidden state that is made for one batch size."""

    def __init__(self, input_size: int, hidden_size: int, output_size: int, batch_size: int = 256):
        super(Model, self).__init__()
        self.hidden_size = hidden_size
        self.i2h = nn.Linear(input_size + hidden_size, hidden_size)
        self.h2o = nn.Linear(hidden_size, output_size)
        self.hidden = torch.randn((256, hidden_size))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        hidden = self.hidden.to(x.device)
        for t in range(x.shape[0]):
            hidden = torch.tanh(self.i2h(torch.cat((x[t], hidden), dim=1)))
        return self.h2o(hidden)


sequence_length = 8
input_size = 1024 * 2
hidden_size = 1024 * 4
output_size = 1024


def get_inputs():
    return [torch.randn(sequence_length, 256, input_size)]


def get_init_inputs():
    return [input_size, hidden_size, output_size]
