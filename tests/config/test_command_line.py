"""Commands that programs print, and that documents show, are read by a shell and by Hydra as they are meant."""

import re
import shlex
from pathlib import Path

import pytest
from hydra.core.override_parser.overrides_parser import OverridesParser

from drkernel.config.command_line import override
from tests.configs import composed

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
SHOWN = re.compile(r"^ {4,}(?:\w+=\S+ )*(?:srun |torchrun [^ ]+ )*python (train|evaluate)\.py(.*)$", re.M)


def shown() -> list[tuple[str, str, str]]:
    """(page, program, the rest of the line) of each command that a page shows."""
    logs = {"LOG.md"}
    return [
        (page.name, *found.groups())
        for page in PAGES
        if page.name not in logs
        for found in SHOWN.finditer(page.read_text())
    ]


@pytest.mark.parametrize(
    "value",
    ["chat", "/data/policy", "outputs/sft/seed=1,policy=seed/policy", "my policy", "it's", "$HOME/[x]", "1", 'a"b'],
)
def test_a_value_survives_the_shell_and_hydra(value):
    (word,) = shlex.split(override("policy.path", value))
    read = OverridesParser.create().parse_override(word)
    assert (read.key_or_group, read.value()) == ("policy.path", value)


def test_a_path_with_signs_of_hydra_is_shown_in_quotes_as_the_pages_show_it():
    assert override("policy.path", "o/a=b/policy") == "\"policy.path='o/a=b/policy'\""
    assert override("policy.path", "o/a/policy") == "policy.path=o/a/policy"


@pytest.mark.parametrize(("page", "program", "rest"), shown(), ids=lambda part: part.strip()[:60])
def test_a_command_that_a_page_shows_composes(page, program, rest):
    words = shlex.split(rest, comments=True)
    overrides = [word for word in words if not word.startswith("-")]
    parsed = OverridesParser.create().parse_overrides(overrides)
    if "-m" not in words:  # else it is several runs
        assert not any(each.is_sweep_override() for each in parsed)
        composed(program, *overrides)


def test_the_pages_show_commands():
    assert len(shown()) > 20


def test_a_policy_of_a_cold_start_is_read_with_the_prompts_that_it_was_trained_on():
    made, goes_on = [
        composed("train", *shlex.split(rest, comments=True))
        for page, program, rest in shown()
        if page == "policies.md" and "coldstart=seed_8m" in rest
    ][:2]
    assert goes_on.policy.path.endswith("coldstart=seed_8m/policy")
    assert made.policy.prompts == goes_on.policy.prompts and made.tasks.generator == goes_on.tasks.generator
