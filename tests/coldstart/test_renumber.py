"""Sets with other numbers: each record is the same program and the same answer, with other names."""

from __future__ import annotations

import random
import re

import pytest
from pyarrow import parquet

from drkernel.coldstart import renumber
from drkernel.coldstart.dataset import write
from drkernel.coldstart.trajectories import draw_unjudged, in_canonical_form, unjudged_record
from drkernel.tasks.generators import programs
from drkernel.types import DrKernelError

TOKEN = re.compile(r"self\.\w+|\w+|\W")
COUNTED = re.compile(r"(?:[tuvws]|in|self\.[mn])\d+(?:_ptr)?")


@pytest.fixture(scope="module")
def records():
    drawn, found = programs.stream("train", 3, ["free_chains"], edition=3), []
    while len(found) < 12:
        task = next(drawn)
        if solution := draw_unjudged(task, 0.75, random.Random(task.id), plain=True):
            found.append(in_canonical_form(unjudged_record(task, solution, 0)))
    return found


def texts(record):
    return [message["content"] for message in record["messages"]]


def test_names_are_exchanged_one_for_one_and_nothing_else_changes(records):
    for number, record in enumerate(records):
        other = renumber.copied(record, random.Random(number))
        pairs = [
            pair
            for before, after in zip(texts(record), texts(other), strict=True)
            for pair in zip(TOKEN.findall(before), TOKEN.findall(after), strict=True)
        ]
        there, back = dict(pairs), {new: old for old, new in pairs}
        assert all(there[old] == new and back[new] == old for old, new in pairs)
        assert all(old == new for old, new in pairs if not COUNTED.fullmatch(old))
        assert other["original_python_code"] == texts(other)[0]
        parts = [(old, there[old]) for old in there if re.fullmatch(r"[uvw]\d+", old)]
        assert all(new == old[0] + there.get(f"t{old[1:]}", new)[1:] for old, new in parts)  # u3 is a part of t3


def test_numbers_are_new_to_the_row_and_sometimes_out_of_order(records):
    record, orders, largest = max(records, key=lambda record: len(texts(record)[0])), set(), set()
    for seed in range(20):
        prompt = texts(renumber.copied(record, random.Random(seed)))[0]
        values = [int(number) for number in re.findall(r"^    t(\d+) =", prompt, re.M)]
        orders.add(values == sorted(values))
        largest.add(max(values))
    assert orders == {True, False} and len(largest) > 3


@pytest.mark.slow
def test_copies_of_a_folder_are_written_once(tmp_path, records, capsys):
    (tmp_path / "sets" / "inner").mkdir(parents=True)
    for name in ("a.parquet", "inner/a.parquet"):
        write(tmp_path / "sets" / name, iter(records))
    command = [str(tmp_path / "sets"), str(tmp_path / "out"), "--copies", "2", "--share", "0.5"]
    renumber.main(command)
    copies = sorted(path.name for path in (tmp_path / "out").iterdir())
    assert copies == ["0_a.parquet", "0_inner_a.parquet", "1_a.parquet", "1_inner_a.parquet"]
    rows = [row for name in copies for row in parquet.read_table(tmp_path / "out" / name).to_pylist()]
    assert "48 rows, " in capsys.readouterr().out
    same = sum(row["messages"] == record["messages"] for row, record in zip(rows, records * 4, strict=True))
    assert 12 < same < 36
    renumber.main(command)
    assert "0 rows" in capsys.readouterr().out


def test_sets_in_another_form_are_refused(tmp_path, records):
    write(tmp_path / "plain.parquet", iter([records[0] | {"original_python_code": "import torch"}]))
    with pytest.raises(DrKernelError, match=r"plain.parquet: row 0: expected a task in canonical form"):
        renumber.write_copy((tmp_path / "plain.parquet", tmp_path / "out.parquet", "0", 0.5))
    with pytest.raises(DrKernelError, match=r"nowhere: found no .parquet file"):
        renumber.files(tmp_path / "nowhere")


@pytest.mark.parametrize(("option", "value"), [("--copies", "0"), ("--share", "0"), ("--share", "80")])
def test_numbers_outside_their_range_are_refused(tmp_path, option, value):
    with pytest.raises(DrKernelError, match=f"{option} {value}: expected"):
        renumber.main([str(tmp_path), str(tmp_path / "out"), option, value])
