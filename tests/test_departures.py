"""The departures of docs/method.md from the paper, and the arm that undoes them."""

from __future__ import annotations

import dataclasses
import re
from operator import attrgetter
from pathlib import Path

import yaml

from tests.configs import train_config as load

METHOD = Path(__file__).parents[1] / "docs/method.md"


def departures() -> dict[str, object]:
    """The keys that select the paper's behaviour and their values, from the table of docs/method.md."""
    table = re.search(r"^## Departures from the paper\n+((?:\|.*\n)+)", METHOD.read_text(), re.M)
    assert table
    found = [re.findall(r"`([\w.]+)=([\w.]+)`", row.split("|")[3]) for row in table[1].splitlines()[2:]]
    assert all(len(keys) == 1 for keys in found), "each row states one key and its value"
    return {key: yaml.safe_load(value) for ((key, value),) in found}


def flat(config: object, prefix: str = "") -> dict[str, object]:
    """The values of a configuration by dotted key."""
    found: dict[str, object] = {}
    for item in dataclasses.fields(config):
        key, value = prefix + item.name, getattr(config, item.name)
        found |= flat(value, f"{key}.") if dataclasses.is_dataclass(value) else {key: value}
    return found


def test_the_arm_of_the_paper_undoes_every_departure_and_changes_nothing_else():
    paper, ours = (load("policy=qwen3_8b", f"+arm={arm}") for arm in ("paper", "trloo_mrs_pr_prs"))
    assert {key: attrgetter(key)(paper) for key in departures()} == departures()
    changed = {key for key, value in flat(ours).items() if flat(paper)[key] != value}
    assert changed == set(departures()) - {"algo.std"}, "std is GRPO's alone, and off by default"


def test_the_smallest_group_of_the_paper_goes_by_the_number_of_samples():
    assert load("+arm=paper", "trainer.samples=6").filters.zero_variance.min_size == 4
