import torch
import torch.nn as nn

batch_size = 8192
classes = 2048


class Model(nn.Module):
    """Kullback-Leibler divergence between two sets of distributions, mean over the batch."""

    def forward(self, predictions, targets):
        return nn.functional.kl_div(torch.log(predictions), targets, reduction="batchmean")


def get_inputs():
    return [torch.rand(batch_size, classes).softmax(dim=-1), torch.rand(batch_size, classes).softmax(dim=-1)]


def get_init_inputs():
    return []
