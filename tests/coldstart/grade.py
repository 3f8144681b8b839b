"""Runs solutions against references and prints what came of each as JSON; started by test_solutions.py.

Usage: grade.py DEVICE SPLIT COUNT SEED WRONG. On the CPU the caller sets TRITON_INTERPRET=1.
"""

import importlib.util
import json
import sys
import tempfile
from pathlib import Path

import torch

from drkernel.coldstart.solutions import Solution, solutions
from drkernel.tasks.generator import generate
from drkernel.tasks.module import Reference
from drkernel.types import Task

FOLDER = Path(tempfile.mkdtemp())


def error(task: Task, sizes: dict[str, int], source: str, scale: float = 1.0) -> float:
    """Relative L2 error of a submission against the fp64 reference, with weights off their defaults."""
    reference = Reference(task, sizes)
    model = reference.model(3)
    inputs = [x * scale if x.is_floating_point() else x for x in reference.inputs(5)]
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(torch.randn_like(parameter) * 0.3)
    path = FOLDER / f"answer_{len(list(FOLDER.iterdir()))}.py"
    path.write_text(source)
    spec = importlib.util.spec_from_file_location(path.stem, path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    args, kwargs = reference.init_args()
    torch.manual_seed(3)
    answer = module.ModelNew(*args, **kwargs)
    assert [name for name, _ in answer.named_parameters()] == [name for name, _ in model.named_parameters()]
    answer.load_state_dict(model.state_dict())
    expected = reference.forward(model.double(), [x.double() if x.is_floating_point() else x for x in inputs])
    with torch.no_grad():
        found = answer(*(x.clone() for x in inputs))
    if found.shape != expected.shape or found.dtype != torch.float32:
        return float("inf")
    result = ((found.double() - expected).norm() / expected.norm()).item()
    return result if result == result else float("inf")


def outcome(task: Task, sizes: dict[str, int], solution: Solution) -> dict:
    launch = next(line for line in solution.source.splitlines() if line.lstrip().startswith("kernel["))
    row = {"task": task.id, "family": task.family, "kind": solution.kind, "note": solution.note, "error": float("inf")}
    try:
        row["error"] = error(task, sizes, solution.source, 64.0 if solution.note == "no_maximum" else 1.0)
        if solution.kind in ("hack", "fused"):
            row["without_kernel"] = error(task, sizes, solution.source.replace(launch, ""))
    except Exception as raised:
        row["raised"] = f"{type(raised).__name__}: {raised}"
    return row


def main() -> None:
    device, split, count, seed, wrong = sys.argv[1:]
    torch.set_default_device(device)
    torch.set_num_threads(1)
    torch.use_deterministic_algorithms(True, warn_only=True)  # fills fresh memory with NaN: no stale right answers
    rows = []
    for task in generate(split, int(count), int(seed)):
        other = {name: value + 1 for name, value in task.small.items()}
        for solution in solutions(task, int(wrong)):
            rows.append(outcome(task, task.small, solution))
            if solution.kind == "fused":
                rows.append(outcome(task, other, solution))
    json.dump(rows, sys.stdout)


if __name__ == "__main__":
    main()
