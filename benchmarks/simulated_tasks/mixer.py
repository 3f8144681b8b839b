import torch
import torch.nn as nn
import torch.nn.functional as F


class MixerBlock(nn.Module):
    def __init__(self, tokens, dim):
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(dim), nn.LayerNorm(dim)
        self.token1, self.token2 = nn.Linear(tokens, 384), nn.Linear(384, tokens)
        self.channel1, self.channel2 = nn.Linear(dim, 3072), nn.Linear(3072, dim)

    def forward(self, x):
        x = x + self.token2(F.gelu(self.token1(self.norm1(x).transpose(1, 2)))).transpose(1, 2)
        return x + self.channel2(F.gelu(self.channel1(self.norm2(x))))


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.stem = nn.Conv2d(3, 768, kernel_size=16, stride=16)
        self.blocks = nn.Sequential(*[MixerBlock(196, 768) for _ in range(8)])
        self.norm = nn.LayerNorm(768)
        self.head = nn.Linear(768, 1000)

    def forward(self, x):
        x = self.stem(x).flatten(2).transpose(1, 2)
        return self.head(F.relu(self.norm(self.blocks(x)).mean(1)))


def get_inputs():
    return [torch.rand(32, 3, 224, 224)]


def get_init_inputs():
    return []
