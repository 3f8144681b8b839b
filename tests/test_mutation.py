"""The mutation operators of benchmarks/judge_mutation*.py: each changes honest files, into other text that parses."""

from __future__ import annotations

import ast
import functools
import itertools
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "benchmarks"))

import judge_mutants  # fills the registry
from judge_mutation import FAMILIES, FAMILY, OPERATORS, mutate

from tests.judge.examples import examples, tasks

HONEST, TASKS = examples("honest", "simulated"), tasks()


ENOUGH = 12


def mutants(kind: str, seed: int) -> dict[str, str]:
    """The first few, by the name of the original."""
    found = ((e.name, mutate(e.source, TASKS[e.task].source, kind, seed)) for e in HONEST)
    return dict(itertools.islice((pair for pair in found if pair[1]), ENOUGH))


@functools.cache
def content(name: str) -> str:
    """What an honest file says, without how it is laid out."""
    return ast.dump(ast.parse(next(e.source for e in HONEST if e.name == name)))


@pytest.mark.parametrize("kind", OPERATORS)
def test_an_operator_finds_places_and_what_it_makes_parses(kind):
    made = mutants(kind, seed=1)
    assert len(made) >= 3
    for name, source in made.items():
        tree = ast.parse(source)
        assert ast.dump(tree) != content(name)
        assert "ModelNew" in [node.name for node in tree.body if isinstance(node, ast.ClassDef)]


@pytest.mark.parametrize("kind", OPERATORS)
def test_an_operator_says_what_its_cheat_is(kind):
    assert OPERATORS[kind].__doc__ and FAMILY[kind] in FAMILIES


@pytest.mark.parametrize("kind", ["no_mask", "round_to_half", "other_constant"])
def test_a_seed_chooses_the_place_and_the_same_seed_the_same_one(kind):
    assert mutants(kind, 1) == mutants(kind, 1) != mutants(kind, 2)


def test_mutants_differ_from_each_other_and_take_the_kinds_in_turn():
    made = list(judge_mutants.made(HONEST, TASKS, count=60, seed=3, only=None))
    assert len(made) == len({mutant.source for mutant in made}) == 60
    assert len({mutant.kind for mutant in made}) > 25
    again = list(judge_mutants.made(HONEST, TASKS, count=60, seed=3, only=None))
    assert [mutant.source for mutant in again] == [mutant.source for mutant in made]
