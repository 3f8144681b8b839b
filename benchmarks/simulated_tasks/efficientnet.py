import torch
import torch.nn as nn
import torch.nn.functional as F


class MBConv(nn.Module):
    def __init__(self, in_channels, out_channels, kernel_size, stride, expand):
        super().__init__()
        hidden = in_channels * expand
        self.use_residual = stride == 1 and in_channels == out_channels
        self.expand = nn.Sequential(nn.Conv2d(in_channels, hidden, 1, bias=False), nn.BatchNorm2d(hidden), nn.SiLU())
        self.depthwise = nn.Sequential(
            nn.Conv2d(hidden, hidden, kernel_size, stride, kernel_size // 2, groups=hidden, bias=False),
            nn.BatchNorm2d(hidden),
            nn.SiLU(),
        )
        self.squeeze = nn.Conv2d(hidden, max(1, in_channels // 4), 1)
        self.excite = nn.Conv2d(max(1, in_channels // 4), hidden, 1)
        self.project = nn.Sequential(nn.Conv2d(hidden, out_channels, 1, bias=False), nn.BatchNorm2d(out_channels))

    def forward(self, x):
        y = self.depthwise(self.expand(x))
        y = y * torch.sigmoid(self.excite(F.silu(self.squeeze(F.adaptive_avg_pool2d(y, 1)))))
        y = self.project(y)
        return x + y if self.use_residual else y


class Model(nn.Module):
    def __init__(self, num_classes=1000):
        super().__init__()
        self.stem = nn.Sequential(nn.Conv2d(3, 40, 3, 2, 1, bias=False), nn.BatchNorm2d(40))
        plan = [
            (40, 24, 3, 1, 1),
            (24, 32, 3, 2, 6),
            (32, 48, 5, 2, 6),
            (48, 96, 3, 2, 6),
            (96, 136, 5, 1, 6),
            (136, 232, 5, 2, 6),
            (232, 384, 3, 1, 6),
        ]
        blocks = []
        for a, b, k, s, e in plan:
            blocks += [MBConv(a, b, k, s, e), MBConv(b, b, k, 1, e)]
        self.blocks = nn.Sequential(*blocks)
        self.head = nn.Sequential(nn.Conv2d(384, 1536, 1, bias=False), nn.BatchNorm2d(1536))
        self.fc = nn.Linear(1536, num_classes)

    def forward(self, x):
        x = self.blocks(F.silu(self.stem(x)))
        x = F.silu(self.head(x))
        return self.fc(torch.flatten(F.adaptive_avg_pool2d(x, 1), 1))


def get_inputs():
    return [torch.rand(10, 3, 240, 240)]


def get_init_inputs():
    return [1000]
