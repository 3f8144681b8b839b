"""How long tiles take for a convolution in fp32 beside cuDNN, in the form and with the tile that answers choose.

    python benchmarks/convolution_rates.py OUT

OUT/convolutions.jsonl has a line for each convolution: milliseconds of both (median of five), how often cuDNN takes as
long, what the kernel takes without hints to the compiler (policy/canonical/tuning.py), and the largest difference
beside the largest output. The convolution stands alone, so that nothing is fused.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from product_rates import milliseconds

from drkernel.coldstart.answers.known import Known
from drkernel.coldstart.answers.product_lines import product_of
from drkernel.coldstart.answers.tile_text import Tiles
from drkernel.coldstart.answers.tiles import kind_of
from drkernel.policy.canonical import canonical
from drkernel.policy.canonical.tuning import tuned

CONVOLUTIONS = [
    ("Conv2d(64, 128, 3)", (64, 64, 128, 128)),
    ("Conv2d(64, 64, 3, padding=1)", (32, 64, 64, 64)),
    ("Conv2d(3, 64, 7, 2, 3)", (64, 3, 128, 128)),
    ("Conv2d(8, 64, 3)", (128, 8, 128, 128)),
    ("Conv3d(32, 64, 3, padding=1)", (16, 32, 16, 32, 32)),
    ("Conv3d(64, 64, 3)", (16, 64, 16, 32, 32)),
    ("Conv3d(3, 24, 3)", (128, 3, 24, 32, 32)),
    ("Conv1d(64, 128, 3, padding=1)", (64, 64, 4096)),
    ("Conv2d(64, 128, 3, 2, 1)", (32, 64, 112, 112)),
    ("Conv2d(64, 256, 1)", (64, 64, 56, 56)),
    ("Conv2d(64, 128, 3, padding=1, groups=2)", (32, 64, 56, 56)),
    ("ConvTranspose1d(256, 128, 7, 3, 2, 1)", (14, 256, 8192)),
    ("ConvTranspose2d(64, 64, 4, 2, 1)", (64, 64, 64, 64)),
    ("ConvTranspose2d(64, 64, 3, 2, 1, 1)", (64, 64, 64, 64)),
    ("ConvTranspose2d(32, 64, 4, 2, 1)", (128, 32, 32, 32)),
    ("ConvTranspose2d(128, 64, 5, 2, 2, 1)", (16, 128, 64, 64)),
    ("ConvTranspose2d(64, 64, 2, 2)", (32, 64, 64, 64)),
    ("ConvTranspose2d(64, 32, 3)", (64, 64, 128, 128)),
    ("ConvTranspose3d(32, 64, 3, 2, 1, 1)", (16, 32, 16, 32, 32)),
    ("ConvTranspose3d(32, 64, 4, 2, 1)", (16, 32, 16, 32, 32)),
    ("ConvTranspose3d(16, 32, 3, 2, 1, 1)", (16, 16, 16, 32, 32)),
    ("ConvTranspose3d(64, 32, 3)", (16, 64, 8, 16, 16)),
]
"""A module of torch.nn, and the shape of its input."""
TASK = """
import torch
import torch.nn as nn

class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.{module}

    def forward(self, x):
        return self.conv(x)

def get_inputs():
    return [torch.randn{shape}]

def get_init_inputs():
    return []
"""
HEAD = "import torch\nimport torch.nn.functional as F\nimport triton\nimport triton.language as tl\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=Path)
    out = parser.parse_args().out
    out.mkdir(parents=True, exist_ok=True)
    torch.manual_seed(0)
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = False
    with open(out / "convolutions.jsonl", "w", encoding="utf-8") as file:
        for place, (module, shape) in enumerate(CONVOLUTIONS):
            row = measured(module, shape, out / f"kernel{place}.py")
            file.write(json.dumps(row) + "\n")
            print(" ".join(f"{k}={v:.3g}" if isinstance(v, float) else f"{k}={v}" for k, v in row.items()), flush=True)


def measured(module: str, shape: tuple[int, ...], path: Path) -> dict[str, Any]:
    """A line of the file; the kernel's source goes to `path` and beside it, from which Triton reads it."""
    tiles = tiles_of(TASK.format(module=module, shape=shape))
    conv = eval(f"torch.nn.{module}").cuda()
    x = torch.randn(shape, device="cuda")
    bare, told = function_of(tiles.text(1), path), function_of(tuned(tiles.text(1)), path.with_suffix(".told.py"))
    with torch.no_grad():
        expected, got = conv(x), told(x, conv.weight, conv.bias)
        library, ours = milliseconds(lambda: conv(x)), milliseconds(lambda: told(x, conv.weight, conv.bias))
        without = milliseconds(lambda: bare(x, conv.weight, conv.bias))
    error = float((got - expected).abs().max() / expected.abs().max())
    form, tile = type(tiles).__name__, f"{tiles.tile.rows}x{tiles.tile.columns}x{tiles.tile.terms}"
    kept = {"module": module, "shape": str(shape), "form": form, "tile": tile, "is_chosen": bool(tiles.gain_s)}
    return kept | {"library_ms": library, "ms": ours, "times": library / ours, "without_ms": without, "error": error}


def function_of(text: str, path: Path) -> Callable[..., torch.Tensor]:
    """The function that launches a kernel."""
    path.write_text(HEAD + text, encoding="utf-8")
    names: dict[str, Any] = {}
    exec(compile(HEAD + text, path, "exec"), names)
    return names["f1"]


def tiles_of(source: str) -> Tiles:
    """The kernel of a task's convolution."""
    told = canonical(source).told
    product = product_of(told.lines[0], Known.of(told))
    kind = kind_of(product) if product else None
    assert product and kind, source
    return kind((), {}, product, Known.of(told))


if __name__ == "__main__":
    main()
