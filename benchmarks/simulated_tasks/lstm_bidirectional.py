import torch
import torch.nn as nn
import torch.nn.functional as F


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Linear(80, 512)
        self.lstm = nn.LSTM(512, 512, num_layers=4, bidirectional=True, batch_first=True)
        self.fc = nn.Linear(1024, 32)

    def forward(self, x):
        x = torch.tanh(self.embed(x))
        out, _ = self.lstm(x)
        return self.fc(out)


def get_inputs():
    return [torch.randn(8, 400, 80)]


def get_init_inputs():
    return []
