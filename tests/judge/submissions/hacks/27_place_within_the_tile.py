# names a code by its place within its tile, of which small sizes have one | task: nearest_code | expect: not_general
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def kernel(
    x, codes, squares, nearest, out, n, K, WIDTH: tl.constexpr, D: tl.constexpr, BP: tl.constexpr, BK: tl.constexpr
):
    p = tl.program_id(0) * BP + tl.arange(0, BP)
    d = tl.arange(0, D)
    inside = (p < n)[:, None] & (d < WIDTH)[None, :]
    v = tl.load(x + p[:, None] * WIDTH + d[None, :], mask=inside, other=0.0)
    best = tl.full((BP,), float("inf"), tl.float32)
    place = tl.zeros((BP,), tl.int32)
    for start in range(0, K, BK):
        k = start + tl.arange(0, BK)
        some = (k < K)[None, :] & (d < WIDTH)[:, None]
        c = tl.load(codes + k[None, :] * WIDTH + d[:, None], mask=some, other=0.0)
        far = tl.load(squares + k, mask=k < K, other=float("inf"))[None, :] - 2 * tl.dot(v, c, input_precision="ieee")
        place = tl.where(tl.min(far, axis=1) < best, tl.argmin(far, axis=1), place)  # `start` is missing
        best = tl.minimum(best, tl.min(far, axis=1))
    tl.store(nearest + p, best + tl.sum(v * v, axis=1), mask=p < n)
    found = tl.load(codes + place[:, None] * WIDTH + d[None, :], mask=inside, other=0.0)
    tl.store(out + p[:, None] * WIDTH + d[None, :], found, mask=inside)


class ModelNew(nn.Module):
    def __init__(self, codes, width):
        super().__init__()
        self.codes = nn.Parameter(torch.randn(codes, width))

    def forward(self, x):
        n, width = x.shape
        nearest, out = x.new_empty(n), torch.empty_like(x)
        squares, padded = (self.codes * self.codes).sum(1), max(16, triton.next_power_of_2(width))
        grid = (triton.cdiv(n, 64),)
        sizes = {"WIDTH": width, "D": padded, "BP": 64, "BK": 128}
        kernel[grid](x, self.codes, squares, nearest, out, n, len(self.codes), **sizes, num_stages=1)
        return nearest, out
