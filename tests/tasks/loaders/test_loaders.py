import dataclasses
import json
from pathlib import Path

import datasets
import pyarrow
import pytest
from pyarrow import parquet

from drkernel import tasks
from drkernel.tasks import generate, load_tasks, read_task, write_task
from drkernel.types import DrKernelError

RELU = """import torch
import torch.nn as nn

N = {n}

class Model(nn.Module):
    def forward(self, x):
        return torch.relu(x)

def get_inputs():
    return [torch.randn(N)]

def get_init_inputs():
    return []
"""


@pytest.fixture
def bench(tmp_path: Path) -> Path:
    """KernelBench's layout: two levels, numbers that do not sort as text."""
    for level, numbers in ((1, (2, 10, 19)), (2, (1, 100))):
        folder = tmp_path / "KernelBench" / f"level{level}"
        folder.mkdir(parents=True)
        for number in numbers:
            (folder / f"{number}_Op_{number}.py").write_text(RELU.format(n=level * 1000 + number))
        (folder / "__init__.py").write_text("")
    return tmp_path


def paper_row(n: int, **extra) -> dict:
    return {
        "data_source": "cuda_llm",
        "prompt": [{"role": "user", "content": "..."}],
        "ability": "kernel_optimization",
        "reward_model": {"ground_truth": RELU.format(n=n), "style": "rule"},
        "extra_info": {"entry_point": "Model", "level": 1, "ops": '["nn.ReLU", "sum"]', "uuid": str(n), **extra},
    }


def write_jsonl(path: Path, rows: list) -> str:
    path.write_text("\n".join(row if isinstance(row, str) else json.dumps(row) for row in rows) + "\n")
    return str(path)


def test_a_kernelbench_folder_is_read_by_level_and_number(bench):
    tasks = load_tasks(str(bench), split="all")
    assert [task.id.removeprefix("kernelbench/") for task in tasks] == [
        "level1/2",
        "level1/10",
        "level1/19",
        "level2/1",
        "level2/100",
    ]
    assert tasks[2].level == 1
    assert tasks[2].info == {"problem_id": 19, "name": "Op_19"}
    assert load_tasks(str(bench / "KernelBench"), split="all") == tasks
    assert load_tasks(str(bench), split="all", levels=[2]) == tasks[3:]


def test_splits_of_a_folder_are_disjoint_complete_and_stable(bench):
    parts = []
    for split in ("train", "validation", "test"):
        try:
            parts += load_tasks(str(bench), split=split)
        except DrKernelError as error:
            assert str(bench) in str(error)
    assert sorted(t.id for t in parts) == sorted(t.id for t in load_tasks(str(bench), split="all"))


def test_a_broken_file_is_named(bench):
    path = bench / "KernelBench" / "level1" / "7_Broken.py"
    path.write_text("class Model(:")
    with pytest.raises(DrKernelError, match=r"7_Broken\.py: SyntaxError"):
        load_tasks(str(bench), split="all")
    path.write_text(RELU.format(n=1).replace("get_inputs", "inputs"))
    with pytest.raises(DrKernelError, match=r"7_Broken\.py: does not define 'get_inputs'"):
        load_tasks(str(bench), split="all")


def test_all_broken_files_of_a_folder_are_named_at_once(tmp_path):
    for split in ("train", "test"):
        (tmp_path / split).mkdir()
        (tmp_path / split / "relu.py").write_text(RELU.format(n=1))
    (tmp_path / "train" / "utils.py").write_text("def helper(): ...")
    (tmp_path / "test" / "typo.py").write_text("class Model(:")
    with pytest.raises(
        DrKernelError, match=r"2 files are no tasks: .*utils\.py: does not define 'Model'; .*typo\.py"
    ) as raised:
        load_tasks(str(tmp_path), split="train")
    assert "passed over" not in str(raised.value) and "names that begin with _" in str(raised.value)
    (tmp_path / "train" / "utils.py").rename(tmp_path / "train" / "_utils.py")
    (tmp_path / "test" / "typo.py").unlink()
    assert [task.id for task in load_tasks(str(tmp_path), split="train")] == ["train/file/relu"]


