"""Runs right answers against `graphs.evaluate` in fp64 and prints their errors as JSON; started by test_answers.py.

Usage: TRITON_INTERPRET=1 numeric.py FAMILY COUNT DTYPE. Sizes are the task's small ones, and others.
"""

import importlib.util
import json
import sys
import tempfile
from itertools import islice
from pathlib import Path
from types import ModuleType

import torch
from torch import Tensor, nn

from drkernel.coldstart.answers.grades import answers
from drkernel.tasks.generators.graphs.graph import evaluate, from_json
from drkernel.tasks.generators.graphs.stream import stream
from drkernel.tasks.module import Reference
from drkernel.types import Task


def error(task: Task, sizes: dict[str, int], source: str) -> float:
    """The largest relative L2 error of an output, with weights and statistics off their defaults."""
    reference = Reference(task, sizes)
    model, inputs = reference.model(3).eval(), reference.inputs(5)
    perturb(model)
    args, kwargs = reference.init_args()
    with tempfile.TemporaryDirectory() as folder:
        module = load(Path(folder) / f"answer_{abs(hash(source))}.py", source)
        answer = module.ModelNew(*args, **kwargs).eval()
        answer.load_state_dict(model.state_dict())
        with torch.no_grad():
            found = answer(*(x.clone() for x in inputs))
    expected = expected_outputs(task, sizes, model, inputs)
    found = found if isinstance(found, tuple) else (found,)
    return max(difference(one, other) for one, other in zip(found, expected, strict=True))


def load(path: Path, source: str) -> ModuleType:
    path.write_text(source)
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def perturb(model: nn.Module) -> None:
    with torch.no_grad():
        for name, tensor in [*model.named_parameters(), *model.named_buffers()]:
            if tensor.is_floating_point():
                noise = torch.randn_like(tensor) * 0.3
                tensor.add_(noise.abs() if "var" in name else noise)


def expected_outputs(task: Task, sizes: dict[str, int], model: nn.Module, inputs: list[Tensor]) -> tuple[Tensor, ...]:
    graph = from_json(task.info["graph"])
    state = model.state_dict()
    wide = lambda x: x.double() if x.is_floating_point() else x
    parameters = {key: wide(state[path]) for key, path in task.info["parameters"].items()}
    named = {size: sizes[name] for size, name in task.info["names"].items()}
    return evaluate(graph, [wide(x) for x in inputs], parameters, named)


def difference(found: Tensor, expected: Tensor) -> float:
    if found.shape != expected.shape:
        return float("inf")
    if not expected.is_floating_point():
        return (found != expected).double().mean().item()
    result = ((found.double() - expected).norm() / expected.norm().clamp_min(1e-30)).item()
    return result if result == result else float("inf")


def main() -> None:
    family, count, dtype = sys.argv[1:]
    torch.set_num_threads(1)
    torch.use_deterministic_algorithms(True, warn_only=True)  # fills fresh memory with NaN: no stale right answers
    rows = []
    for task in islice(stream("train", 21, family.split(","), dtype), int(count)):
        for answer in answers(task, wrong=0):
            narrow = dtype == "bfloat16" and "tl.dot" in answer.source  # not what the plain interpreter can do
            if "autotune" in answer.source or narrow:  # the first measures on a GPU
                continue
            row = {"task": task.id, "kind": answer.kind, "note": answer.note, "error": float("inf")}
            try:
                row["error"] = error(task, dict(task.small or {}), answer.source)
            except Exception as raised:
                row["raised"] = f"{type(raised).__name__}: {raised}"
            rows.append(row)
    json.dump(rows, sys.stdout)


if __name__ == "__main__":
    main()
