"""convolution chain: a depthwise and a pointwise convolution, each with batch norm and a ReLU that ends at 6."""

import torch
import torch.nn as nn
import torch.nn.functional as F

N = 32
C_IN = 96
C_OUT = 128
SIDE = 72


class Model(nn.Module):
    def __init__(self, c_in, c_out):
        super().__init__()
        self.dw = nn.Conv2d(c_in, c_in, 3, padding=1, groups=c_in, bias=False)
        self.dw_bn = nn.BatchNorm2d(c_in)
        self.pw = nn.Conv2d(c_in, c_out, 1, bias=False)
        self.pw_bn = nn.BatchNorm2d(c_out)

    def forward(self, x):
        x = F.relu6(self.dw_bn(self.dw(x)))
        return F.relu6(self.pw_bn(self.pw(x)))


def get_inputs():
    return [torch.randn(N, C_IN, SIDE, SIDE)]


def get_init_inputs():
    return [C_IN, C_OUT]