def test_a_broken_file_is_passed_over_where_on_skip_is_given(bench):
    whole, skipped = load_tasks(str(bench), split="all"), []
    (bench / "KernelBench" / "level1" / "7_Broken.py").write_bytes(b"\xff\xfe")
    (bench / "KernelBench" / "level2" / "3_Broken.py").write_text("class Model(:")
    assert load_tasks(str(bench), split="all", on_skip=skipped.append) == whole
    assert [line.split(": ")[1].rsplit("/", 1)[1] for line in skipped] == ["7_Broken.py", "3_Broken.py"]


def test_names_of_kernelbench_as_they_are(tmp_path):
    folder = tmp_path / "level1"
    folder.mkdir()
    for name in ("1_Square_matrix_multiplication_.py", "88_MinGPTNewGelu.py", "100_HingeLoss.py", "9_Tall_skinny.py"):
        (folder / name).write_text(RELU.format(n=len(name)))
    tasks = load_tasks(str(tmp_path), split="all")
    assert [task.id for task in tasks] == [f"kernelbench/level1/{number}" for number in (1, 9, 88, 100)]
    assert tasks[0].info == {"problem_id": 1, "name": "Square_matrix_multiplication_"}


def test_the_query_pool_is_read_from_parquet_and_from_jsonl(tmp_path):
    rows = [paper_row(n) for n in range(20)]
    parquet.write_table(pyarrow.Table.from_pylist(rows), tmp_path / "rl.parquet", row_group_size=7)
    tasks = load_tasks(str(tmp_path / "rl.parquet"), split="all")
    assert [task.source for task in tasks] == [RELU.format(n=n) for n in range(20)]
    assert tasks[3].id == "cuda_llm/3"
    assert (tasks[3].level, tasks[3].family) == (1, "nn.ReLU+sum")
    assert load_tasks(write_jsonl(tmp_path / "rl.jsonl", rows), split="all") == tasks
    assert {task.split for task in tasks} > {"train"}


def test_the_validation_set_is_a_test_set_as_a_whole(tmp_path):
    rows = [{**paper_row(n, problem_id=n, uuid=None), "data_source": "kernelbench_level2_validation"} for n in range(9)]
    tasks = load_tasks(write_jsonl(tmp_path / "validation.jsonl", rows), split="test")
    assert [task.id for task in tasks] == [f"kernelbench_level2_validation/{n}" for n in range(9)]


def test_cold_start_rows_are_tasks_and_a_source_counts_once(tmp_path):
    row = {"uuid": 5, "entry_point": "Model", "original_python_code": RELU.format(n=5), "messages": [], "best_round": 2}
    tasks = load_tasks(write_jsonl(tmp_path / "cold.jsonl", [row, {**row, "uuid": 6}]), split="all")
    assert [task.id for task in tasks] == ["coldstart/5"]


def test_the_same_source_is_in_the_same_split_whatever_its_id(tmp_path):
    rows = [[paper_row(n, uuid=f"{name}{n}") for n in range(30)] for name in "ab"]
    first, second = (load_tasks(write_jsonl(tmp_path / f"{i}.jsonl", r), split="test") for i, r in enumerate(rows))
    assert [task.source for task in first] == [task.source for task in second]


def test_our_own_records_come_back_as_they_were(tmp_path):
    tasks = generate("validation", 5, 0)
    path = write_jsonl(tmp_path / "own.jsonl", [dataclasses.asdict(task) for task in tasks])
    assert load_tasks(path, split="validation") == tasks


