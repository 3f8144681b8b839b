"""What eager PyTorch's operators take that work one step after the other, on a GPU and by the simulated device's model.

    python benchmarks/serial_operators.py OUT [--only sort cumsum ...]

Sorts, scans, selections, additions at given places, linear algebra and reductions, at sizes from one block up.
OUT/table.md has for each operator the microseconds of its kernels alone (PyTorch's profiler, the mean of CALLS calls,
the cache warm), how many kernels run, and the modelled microseconds. The exit code is 1 if an operator fails.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import judging
import torch
from torch import Tensor
from torch.profiler import ProfilerActivity, profile

from drkernel.judge.boundary import aten

CALLS = 5
Call = Callable[[], object]


def numbers(*shape: int) -> Tensor:
    return torch.rand(shape, device="cuda")


def places(*shape: int, below: int = 8) -> Tensor:
    return torch.randint(0, below, shape, device="cuda")


def sorts() -> Iterator[tuple[str, Call]]:
    for shape in ((32,), (256,), (1024,), (4096,), (8192,), (65536,), (2**20,), (2**24,), (64, 4096), (16384, 256)):
        yield f"sort fp32 {shape}", partial(torch.sort, numbers(*shape))
        yield f"sort int64 {shape}", partial(torch.sort, places(*shape, below=2**30))
    for shape in ((64, 32), (64, 256), (4096, 128), (16384, 256), (1024, 1024), (8192, 1024), (64, 4096), (256, 8192)):
        x = numbers(*shape)
        yield f"topk of 8 {shape}", partial(torch.topk, x, 8)
        yield f"median {shape}", partial(torch.median, x, -1)
        yield f"kthvalue {shape}", partial(torch.kthvalue, x, 3)
        for scan in (torch.cumsum, torch.cummax):
            yield f"{scan.__name__} of rows {shape}", partial(scan, x, -1)
            yield f"{scan.__name__} of columns {shape}", partial(scan, x, 0)


def selections() -> Iterator[tuple[str, Call]]:
    for n in (256, 4096, 65536, 2**20):
        x, at, ordered = numbers(n, 64), places(n), places(n, below=n).sort().values
        few, edges, many = numbers(8, 64), numbers(255).sort().values, torch.randperm(n, device="cuda")
        first, few_first = x[:, 0].contiguous(), few[:, 0].contiguous()
        yield f"unique {n}", partial(torch.unique, at)
        yield f"unique_consecutive {n}", partial(torch.unique_consecutive, ordered)
        yield f"bincount {n}", partial(torch.bincount, at, minlength=8)
        yield f"nonzero {n}", partial(torch.nonzero, at)
        yield f"searchsorted {n} x 64", partial(torch.searchsorted, edges, x)
        yield f"x[places] {n}", partial(x.__getitem__, many)
        yield f"index_select {n}", partial(torch.index_select, x, 0, many)
        yield f"embedding {n}", partial(torch.nn.functional.embedding, many, x)
        yield f"gather {n} x 64", partial(torch.gather, x, 0, many[:, None].expand(-1, 64))
        yield f"index_add to 8 {n}", partial(few.index_add_, 0, at, x)
        yield f"index_add to all {n}", partial(x.clone().index_add_, 0, many, x)
        yield f"scatter_add to 8 {n}", partial(few_first.scatter_add_, 0, at, first)
        yield f"scatter_add to all {n}", partial(first.clone().scatter_add_, 0, many, first)
        yield f"index_put to 8 {n}", partial(few.index_put_, (at,), x, accumulate=True)
        lengths = torch.full((n // 32,), 32, device="cuda")
        yield f"segment_reduce {n} x 64", partial(torch.segment_reduce, x, "sum", lengths=lengths)
        yield f"cummax {n}", partial(torch.cummax, first, 0)
        yield f"cumsum {n}", partial(torch.cumsum, first, 0)


def linear_algebra() -> Iterator[tuple[str, Call]]:
    for batch, n in ((1, 8), (1, 64), (1, 256), (1, 1024), (64, 32), (256, 16)):
        x = numbers(batch, n, n).squeeze(0)
        definite = x @ x.mT + n * torch.eye(n, device="cuda")
        for name in ("inv", "det", "cholesky", "qr", "svd", "eigh"):
            yield f"{name} {batch} x {n}", partial(getattr(torch.linalg, name), definite)
        yield f"solve {batch} x {n}", partial(torch.linalg.solve, definite, x)
        yield f"solve_triangular {batch} x {n}", partial(torch.linalg.solve_triangular, definite, x, upper=True)


def reductions() -> Iterator[tuple[str, Call]]:
    for bits in range(10, 27, 2):
        x = numbers(2**bits)
        for name in ("sum", "mean", "amax", "max", "norm", "var"):
            yield f"{name} of 2^{bits}", getattr(x, name)
    for rows, columns in ((64, 65536), (16, 2**20), (65536, 64), (1024, 4096)):
        x = numbers(rows, columns)
        for name in ("sum", "amax", "argmax", "var", "softmax"):
            yield f"{name} of rows {rows} x {columns}", partial(getattr(x, name), -1)
            yield f"{name} of columns {rows} x {columns}", partial(getattr(x, name), 0)


def measured(call: Call) -> tuple[float, float]:
    """Microseconds of a call's kernels, and their number."""
    for _ in range(2):
        call()
    torch.cuda.synchronize()
    with profile(activities=[ProfilerActivity.CUDA]) as found:
        for _ in range(CALLS):
            call()
        torch.cuda.synchronize()
    events = [event for event in found.key_averages() if event.device_time_total]
    return sum(event.device_time_total for event in events) / CALLS, sum(event.count for event in events) / CALLS


def modelled(call: Call) -> float:
    with aten.record() as trace:
        call()
    return judging.modelled_us(trace)


def main(options: argparse.Namespace) -> int:
    aten.install()
    lines, failed = ["| operator | kernels | us | modelled | ratio |", "|---|---:|---:|---:|---:|"], 0
    for family in (sorts, selections, linear_algebra, reductions):
        for name, call in family():
            if options.only and not name.startswith(tuple(options.only)):
                continue
            try:
                (us, kernels), model = measured(call), modelled(call)
                lines.append(f"| {name} | {kernels:g} | {us:.1f} | {model:.1f} | {model / us:.2f} |")
            except RuntimeError as error:
                failed += 1
                lines.append(f"| {name} | {str(error).splitlines()[0][:80]} | | | |")
    judging.write_table(options.out, lines)
    print("\n".join(lines))
    return int(failed > 0)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=Path)
    parser.add_argument("--only", nargs="*", default=[], help="operators whose names start so")
    sys.exit(judging.run(main, parser.parse_args()))
