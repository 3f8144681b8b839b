"""The tasks of benchmarks/published_sizes.py: as large as the facts say, and with answers that can be judged."""

from __future__ import annotations

import collections
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

from drkernel.judge.trusted.source.static_check import inspect

sys.path.insert(0, str(Path(__file__).parents[1] / "benchmarks"))

from published_sizes import ENTRIES, GIB, Entry, chosen

NAMES = [entry.name for entry in ENTRIES]
each = pytest.mark.parametrize("entry", ENTRIES, ids=NAMES)

FACTS = {"relu": 12, "batch_norm": 14, "instance_norm": 14, "softmax": 16, "layer_norm": 16, "sum_over_a_dimension": 8}
"""GiB of inputs and outputs that KernelBench's own operators have."""


def test_at_least_sixty_tasks_have_names_of_their_own_and_all_levels():
    assert len(set(NAMES)) == len(NAMES) >= 60
    assert set(collections.Counter(entry.level for entry in ENTRIES)) == {1, 2, 3}


def test_level_one_has_the_spread_of_the_published_sizes():
    sizes = sorted(entry.gib for entry in ENTRIES if entry.level == 1)
    assert 2 <= sizes[len(sizes) // 2] <= 9 and 16 <= sizes[-1] <= 18


def test_entries_are_chosen_by_the_start_of_their_names():
    assert {entry.name for entry in chosen(["gelu", "batch_norm"])} == {"gelu", "gelu_by_hand", "batch_norm"}
    assert len(chosen([])) == len(ENTRIES)


@each
def test_inputs_and_outputs_are_as_large_as_stated(entry: Entry):
    with torch.device("meta"), torch.no_grad():
        task = _loaded(entry.source)
        inputs = task["get_inputs"]()
        output = task["Model"](*task["get_init_inputs"]())(*inputs)
    gib = sum(tensor.numel() * tensor.element_size() for tensor in [*inputs, output]) / GIB
    assert gib == pytest.approx(entry.gib, rel=0.02)
    assert gib == pytest.approx(FACTS.get(entry.name, gib), rel=0.01)


@each
def test_answers_pass_the_static_check(entry: Entry):
    for source in (entry.honest, entry.wrong):
        assert inspect(source, entry.task.submission_name) is None
        assert "@" not in source.replace("@triton.jit", "").replace(" @ ", "")  # no word of a template is left


@each
def test_the_wrong_answer_is_another_program(entry: Entry):
    assert entry.wrong != entry.honest
    compile(entry.wrong, entry.name, "exec")


@each
def test_small_sizes_replace_constants(entry: Entry):
    task = _loaded(entry.shrunk())
    assert sum(tensor.numel() for tensor in task["get_inputs"]()) < 200_000


def _loaded(source: str) -> dict[str, Any]:
    namespace: dict[str, Any] = {}
    exec(compile(source, "task", "exec"), namespace)
    return namespace
