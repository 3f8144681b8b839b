"""Records as tasks: what is wrong is named with file and row, and tables are read as they are found."""

import json

import datasets
import pyarrow
import pytest
from pyarrow import parquet

from drkernel.tasks import load_tasks
from drkernel.types import DrKernelError
from tests.tasks.loaders.test_loaders import RELU, paper_row, write_jsonl


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("{", "line 2: not JSON"),
        ("[1]", "line 2: expected an object, found list"),
        ('{"prompt": "x"}', "line 2: no reference source"),
        ('{"id": "a", "source": "b", "famly": "c"}', "line 2: unknown key 'famly'"),
        ('{"id": "a", "source": "b", "split": "dev"}', "line 2: 'split': found 'dev', expected one of train"),
        ('{"id": "a", "source": 3}', "line 2: 'source': found 3, expected text"),
        ('{"id": null, "source": "b"}', "line 2: 'id': found None, expected text or a whole number"),
        ('{"id": 1.5, "source": "b"}', r"line 2: 'id': found 1\.5, expected text or a whole number"),
        (
            '{"id": "a", "source": "b", "small": [1, 2]}',
            r"line 2: 'small': found \[1, 2\], expected an object of names",
        ),
        ('{"id": "a", "source": "b", "small": {"N": 2.5}}', "'small': found .*expected an object of names and whole"),
        ('{"id": "a", "source": "b", "level": "one"}', "'level': found 'one', expected a whole number"),
        ('{"id": "a", "source": "b", "family": 3}', "'family': found 3, expected text"),
        ('{"id": "a", "source": "b", "info": "x"}', "'info': found 'x', expected an object"),
        ('{"id": "a", "source": "b", "precision": "fp8"}', "'precision': found 'fp8', expected one of auto"),
        ('{"id": "a", "source": "def ("}', "line 2: 'source' is no Python: line 1: "),
        ('{"id": "a", "source": ""}', "line 2: 'source' does not define 'Model'"),
        ('{"id": "a", "source": "class Net: 1", "entry_point": "N"}', "line 2: 'source' does not define 'N'"),
        ('{"reward_model": "{x"}', "line 2: 'reward_model': found '{x', expected JSON"),
        ('{"code": "x", "ops": "[x"}', r"line 2: 'ops': found '\[x', expected JSON"),
    ],
)
def test_bad_records_are_named_with_their_line(tmp_path, line, message):
    path = write_jsonl(tmp_path / "bad.jsonl", [paper_row(1), line])
    with pytest.raises(DrKernelError, match=message):
        load_tasks(path, split="all")


def test_all_records_that_are_no_tasks_are_named_at_once(tmp_path):
    path = write_jsonl(tmp_path / "bad.jsonl", [{"id": str(i), "source": "x=1"} for i in range(7)])
    with pytest.raises(DrKernelError, match=r"line 1: 'source' does not .*line 5: .*; and 2 more records that are no"):
        load_tasks(path, split="all")


def test_a_whole_number_as_an_id_becomes_text_and_gaps_of_a_table_are_no_values(tmp_path):
    rows = [
        {"id": 1, "source": RELU.format(n=1), "split": "test", "level": 2, "small": {"N": 3, "M": None}},
        {"id": 2, "source": RELU.format(n=2), "split": None, "level": None, "small": {"N": None, "M": 4}},
    ]
    parquet.write_table(pyarrow.Table.from_pylist(rows), tmp_path / "own.parquet")
    first, second = load_tasks(str(tmp_path / "own.parquet"), split="all")
    assert (first.id, first.split, first.level, first.small) == ("1", "test", 2, {"N": 3})
    assert (second.id, second.level, second.small) == ("2", None, {"M": 4})


@pytest.mark.parametrize("own", [True, False])
def test_two_sources_of_one_id_are_refused_with_both_rows(own, tmp_path):
    rows = [{"code": RELU.format(n=n), "level": 1, "problem_id": 1} for n in range(3)]
    if own:
        rows = [{"id": "a", "source": row["code"]} for row in rows]
    with pytest.raises(
        DrKernelError, match=r"\.jsonl: line 1 and .*\.jsonl: line 2 are both '(a|kernelbench/level1/1)'"
    ):
        load_tasks(write_jsonl(tmp_path / "twice.jsonl", rows), split="all")


def test_on_the_hub_a_second_source_of_one_id_has_a_hash_in_its_own(monkeypatch):
    rows = [paper_row(n, uuid="same") for n in range(2)]
    parts = {"train": datasets.Dataset.from_list(rows)}
    monkeypatch.setattr(datasets, "load_dataset", lambda name: datasets.DatasetDict(parts))
    first, second = (task.id for task in load_tasks("hub:some/set", split="all"))
    assert first == "cuda_llm/same" and second.startswith("cuda_llm/same-")


