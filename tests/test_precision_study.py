"""The kernels of benchmarks/precision.py: each form is one that the static check takes, and gets its verdict."""

from __future__ import annotations

import sys
from argparse import Namespace
from pathlib import Path

import pytest

from drkernel.judge.trusted.source.static_check import inspect
from drkernel.tasks.module import Reference
from drkernel.types import Task

sys.path.insert(0, str(Path(__file__).parents[1] / "benchmarks"))

import precision
from precision_kernels import FORMS, KERNELS


@pytest.mark.parametrize("kernel", KERNELS, ids=lambda kernel: kernel.name)
def test_every_form_can_be_judged(kernel):
    Reference(Task(kernel.name, kernel.task()))
    for device in ("cuda", "simulated"):
        sources = [kernel.submission(form, device) for form in FORMS]
        assert len(set(sources)) == len(FORMS)
        assert not any("DOT(" in source or "LIBRARY(" in source for source in sources)
        assert not any(inspect(source, "ModelNew") for source in sources)


@pytest.mark.slow
def test_a_form_is_right_where_the_precision_allows_it_and_named_elsewhere(tmp_path):
    options = {"device": "simulated", "workers": 2, "timeout": 20.0, "limit_s": 120.0}
    assert precision.main(Namespace(out=tmp_path, only=["square", "causal_attention"], **options)) == 0
    table = (tmp_path / "table.md").read_text()
    assert "18 of 18 verdicts" in table and "right in TF32" in table and "right in bf16" in table
