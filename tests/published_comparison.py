"""Compares answers of benchmarks/published_sizes.py with their references at small sizes: the judge takes no part.

    TRITON_INTERPRET=1 python -m tests.published_comparison [NAME...]

Prints one line of JSON per entry: its name, what is wrong with the honest answer, or "", and whether the wrong answer
was found to be wrong.
"""

from __future__ import annotations

import copy
import json
import sys
import tempfile
import traceback
from pathlib import Path
from typing import Any

import torch

from tests.judge.comparison import _module, _other_weights, _same, _stand_in_for_a_gpu

sys.path.insert(0, str(Path(__file__).parents[1] / "benchmarks"))


def compare(reference: dict[str, Any], answer: Any) -> None:
    """Raises AssertionError where an output of the answer is not what the reference gives in fp64."""
    arguments = reference["get_init_inputs"]()
    torch.manual_seed(0)
    model = reference["Model"](*arguments)
    torch.manual_seed(0)
    new = answer.ModelNew(*arguments)
    _other_weights(model, new)
    exact = copy.deepcopy(model).double()
    for call in range(2):
        torch.manual_seed(call + 1)
        inputs = reference["get_inputs"]()
        before = [t.clone() for t in inputs]
        with torch.no_grad():
            got, plain = new(*inputs), model(*before)
            torch.set_default_dtype(torch.float64)  # for tensors that the reference makes itself
            want = exact(*[t.double() if t.is_floating_point() else t for t in before])
            torch.set_default_dtype(torch.float32)
        assert all(map(torch.equal, inputs, before)), "input edited"
        _same(got, plain, want)
        for (name, one), other in zip(new.named_buffers(), model.buffers(), strict=True):
            assert torch.allclose(one, other, rtol=1e-4, atol=1e-6), f"buffer {name}"


def problem(source: str, reference: dict[str, Any], folder: str, name: str) -> str:
    path = Path(folder) / f"{name}.py"
    path.write_text(source)
    try:
        compare(reference, _module(path))
    except Exception:
        return traceback.format_exc(limit=-3)
    finally:
        torch.set_default_dtype(torch.float32)
    return ""


def main(names: list[str]) -> int:
    from published_sizes import chosen

    _stand_in_for_a_gpu()
    bad = 0
    with tempfile.TemporaryDirectory() as folder:
        for entry in chosen(names):
            reference: dict[str, Any] = {}
            exec(compile(entry.shrunk(), entry.name, "exec"), reference)
            wrong = problem(entry.honest, reference, folder, entry.name)
            caught = "AssertionError" in problem(entry.wrong, reference, folder, f"{entry.name}_wrong")
            bad += bool(wrong) or not caught
            print(json.dumps({"name": entry.name, "wrong": wrong, "caught": caught}), flush=True)
    return int(bad > 0)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
