"""Whether a mutant computes what its original does: both run side by side, away from the judge.

    python benchmarks/judge_mutants_check.py < {"task", "original", "mutant", "device", "seeds"}

Prints {"equivalent", "why", "error", "original_error"}. An error is the largest difference from the reference in fp64
over the root mean square of its output; the mutant's may be twice the original's. All calls go to one model: one
address gets other values, the first ones come again, and what was returned must stay as it was.
"""

from __future__ import annotations

import copy
import json
import sys
import tempfile
from pathlib import Path
from typing import Any

import judging
import torch
from torch import Tensor, nn

from drkernel.judge.trusted.sizes import shrink
from drkernel.tasks import module
from drkernel.tasks.module import Reference
from drkernel.types import Task

_FACTOR, _PACKED = 2.0, 0.05
"""How much larger a mutant's error may be; the error of an original that packs its weights when it is constructed."""


def main(request: dict[str, Any]) -> dict[str, Any]:
    task = Task(**request["task"])
    on_gpu = request["device"] == "cuda"
    if on_gpu:
        module.DEVICE = "cuda"
        torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = False
        reference = Reference(task)
    else:
        from drkernel.judge.untrusted.simulated.device import install

        install(fake_cuda=True)
        task = shrink.fit(task)
        reference = Reference(task, task.small)
    found = side_by_side(request, task, reference, on_gpu, change_weights=True)
    if found.get("original_error", 0.0) > _PACKED:
        found = side_by_side(request, task, reference, on_gpu, change_weights=False)
    return found


def side_by_side(
    request: dict[str, Any], task: Task, reference: Reference, on_gpu: bool, change_weights: bool
) -> dict[str, Any]:
    """`change_weights`: try other weights than construction gives."""
    model = perturbed(reference.model(0)) if change_weights else reference.model(0)
    exact = copy.deepcopy(model).double()
    errors = {}
    with tempfile.TemporaryDirectory() as folder:
        for name in ("original", "mutant"):
            try:
                path = Path(folder) / f"{name}.py"
                ours = judging.load(request[name], path, task, reference, "cuda" if on_gpu else None)
                if change_weights:
                    follow(ours, model)
                errors[name] = largest_error(ours, exact, reference, request["seeds"])
            except Exception as error:
                return {"equivalent": False, "why": f"{name}: {type(error).__name__}: {error}"[:300]}
    found, allowed = errors["mutant"], errors["original"]
    floor = max(torch.finfo(value.dtype).eps for value in (*floats(reference.inputs(0)), *model.parameters()))
    right = found <= _FACTOR * allowed + floor
    why = "" if right else f"error {found:.3g}, the original's is {allowed:.3g}"
    return {"equivalent": right, "why": why, "error": found, "original_error": allowed}


def perturbed(model: nn.Module) -> nn.Module:
    """Other weights than construction gives."""
    generator = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for p in model.parameters():
            p.add_((0.2 * torch.randn(p.shape, generator=generator)).to(p))
    return model


def follow(ours: nn.Module, model: nn.Module) -> None:
    """Gives a submission the reference's weights: by name, or in their order."""
    theirs, named = dict(model.named_parameters()), dict(ours.named_parameters())
    pairs = [(named[name], theirs[name]) for name in named if name in theirs]
    if len(pairs) < len(named):
        pairs = list(zip(named.values(), theirs.values(), strict=True))
    with torch.no_grad():
        for p, value in pairs:
            p.copy_(value)


def largest_error(ours: nn.Module, exact: nn.Module, reference: Reference, seeds: list[int]) -> float:
    """Over a few calls of one model; infinite where an output has another form, or an earlier one has changed."""
    worst, kept = 0.0, []
    inputs = reference.inputs(seeds[0])
    for seed in [*seeds, seeds[0]]:
        for place, value in zip(tensors(inputs), tensors(reference.inputs(seed)), strict=True):
            place.copy_(value)
        expected = forward(exact, [as_double(value) for value in inputs], torch.float64)
        outputs = forward(ours.eval(), inputs, torch.float32)
        if not alike(outputs, expected):
            return float("inf")
        kept += [(value, value.clone()) for value in tensors(outputs)]
        worst = max([worst, *(distance(a, b) for a, b in zip(tensors(outputs), tensors(expected), strict=True))])
    changed = any(not torch.equal(value, before) for value, before in kept)
    return float("inf") if changed else worst


def forward(model: nn.Module, inputs: list, dtype: torch.dtype) -> Any:
    before = torch.get_default_dtype()
    torch.set_default_dtype(dtype)
    try:
        with torch.no_grad():
            return model.eval()(*inputs)
    finally:
        torch.set_default_dtype(before)


def alike(outputs: Any, expected: Any) -> bool:
    if isinstance(expected, Tensor):
        return type(outputs) is Tensor and outputs.shape == expected.shape
    return type(outputs) is type(expected) and len(outputs) == len(expected) and all(map(alike, outputs, expected))


def distance(value: Tensor, expected: Tensor) -> float:
    expected = expected.double()
    scale = float(expected.square().mean().sqrt()) or 1.0
    found = float((value.double() - expected).abs().max()) / scale
    return found if found == found else float("inf")


def tensors(tree: Any) -> list[Tensor]:
    if isinstance(tree, Tensor):
        return [tree]
    return [value for part in tree for value in tensors(part)] if isinstance(tree, (list, tuple)) else []


def floats(tree: Any) -> list[Tensor]:
    return [value for value in tensors(tree) if value.is_floating_point()]


def as_double(value: Any) -> Any:
    return value.double() if isinstance(value, Tensor) and value.is_floating_point() else value


if __name__ == "__main__":
    print(json.dumps(main(json.load(sys.stdin))))
