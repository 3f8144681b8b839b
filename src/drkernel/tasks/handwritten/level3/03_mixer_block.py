"""mlp: one block of an MLP mixer: across patches, then across channels."""

import torch
import torch.nn as nn
import torch.nn.functional as F

BATCH = 24
PATCHES = 196
CHANNELS = 640
TOKEN_HIDDEN = 384
CHANNEL_HIDDEN = 1792


class Model(nn.Module):
    def __init__(self, patches, channels, token_hidden, channel_hidden):
        super().__init__()
        self.first_norm = nn.LayerNorm(channels)
        self.token_in = nn.Linear(patches, token_hidden)
        self.token_out = nn.Linear(token_hidden, patches)
        self.second_norm = nn.LayerNorm(channels)
        self.channel_in = nn.Linear(channels, channel_hidden)
        self.channel_out = nn.Linear(channel_hidden, channels)

    def forward(self, x):
        mixed = self.token_out(F.gelu(self.token_in(self.first_norm(x).transpose(1, 2))))
        x = x + mixed.transpose(1, 2)
        return x + self.channel_out(F.gelu(self.channel_in(self.second_norm(x))))


def get_inputs():
    return [torch.randn(BATCH, PATCHES, CHANNELS)]


def get_init_inputs():
    return [PATCHES, CHANNELS, TOKEN_HIDDEN, CHANNEL_HIDDEN]
