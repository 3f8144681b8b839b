"""cnn: a U-Net of two scales: down, up again by a transposed convolution, and the early features joined in."""

import torch
import torch.nn as nn


class Stage(nn.Module):
    def __init__(self, in_channels, out_channels):
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv2d(in_channels, out_channels, 3, padding=1),
            nn.GroupNorm(8, out_channels),
            nn.SiLU(),
            nn.Conv2d(out_channels, out_channels, 3, padding=1),
            nn.GroupNorm(8, out_channels),
            nn.SiLU(),
        )

    def forward(self, x):
        return self.body(x)


class Model(nn.Module):
    """
    Args:
        in_channels (int): channels of the image.
        features (int): channels at the full size; twice as many at half the size.
        classes (int): channels of the output.
    """

    def __init__(self, in_channels, features, classes):
        super(Model, self).__init__()
        self.encoder = Stage(in_channels, features)
        self.pool = nn.MaxPool2d(2)
        self.bottleneck = Stage(features, 2 * features)
        self.up = nn.ConvTranspose2d(2 * features, features, kernel_size=2, stride=2)
        self.decoder = Stage(2 * features, features)
        self.head = nn.Conv2d(features, classes, kernel_size=1)

    def forward(self, x):
        early = self.encoder(x)
        deep = self.bottleneck(self.pool(early))
        joined = torch.cat([self.up(deep), early], dim=1)
        return self.head(self.decoder(joined))


batch_size = 16
in_channels = 3
features = 32
classes = 5
height = 96
width = 128


def get_inputs():
    return [torch.rand(batch_size, in_channels, height, width)]


def get_init_inputs():
    return [in_channels, features, classes]
