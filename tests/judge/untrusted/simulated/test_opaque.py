"""Kernels do not reach the arrays in which the interpreter holds their blocks, whatever way they take."""

import pytest
import torch
import triton
import triton.language as tl
from triton.runtime.interpreter import InterpreterError


@triton.jit
def by_attribute(x):
    block = tl.load(x + tl.arange(0, 16))
    block.handle.data.sort(-1)
    tl.store(x + tl.arange(0, 16), block)


@triton.jit
def by_name(x):
    block = tl.load(x + tl.arange(0, 16))
    getattr(block, "handle").data.sort(-1)  # noqa: B009
    tl.store(x + tl.arange(0, 16), block)


@triton.jit
def by_state(x):
    block = tl.load(x + tl.arange(0, 16))
    block.__getstate__()["handle"].content.data.sort(-1)
    tl.store(x + tl.arange(0, 16), block)


@triton.jit
def by_what_the_compiler_collects(x):
    block = tl.load(x + tl.arange(0, 16))
    found = [0]
    block._flatten_ir(found)
    found[1].data.sort(-1)
    tl.store(x + tl.arange(0, 16), block)


@triton.constexpr_function
def sort(block):
    block.handle.data.sort(-1)
    return block


@triton.jit
def by_host_code(x):
    tl.store(x + tl.arange(0, 16), sort(tl.load(x + tl.arange(0, 16))))


@triton.jit
def by_block_pointer(x):
    block = tl.make_block_ptr(x, (16,), (1,), (0,), (16,), (0,))
    block.handle.base.data.sort(-1)


@triton.jit
def by_descriptor(x):
    block = tl.make_tensor_descriptor(x, (16,), (1,), (16,))
    block.handle.base.data.sort(-1)


class Listener:
    data = "what the arrays of other blocks are added to"


@triton.constexpr_function
def listening(block):
    return tl.tensor(Listener(), block.type)


@triton.jit
def by_an_object_of_its_own(x):
    block = tl.load(x + tl.arange(0, 16))
    tl.store(x + tl.arange(0, 16), block + listening(block))


@pytest.mark.parametrize(
    "kernel",
    [
        by_attribute,
        by_name,
        by_state,
        by_what_the_compiler_collects,
        by_host_code,
        by_block_pointer,
        by_descriptor,
        by_an_object_of_its_own,
    ],
    ids=lambda kernel: kernel.__name__,
)
def test_no_way_leads_to_the_arrays_of_a_block(kernel):
    x = torch.randn(16)
    before = x.clone()
    with pytest.raises(InterpreterError, match=r"no attribute|no value of a block"):
        kernel[(1,)](x)
    assert torch.equal(x, before)


@triton.jit
def by_text(x, out):
    block = tl.load(x + tl.arange(0, 16))
    if len(str(block)) > 40:
        tl.store(out, 1.0)


def test_the_text_of_a_block_does_not_show_its_numbers():
    out = torch.zeros(1)
    by_text[(1,)](torch.randn(16), out)
    assert not out.item()


class Shown:
    def __set__(self, block, value):
        self.value = value


@pytest.mark.parametrize("kind", [tl.tensor, tl.constexpr, type(by_text), type(by_text).__bases__[0]])
def test_classes_of_triton_are_final(kind):
    with pytest.raises(TypeError, match="immutable"):
        kind.handle = Shown()
    with pytest.raises(TypeError, match="immutable"):
        kind.run = Shown()


@triton.jit
def one(x):
    for _ in range(1):
        tl.store(x, 1.0)


def test_a_kernel_leaves_no_names_among_those_of_its_module():
    before = set(globals())
    one[(1,)](torch.zeros(1))
    assert not any(name.isidentifier() for name in globals().keys() - before)


def test_what_runs_is_no_attribute_of_a_kernel():
    x = torch.zeros(1)
    one._body = lambda x: None
    one[(1,)](x)
    assert x.item() == 1
