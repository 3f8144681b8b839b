"""Folders of tasks: nothing that lies in one is lost without a word."""

from pathlib import Path

import pytest

from drkernel.tasks import load_tasks, read_task
from drkernel.tasks.splits import FEW, SPLITS, share_out, split_of
from drkernel.types import DrKernelError
from tests.tasks.loaders.test_loaders import RELU


def lay_out(folder: Path, *names: str) -> str:
    """A folder with these files, each a task of its own."""
    for number, name in enumerate(names):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(RELU.format(n=100 + number))
    return str(folder)


def ids(source: str, split: str = "all") -> list[str]:
    return [task.id for task in load_tasks(source, split=split)]


def test_files_of_a_level_without_a_number_are_read_by_name(tmp_path):
    source = lay_out(tmp_path, *(f"level1/{name}.py" for name in ("1_A", "B", "3-C", "4_D", "_helper")))
    assert ids(source) == [f"kernelbench/level1/{name}" for name in ("1", "4", "3-C", "B")]
    assert load_tasks(source, split="all")[3].info == {"name": "B"}


@pytest.mark.parametrize("name", ["Level_1", "LEVEL1", "level-1"])
def test_a_level_may_be_spelt_otherwise(name, tmp_path):
    assert ids(lay_out(tmp_path, f"{name}/2_A.py")) == ["kernelbench/level1/2"]


@pytest.mark.parametrize("name", ["val", "valid", "validation", "Val"])
def test_a_folder_may_be_named_validation_or_val(name, tmp_path):
    source = lay_out(tmp_path, "train/a.py", "test/a.py", f"{name}/c.py")
    assert ids(source, "validation") == ["validation/file/c"]
    assert ids(source) == ["train/file/a", "validation/file/c", "test/file/a"]


@pytest.mark.parametrize(
    ("names", "unread"),
    [
        (("train/a.py", "test/b.py", "c.py"), "c.py"),
        (("train/a.py", "dev/b.py"), "dev/b.py"),
        (("train/a.py", "train/sub/b.py"), "train/sub/b.py"),
        (("sub/a1.py",), "sub/a1.py"),
        (("a.py", "sub/b.py"), "sub/b.py"),
        (("level1/1_A.py", "level1/more/2_B.py"), "level1/more/2_B.py"),
        (("level1/1_A.py", "extra.py"), "extra.py"),
    ],
)
def test_files_in_no_folder_that_is_read_are_named(names, unread, tmp_path):
    source, said = lay_out(tmp_path, *names), []
    with pytest.raises(DrKernelError, match=f"{unread}: in none of the folders that are read, expected level1/NAME"):
        load_tasks(source, split="all")
    if len(names) > 1:
        load_tasks(source, split="all", on_skip=said.append)
        assert len(said) == 1 and said[0].startswith(f"passed over: {tmp_path / unread}: ")


def test_many_such_files_are_counted(tmp_path):
    with pytest.raises(DrKernelError, match=r"sub/4\.py and 3 more: in none of the folders"):
        load_tasks(lay_out(tmp_path, *(f"sub/{i}.py" for i in range(8))), split="all")


def test_what_is_hidden_private_or_of_other_levels_is_nobodys_loss(tmp_path):
    source = lay_out(tmp_path, "level1/1_A.py", "level2/1_B.py", ".venv/x.py", "_old/y.py", "level1/__init__.py")
    assert [task.id for task in load_tasks(source, split="all", levels=[2])] == ["kernelbench/level2/1"]
    clone = lay_out(tmp_path / "clone", "setup.py", "src/a.py", "KernelBench/level1/1_A.py")
    assert ids(clone) == ["kernelbench/level1/1"], "of a clone of KernelBench its own folder alone is read"


@pytest.mark.parametrize(
    ("names", "words"),
    [
        (("level1/19_A.py", "level1/19_B.py"), "level1/19_A.py and .*level1/19_B.py are both 'kernelbench/level1/19'"),
        (("level1/1_A.py", "level_1/1_A.py"), "level1/1_A.py and .*level_1/1_A.py are both 'kernelbench/level1/1'"),
        (("val/a.py", "validation/b.py"), "val and .*validation both state the split validation"),
    ],
)
def test_two_tasks_of_one_id_are_refused_with_both_paths(names, words, tmp_path):
    with pytest.raises(DrKernelError, match=words):
        load_tasks(lay_out(tmp_path, *names), split="all")


def test_a_file_with_a_byte_order_mark_is_read(tmp_path):
    (tmp_path / "a.py").write_text(RELU.format(n=1), encoding="utf-8-sig")
    assert read_task(tmp_path / "a.py").source == RELU.format(n=1)


@pytest.mark.parametrize("source", ["", " "])
def test_a_source_of_nothing_is_not_the_working_directory(source, tmp_path, monkeypatch):
    monkeypatch.chdir(lay_out(tmp_path, "a.py", "b.py"))
    with pytest.raises(DrKernelError, match=r"tasks\.source or tasks\.eval_source is empty; expected generated"):
        load_tasks(source, split="train")


@pytest.mark.parametrize(("number", "shares"), [(3, (1, 1, 1)), (8, (6, 1, 1)), (30, (24, 3, 3)), (49, (39, 5, 5))])
def test_a_small_folder_shares_out_as_a_large_one_would(number, shares, tmp_path):
    tasks = load_tasks(lay_out(tmp_path, *(f"a{i}.py" for i in range(number))), split="all")
    assert tuple(sum(task.split == split for task in tasks) for split in SPLITS) == shares


def test_a_task_of_many_goes_by_its_own_hash():
    splits = share_out(f"key {i}" for i in range(FEW))
    assert splits == {key: split_of(key) for key in splits} and set(splits.values()) == set(SPLITS)
