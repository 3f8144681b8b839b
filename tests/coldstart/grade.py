"""Runs solutions against references and prints what came of each as JSON; started by test_solutions.py.

Usage: grade.py DEVICE SPLIT COUNT SEED WRONG. On the CPU the caller sets TRITON_INTERPRET=1.
"""

import importlib.util
import json
import sys
import tempfile
from pathlib import Path
from types import ModuleType

import torch

from drkernel.coldstart.solutions import Solution, solutions
from drkernel.tasks.generators import generate
from drkernel.tasks.module import Reference
from drkernel.types import Task

FAR_OFF = 1e-3
"""No error of rounding."""


def error(task: Task, sizes: dict[str, int], source: str, scale: float = 1.0) -> float:
    """Relative L2 error of a submission against the fp64 reference, with weights off their defaults."""
    reference = Reference(task, sizes)
    model = reference.model(3)
    inputs = [x * scale if x.is_floating_point() else x for x in reference.inputs(5)]
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(torch.randn_like(parameter) * 0.3)
    args, kwargs = reference.init_args()
    with tempfile.TemporaryDirectory() as folder:
        module = load(Path(folder) / f"answer_{abs(hash(source))}.py", source)
        torch.manual_seed(3)
        answer = module.ModelNew(*args, **kwargs)
        assert [name for name, _ in answer.named_parameters()] == [name for name, _ in model.named_parameters()]
        answer.load_state_dict(model.state_dict())
        with torch.no_grad():
            found = answer(*(x.clone() for x in inputs))
    expected = reference.forward(model.double(), [x.double() if x.is_floating_point() else x for x in inputs])
    if found.shape != expected.shape or found.dtype != torch.float32:
        return float("inf")
    result = ((found.double() - expected).norm() / expected.norm()).item()
    return result if result == result else float("inf")


def load(path: Path, source: str) -> ModuleType:
    path.write_text(source)
    spec = importlib.util.spec_from_file_location(path.stem, path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def outcome(task: Task, solution: Solution) -> dict:
    """What came of a solution: the larger of its errors at the task's small shape and at one beside it.

    The second is left out where the first tells a mistake.
    """
    launch = next(line for line in solution.source.splitlines() if line.lstrip().startswith("kernel["))
    scale = 64.0 if solution.note == "no_maximum" else 1.0
    shapes = (task.small, {name: value + 1 for name, value in task.small.items()})
    row = {"task": task.id, "family": task.family, "kind": solution.kind, "note": solution.note, "error": float("inf")}
    try:
        found = 0.0
        for sizes in shapes:
            found = max(found, error(task, sizes, solution.source, scale))
            if solution.kind == "mistaken" and found > FAR_OFF:
                break
        row["error"] = found
        if solution.kind in ("hack", "fused"):
            row["without_kernel"] = error(task, task.small, solution.source.replace(launch, ""))
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
        for solution in solutions(task, int(wrong)):
            rows.append(outcome(task, solution))
    json.dump(rows, sys.stdout)


if __name__ == "__main__":
    main()
