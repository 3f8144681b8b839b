import torch
import torch.nn as nn

batch_size = 4096
width = 8192


class Model(nn.Module):
    """Huber loss without reduction over the batch."""

    def __init__(self, beta):
        super().__init__()
        self.beta = beta

    def forward(self, predictions, targets):
        loss = torch.nn.functional.smooth_l1_loss(predictions, targets, beta=self.beta, reduction="none")
        return loss.mean(dim=1)


def get_inputs():
    return [torch.randn(batch_size, width), torch.randn(batch_size, width)]


def get_init_inputs():
    return [0.5]
