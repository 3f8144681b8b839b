import torch
import torch.nn as nn
import torch.nn.functional as F


class DoubleConv(nn.Module):
    def __init__(self, in_channels, out_channels):
        super().__init__()
        self.conv1, self.bn1 = nn.Conv2d(in_channels, out_channels, 3, padding=1), nn.BatchNorm2d(out_channels)
        self.conv2, self.bn2 = nn.Conv2d(out_channels, out_channels, 3, padding=1), nn.BatchNorm2d(out_channels)

    def forward(self, x):
        x = F.softmax(self.bn1(self.conv1(x)), dim=-1)
        return F.relu(self.bn2(self.conv2(x)))


class Model(nn.Module):
    def __init__(self, in_channels, out_channels, features):
        super(Model, self).__init__()
        self.down1, self.down2 = DoubleConv(in_channels, features), DoubleConv(features, 2 * features)
        self.down3, self.down4 = DoubleConv(2 * features, 4 * features), DoubleConv(4 * features, 8 * features)
        self.up3 = nn.ConvTranspose2d(8 * features, 4 * features, 2, 2)
        self.dec3 = DoubleConv(8 * features, 4 * features)
        self.up2 = nn.ConvTranspose2d(4 * features, 2 * features, 2, 2)
        self.dec2 = DoubleConv(4 * features, 2 * features)
        self.up1 = nn.ConvTranspose2d(2 * features, features, 2, 2)
        self.dec1 = DoubleConv(2 * features, features)
        self.last = nn.Conv2d(features, out_channels, 1)

    def forward(self, x):
        a = self.down1(x)
        b = self.down2(F.max_pool2d(a, 2))
        c = self.down3(F.max_pool2d(b, 2))
        d = self.down4(F.max_pool2d(c, 2))
        c = self.dec3(torch.cat([self.up3(d), c], 1))
        b = self.dec2(torch.cat([self.up2(c), b], 1))
        a = self.dec1(torch.cat([self.up1(b), a], 1))
        return self.last(a)


batch_size = 8
in_channels = 8
out_channels = 4
height = 64
width = 512
features = 64


def get_inputs():
    return [torch.rand(batch_size, in_channels, height, width)]


def get_init_inputs():
    return [in_channels, out_channels, features]
