"""The precision of tasks: `auto` follows the dtypes, and fp32 tasks stay what they were."""

import dataclasses
import json
import random

import pytest
import torch

from drkernel.tasks import generate, load_tasks, read_task
from drkernel.tasks.precision import summary, with_precision
from drkernel.types import PRECISIONS, DrKernelError, Task

SOURCE = """
import torch
import torch.nn as nn

SIZE = 2**40

class Model(nn.Module):
    def __init__(self, n):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(n{weight}))

    def forward(self, x):
        return {forward}

def get_inputs():
    return [torch.randn(SIZE{given})]

def get_init_inputs():
    return [SIZE]
"""


def task(weight="", given="", forward="x * self.weight") -> Task:
    return Task("t", SOURCE.format(weight=weight, given=given, forward=forward))


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({}, "ieee"),
        ({"given": ", dtype=torch.float16"}, "low"),
        ({"given": ", dtype=torch.bfloat16"}, "low"),
        ({"given": ").half("}, "low"),
        ({"weight": ", dtype=torch.float16"}, "low"),
        ({"given": ", dtype=torch.float64"}, "ieee"),
        ({"forward": "(x.half() * self.weight.half()).float()"}, "ieee"),
        ({"forward": "x * self.weight  # half of float16"}, "ieee"),
    ],
)
def test_auto_follows_the_dtypes_of_inputs_and_weights_without_making_them(changes, expected):
    assert with_precision(task(**changes)).precision == expected


def test_a_wanted_precision_overrides_the_dtypes_and_an_unknown_one_is_named():
    for wanted in PRECISIONS[1:]:
        assert with_precision(task(), wanted).precision == wanted
    with pytest.raises(DrKernelError, match=r"tasks\.precision: found 'fp32', expected one of auto, ieee, tf32, low"):
        with_precision(task(), "fp32")


def test_what_cannot_be_found_out_is_ieee_and_the_record_says_why():
    found = with_precision(task(given=", dtype=torch.float16), float(torch.randn(2).sum()"))
    assert found.precision == "ieee"
    assert "since unknown" in found.info["precision"] and "get_inputs" in found.info["precision"]


def test_a_problem_of_a_level_says_why_too(tmp_path):
    (tmp_path / "level1").mkdir()
    unknown = task(given=", dtype=torch.float16), float(torch.randn(2).sum()")
    (tmp_path / "level1/3_unknown.py").write_text(unknown.source)
    [found] = load_tasks(str(tmp_path), split="all")
    assert (found.precision, found.info["problem_id"], found.info["name"]) == ("ieee", 3, "unknown")
    assert "since unknown" in found.info["precision"]


def test_finding_out_changes_no_global_state():
    source = "import random\ntorch.set_default_dtype(torch.float16); torch.manual_seed(1); random.seed(2)\n"
    torch.manual_seed(7)
    before = torch.get_rng_state(), random.getstate()
    changed = dataclasses.replace(task(), source=task().source.replace("\nSIZE", source + "\nSIZE"))
    assert with_precision(changed).precision == "low"
    assert torch.equal(torch.get_rng_state(), before[0]) and random.getstate() == before[1]
    assert torch.get_default_dtype() == torch.float32


def test_fp32_tasks_have_the_digest_that_they_always_had():
    for given in generate("train", 30, 0) + load_tasks("handwritten", split="all"):
        assert given.precision == "ieee" and with_precision(given).digest == given.digest


def test_every_source_has_the_precision_that_its_dtypes_or_its_records_say(tmp_path):
    half, single = task(given=", dtype=torch.float16").source, task().source
    (tmp_path / "one.py").write_text(half)
    assert read_task(tmp_path / "one.py").precision == "low"
    rows = [
        {"id": "a", "source": half},
        {"id": "b", "source": half + "#", "precision": "ieee"},
        {"id": "c", "source": single, "precision": "tf32"},
        {"id": "d", "source": single + "#"},
        {"code": half + "##", "level": 1, "problem_id": 1},
    ]
    path = tmp_path / "tasks.jsonl"
    path.write_text("\n".join(map(json.dumps, rows)))
    assert [t.precision for t in load_tasks(str(path), split="all")] == ["low", "ieee", "tf32", "ieee", "low"]
    assert {t.precision for t in load_tasks(str(path), split="all", precision="tf32")} == {"tf32"}
    assert {t.precision for t in load_tasks("generated", split="test", count=5, precision="low")} == {"low"}
    path.write_text(json.dumps({"id": "a", "source": half, "precision": "fp8"}))
    with pytest.raises(DrKernelError, match="line 1: 'precision': found 'fp8', expected one of auto, ieee"):
        load_tasks(str(path), split="all")


def test_the_summary_counts_tasks_by_precision():
    assert summary([task(), task(), with_precision(task(), "low")]) == "ieee 2, low 1"
