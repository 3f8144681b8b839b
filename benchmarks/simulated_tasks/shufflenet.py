import torch
import torch.nn as nn
import torch.nn.functional as F


class Unit(nn.Module):
    def __init__(self, channels, out, groups):
        super().__init__()
        middle = out // 4
        self.groups = groups
        self.conv1, self.bn1 = nn.Conv2d(channels, middle, 1, groups=groups, bias=False), nn.BatchNorm2d(middle)
        self.conv2, self.bn2 = (
            nn.Conv2d(middle, middle, 3, padding=1, groups=middle, bias=False),
            nn.BatchNorm2d(middle),
        )
        self.conv3, self.bn3 = nn.Conv2d(middle, out, 1, groups=groups, bias=False), nn.BatchNorm2d(out)
        self.shortcut = nn.Identity() if channels == out else nn.Conv2d(channels, out, 1, bias=False)

    def forward(self, x):
        y = F.relu(self.bn1(self.conv1(x)))
        b, c, h, w = y.shape
        y = y.view(b, self.groups, c // self.groups, h, w).transpose(1, 2).reshape(b, c, h, w)
        y = self.bn3(self.conv3(self.bn2(self.conv2(y))))
        return F.relu(y + self.shortcut(x))


class Model(nn.Module):
    def __init__(self, num_classes=1000, groups=3, stages_repeats=[4, 8, 4], stages_out_channels=[48, 480, 960, 1920]):
        super().__init__()
        self.stem = nn.Conv2d(3, stages_out_channels[0], 3, 2, 1, bias=False)
        self.pool = nn.MaxPool2d(3, 2, 1)
        units, channels = [], stages_out_channels[0]
        for repeats, out in zip(stages_repeats, stages_out_channels[1:]):
            for _ in range(repeats):
                units.append(Unit(channels, out, groups))
                channels = out
            units.append(nn.MaxPool2d(2))
        self.units = nn.Sequential(*units)
        self.fc = nn.Linear(channels, num_classes)

    def forward(self, x):
        x = self.units(self.pool(torch.relu(self.stem(x))))
        return self.fc(F.relu(x).mean([2, 3]))


batch_size = 10
num_classes = 1000


def get_inputs():
    return [torch.rand(batch_size, 3, 224, 224)]


def get_init_inputs():
    return [num_classes]
