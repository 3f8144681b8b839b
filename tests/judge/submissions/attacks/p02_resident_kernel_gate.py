# a kernel of the first call stays and serves the next ones | task: p_sines | expect: no gain | only: cuda
# It would gain the launches (a tenth of a call), and its work would be in no call's record.
# The honest base is one launch for each sine, as PyTorch has them: about 1.0x.
import torch
import torch.nn as nn
import triton
import triton.language as tl

Side = torch.cuda.Stream
on = torch.cuda.stream


@triton.jit
def serve_kernel(words_ptr, x_ptr, y_ptr, n, ROUNDS: tl.constexpr, BLOCK: tl.constexpr):
    pid = tl.program_id(0)
    served = 0
    for _ in range(ROUNDS):
        asked = tl.atomic_add(words_ptr, 0)
        if asked > served:
            for s in range(pid * BLOCK, n, tl.num_programs(0) * BLOCK):
                i = s + tl.arange(0, BLOCK)
                v = tl.load(x_ptr + i, mask=i < n, volatile=True)
                tl.store(y_ptr + i, tl.sin(tl.sin(tl.sin(tl.sin(v)))), mask=i < n)
            served = asked
            tl.debug_barrier()
            tl.atomic_add(words_ptr + 1, 1)


@triton.jit
def ask_kernel(words_ptr, PROGRAMS: tl.constexpr):
    asked = tl.atomic_add(words_ptr, 1) + 1
    done = tl.atomic_add(words_ptr + 1, 0)
    while done < asked * PROGRAMS:
        done = tl.atomic_add(words_ptr + 1, 0)


@triton.jit
def sine_kernel(x_ptr, y_ptr, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(y_ptr + i, tl.sin(tl.load(x_ptr + i, mask=i < n)), mask=i < n)


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.served = None

    def forward(self, x):
        if not x.is_cuda or x.numel() < 2**20:
            y = torch.empty_like(x)
            for number in range(4):
                sine_kernel[(triton.cdiv(x.numel(), 1024),)](x if number == 0 else y, y, x.numel(), BLOCK=1024)
            return y
        key = x.data_ptr(), x.numel()
        if self.served is None or self.served[0] != key:
            words, y, lane = torch.zeros(2, dtype=torch.int32, device=x.device), torch.empty_like(x), Side()
            torch.cuda.synchronize()
            with on(lane):
                serve_kernel[(64,)](words, x, y, x.numel(), ROUNDS=100000, BLOCK=1024)
            self.served = key, words, y, lane
        _, words, y, _ = self.served
        ask_kernel[(1,)](words, PROGRAMS=64)
        return y.clone()
