"""Sums and products from the start of each row, at the sizes that KernelBench publishes."""

from __future__ import annotations

from published_parts import Entry, answer, entry, task

SCAN = """
@triton.jit
def combine(a, b):
    return a @SIGN@ b


@triton.jit
def scan_rows(x_ptr, y_ptr, length, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    carry = tl.full((1,), @START@, tl.float32)
    for start in range(0, length, BLOCK):
        c = start + tl.arange(0, BLOCK)
        place = row * length + @PLACE@
        x = tl.load(x_ptr + place, mask=c < length, other=@START@)
        tl.store(y_ptr + place, tl.associative_scan(x, 0, combine) @SIGN@ carry, mask=c < length)
        carry = carry @SIGN@ tl.reduce(x, 0, combine)
"""
SCAN_FORWARD = """
x = x.contiguous()
y = torch.empty_like(x)
scan_rows[(x.shape[0],)](x, y, x.shape[1], BLOCK=1024)
return y
"""
SCAN_SIZES = "batch_size = 32768\ninput_shape = (32768,)"
"""4 + 4 GiB."""
SMALL_SCAN = {"batch_size": 3, "input_shape": "(2101,)"}
MASKED = """
@triton.jit
def masked_scan(x_ptr, mask_ptr, y_ptr, length, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    carry = 0.0
    for start in range(0, length, BLOCK):
        c = start + tl.arange(0, BLOCK)
        x = tl.load(x_ptr + row * length + c, mask=c < length, other=0.0)
        keep = tl.load(mask_ptr + row * length + c, mask=c < length, other=0)
        x = tl.where(keep != 0, x, 0.0)
        tl.store(y_ptr + row * length + c, tl.cumsum(x, 0) + carry, mask=c < length)
        carry += tl.sum(x, axis=0)
"""
MASKED_FORWARD = SCAN_FORWARD.replace("scan_rows", "masked_scan").replace("](x, y", "](x, mask.contiguous(), y")
EXCLUSIVE_FORWARD = """
x = x.contiguous()
y = torch.zeros_like(x)
scan_rows[(x.shape[0],)](x, y, x.shape[1], BLOCK=1024)
return y
"""


def scans() -> list[Entry]:
    randn, near_one = "torch.randn(batch_size, *input_shape)", "1.0 + 0.01 * torch.randn(batch_size, *input_shape)"
    forwards = {"place": "c", "start": "0.0", "sign": "+"}
    backwards = forwards | {"place": "length - 1 - c"}
    products = forwards | {"start": "1.0", "sign": "*"}
    table = (
        ("cumsum", "torch.cumsum(x, dim=1)", randn, forwards),
        ("cumprod", "torch.cumprod(x, dim=1)", near_one, products),
        ("cumsum_reverse", "torch.cumsum(x.flip(1), dim=1).flip(1)", randn, backwards),
    )
    change = ("x = tl.load(", "x = 1.01 * tl.load(")
    made = []
    for name, reference, inputs, words in table:
        honest = answer(SCAN, SCAN_FORWARD, **words)
        made.append(entry(name, 1, 8.0, task(SCAN_SIZES, reference, inputs), honest, change, **SMALL_SCAN))
    shifted = "torch.cat((torch.zeros_like(x[:, :1]), torch.cumsum(x, dim=1)[:, :-1]), dim=1)"
    honest = answer(SCAN, EXCLUSIVE_FORWARD, **forwards).replace(
        "tl.store(y_ptr + place,", "tl.store(y_ptr + place + 1,"
    ).replace("+ carry, mask=c < length)", "+ carry, mask=c + 1 < length)")  # fmt: skip
    made.append(entry("cumsum_exclusive", 1, 8.0, task(SCAN_SIZES, shifted, randn), honest, change, **SMALL_SCAN))
    inputs = f"{randn}, torch.randint(0, 2, (batch_size, *input_shape)).bool()"
    source = task(SCAN_SIZES, "torch.cumsum(x * mask, dim=1)", inputs, arguments="x, mask")
    honest = answer(MASKED, MASKED_FORWARD, arguments="x, mask")
    made.append(entry("cumsum_masked", 1, 9.0, source, honest, change, **SMALL_SCAN))
    return made


ENTRIES = tuple(scans())
