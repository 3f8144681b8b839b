"""Compares honest submissions with their tasks' references by torch alone: nothing of the judge takes part.

    TRITON_INTERPRET=1 python -m tests.judge.comparison < NAMES       # plain interpreter, small sizes of SIZES
    python -m tests.judge.comparison --cuda < NAMES                   # a GPU, published sizes

Answers each line, the name of a submission, with one line of JSON: the name and what is wrong, or "".
"""

from __future__ import annotations

import copy
import importlib.util
import json
import re
import sys
import traceback
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np
import torch
import triton.language as tl
from torch import Tensor

from tests.judge.honest_sizes import SIZES

HERE = Path(__file__).parent

TOLERANCE = {torch.float64: 1e-4, torch.float32: 1e-4, torch.float16: 4e-3, torch.bfloat16: 2e-2}
"""Largest error of a value, relative to it and a tenth of that to the largest value of the output."""

ROUNDS_INSIDE = {"359_newton_schulz": 0.3, "360_fp8_weights": 2e-2, "367_attention_in_half": 2e-2}
"""Submissions to references that round to bf16 in between: the bound, beside what the reference itself gives."""

PACKS_IN_CONSTRUCTOR = {"96_packed_attribute"}
"""Submissions that copy their weights when they are built: other weights cannot be loaded later."""


def compare(name: str, sizes: dict[str, int], device: str, calls: int) -> None:
    """Raises AssertionError where an output of the submission is not what the reference gives in fp64."""
    path = HERE / "submissions" / "honest" / f"{name}.py"
    header = path.read_text().partition("\n")[0]
    task_name = header.split(" | ")[1].removeprefix("task: ")
    task = _task(task_name, sizes)
    submission = _module(path)
    with torch.device(device):
        arguments = task["get_init_inputs"]()
        torch.manual_seed(0)
        reference = task["Model"](*arguments).eval()
        torch.manual_seed(0)
        model = submission.ModelNew(*arguments).eval()
    if name not in PACKS_IN_CONSTRUCTOR:
        _other_weights(reference, model)
    exact = copy.deepcopy(reference).double()
    for call in range(calls):
        torch.manual_seed(call + 1)
        with torch.device(device):
            inputs = task["get_inputs"]()
        before = [t.clone() if isinstance(t, Tensor) else t for t in inputs]
        with torch.no_grad():
            got = model(*inputs)
            given = [t.clone() if isinstance(t, Tensor) else t for t in before]
            wide = [t.double() if isinstance(t, Tensor) and t.is_floating_point() else t for t in before]
            plain = reference(*before)
            want = plain if name in ROUNDS_INSIDE else exact(*wide)
        for one, like, left in zip(inputs, given, before, strict=True):
            if isinstance(one, Tensor):
                edits = not torch.equal(like, left)
                assert torch.allclose(one, left, atol=1e-6) if edits else torch.equal(one, like), "input edited"
        for one, like, right in zip(_tensors(got), _tensors(plain), _tensors(want), strict=True):
            _same(one, like, right, ROUNDS_INSIDE.get(name) or TOLERANCE.get(one.dtype, 0.0))


def _tensors(output: Tensor | list | tuple | dict) -> list[Tensor]:
    """The tensors of an output, those of a dict by name."""
    if isinstance(output, dict):
        return [output[name] for name in sorted(output)]
    return [output] if isinstance(output, Tensor) else list(output)


def _same(got: Tensor, like: Tensor, want: Tensor, bound: float) -> None:
    assert (got.dtype, got.shape, got.device) == (like.dtype, like.shape, like.device), (got.dtype, got.shape)
    if not got.is_floating_point():
        wrong = int((got != like).sum())  # int8 are rounded numbers, of which a few lie near a half
        assert wrong <= got.numel() * (1e-5 if got.dtype == torch.int8 else 0), f"{wrong} of {got.numel()} differ"
        return
    got = got.double()
    assert torch.equal(got.isfinite(), want.isfinite()), "not finite"
    got, want = got.nan_to_num(0, 0, 0), want.double().nan_to_num(0, 0, 0)
    excess = (got - want).abs() - bound * (want.abs() + 0.1 * want.abs().max())
    at = int(excess.argmax())
    assert excess.max() <= 0, f"{float(got.flatten()[at])} for {float(want.flatten()[at])} at {at} of {got.numel()}"


def _other_weights(reference: torch.nn.Module, model: torch.nn.Module) -> None:
    """Moves all weights away from their defaults, where both models name them alike."""
    weights = reference.state_dict()
    if {k: v.shape for k, v in weights.items()} == {k: v.shape for k, v in model.state_dict().items()}:
        moved = {k: v + 0.1 * torch.rand_like(v) if v.is_floating_point() else v for k, v in weights.items()}
        reference.load_state_dict(moved)
        model.load_state_dict(moved)


def _task(name: str, sizes: dict[str, int]) -> dict[str, Any]:
    """The names that a task file defines, with other values of its constants."""
    source = (HERE / "tasks" / f"{name}.py").read_text()
    for constant, value in sizes.items():
        source, count = re.subn(rf"^{constant} = \d+$", f"{constant} = {value}", source, flags=re.MULTILINE)
        assert count == 1, f"{name} has no constant {constant}"
    namespace: dict[str, Any] = {}
    exec(compile(source, name, "exec"), namespace)
    return namespace


def _module(path: Path) -> ModuleType:
    """A fresh module of a submission."""
    spec = importlib.util.spec_from_file_location(f"honest_{path.stem}", path)
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


def _stand_in_for_a_gpu() -> None:
    """What the plain interpreter lacks: two properties of a GPU, a clock for autotuners, and products of bf16."""
    from triton.runtime.autotuner import Autotuner
    from triton.runtime.interpreter import InterpreterBuilder, TensorHandle, _convert_float

    torch.cuda.get_device_properties = lambda device=None: SimpleNamespace(multi_processor_count=4)
    torch.cuda.get_device_capability = lambda device=None: (9, 0)
    Autotuner._bench = lambda self, *args, config, **meta: [1.0, 1.0, 1.0]  # they take their first configuration
    create_dot = InterpreterBuilder.create_dot

    def widened(x: TensorHandle) -> TensorHandle:
        if x.dtype.scalar != tl.bfloat16:  # whose bits it would multiply as integers
            return x
        return TensorHandle(_convert_float(x.data, tl.bfloat16, tl.float32, None).view(np.float32), tl.float32)

    InterpreterBuilder.create_dot = lambda self, a, b, *rest: create_dot(self, widened(a), widened(b), *rest)


def main(arguments: list[str]) -> None:
    cuda = arguments == ["--cuda"]
    if cuda:
        torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = False
        torch.backends.cuda.matmul.allow_bf16_reduced_precision_reduction = False
    else:
        _stand_in_for_a_gpu()
    for name in map(str.strip, sys.stdin):
        try:
            task = next((HERE / "submissions" / "honest").glob(f"{name}.py")).read_text().split(" | ")[1][6:]
            for sizes in [{}] if cuda else SIZES[task]:
                compare(name, sizes, "cuda" if cuda else "cpu", 5 if cuda else 2)
            wrong = ""
        except Exception:
            wrong = traceback.format_exc(limit=-4)
        print(json.dumps({"name": name, "wrong": wrong}), flush=True)
        torch.cuda.empty_cache() if cuda else None


if __name__ == "__main__":
    main(sys.argv[1:])
