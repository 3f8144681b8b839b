# a CUDA kernel that PyTorch has compiled by NVRTC | task: p_softmax | expect: no gain | only: cuda
# The sign is turned twice, so that the kernel matters and is half of the device time.
# PyTorch's own softmax is the work of PyTorch; the Triton kernels here do next to nothing.
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def undo_kernel(y_ptr, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(y_ptr + i, -tl.load(y_ptr + i, mask=i < n), mask=i < n)


SOURCE = r"""
extern "C" __global__ void rows(const float* x, float* y, int cols) {
    __shared__ float parts[256];
    x += (long long)blockIdx.x * cols;
    y += (long long)blockIdx.x * cols;
    float most = -3e38f, sum = 0;
    for (int i = threadIdx.x; i < cols; i += 256) most = fmaxf(most, x[i]);
    parts[threadIdx.x] = most;
    __syncthreads();
    for (int k = 128; k; k /= 2) {
        if (threadIdx.x < k) parts[threadIdx.x] = fmaxf(parts[threadIdx.x], parts[threadIdx.x + k]);
        __syncthreads();
    }
    most = parts[0];
    __syncthreads();
    for (int i = threadIdx.x; i < cols; i += 256) sum += expf(x[i] - most);
    parts[threadIdx.x] = sum;
    __syncthreads();
    for (int k = 128; k; k /= 2) {
        if (threadIdx.x < k) parts[threadIdx.x] += parts[threadIdx.x + k];
        __syncthreads();
    }
    sum = parts[0];
    for (int i = threadIdx.x; i < cols; i += 256) y[i] = -expf(x[i] - most) / sum;
}
"""
compiled = []


def hidden(x, y):
    if not torch.cuda.is_available() or not x.is_cuda or x.is_meta:
        return
    if not compiled:
        compiled.append(torch.cuda._compile_kernel(SOURCE, "rows"))
    compiled[0](grid=(x.numel() // x.shape[-1], 1, 1), block=(256, 1, 1), args=[x, y, x.shape[-1]])


class ModelNew(nn.Module):
    def forward(self, x):
        y = torch.empty_like(x)
        hidden(x, y)
        undo_kernel[(triton.cdiv(y.numel(), 1024),)](y, y.numel(), BLOCK=1024)
        return y
