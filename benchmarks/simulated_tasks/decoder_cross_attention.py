import torch
import torch.nn as nn
import torch.nn.functional as F


class Model(nn.Module):
    def __init__(self, d_model=1024, nhead=16, dim_feedforward=4096):
        super().__init__()
        self.self_attention = nn.MultiheadAttention(d_model, nhead, batch_first=True)
        self.cross_attention = nn.MultiheadAttention(d_model, nhead, batch_first=True)
        self.linear1, self.linear2 = nn.Linear(d_model, dim_feedforward), nn.Linear(dim_feedforward, d_model)
        self.norm1, self.norm2, self.norm3 = nn.LayerNorm(d_model), nn.LayerNorm(d_model), nn.LayerNorm(d_model)

    def forward(self, x, memory):
        y = self.norm1(x)
        x = x + self.self_attention(y, y, y, need_weights=False)[0]
        x = x + self.cross_attention(self.norm2(x), memory, memory, need_weights=False)[0]
        return x + self.linear2(F.relu(self.linear1(self.norm3(x))))


batch_size, target, source = 32, 128, 512


def get_inputs():
    return [torch.randn(batch_size, target, 1024), torch.randn(batch_size, source, 1024)]


def get_init_inputs():
    return []
