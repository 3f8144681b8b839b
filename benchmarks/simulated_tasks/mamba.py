import torch
import torch.nn as nn
import torch.nn.functional as F
from einops import rearrange, repeat


class Model(nn.Module):
    """A selective state space layer: expand, convolve, scan."""

    def __init__(self, d_model=1024, d_state=16, d_conv=4, expand=2):
        super().__init__()
        self.d_inner, self.d_state, self.dt_rank = expand * d_model, d_state, d_model // 16
        self.in_proj = nn.Linear(d_model, 2 * self.d_inner, bias=False)
        self.conv1d = nn.Conv1d(self.d_inner, self.d_inner, d_conv, groups=self.d_inner, padding=d_conv - 1)
        self.x_proj = nn.Linear(self.d_inner, self.dt_rank + 2 * d_state, bias=False)
        self.dt_proj = nn.Linear(self.dt_rank, self.d_inner)
        self.a_log = nn.Parameter(
            torch.log(repeat(torch.arange(1, d_state + 1).float(), "n -> d n", d=self.d_inner).contiguous())
        )
        self.d = nn.Parameter(torch.ones(self.d_inner))
        self.out_proj = nn.Linear(self.d_inner, d_model, bias=False)

    def forward(self, u):
        length = u.shape[1]
        x, z = self.in_proj(u).chunk(2, dim=-1)
        x = self.conv1d(rearrange(x, "b l d -> b d l"))[..., :length]
        x = F.silu(rearrange(x, "b d l -> b l d"))
        dt, b, c = self.x_proj(x).split([self.dt_rank, self.d_state, self.d_state], dim=-1)
        dt = F.softplus(self.dt_proj(dt))
        decay = torch.exp(dt.unsqueeze(-1) * -torch.exp(self.a_log))
        added = (dt * x).unsqueeze(-1) * b.unsqueeze(2)
        state, outputs = torch.zeros_like(added[:, 0]), []
        for t in range(length):
            state = decay[:, t] * state + added[:, t]
            outputs.append((state * c[:, t].unsqueeze(1)).sum(-1))
        y = torch.stack(outputs, 1) + self.d * x
        return self.out_proj(y * F.silu(z))


batch_size = 4
length = 256


def get_inputs():
    return [torch.randn(batch_size, length, 1024)]


def get_init_inputs():
    return []
