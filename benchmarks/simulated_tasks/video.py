import torch
import torch.nn as nn
import torch.nn.functional as F


class Model(nn.Module):
    def __init__(self, num_classes=400):
        super().__init__()
        self.conv1 = nn.Conv3d(3, 64, (3, 7, 7), (1, 2, 2), (1, 3, 3))
        self.conv2 = nn.Conv3d(64, 128, 3, 2, 1)
        self.conv3 = nn.Conv3d(128, 256, 3, 2, 1)
        self.conv4 = nn.Conv3d(256, 512, 3, 2, 1)
        self.conv5 = nn.Conv3d(512, 512, 3, 1, 1)
        self.norm = nn.GroupNorm(32, 512)
        self.fc = nn.Linear(512, num_classes)

    def forward(self, x):
        for conv in (self.conv1, self.conv2, self.conv3, self.conv4, self.conv5):
            x = F.relu(conv(x))
        return self.fc(self.norm(x).amax((2, 3, 4)))


batch_size, frames, size = 4, 16, 112


def get_inputs():
    return [torch.rand(batch_size, 3, frames, size, size)]


def get_init_inputs():
    return []
