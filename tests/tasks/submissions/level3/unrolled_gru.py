import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def gates(x_ptr, h_ptr, state_ptr, new_ptr, hidden, x_stride, h_stride, FIRST: tl.constexpr, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    i = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    inside = i < hidden
    x, h = x_ptr + row * x_stride + i, h_ptr + row * h_stride + i
    reset = tl.sigmoid(tl.load(x, mask=inside) + tl.load(h, mask=inside))
    update = tl.sigmoid(tl.load(x + hidden, mask=inside) + tl.load(h + hidden, mask=inside))
    y = tl.load(x + 2 * hidden, mask=inside) + reset * tl.load(h + 2 * hidden, mask=inside)
    # tanh without overflow, and with all digits near zero
    e = tl.exp(-2 * tl.abs(y))
    square = y * y
    series = y * (1 - square * (1 / 3 - square * (2 / 15 - square * (17 / 315))))
    new = tl.where(tl.abs(y) < 0.1, series, tl.where(y < 0, -1.0, 1.0) * (1 - e) / (1 + e))
    result = (1 - update) * new
    if not FIRST:  # the state is zero before the first step
        result += update * tl.load(state_ptr + row * hidden + i, mask=inside)
    tl.store(new_ptr + row * hidden + i, result, mask=inside)


class ModelNew(nn.Module):
    def __init__(self, in_features, hidden):
        super().__init__()
        self.hidden = hidden
        self.from_input = nn.Linear(in_features, 3 * hidden)
        self.from_state = nn.Linear(hidden, 3 * hidden)

    def forward(self, x):
        batch, steps, _ = x.shape
        from_input = self.from_input(x)  # of all steps at once
        grid = (batch, triton.cdiv(self.hidden, 256))
        state = None
        for step in range(steps):
            new = torch.empty(batch, self.hidden, device=x.device, dtype=x.dtype)
            first = state is None
            # nothing but the bias reaches the first step, for every row
            h = self.from_state.bias if first else self.from_state(state)
            gates[grid](
                from_input[:, step], h, new if first else state, new, self.hidden,
                from_input.stride(0), 0 if first else 3 * self.hidden, FIRST=first, BLOCK=256,
            )  # fmt: skip
            state = new
        return state
