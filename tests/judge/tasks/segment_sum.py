import torch
import torch.nn as nn

rows = 65536
hidden = 128
segments = 1024


class Model(nn.Module):
    """Sums rows that belong to the same segment; the segments are sorted."""

    def __init__(self, segments):
        super().__init__()
        self.segments = segments

    def forward(self, x, segment):
        out = torch.zeros(self.segments, x.shape[1], dtype=x.dtype, device=x.device)
        return out.index_add(0, segment, x)


def get_inputs():
    return [torch.randn(rows, hidden), torch.sort(torch.randint(0, segments, (rows,))).values]


def get_init_inputs():
    return [segments]
