import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def add_enlarged(fine_ptr, coarse_ptr, height, width, BLOCK: tl.constexpr):
    plane = tl.program_id(0).to(tl.int64)
    i = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    inside = i < height * width
    source = i // width // 2 * (width // 2) + i % width // 2
    coarse = tl.load(coarse_ptr + plane * (height // 2) * (width // 2) + source, mask=inside)
    place = fine_ptr + plane * height * width + i
    tl.store(place, tl.load(place, mask=inside) + coarse, mask=inside)


def add_twice_as_large(fine, coarse):
    """In place: fine is what a convolution has just written."""
    fine, coarse = fine.contiguous(), coarse.contiguous()
    batch, channels, height, width = fine.shape
    add_enlarged[(batch * channels, triton.cdiv(height * width, 1024))](fine, coarse, height, width, BLOCK=1024)
    return fine


class ModelNew(nn.Module):
    def __init__(self, widths, channels):
        super().__init__()
        self.lateral = nn.ModuleList(nn.Conv2d(width, channels, kernel_size=1) for width in widths)
        self.smooth = nn.ModuleList(nn.Conv2d(channels, channels, kernel_size=3, padding=1) for _ in widths)

    def forward(self, fine, middle, coarse):
        fine, middle, coarse = self.lateral[0](fine), self.lateral[1](middle), self.lateral[2](coarse)
        middle = add_twice_as_large(middle, coarse)
        fine = add_twice_as_large(fine, middle)
        return self.smooth[0](fine), self.smooth[1](middle), self.smooth[2](coarse)