def test_a_hub_dataset_keeps_its_own_test_rows_apart(monkeypatch):
    parts = {
        "train": datasets.Dataset.from_list([paper_row(n) for n in range(5)]),
        "test": datasets.Dataset.from_list([paper_row(n) for n in range(5, 8)]),
    }
    asked = []
    monkeypatch.setattr(datasets, "load_dataset", lambda name: asked.append(name) or datasets.DatasetDict(parts))
    assert {f"cuda_llm/{n}" for n in (5, 6, 7)} <= {task.id for task in load_tasks("hub:some/set", split="test")}
    assert asked == ["some/set"]


def test_a_hub_dataset_that_cannot_be_fetched_is_named(monkeypatch):
    def offline(name):
        raise ConnectionError("no route")

    monkeypatch.setattr(datasets, "load_dataset", offline)
    with pytest.raises(DrKernelError, match="hub:some/set: cannot be loaded: ConnectionError: no route"):
        load_tasks("hub:some/set", split="train")


def test_a_written_task_is_read_back_without_the_policy_seeing_its_small_sizes(tmp_path):
    for task in generate("train", 24, 0):
        write_task(task, tmp_path / "task.py")
        read = read_task(tmp_path / "task.py")
        assert (read.source, read.small) == (task.source, task.small)
        assert "SMALL" not in read.source


def test_small_may_stand_anywhere_and_must_hold_ints(tmp_path):
    path = tmp_path / "task.py"
    path.write_text(RELU.format(n=100).replace("N = 100", "N = 100\nSMALL = {\n    'N': 7,\n}"))
    assert read_task(path).small == {"N": 7}
    assert read_task(path).source == RELU.format(n=100)
    path.write_text(RELU.format(n=100) + "SMALL = {'N': 7.5}\n")
    with pytest.raises(DrKernelError, match="line 15: SMALL must be"):
        read_task(path)


def test_a_single_file_belongs_to_whatever_split_is_asked_for(tmp_path):
    (tmp_path / "one.py").write_text(RELU.format(n=3))
    for split in ("train", "test"):
        assert [task.split for task in load_tasks(str(tmp_path / "one.py"), split=split)] == [split]


def test_counts_take_a_seeded_sample(bench):
    def pick(**more):
        return [task.id for task in load_tasks(str(bench), split="all", **more)]

    assert pick(count=3, seed=1) == pick(count=3, seed=1)
    assert len({tuple(pick(count=3, seed=seed)) for seed in range(5)}) > 1
    assert len(pick(count=100)) == 5


def test_generated_tasks_come_through_the_same_door():
    assert load_tasks("generated", split="test", count=7, seed=2) == generate("test", 7, 2)
    assert {t.family for t in load_tasks("generated", split="train", count=9, families=["pool", "glu"])} == {
        "pool",
        "glu",
    }


@pytest.mark.parametrize(
    ("source", "options", "message"),
    [
        ("nowhere/at/all", {}, "nowhere/at/all: no such source"),
        (
            "handwritten:dev",
            {},
            "tasks.source or tasks.eval_source: found 'handwritten:dev', expected handwritten, hand",
        ),
        ("nowhere.jsonl", {}, r"nowhere\.jsonl: no such file"),
        ("nowhere.py", {}, r"nowhere\.py: no such file; expected a module"),
        ("generated", {}, r"a count is needed.*tasks\.count, or tasks\.eval_count"),
        ("generated", {"count": 3, "levels": [1]}, "no levels"),
        ("generated", {"count": 0}, "count must be positive"),
        ("generated", {"count": 3, "families": ["none"]}, "unknown task family 'none'"),
    ],
)
def test_bad_sources_are_named(source, options, message):
    with pytest.raises(DrKernelError, match=message):
        load_tasks(source, split="train", **options)


def test_nothing_left_names_the_source_and_what_was_asked(bench, tmp_path):
    with pytest.raises(DrKernelError, match=r"none with split=all, levels=\[3\]"):
        load_tasks(str(bench), split="all", levels=[3])
    (tmp_path / "empty.jsonl").write_text("")
    with pytest.raises(DrKernelError, match=r"empty\.jsonl: none with split=train"):
        load_tasks(str(tmp_path / "empty.jsonl"), split="train")
    (tmp_path / "false.parquet").write_text("no parquet")
    with pytest.raises(DrKernelError, match="not a parquet file"):
        load_tasks(str(tmp_path / "false.parquet"), split="train")


