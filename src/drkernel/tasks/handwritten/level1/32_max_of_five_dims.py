"""reduction: the largest value over the frames of a batch of clips; the frames are the third of five dimensions."""

import torch
import torch.nn as nn


class Model(nn.Module):
    """Maximum over time."""

    def forward(self, clips):
        values, _ = torch.max(clips, dim=2)
        return values


BATCH = 8
CHANNELS = 32
FRAMES = 40
HEIGHT = 112
WIDTH = 144


def get_inputs():
    return [torch.randn(BATCH, CHANNELS, FRAMES, HEIGHT, WIDTH)]


def get_init_inputs():
    return []


SMALL = {"BATCH": 2, "CHANNELS": 4, "FRAMES": 5, "HEIGHT": 14, "WIDTH": 18}
