"""cnn: a stem, two residual blocks with batch norm, global pooling, and a classifier."""

import torch
import torch.nn as nn

BATCH = 96
CHANNELS = 64
HEIGHT = 40
WIDTH = 28
CLASSES = 10


class Block(nn.Module):
    def __init__(self, channels):
        super().__init__()
        self.conv1 = nn.Conv2d(channels, channels, 3, padding=1, bias=False)
        self.norm1 = nn.BatchNorm2d(channels)
        self.conv2 = nn.Conv2d(channels, channels, 3, padding=1, bias=False)
        self.norm2 = nn.BatchNorm2d(channels)

    def forward(self, x):
        h = torch.relu(self.norm1(self.conv1(x)))
        return torch.relu(x + self.norm2(self.conv2(h)))


class Model(nn.Module):
    def __init__(self, channels, classes):
        super().__init__()
        self.stem = nn.Conv2d(3, channels, 3, padding=1)
        self.blocks = nn.Sequential(Block(channels), Block(channels))
        self.classifier = nn.Linear(channels, classes)

    def forward(self, x):
        x = self.blocks(torch.relu(self.stem(x)))
        return self.classifier(x.mean(dim=(2, 3)))


def get_inputs():
    return [torch.randn(BATCH, 3, HEIGHT, WIDTH)]


def get_init_inputs():
    return [CHANNELS, CLASSES]
