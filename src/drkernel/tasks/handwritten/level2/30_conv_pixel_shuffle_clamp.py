"""convolution chain: super-resolution's last step: channels become pixels, a factor, and values between 0 and 1."""

import torch
import torch.nn as nn


class Model(nn.Module):
    """
    Sub-pixel convolution.

    Args:
        in_channels (int): channels of the features
        image_channels (int): channels of the image
        upscale (int): how much larger each side becomes
        brightness (float): a constant factor
    """

    def __init__(self, in_channels, image_channels, upscale, brightness):
        super(Model, self).__init__()
        self.conv = nn.Conv2d(in_channels, image_channels * upscale**2, kernel_size=3, padding=1)
        self.shuffle = nn.PixelShuffle(upscale)
        self.brightness = brightness

    def forward(self, x):
        x = self.shuffle(self.conv(x))
        x = x * self.brightness + 0.5
        return x.clamp(0.0, 1.0)


batch_size = 24
in_channels = 48
height = 112
width = 144


def get_inputs():
    return [torch.randn(batch_size, in_channels, height, width)]


def get_init_inputs():
    return [in_channels, 3, 4, 0.9]


SMALL = {"batch_size": 3, "in_channels": 6, "height": 7, "width": 9}
