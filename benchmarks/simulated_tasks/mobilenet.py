import torch
import torch.nn as nn
import torch.nn.functional as F


def separable(in_channels, out_channels, stride):
    return nn.Sequential(
        nn.Conv2d(in_channels, in_channels, 3, stride, 1, groups=in_channels, bias=False),
        nn.BatchNorm2d(in_channels),
        nn.ReLU(inplace=True),
        nn.Conv2d(in_channels, out_channels, 1, bias=False),
        nn.BatchNorm2d(out_channels),
        nn.ReLU(inplace=True),
    )


class Model(nn.Module):
    def __init__(self, num_classes=1000, alpha=1.5):
        super().__init__()
        self.stem = nn.Conv2d(3, int(32 * alpha), 3, 2, 1, bias=False)
        self.norm = nn.BatchNorm2d(int(32 * alpha))
        plan = [(32, 64, 1), (64, 128, 2), (128, 128, 1), (128, 256, 2), (256, 256, 1), (256, 512, 2)]
        plan += [(512, 512, 1)] * 5 + [(512, 1024, 2), (1024, 1024, 1)]
        self.blocks = nn.Sequential(*[separable(int(a * alpha), int(b * alpha), s) for a, b, s in plan])
        self.fc = nn.Linear(int(1024 * alpha), num_classes)

    def forward(self, x):
        x = F.relu(self.norm(self.stem(x)))
        return self.fc(self.blocks(x).mean([2, 3]))


batch_size = 10
input_channels = 3
height = 224
width = 224


def get_inputs():
    return [torch.rand(batch_size, input_channels, height, width)]


def get_init_inputs():
    return [1000, 1.5]
