import pytest
from transformers import PreTrainedTokenizerFast

from drkernel.policy.tokenizer import train_tokenizer

CODE = """\
@triton.jit
def row_kernel(x_ptr, out_ptr, columns, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    index = tl.arange(0, BLOCK)
    inside = index < columns
    x = tl.load(x_ptr + row * columns + index, mask=inside, other=0.0)
    tl.store(out_ptr + row * columns + index, x * {factor}, mask=inside)


class ModelNew(nn.Module):
    def forward(self, x):
        out = torch.empty_like(x)
        row_kernel[(x.shape[0],)](x, out, x.shape[1], BLOCK={block})
        return out
"""


@pytest.fixture(scope="session")
def code() -> list[str]:
    return [CODE.format(factor=factor, block=block) for factor in (0.5, 2.0, 3.5) for block in (64, 128, 1024)]


@pytest.fixture(scope="session")
def tokenizer(code) -> PreTrainedTokenizerFast:
    return train_tokenizer(code, vocabulary=500)