def files(folder: Path, *names: str) -> str:
    """A folder of one's own with these task files."""
    folder.mkdir(parents=True, exist_ok=True)
    for number, name in enumerate(names):
        (folder / f"{name}.py").write_text(RELU.format(n=100 * len(folder.parts) + number))
    return str(folder)


@pytest.mark.parametrize("number", range(2, 12))
def test_a_folder_of_ones_own_has_tasks_to_train_on_and_others_to_test_on(tmp_path, number):
    source = files(tmp_path / "own", *(f"op{i}" for i in range(number)))
    train, test = (load_tasks(source, split=split) for split in ("train", "test"))
    assert train and test and not {task.id for task in train} & {task.id for task in test}


def test_a_folder_with_one_task_is_in_every_split(tmp_path):
    source = files(tmp_path / "own", "op")
    assert load_tasks(source, split="train")[0].digest == load_tasks(source, split="test")[0].digest


def test_folders_in_a_folder_state_the_splits(tmp_path, bench):
    files(tmp_path / "own" / "train", "a", "b"), files(tmp_path / "own" / "test", "a")
    source = str(tmp_path / "own")
    assert [task.id for task in load_tasks(source, split="train")] == ["train/file/a", "train/file/b"]
    assert [task.id for task in load_tasks(source, split="test")] == ["test/file/a"]
    (bench / "KernelBench").rename(tmp_path / "own" / "validation")
    assert [task.level for task in load_tasks(source, split="validation")] == [1, 1, 1, 2, 2]


def test_records_without_a_split_have_some_to_train_on_and_some_to_test_on(tmp_path):
    rows = [{"id": f"own/{i}", "source": RELU.format(n=i)} for i in range(2)]
    path = write_jsonl(tmp_path / "own.jsonl", rows)
    assert len(load_tasks(path, split="train")) == len(load_tasks(path, split="test")) == 1
    stated = write_jsonl(tmp_path / "stated.jsonl", [row | {"split": "train"} for row in rows])
    with pytest.raises(DrKernelError, match="none with split=test; found 2 train"):
        load_tasks(stated, split="test")


def test_an_empty_split_is_explained(tmp_path):
    with pytest.raises(
        DrKernelError, match=r"none with split=train; found 100 test\. Splits go by hash .*train/ and test/"
    ):
        load_tasks("handwritten", split="train")
    with pytest.raises(DrKernelError, match="found no task at all"):
        load_tasks(files(tmp_path / "none"), split="train")


def test_what_a_run_is_tested_on(tmp_path, monkeypatch):
    source = files(tmp_path / "own", "a", "b", "c")
    assert tasks.test_source(source, None) == (source, "test")
    assert tasks.test_source(source, source + "/") == (source + "/", "test"), "the same folder, however it is written"
    assert tasks.test_source(source, files(tmp_path / "other", "a")) == (str(tmp_path / "other"), "all")
    assert tasks.test_source("generated", "handwritten") == ("handwritten", "all")
    published = "hub:hkust-nlp/drkernel-rl-data"
    assert tasks.test_source(published, None) == ("hub:hkust-nlp/drkernel-validation-data", "all")


def test_a_data_set_that_cannot_be_fetched_is_named_with_its_key_and_what_to_do(monkeypatch):
    datasets = pytest.importorskip("datasets")

    def offline(name):
        raise ConnectionError("no network")

    monkeypatch.setattr(datasets, "load_dataset", offline)
    with pytest.raises(
        DrKernelError, match=r"hub:a/b: cannot be loaded: .*no network; expected tasks\.source .*HF_HUB_OFFLINE=1"
    ):
        load_tasks("hub:a/b", split="train")
