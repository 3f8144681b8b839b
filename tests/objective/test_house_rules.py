"""What every file of objective/ promises."""

import ast
from pathlib import Path

import pytest

import drkernel.objective

FILES = sorted(Path(drkernel.objective.__file__).parent.glob("*.py"))
ALLOWED = ("__future__", "collections.abc", "dataclasses", "functools", "math", "typing", "torch", "numpy")
ALLOWED += ("drkernel.objective", "drkernel.types")


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.name)
def test_imports_stay_on_the_ground_floor(file):
    tree = ast.parse(file.read_text())
    imported = [node.module for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)]
    imported += [alias.name for node in ast.walk(tree) if isinstance(node, ast.Import) for alias in node.names]
    wrong = [name for name in imported if not name.startswith(ALLOWED) or name.startswith("torch.distributed")]
    assert not wrong, f"{file.name} imports {', '.join(wrong)}; objective/ may import {', '.join(ALLOWED)}"


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.name)
def test_public_functions_of_tensors_carry_a_worked_example(file):
    public = [
        node
        for node in ast.parse(file.read_text()).body
        if isinstance(node, ast.FunctionDef) and not node.name.startswith("_")
    ]
    bare = [node.name for node in public if ">>>" not in (ast.get_docstring(node) or "")]
    assert not bare, f"{file.name}: add a worked example (>>>) to the docstring of {', '.join(bare)}"
