import torch
import torch.nn as nn

batch_size = 64
length = 262144
order = 8


class Model(nn.Module):
    """Binomial smoothing of signals."""

    def __init__(self, order):
        super().__init__()
        taps = torch.ones(1)
        for _ in range(order):
            taps = torch.nn.functional.pad(taps, (0, 1)) + torch.nn.functional.pad(taps, (1, 0))
        self.register_buffer("taps", (taps / taps.sum()).view(1, 1, -1))

    def forward(self, x):
        return torch.nn.functional.conv1d(x.unsqueeze(1), self.taps, padding=self.taps.shape[-1] // 2).squeeze(1)


def get_inputs():
    return [torch.randn(batch_size, length)]


def get_init_inputs():
    return [order]
