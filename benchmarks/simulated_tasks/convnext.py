import torch
import torch.nn as nn
import torch.nn.functional as F


class Block(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.depthwise = nn.Conv2d(dim, dim, 7, padding=3, groups=dim)
        self.norm = nn.LayerNorm(dim, eps=1e-6)
        self.up, self.down = nn.Linear(dim, 4 * dim), nn.Linear(4 * dim, dim)
        self.gamma = nn.Parameter(1e-1 * torch.ones(dim))

    def forward(self, x):
        y = self.norm(self.depthwise(x).permute(0, 2, 3, 1))
        y = self.gamma * self.down(F.gelu(self.up(y)))
        return x + y.permute(0, 3, 1, 2)


class Model(nn.Module):
    def __init__(self, depths=(3, 3, 9, 3), dims=(96, 192, 384, 768)):
        super().__init__()
        self.stages, channels, patch = nn.ModuleList(), 3, 4
        for depth, dim in zip(depths, dims):
            self.stages.append(
                nn.Sequential(nn.Conv2d(channels, dim, patch, patch), *[Block(dim) for _ in range(depth)])
            )
            channels, patch = dim, 2
        self.norm, self.head = nn.LayerNorm(dims[-1]), nn.Linear(dims[-1], 1000)

    def forward(self, x):
        for stage in self.stages:
            x = stage(x)
        return self.head(F.silu(self.norm(x.mean([-2, -1]))))


def get_inputs():
    return [torch.rand(8, 3, 224, 224)]


def get_init_inputs():
    return []
