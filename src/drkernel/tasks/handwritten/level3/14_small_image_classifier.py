"""cnn: three convolutions with pooling, then two linear layers on the flattened features."""

import torch
import torch.nn as nn
import torch.nn.functional as F


class Model(nn.Module):
    def __init__(self, num_classes=10):
        super(Model, self).__init__()
        # features
        self.conv1 = nn.Conv2d(3, 32, kernel_size=5, padding=2)
        self.conv2 = nn.Conv2d(32, 64, kernel_size=3, padding=1)
        self.conv3 = nn.Conv2d(64, 96, kernel_size=3, padding=1)

        # scores
        self.fc1 = nn.Linear(96 * 6 * 6, 256)
        self.fc2 = nn.Linear(256, num_classes)

    def forward(self, x):
        """From images (batch_size, 3, 48, 48) to scores (batch_size, num_classes)."""
        x = F.max_pool2d(F.relu(self.conv1(x)), 2)
        x = F.max_pool2d(F.relu(self.conv2(x)), 2)
        x = F.max_pool2d(F.relu(self.conv3(x)), 2)
        x = torch.flatten(x, 1)
        x = F.relu(self.fc1(x))
        return self.fc2(x)


batch_size = 256
num_classes = 20


def get_inputs():
    return [torch.rand(batch_size, 3, 48, 48)]


def get_init_inputs():
    return [num_classes]
