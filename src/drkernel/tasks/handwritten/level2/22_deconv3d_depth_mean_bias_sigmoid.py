"""convolution chain: a transposed convolution of volumes, the mean over depth, a bias, and sigmoid."""

import torch
import torch.nn as nn

BATCH = 8
IN_C = 12
OUT_C = 40
DEPTH = 10
HEIGHT = 36
WIDTH = 44


class Model(nn.Module):
    def __init__(self, in_c, out_c, bias_shape):
        super().__init__()
        self.up = nn.ConvTranspose3d(in_c, out_c, kernel_size=3, stride=2, padding=1)
        self.bias = nn.Parameter(torch.zeros(bias_shape))

    def forward(self, x):
        y = self.up(x)
        y = torch.mean(y, dim=2)
        return torch.sigmoid(y + self.bias)


def get_inputs():
    return [torch.randn(BATCH, IN_C, DEPTH, HEIGHT, WIDTH)]


def get_init_inputs():
    return [IN_C, OUT_C, (OUT_C, 1, 1)]


SMALL = {"BATCH": 2, "IN_C": 6, "OUT_C": 10, "DEPTH": 5, "HEIGHT": 9, "WIDTH": 11}
