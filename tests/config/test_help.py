"""`--help` lists what a program takes: all its groups, with a plus where one is needed, and all its keys."""

import re
from string import Template

import pytest

from drkernel.config import help
from drkernel.config.keys import ADDED, valid_keys
from drkernel.types import DrKernelError
from tests.configs import composed, evaluate_config, train_config

LOAD = {"train": train_config, "evaluate": evaluate_config}


@pytest.mark.parametrize("program", help.KINDS)
def test_hydra_prints_our_help(program):
    assert composed(program, hydra=True).hydra.help.template == help.help_of(program)


@pytest.mark.parametrize("program", help.KINDS)
def test_all_keys_are_listed(program):
    listed = set(re.findall(r"^  ([\w.]+)=", help.help_of(program), re.M))
    keys = valid_keys(help.KINDS[program])
    leaves = {key for key in keys if not any(other.startswith(f"{key}.") for other in keys)}
    assert leaves <= listed
    if program == "train":
        assert {"filters.mrs.level", "filters.prs.tau", "coldstart.tasks"} <= leaves, "of what is off, too"


@pytest.mark.parametrize("program", help.KINDS)
def test_groups_are_those_that_the_program_takes_as_one_types_them(program):
    groups = [typed for typed, _ in help.groups_of(program)]
    assert {group.lstrip("+") for group in groups if group.startswith("+")} == (
        set(ADDED) if program == "train" else set()
    )
    assert ("scaling" in groups) == (program == "evaluate") != ("filters" in groups)
    for typed, name in help.groups_of(program):
        try:
            LOAD[program](f"{typed}={help.variants(name)[0]}")
        except DrKernelError as error:  # a variant that wants more settings
            assert "unknown" not in str(error) and "expected +" not in str(error)


def test_a_dollar_survives_hydras_template():
    assert "$" not in Template(help.help_of("train")).substitute()
