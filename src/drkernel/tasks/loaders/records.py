"""Tasks from records: JSONL, JSON and parquet files, and datasets on the Hugging Face hub.

There are four schemas, distinguished by their keys: drkernel's (`id`, `source`, ..., the fields of `Task`); the paper's
query pool and validation set (`reward_model.ground_truth`, `extra_info`); its cold-start set (`original_python_code`);
KernelBench's (`code`, `level`, `problem_id`). drkernel's may state a precision; that of all others follows the dtypes.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from drkernel.tasks.loaders.kernelbench import SPLIT_NAMES, not_a_module
from drkernel.tasks.loaders.record_types import checked, shown
from drkernel.tasks.precision import AUTO, with_precision
from drkernel.tasks.splits import share_out, split_of
from drkernel.types import DrKernelError, Task

Record = dict[str, Any]
_NAMED = 5
"""Of so many records that are no tasks a message says what is wrong."""
_COLUMNS = (
    *(f.name for f in dataclasses.fields(Task)),
    *("data_source", "reward_model", "extra_info", "original_python_code", "uuid"),
    *("module_name", "repo_name", "code", "name", "problem_id"),
)
_SOURCES = ("source", "reward_model", "original_python_code", "code")
_WANTED = "expected 'source' with 'id', 'reward_model.ground_truth', 'original_python_code' or 'code'"
_KEPT = ("uuid", "problem_id", "name", "module_name", "repo_name", "type", "ops", "data_source")


def read_records(*paths: str | Path) -> list[Task]:
    """The tasks of .jsonl, .json (one list) and .parquet files, in order, each source once. Where no record states a
    split, they go by hash (`splits.share_out`). Of several files those called `validation...` and `test...` state
    theirs, as parts of a hub data set do (`read_hub`).

    Raises:
        DrKernelError: no such file, not JSON or parquet, records in none of the schemas (with line or row), or two
            tasks of one id.
    """
    found: list[Found] = []
    wrong: list[str] = []
    names = {path: _split_in_name(path) for path in map(Path, paths)}
    for path, name in names.items():
        stated = name if name != "train" and len({*names.values()}) > 1 else ""
        if not path.is_file():
            raise DrKernelError(f"task file {path}: no such file")
        for place, record in READERS.get(path.suffix, _jsonl)(path):
            try:
                made = _task(record, f"task file {path}: {place}")
                found.append(replace(made, task=replace(made.task, split=made.task.split or stated)))
            except DrKernelError as error:
                wrong.append(str(error))
    if wrong:
        more = f"; and {len(wrong) - _NAMED} more records that are no tasks" if len(wrong) > _NAMED else ""
        raise DrKernelError("; ".join(wrong[:_NAMED]) + more)
    tasks = _distinct(found)
    if any(each.task.split for each in tasks):
        return [_with_split(each) for each in tasks]
    splits = share_out(each.key for each in tasks)
    return [replace(each.task, split=splits[each.key]) for each in tasks]


def _split_in_name(path: Path) -> str:
    """The split that a file's name begins with, as the hub names them, or nothing.

    >>> _split_in_name(Path("data/test-00000-of-00001.parquet")), _split_in_name(Path("testing.jsonl"))
    ('test', '')
    """
    return SPLIT_NAMES.get(re.split(r"[-_.]", path.name.lower())[0], "")


def tables(folder: Path) -> list[Path]:
    """The tables of a folder, or of `data` in it as the hub has them: parquet and .jsonl files, else .json ones."""
    for endings in ((".parquet", ".jsonl"), (".json",)):
        for place in (folder, folder / "data"):
            if found := sorted(path for path in place.glob("*") if path.suffix in endings):
                return found
    return []


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
    found = []
    for part, rows in parts.items():
        split = SPLIT_NAMES.get(part.lower(), "")
        named = {"split": split} if split in ("validation", "test") else {}
        found += [_task({**named, **row}, f"hub:{dataset}: {part} row {i}") for i, row in enumerate(rows)]
    return [_with_split(each) for each in _distinct(found, expect_ids=False)]


def _jsonl(path: Path) -> Iterator[tuple[str, Record]]:
    with open(path, "rb") as file:
        for number, line in enumerate(file, 1):
            if line.strip():
                try:
                    record = json.loads(line.decode("utf-8-sig"))
                except ValueError as error:  # not JSON, or not UTF-8
                    said = getattr(error, "msg", error)
                    raise DrKernelError(f"task file {path}: line {number}: not JSON: {said}") from error
                yield f"line {number}", record


def _json(path: Path) -> Iterator[tuple[str, Record]]:
    try:
        records = json.loads(path.read_text(encoding="utf-8-sig"))
    except ValueError as error:
        raise DrKernelError(f"task file {path}: not JSON: {error}") from error
    if not isinstance(records, list):
        raise DrKernelError(f"task file {path}: found {type(records).__name__}, expected a list of records")
    yield from ((f"record {number}", record) for number, record in enumerate(records))


def _parquet(path: Path) -> Iterator[tuple[str, Record]]:
    import pyarrow
    from pyarrow import parquet

    try:
        file = parquet.ParquetFile(path)
        names = file.schema_arrow.names
        if not any(name in names for name in _SOURCES):
            raise DrKernelError(f"task file {path}: no column with reference sources: {_WANTED}, found {sorted(names)}")
        columns = [name for name in names if name in _COLUMNS]
        rows = (row for batch in file.iter_batches(batch_size=1024, columns=columns) for row in batch.to_pylist())
        yield from ((f"row {number}", row) for number, row in enumerate(rows))
    except (pyarrow.ArrowInvalid, OSError) as error:
        raise DrKernelError(f"task file {path}: not a parquet file: {' '.join(str(error).split())}") from error


READERS: dict[str, Callable[[Path], Iterator[tuple[str, Record]]]] = {
    ".jsonl": _jsonl,
    ".json": _json,
    ".parquet": _parquet,
}


@dataclass(frozen=True)
class Found:
    """One record as a task; `split` is empty where the record states none."""

    task: Task
    key: str
    """What its split goes by then: the id in our own schema, a hash of the source in the others."""
    place: str
    """Where it was found, for errors."""


def _task(record: Record, place: str) -> Found:
    if not isinstance(record, dict):
        raise DrKernelError(f"{place}: expected an object, found {type(record).__name__}")
    if "id" in record and "source" in record:
        return _own(record, place)
    extra = {**record, **_object(record, "extra_info", place)}
    source = (
        _object(record, "reward_model", place).get("ground_truth")
        or record.get("original_python_code")
        or record.get("code")
    )
    if not isinstance(source, str):
        raise DrKernelError(f"{place}: no reference source: {_WANTED}, found {sorted(record)}")
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
        family="+".join(_operators(extra, place)) or (f"level{level[0]}" if level else origin),
        info=kept,
    )
    return Found(with_precision(task), digest, place)


def _own(record: Record, place: str) -> Found:
    known = {f.name for f in dataclasses.fields(Task)}
    if unknown := sorted(record.keys() - known):
        raise DrKernelError(f"{place}: unknown key {unknown[0]!r}; a task has {', '.join(sorted(known))}")
    given = checked({key: value for key, value in record.items() if value is not None}, place)
    stated = given.pop("precision", AUTO)
    task = Task(**{"split": "", **given})
    if problem := not_a_module(task.source, task.entry_point):
        raise DrKernelError(f"{place}: 'source' {problem}")
    return Found(with_precision(task, stated), task.id, place)


def _with_split(found: Found) -> Task:
    return found.task if found.task.split else replace(found.task, split=split_of(found.key))


def _stated_split(extra: Record) -> str:
    """What the record says, or nothing; the paper's validation set is a test set here."""
    if stated := SPLIT_NAMES.get(str(extra.get("split")).lower()):
        return stated
    return "test" if "validation" in str(extra.get("data_source")) else ""


