"""results/README.md says what its pages say: its commits, and its counts of files, tasks and verdicts."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

RESULTS = Path(__file__).parents[1] / "results"
ROWS = re.findall(r"^\| \[.+\]\(.+\).*\|$", (RESULTS / "README.md").read_text(), re.MULTILINE)


def cells(row: str) -> list[str]:
    return [cell.strip() for cell in row.strip("|").split(" | ")]


def plain(text: str) -> str:
    """Without the commas of large numbers and the stars of bold ones."""
    return re.sub(r"(?<=\d),(?=\d{3})", "", text).replace("**", "")


def name(row: str) -> str:
    return row[3 : row.index("]")]


def test_there_are_rows():
    assert len(ROWS) > 20
    assert {len(cells(row)) for row in ROWS} == {6}


@pytest.mark.parametrize("row", ROWS, ids=name)
def test_a_row_has_the_commits_and_counts_of_its_page(row: str):
    claim, number, _, _, commit, _ = cells(row)
    page = RESULTS / re.findall(r"\]\(([^)]+)\)", claim)[0]
    text = plain(page.read_text())
    commits = re.findall(r"\b[0-9a-f]{7}\b", commit)
    counts = [count for pair in re.findall(r"\b(\d+) of (\d+)\b", plain(number)) for count in pair]
    assert commits
    assert [each for each in commits + counts if not re.search(rf"\b{each}\b", text)] == []
