"""convolution chain: class probabilities of every pixel, and how uncertain they are."""

import torch
import torch.nn as nn


class Model(nn.Module):
    """
    A segmentation head: 1x1 convolution to class scores, softmax over the classes, and the entropy per pixel.
    Returns (batch_size, height, width).
    """

    def __init__(self, in_channels: int, classes: int):
        super().__init__()
        self.head = nn.Conv2d(in_channels, classes, kernel_size=1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        scores = self.head(x)
        p = torch.softmax(scores, dim=1)
        return -(p * torch.log(p + 1e-6)).sum(dim=1)


batch_size = 16
in_channels = 96
classes = 32
height = 128
width = 160


def get_inputs():
    return [torch.randn(batch_size, in_channels, height, width)]


def get_init_inputs():
    return [in_channels, classes]


SMALL = {"batch_size": 2, "in_channels": 6, "classes": 8, "height": 16, "width": 20}
