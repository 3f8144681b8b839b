"""Tasks from records: JSONL and parquet files, and datasets on the Hugging Face hub.

There are four schemas, distinguished by their keys: drkernel's (`id`, `source`, ..., the fields of `Task`); the paper's
query pool and validation set (`reward_model.ground_truth`, `extra_info`); its cold-start set (`original_python_code`);
KernelBench's (`code`, `level`, `problem_id`). drkernel's may state a precision; that of all others follows the dtypes.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import re
from collections.abc import Iterable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

from drkernel.tasks.precision import AUTO, with_precision
from drkernel.tasks.splits import SPLITS, share_out, split_of
from drkernel.types import PRECISIONS, DrKernelError, Task

Record = dict[str, Any]
_COLUMNS = (
    *(f.name for f in dataclasses.fields(Task)),
    *("data_source", "reward_model", "extra_info", "original_python_code", "uuid"),
    *("module_name", "repo_name", "code", "name", "problem_id"),
)
_KEPT = ("uuid", "problem_id", "name", "module_name", "repo_name", "type", "ops", "data_source")


def read_records(path: str | Path) -> list[Task]:
    """The tasks of a .jsonl or .parquet file, in order, each source once. Where no record states a split, they go by
    hash (`splits.share_out`).

    Raises:
        DrKernelError: no such file, not JSONL or parquet, or a record in none of the schemas (with its line or row).
    """
    path = Path(path)
    if not path.is_file():
        raise DrKernelError(f"task file {path}: no such file")
    rows = _parquet(path) if path.suffix == ".parquet" else _jsonl(path)
    found = _distinct(_task(record, f"task file {path}: {place}") for place, record in rows)
    if any(task.split for task, _ in found):
        return [task if task.split else replace(task, split=split_of(key)) for task, key in found]
    splits = share_out(key for _, key in found)
    return [replace(task, split=splits[key]) for task, key in found]


_EXPECTED = (
    "expected tasks.source (or tasks.eval_source) to name a data set of the hub; without a network it must be in the "
    "cache, with HF_HUB_OFFLINE=1"
)


def read_hub(dataset: str) -> list[Task]:
    """All tasks of a Hugging Face dataset. Its own `validation` and `test` rows stay there; the rest splits by hash.

    Raises:
        DrKernelError: the dataset cannot be fetched, or a row is in none of the schemas.
    """
    import datasets

    try:
        parts = datasets.load_dataset(dataset)
    except Exception as error:
        raise DrKernelError(f"hub:{dataset}: cannot be loaded: {type(error).__name__}: {error}; {_EXPECTED}") from error
    tasks = []
    for part, rows in parts.items():
        named = {"split": part} if part in ("validation", "test") else {}
        tasks += [_task({**named, **row}, f"hub:{dataset}: {part} row {i}") for i, row in enumerate(rows)]
    return [task if task.split else replace(task, split=split_of(key)) for task, key in _distinct(tasks)]


def _jsonl(path: Path) -> Iterator[tuple[str, Record]]:
    with open(path, encoding="utf-8") as file:
        for number, line in enumerate(file, 1):
            if line.strip():
                try:
                    record = json.loads(line)
                except json.JSONDecodeError as error:
                    raise DrKernelError(f"task file {path}: line {number}: not JSON: {error.msg}") from error
                yield f"line {number}", record


def _parquet(path: Path) -> Iterator[tuple[str, Record]]:
    import pyarrow
    from pyarrow import parquet

    try:
        file = parquet.ParquetFile(path)
    except (pyarrow.ArrowInvalid, OSError) as error:
        raise DrKernelError(f"task file {path}: not a parquet file: {error}") from error
    columns = [name for name in file.schema_arrow.names if name in _COLUMNS]
    rows = (row for batch in file.iter_batches(batch_size=1024, columns=columns) for row in batch.to_pylist())
    yield from ((f"row {number}", row) for number, row in enumerate(rows))


def _task(record: Record, place: str) -> tuple[Task, str]:
    """One record as a task, and what its split goes by where the record states none (then `split` is empty): the id in
    our own schema, a hash of the source in the others. `place` says where it was found."""
    if not isinstance(record, dict):
        raise DrKernelError(f"{place}: expected an object, found {type(record).__name__}")
    if "id" in record and "source" in record:
        return _own(record, place)
    extra = {**record, **_object(record.get("extra_info"))}
    source = (
        _object(record.get("reward_model")).get("ground_truth")
        or record.get("original_python_code")
        or record.get("code")
    )
    if not isinstance(source, str):
        wanted = "'source' with 'id', 'reward_model.ground_truth', 'original_python_code' or 'code'"
        raise DrKernelError(f"{place}: no reference source: expected {wanted}, found {sorted(record)}")
    digest = hashlib.sha256(source.encode()).hexdigest()
    origin = record.get("data_source") or ("coldstart" if "original_python_code" in record else "kernelbench")
    number = next((extra[key] for key in ("uuid", "problem_id") if extra.get(key) is not None), digest[:8])
    level = re.search(r"\d+", str(extra.get("level") or ""))
    kept = {key: extra[key] for key in _KEPT if isinstance(extra.get(key), (str, int, float))}
    where = f"level{level[0]}/" if level and origin == "kernelbench" else ""
    task = Task(
        id=f"{origin}/{where}{number}",
        source=source,
        entry_point=extra.get("entry_point") or "Model",
        split=_stated_split(extra),
        level=int(level[0]) if level else None,
        family="+".join(_operators(extra.get("ops"))) or (f"level{level[0]}" if level else origin),
        info=kept,
    )
    return with_precision(task), digest


def _own(record: Record, place: str) -> tuple[Task, str]:
    known = {f.name for f in dataclasses.fields(Task)}
    if unknown := sorted(record.keys() - known):
        raise DrKernelError(f"{place}: unknown key {unknown[0]!r}; a task has {', '.join(sorted(known))}")
    if not isinstance(record["source"], str) or record.get("split", "train") not in SPLITS:
        raise DrKernelError(f"{place}: 'source' must be text and 'split' one of {', '.join(SPLITS)}")
    given = {key: value for key, value in record.items() if value is not None}
    stated = given.get("precision", AUTO)
    if stated not in PRECISIONS:
        raise DrKernelError(f"{place}: 'precision' is {stated!r}, expected one of {', '.join(PRECISIONS)}")
    return with_precision(Task(**{"split": "", **given}), stated), record["id"]


def _stated_split(extra: Record) -> str:
    """What the record says, or nothing; the paper's validation set is a test set here."""
    if extra.get("split") in SPLITS:
        return extra["split"]
    return "test" if "validation" in str(extra.get("data_source")) else ""


def _object(value: Any) -> Record:
    """A nested object, given as such or as JSON text."""
    value = json.loads(value) if isinstance(value, str) and value.startswith("{") else value
    return value if isinstance(value, dict) else {}


def _operators(value: Any) -> list[str]:
    value = json.loads(value) if isinstance(value, str) and value.startswith("[") else value
    return [str(name) for name in value] if isinstance(value, (list, tuple)) else []


def _distinct(found: Iterable[tuple[Task, str]]) -> list[tuple[Task, str]]:
    first: dict[str, tuple[Task, str]] = {}
    for task, key in found:
        first.setdefault(task.source, (task, key))
    return list(first.values())
