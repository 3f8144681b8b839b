"""How long depthwise and grouped convolutions in fp32 take in PyTorch, and the depthwise ones in the form of answers.

    python benchmarks/depthwise_rates.py OUT

OUT/depthwise.jsonl has a line for each convolution: milliseconds of the library and, where answers by lines compute it,
of their kernel (median of five), how often the library takes as long, and the largest difference beside the largest
output. Divided by the elements of the output, the milliseconds tell what the simulated device should take for the
library's kernels. Takes about half a minute.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

import torch
from convolution_rates import HEAD, TASK
from product_rates import milliseconds

from drkernel.coldstart.answers.fusion import Group, groups
from drkernel.coldstart.answers.known import Known
from drkernel.policy.canonical import canonical

CONVOLUTIONS = [
    ("Conv2d(64, 64, 3, padding=1, groups=64)", (16, 64, 512, 1024)),
    ("Conv2d(128, 128, (3, 1), 2, dilation=2, groups=128)", (64, 128, 256, 512)),
    ("Conv2d(96, 96, 5, padding=4, dilation=2, groups=96)", (32, 96, 128, 192)),
    ("Conv2d(192, 192, 7, padding=3, groups=192)", (64, 192, 56, 56)),
    ("Conv2d(144, 144, 5, padding=2, groups=144)", (32, 144, 96, 96)),
    ("Conv2d(144, 144, 3, 2, 1, groups=144)", (64, 144, 56, 56)),
    ("Conv2d(576, 576, 3, padding=1, groups=576)", (64, 576, 14, 14)),
    ("Conv2d(960, 960, 5, padding=2, groups=960)", (64, 960, 7, 7)),
    ("Conv1d(256, 256, 7, padding=3, groups=256)", (32, 256, 8192)),
    ("Conv3d(32, 32, 3, padding=1, groups=32)", (8, 32, 32, 64, 64)),
    ("Conv2d(256, 256, 3, padding=1, groups=32)", (16, 256, 56, 56)),
    ("Conv2d(256, 256, 3, 2, 1, groups=32)", (32, 256, 112, 112)),
    ("Conv2d(128, 128, 3, padding=1, groups=4)", (32, 128, 56, 56)),
    ("ConvTranspose3d(32, 48, (3, 5, 5), 2, (1, 2, 2), 1, groups=4)", (8, 32, 16, 32, 32)),
]
"""A module of torch.nn, and the shape of its input."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=Path)
    out = parser.parse_args().out
    out.mkdir(parents=True, exist_ok=True)
    torch.manual_seed(0)
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = False
    with open(out / "depthwise.jsonl", "w", encoding="utf-8") as file:
        for place, (module, shape) in enumerate(CONVOLUTIONS):
            row = measured(module, shape, out / f"depthwise{place}.py")
            file.write(json.dumps(row) + "\n")
            print(" ".join(f"{k}={v:.3g}" if isinstance(v, float) else f"{k}={v}" for k, v in row.items()), flush=True)


def measured(module: str, shape: tuple[int, ...], path: Path) -> dict[str, Any]:
    """A line of the file; the kernel's source goes to `path`, from which Triton reads it."""
    conv = eval(f"torch.nn.{module}").cuda()
    x = torch.randn(shape, device="cuda")
    with torch.no_grad():
        expected = conv(x)
        library = milliseconds(lambda: conv(x))
    kept = {"module": module, "shape": str(shape), "library_ms": library, "outputs": expected.numel()}
    if (group := group_of(TASK.format(module=module, shape=shape))) is None:
        return kept
    path.write_text(HEAD + group.text(1), encoding="utf-8")
    names: dict[str, Any] = {}
    exec(compile(path.read_text(encoding="utf-8"), path, "exec"), names)
    with torch.no_grad():
        got = names["f1"](x, conv.weight, conv.bias)
        ours = milliseconds(lambda: names["f1"](x, conv.weight, conv.bias))
    error = float((got - expected).abs().max() / expected.abs().max())
    return kept | {"ms": ours, "times": library / ours, "error": error, "block": group.view.constants["BLOCK"]}


def group_of(source: str) -> Group | None:
    """The kernel of a task's convolution, where lines have one that is no tile."""
    told = canonical(source).told
    found = next(groups(told.lines, Known.of(told)), None)
    return found if isinstance(found, Group) else None


if __name__ == "__main__":
    main()
