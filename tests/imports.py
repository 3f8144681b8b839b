"""Which modules of the project import which, read from the sources."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[1]
PLACES = {"src": "src", "benchmarks": "benchmarks", "sweeps": ".", "slurm": "."}
"""Folders with modules, and the folder on the path that their names begin below."""


def modules() -> dict[str, Path]:
    """The project's modules by the names that imports use, and their files."""
    found = {path.stem: path for path in ROOT.glob("*.py")}
    for folder, base in PLACES.items():
        for path in (ROOT / folder).rglob("*.py"):
            parts = path.relative_to(ROOT / base).with_suffix("").parts
            found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return found


def imports(path: Path) -> Iterator[str]:
    """What a file imports anywhere, inside functions and for types too: the modules that are loaded last."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.module and not node.level, f"{path}: a relative import"
            yield from (_module(node.module, alias.name) for alias in node.names)


def _module(package: str, name: str) -> str:
    """The module that `from package import name` loads last."""
    places = [ROOT.joinpath(base, *package.split("."), name) for base in set(PLACES.values())]
    known = any(place.is_dir() or place.with_suffix(".py").is_file() for place in places)
    return f"{package}.{name}" if known else package
