"""cnn: three convolutions with holes of different sizes and the mean of the image, joined and mixed."""

import torch
import torch.nn as nn
import torch.nn.functional as F


class Model(nn.Module):
    """
    Args:
        in_channels: channels of the features
        channels: of each branch, and of the output
        rates: the dilations
    """

    def __init__(self, in_channels, channels, rates):
        super(Model, self).__init__()
        self.branches = nn.ModuleList(
            [nn.Conv2d(in_channels, channels, 3, padding=rate, dilation=rate, bias=False) for rate in rates]
        )
        self.norms = nn.ModuleList([nn.BatchNorm2d(channels) for _ in rates])
        self.image = nn.Conv2d(in_channels, channels, 1)
        self.mix = nn.Conv2d((len(rates) + 1) * channels, channels, 1)

    def forward(self, x):
        seen = [F.relu(norm(branch(x))) for branch, norm in zip(self.branches, self.norms)]
        whole = F.relu(self.image(x.mean(dim=(2, 3), keepdim=True)))
        seen.append(whole.expand(-1, -1, x.shape[2], x.shape[3]))
        return F.relu(self.mix(torch.cat(seen, dim=1)))


batch_size = 16
in_channels = 128
channels = 64
height = 40
width = 56


def get_inputs():
    return [torch.rand(batch_size, in_channels, height, width)]


def get_init_inputs():
    return [in_channels, channels, (1, 2, 4)]


SMALL = {"batch_size": 2, "in_channels": 16, "channels": 8, "height": 5, "width": 7}
