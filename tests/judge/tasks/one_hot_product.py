import torch
import torch.nn as nn
import torch.nn.functional as F

rows = 4096
classes = 64
width = 512


class Model(nn.Module):
    def forward(self, choice, table):
        return torch.matmul(choice, table)


def get_inputs():
    choice = F.one_hot(torch.randint(0, classes, (rows,)), classes).float()
    return [choice, torch.rand(classes, width)]


def get_init_inputs():
    return []
