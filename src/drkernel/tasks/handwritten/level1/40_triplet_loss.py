"""loss: anchors should be nearer to their positives than to their negatives, by a margin."""

import torch
import torch.nn as nn
import torch.nn.functional as F


class Model(nn.Module):
    """Mean over the batch; the negative counts from the anchor or the positive, whichever is nearer to it."""

    def __init__(self, margin=1.0):
        super(Model, self).__init__()
        self.margin = margin

    def forward(self, anchor, positive, negative):
        return F.triplet_margin_loss(anchor, positive, negative, margin=self.margin, swap=True)


BATCH = 24576
EMBEDDING = 2048


def get_inputs():
    return [torch.randn(BATCH, EMBEDDING) for _ in range(3)]


def get_init_inputs():
    return [0.75]
