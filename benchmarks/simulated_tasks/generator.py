import torch
import torch.nn as nn
import torch.nn.functional as F


class Model(nn.Module):
    """Noise to images by transposed convolutions."""

    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(128, 1024 * 4 * 4)
        self.up1, self.bn1 = nn.ConvTranspose2d(1024, 512, 4, 2, 1), nn.BatchNorm2d(512)
        self.up2, self.bn2 = nn.ConvTranspose2d(512, 256, 4, 2, 1), nn.BatchNorm2d(256)
        self.up3, self.bn3 = nn.ConvTranspose2d(256, 128, 4, 2, 1), nn.BatchNorm2d(128)
        self.up4 = nn.ConvTranspose2d(128, 3, 4, 2, 1)

    def forward(self, z):
        x = self.fc(z).view(-1, 1024, 4, 4)
        x = F.relu(self.bn1(self.up1(x)))
        x = F.relu(self.bn2(self.up2(x)))
        x = F.relu(self.bn3(self.up3(x)))
        return torch.tanh(self.up4(x))


def get_inputs():
    return [torch.randn(64, 128)]


def get_init_inputs():
    return []
