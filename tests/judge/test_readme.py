"""judge/README.md and CHEATS.md are what a reader enters by: they have all numbers, modules and tests."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import drkernel.judge
from tests.judge.examples import Example, examples

JUDGE = Path(drkernel.judge.__file__).parent
README = (JUDGE / "README.md").read_text()


def section(title: str) -> str:
    return README.split(f"\n## {title}\n")[1].split("\n## ")[0]


def numbers(rows: list[str]) -> list[int]:
    """The numbers of table rows such as `| 07 | ...` and `| 84 to 91 | ...`."""
    found: list[int] = []
    for row in rows:
        if match := re.match(r"\| (\d+)(?: to (\d+))? \|", row):
            found += range(int(match[1]), int(match[2] or match[1]) + 1)
    return found


CHEATS, HONEST = (JUDGE / "CHEATS.md").read_text().split("\n## Honest techniques\n")


@pytest.mark.parametrize("example", examples("hacks"), ids=lambda e: e.name)
def test_the_class_of_a_cheat_is_in_the_table(example: Example):
    assert example.number in numbers(CHEATS.splitlines())


@pytest.mark.parametrize("example", examples("honest"), ids=lambda e: e.name)
def test_an_honest_technique_is_in_the_table(example: Example):
    assert example.number in numbers(HONEST.splitlines())


@pytest.mark.parametrize(("text", "folder"), [(CHEATS, "hacks"), (HONEST, "honest")], ids=["hacks", "honest"])
def test_every_number_of_a_table_is_there_once_and_has_a_file(text: str, folder: str):
    listed = numbers(text.splitlines())
    assert len(listed) == len(set(listed))
    assert set(listed) == {example.number for example in examples(folder)}


def test_a_static_refusal_is_said_to_be_one():
    rows = {int(row[2:5].rstrip()): row for row in CHEATS.splitlines() if re.match(r"\| \d", row)}
    gated = {number: [e.gated for e in examples("hacks") if e.number == number] for number in rows}
    assert not [row for number, row in rows.items() if any(gated[number]) and "| static" not in row]


def test_every_module_is_in_the_table_of_its_folder():
    folder, listed = "", set()
    for row in section("Folders").splitlines():
        cell = row.split("|")[1].strip() if row.startswith("|") else ""
        if heading := re.match(r"\*\*(\w+)/\*\*", cell):
            folder = heading[1]
        inner = re.match(r"`(\w+)/`:", cell)
        path = "/".join(filter(None, [folder, inner[1] if inner else ""]))
        listed |= {f"{path}/{name}".lstrip("/") for name in re.findall(r"`(\w+\.py)`", cell)}
    modules = {str(path.relative_to(JUDGE)) for path in JUDGE.rglob("*.py") if path.name != "__init__.py"}
    assert listed == modules


def test_every_property_is_in_the_table():
    assert re.findall(r"^\| (P\d+) \|", section("Properties"), re.MULTILINE) == [f"P{i}" for i in range(1, 13)]


def test_the_tests_that_it_names_exist():
    tests = {path.name for path in Path(__file__).parent.rglob("test_*.py")}
    assert set(re.findall(r"`(test_\w+\.py)`", README)) <= tests
