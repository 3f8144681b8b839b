"""The judge's pages are what a reader enters by: they have all numbers, properties, modules and tests."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import drkernel.judge
from tests.judge.examples import Example, examples

JUDGE = Path(drkernel.judge.__file__).parent
README, PROPERTIES, MODULES = ((JUDGE / f"{name}.md").read_text() for name in ("README", "PROPERTIES", "MODULES"))


def sections(page: str) -> dict[str, str]:
    """Title -> text of the second-level sections of a page."""
    return {title: text for title, _, text in (part.partition("\n") for part in page.split("\n## ")[1:])}


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
    folder, listed = "", []
    for row in MODULES.splitlines():
        if heading := re.match(r"\| \*\*([\w/]+)/\*\* \|", row):
            folder = heading[1] + "/"
        if module := re.match(r"\| `([\w/]+\.py)` \| \S", row):
            listed.append(folder + module[1])
    modules = {str(path.relative_to(JUDGE)) for path in JUDGE.rglob("*.py") if path.name != "__init__.py"}
    assert len(listed) == len(set(listed))
    assert set(listed) == modules


def test_every_folder_is_in_the_readme():
    folders = {path.name for path in JUDGE.iterdir() if (path / "__init__.py").exists()}
    assert set(re.findall(r"^\| `(\w+)/` \|", sections(README)["Folders"], re.MULTILINE)) == folders


def test_every_property_has_a_section_with_its_promise_its_tests_and_what_is_left():
    found = {title.split(":")[0]: text for title, text in sections(PROPERTIES).items() if re.match(r"P\d+:", title)}
    assert list(found) == [f"P{i}" for i in range(1, 13)]
    parts = ["Promise", "How", "Tests", "Left"]
    assert all(re.findall(r"^\*\*(\w+)\.\*\*", text, re.MULTILINE) == parts for text in found.values())


def test_every_attack_is_on_a_property_that_has_a_section():
    attacked = {int(example.name[1:3]) for example in examples("attacks")}
    assert {f"P{number}" for number in attacked} <= {title.split(":")[0] for title in sections(PROPERTIES)}


def test_the_readme_is_short_and_names_the_other_pages():
    assert len(README.split()) <= 2000
    pages = {path.name for path in JUDGE.glob("*.md")} - {"README.md"}
    assert set(re.findall(r"\]\((\w+\.md)", README)) == pages


@pytest.mark.parametrize("page", sorted(JUDGE.glob("*.md")), ids=lambda path: path.name)
def test_the_tests_that_it_names_exist(page: Path):
    tests = {path.name for path in Path(__file__).parents[1].rglob("test_*.py")}
    assert set(re.findall(r"`(?:tests/[\w/]+/)?(test_\w+\.py)`", page.read_text())) <= tests