def _object(record: Record, key: str, place: str) -> Record:
    """A nested object, given as such or as JSON text."""
    value = _from_text(record.get(key), "{", key, place)
    return value if isinstance(value, dict) else {}


def _operators(record: Record, place: str) -> list[str]:
    value = _from_text(record.get("ops"), "[", "ops", place)
    return [str(name) for name in value] if isinstance(value, (list, tuple)) else []


def _from_text(value: Any, begins: str, key: str, place: str) -> Any:
    if not (isinstance(value, str) and value.startswith(begins)):
        return value
    try:
        return json.loads(value)
    except json.JSONDecodeError as error:
        raise DrKernelError(f"{place}: {key!r}: found {shown(value)}, expected JSON: {error.msg}") from error


def _distinct(found: Iterable[Found], expect_ids: bool = True) -> list[Found]:
    """Each source once. Two sources of one id are refused; without `expect_ids`, for sets that nobody here can mend,
    the ids of later ones get a hash of the source."""
    sources: set[str] = set()
    first: dict[str, Found] = {}
    for each in found:
        if each.task.source in sources:
            continue
        sources.add(each.task.source)
        task_id = each.task.id
        if task_id in first and not expect_ids:
            task_id = f"{task_id}-{hashlib.sha256(each.task.source.encode()).hexdigest()[:8]}"
            each = replace(each, task=replace(each.task, id=task_id))
        elif task_id in first:
            expected = "expected an id of its own for each source, by 'id', 'uuid', or 'level' and 'problem_id'"
            raise DrKernelError(f"{first[task_id].place} and {each.place} are both {task_id!r}; {expected}")
        first[task_id] = each
    return list(first.values())
