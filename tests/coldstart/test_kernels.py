"""Each operator of the generator has a Triton kernel."""

import ast
import random
from dataclasses import replace
from typing import get_args

import pytest

from drkernel.coldstart import kernels
from drkernel.tasks.generators.operators import CORES, OPERATORS
from drkernel.tasks.generators.operators.families import FAMILIES
from drkernel.tasks.generators.operators.operator import Template
from drkernel.tasks.generators.operators.writer import describe
from drkernel.types import DrKernelError


def info_of(name: str) -> dict:
    families = [key for key, family in FAMILIES.items() if name in (*family.cores, family.lead)]
    family = families[0] if families else "bias_activation"
    layout = OPERATORS[name].layout or FAMILIES[family].layouts[0]
    return describe(family, (name,), layout, random.Random(0))


def test_templates_are_those_that_operators_may_name():
    assert {"elementwise", *kernels.TEMPLATES} == set(get_args(Template))
    assert {op.template for op in OPERATORS.values()} == set(get_args(Template))


LEADS = {family.lead for family in FAMILIES.values()}
"""Operators that solutions always leave to the library."""


@pytest.mark.parametrize("name", [name for name in OPERATORS if name not in LEADS])
def test_every_operator_has_a_kernel_with_its_lines(name):
    info = info_of(name)
    kernel = kernels.build(info, [name])
    text = "\n".join([*kernel.definition(), *kernel.call()])
    ast.parse(text)
    assert all(line in text for line in kernels.lines_of(info, name))


def test_a_template_without_a_kernel_is_an_error_that_names_the_operator(monkeypatch):
    monkeypatch.setitem(OPERATORS, "softmax", replace(CORES["softmax"], template="spiral"))
    with pytest.raises(DrKernelError, match=r"operator 'softmax': .* has no 'spiral'"):
        kernels.build(info_of("softmax"), ["softmax"])
