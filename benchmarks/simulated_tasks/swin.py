import torch
import torch.nn as nn
import torch.nn.functional as F


def window_partition(x, window_size):
    b, h, w, c = x.shape
    x = x.view(b, h // window_size, window_size, w // window_size, window_size, c)
    return x.permute(0, 1, 3, 2, 4, 5).contiguous().view(-1, window_size * window_size, c)


def window_reverse(windows, window_size, h, w):
    b = int(windows.shape[0] / (h * w / window_size / window_size))
    x = windows.view(b, h // window_size, w // window_size, window_size, window_size, -1)
    return x.permute(0, 1, 3, 2, 4, 5).contiguous().view(b, h, w, -1)


class Block(nn.Module):
    def __init__(self, dim, heads, window_size, shift):
        super().__init__()
        self.heads, self.window_size, self.shift = heads, window_size, shift
        self.norm1, self.norm2 = nn.LayerNorm(dim), nn.LayerNorm(dim)
        self.qkv, self.proj = nn.Linear(dim, 3 * dim), nn.Linear(dim, dim)
        self.fc1, self.fc2 = nn.Linear(dim, 4 * dim), nn.Linear(4 * dim, dim)

    def forward(self, x):
        b, h, w, c = x.shape
        y = torch.roll(self.norm1(x), (-self.shift, -self.shift), (1, 2))
        y = window_partition(y, self.window_size)
        q, k, v = self.qkv(y).view(y.shape[0], y.shape[1], 3, self.heads, c // self.heads).permute(2, 0, 3, 1, 4)
        y = ((q @ k.transpose(-1, -2)) * (c // self.heads) ** -0.5).softmax(-1) @ v
        y = self.proj(y.transpose(1, 2).reshape(-1, self.window_size**2, c))
        x = x + torch.roll(window_reverse(y, self.window_size, h, w), (self.shift, self.shift), (1, 2))
        return x + self.fc2(F.gelu(self.fc1(self.norm2(x))))


class Model(nn.Module):
    def __init__(
        self,
        img_size=224,
        patch_size=4,
        num_classes=1000,
        embed_dim=96,
        depths=[2, 2, 6, 2],
        num_heads=[3, 6, 12, 24],
        window_size=7,
    ):
        super().__init__()
        self.embed = nn.Conv2d(3, embed_dim, patch_size, patch_size)
        self.stages, self.merges, dim = nn.ModuleList(), nn.ModuleList(), embed_dim
        for i, (depth, heads) in enumerate(zip(depths, num_heads)):
            self.stages.append(
                nn.Sequential(*[Block(dim, heads, window_size, (j % 2) * (window_size // 2)) for j in range(depth)])
            )
            self.merges.append(nn.Linear(4 * dim, 2 * dim, bias=False) if i < 3 else nn.Identity())
            dim = 2 * dim if i < 3 else dim
        self.norm, self.head = nn.LayerNorm(dim), nn.Linear(dim, num_classes)

    def forward(self, x):
        x = self.embed(x).permute(0, 2, 3, 1)
        for i, (stage, merge) in enumerate(zip(self.stages, self.merges)):
            x = stage(x)
            if i < 3:
                x = merge(torch.cat([x[:, ::2, ::2], x[:, 1::2, ::2], x[:, ::2, 1::2], x[:, 1::2, 1::2]], -1))
        return self.head(F.silu(self.norm(x).mean((1, 2))))


batch_size = 10
image_size = 224


def get_inputs():
    return [torch.rand(batch_size, 3, image_size, image_size)]


def get_init_inputs():
    return []
