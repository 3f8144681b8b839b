# batch norm and ReLU behind cuDNN in one kernel, the modules kept for their weights | task: conv_norm_relu | expect: ok
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def bn_relu(x_ptr, y_ptr, mean_ptr, var_ptr, gamma_ptr, beta_ptr, eps, C, HW, BLOCK: tl.constexpr):
    nc = tl.program_id(0)
    c = nc % C
    mean = tl.load(mean_ptr + c)
    scale = tl.load(gamma_ptr + c) / tl.sqrt(tl.load(var_ptr + c) + eps)
    beta = tl.load(beta_ptr + c)
    hw = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    offsets = nc * HW + hw
    x = tl.load(x_ptr + offsets, mask=hw < HW)
    tl.store(y_ptr + offsets, tl.maximum((x - mean) * scale + beta, 0.0), mask=hw < HW)


class ModelNew(nn.Module):
    def __init__(self, channels):
        super().__init__()
        self.conv = nn.Conv2d(channels, channels, 3, padding=1, bias=False)
        self.bn = nn.BatchNorm2d(channels)

    def forward(self, x):
        if self.training:
            raise NotImplementedError("this kernel is for inference: call eval() first")
        x = self.conv(x).contiguous()
        y = torch.empty_like(x)
        n, c, h, w = x.shape
        bn = self.bn
        bn_relu[(n * c, triton.cdiv(h * w, 1024))](
            x, y, bn.running_mean, bn.running_var, bn.weight, bn.bias, bn.eps, c, h * w, BLOCK=1024
        )
        return y