@pytest.mark.parametrize("word", ["val", "valid", "Validation"])
def test_a_split_may_have_the_names_that_a_folder_of_it_may_have(word, tmp_path, monkeypatch):
    rows = [{"code": RELU.format(n=n), "level": 1, "problem_id": n} for n in range(9)]
    stated = [row | {"split": word if n < 4 else "test"} for n, row in enumerate(rows)]
    path = write_jsonl(tmp_path / "stated.jsonl", stated)
    parts = {word: datasets.Dataset.from_list(rows[:4]), "test": datasets.Dataset.from_list(rows[4:])}
    monkeypatch.setattr(datasets, "load_dataset", lambda name: datasets.DatasetDict(parts))
    for source in (path, "hub:some/set"):
        found = {split: len(load_tasks(source, split=split)) for split in ("validation", "test")}
        assert found == {"validation": 4, "test": 5}


@pytest.mark.parametrize("inner", ["", "data"])
def test_a_folder_of_kernelbench_s_parquet_files_is_read_whole(inner, tmp_path):
    (tmp_path / inner).mkdir(exist_ok=True)
    for level in (1, 2):
        rows = [{"code": RELU.format(n=10 * level + n), "level": level, "name": "x", "problem_id": n} for n in (1, 2)]
        parquet.write_table(pyarrow.Table.from_pylist(rows), tmp_path / inner / f"level_{level}-00000-of-00001.parquet")
    (tmp_path / "dataset_infos.json").write_text("{}")
    assert [task.id.removeprefix("kernelbench/") for task in load_tasks(str(tmp_path), split="all")] == [
        *("level1/1", "level1/2", "level2/1", "level2/2")
    ]
    (tmp_path / "a.py").write_text(RELU.format(n=1))
    with pytest.raises(DrKernelError, match=r"a\.py and .*level_1-.*; expected Python files or tables, not both"):
        load_tasks(str(tmp_path), split="all")


def test_in_a_folder_of_tables_test_and_validation_files_stay_what_they_are_called(tmp_path):
    for first, name in ((0, "train-00000-of-00001"), (20, "test-00000-of-00001"), (30, "val")):
        rows = [{"code": RELU.format(n=n), "level": 1, "problem_id": n} for n in range(first, first + 10)]
        parquet.write_table(pyarrow.Table.from_pylist(rows), tmp_path / f"{name}.parquet")
    numbers = {
        split: {int(task.id.rpartition("/")[2]) for task in load_tasks(str(tmp_path), split=split)}
        for split in ("train", "validation", "test")
    }
    assert numbers["train"] <= set(range(10)) and numbers["train"]
    assert numbers["test"] >= set(range(20, 30)) and numbers["validation"] >= set(range(30, 40))


def test_a_json_list_is_read_and_anything_else_is_named(tmp_path):
    path = tmp_path / "own.json"
    path.write_text(json.dumps([paper_row(1), paper_row(2)]))
    assert [task.id for task in load_tasks(str(path), split="all")] == ["cuda_llm/1", "cuda_llm/2"]
    for text, words in (("{}", "found dict, expected a list of records"), ("[", "own.json: not JSON: ")):
        path.write_text(text)
        with pytest.raises(DrKernelError, match=words):
            load_tasks(str(path), split="all")


def test_a_table_of_another_encoding_is_named_with_its_line(tmp_path):
    path = tmp_path / "own.jsonl"
    lines = [json.dumps({"id": n, "source": RELU.format(n=n) + "# é"}, ensure_ascii=False) for n in range(2)]
    path.write_bytes(f"{lines[0]}\n".encode() + lines[1].encode("latin-1"))
    with pytest.raises(DrKernelError, match=r"own\.jsonl: line 2: not JSON: 'utf-8' codec can't decode byte 0xe9"):
        load_tasks(str(path), split="all")


def test_a_parquet_table_without_sources_is_named_with_the_columns_that_it_has(tmp_path):
    path = tmp_path / "own.parquet"
    parquet.write_table(pyarrow.table({"task_name": ["a"], "pytorch": ["b"]}), path)
    with pytest.raises(
        DrKernelError, match=r"own\.parquet: .*expected 'source' with .*found \['pytorch', 'task_name'\]"
    ):
        load_tasks(str(path), split="all")


def test_a_parquet_table_whose_pages_are_damaged_is_named(tmp_path):
    path = tmp_path / "own.parquet"
    parquet.write_table(pyarrow.Table.from_pylist([{"id": "a", "source": RELU.format(n=1)}]), path)
    whole = path.read_bytes()
    path.write_bytes(whole[:4] + b"\0" * 60 + whole[64:])
    with pytest.raises(DrKernelError, match=r"own\.parquet: not a parquet file: "):
        load_tasks(str(path), split="all")
