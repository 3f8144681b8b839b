import torch
import torch.nn as nn


class Model(nn.Module):
    def forward(self, q, kc, vc, table, lens):
        B, H, D = q.shape
        P = kc.shape[1]
        out = []
        for b in range(B):
            n = int(lens[b])
            pages = table[b, : (n + P - 1) // P].long()
            k = kc[pages].reshape(-1, H, D)[:n]
            v = vc[pages].reshape(-1, H, D)[:n]
            s = torch.einsum("hd,nhd->hn", q[b].float(), k.float()) * D**-0.5
            p = torch.softmax(s, -1)
            out.append(torch.einsum("hn,nhd->hd", p, v.float()))
        return torch.stack(out).to(q.dtype)


B = 32
H = 8
D = 64
P = 16
MAXP = 64


def get_inputs():
    n = B * MAXP
    return [
        torch.randn(B, H, D).half(),
        torch.randn(n, P, H, D).half(),
        torch.randn(n, P, H, D).half(),
        torch.randperm(n).reshape(B, MAXP).int(),
        torch.randint(1, P * MAXP + 1, (B,)).int(),
    ]


def get_init_inputs():
    return []
